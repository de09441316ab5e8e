//! Applying a strategic merge patch, with its directives `$patch`, `$retainKeys`,
//! `$deleteFromPrimitiveList/…` and `$setElementOrder/…`.

use std::collections::BTreeMap;

use crate::document::{Object, Value};
use crate::patch::order::{Key, Positions, identity, no_merge_key, partition, weave};
use crate::patch::shape::{Shape, below};
use crate::patch::{Error, FieldRule};
use crate::repeats::Seen;

pub const DIRECTIVE: &str = "$patch";
pub const RETAIN_KEYS: &str = "$retainKeys";
pub const DELETE_FROM: &str = "$deleteFromPrimitiveList";
pub const SET_ORDER: &str = "$setElementOrder";

/// Whether a patch meets an object or another patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    /// Directives are carried out.
    Object,
    /// Directives and nulls are kept, for whoever applies the sum.
    Patch,
}

/// The object after the patch.
pub fn apply<S: Shape>(object: &Value, patch: &Value, shape: Option<S>) -> Result<Value, Error> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(Error::NotAnObject);
    };
    let merged = merge_objects(object.clone(), patch.clone(), shape, Onto::Object)?;
    Ok(Value::Object(merged))
}

pub fn merge_objects<S: Shape>(
    mut original: Object,
    mut patch: Object,
    shape: Option<S>,
    onto: Onto,
) -> Result<Object, Error> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch),
            Some("delete") => Ok(Object::default()),
            _ => Err(unknown_directive(&directive, &Value::Object(patch))),
        };
    }
    retain_keys(&mut original, &mut patch, onto)?;
    let (original, patch) = set_orders(original, patch, shape, onto)?;
    let (deletions, changes): (Vec<_>, Vec<_>) = patch
        .into_iter()
        .partition(|(key, _)| key.starts_with(DELETE_FROM));
    let original = delete_from_lists(original, deletions, shape, onto)?;
    original.changed(changes, |name, current, change| {
        merge_field((name, shape), current, change, false, onto)
    })
}

/// Carries out `$deleteFromPrimitiveList/…`, or keeps it for whoever applies the sum.
fn delete_from_lists<S: Shape>(
    original: Object,
    deletions: Vec<(String, Value)>,
    shape: Option<S>,
    onto: Onto,
) -> Result<Object, Error> {
    let mut lists = Vec::with_capacity(deletions.len());
    for (key, gone) in deletions {
        let Some((DELETE_FROM, name)) = key.split_once('/') else {
            return Err(Error::PrimitiveList);
        };
        match onto {
            Onto::Object => lists.push((name.to_string(), gone)),
            Onto::Patch => lists.push((key, gone)),
        }
    }
    original.changed(lists, |name, current, gone| match onto {
        Onto::Patch => Ok(Some(gone)),
        Onto::Object => merge_field((name, shape), current, gone, true, onto),
    })
}

/// What a field becomes: `current` is what is there, `change` what the patch says. `deletes` tells
/// that the change names elements to delete from a list of scalars.
fn merge_field<S: Shape>(
    (name, shape): (&str, Option<S>),
    current: Option<Value>,
    change: Value,
    deletes: bool,
    onto: Onto,
) -> Result<Option<Value>, Error> {
    if change.is_null() {
        return Ok((onto == Onto::Patch).then_some(Value::Null));
    }
    let Some(current) = current else {
        return Ok(match deletes {
            true => None,
            false => fresh(change, onto),
        });
    };
    // One kind of thing takes another's place without a look at what it is.
    let alike = std::mem::discriminant(&current) == std::mem::discriminant(&change);
    if let (Some(outer), true) = (shape, alike && is_nested(&current))
        && outer.field(name).is_none()
    {
        let (name, field) = (outer.name(), name.to_string());
        return Err(Error::NoField { name, field });
    }
    let (rule, shape) = below(shape, name);
    Ok(match (current, change) {
        (Value::Object(_), change @ Value::Object(_)) if rule.replace => Some(change),
        (Value::Object(current), Value::Object(change)) => {
            Some(Value::Object(merge_objects(current, change, shape, onto)?))
        }
        (Value::Array(current), Value::Array(change)) if rule.merge || deletes => Some(
            Value::Array(merge_lists(current, change, rule, shape, deletes, onto)?),
        ),
        (Value::Array(_), change @ Value::Array(_)) => Some(change),
        (current, _) if deletes => Some(current),
        (_, change) => fresh(change, onto),
    })
}

/// A value of the patch as it is, without nulls and directives where an object results.
fn fresh(mut value: Value, onto: Onto) -> Option<Value> {
    if onto == Onto::Object {
        discard_nulls(&mut value);
    }
    without_directives(value, onto)
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => object.retain(|_, value| {
            discard_nulls(value);
            !value.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// `None` for an element that only carries a directive.
fn without_directives(value: Value, onto: Onto) -> Option<Value> {
    match value {
        Value::Object(object) => {
            if object.contains(DIRECTIVE) {
                return None;
            }
            let mut kept = Object::default();
            for (name, value) in object {
                let directive = name == RETAIN_KEYS
                    || name.starts_with(DELETE_FROM)
                    || name.starts_with(SET_ORDER);
                if directive && onto == Onto::Object {
                    continue;
                }
                if let Some(value) = without_directives(value, onto) {
                    kept.insert(name, value);
                }
            }
            Some(Value::Object(kept))
        }
        Value::Array(items) => Some(Value::Array(
            items
                .into_iter()
                .filter_map(|item| without_directives(item, onto))
                .collect(),
        )),
        other => Some(other),
    }
}

fn retain_keys(original: &mut Object, patch: &mut Object, onto: Onto) -> Result<(), Error> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    if onto == Onto::Patch {
        return match original.get(RETAIN_KEYS) {
            Some(other) if *other != retained => Err(Error::RetainKeys),
            _ => {
                original.insert(RETAIN_KEYS, retained);
                Ok(())
            }
        };
    }
    let keys = retained.as_array().ok_or(Error::RetainKeys)?;
    let keys: Seen<&str> = keys.iter().filter_map(Value::as_str).collect();
    let listed = |name: &str| keys.contains(&name);
    for (name, value) in patch.iter() {
        let directive = name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
        if !value.is_null() && !directive && !listed(name) {
            return Err(Error::RetainKeys);
        }
    }
    original.retain(|name, _| listed(name));
    Ok(())
}

/// Merges the lists whose order the patch gives, and orders them. Returns the object with these
/// lists, and what is left of the patch.
fn set_orders<S: Shape>(
    original: Object,
    patch: Object,
    shape: Option<S>,
    onto: Onto,
) -> Result<(Object, Object), Error> {
    if !patch.iter().any(|(name, _)| name.starts_with(SET_ORDER)) {
        return Ok((original, patch));
    }
    let (directives, rest): (Vec<_>, Vec<_>) = patch
        .into_iter()
        .partition(|(name, _)| name.starts_with(SET_ORDER));
    let mut patch = Object::from_fields(rest);
    let mut made: BTreeMap<String, Value> = BTreeMap::new();
    for (directive, order) in directives {
        let (_, name) = directive.split_once('/').ok_or(Error::SetElementOrder)?;
        let name = name.to_string();
        if onto == Onto::Patch {
            match original.get(&directive) {
                Some(other) if *other != order => return Err(Error::SetElementOrder),
                _ => drop(made.insert(directive, order.clone())),
            }
        }
        let order = list(order)?;
        let (rule, shape) = below(shape, &name);
        let (current, change) = match made.get(&name) {
            Some(current) => (Some(current), None),
            None => (original.get(&name), patch.get(&name)),
        };
        let current = current.cloned().map(list).transpose()?;
        let change = change.cloned().map(list).transpose()?;
        check_order(
            change.as_deref().unwrap_or_default(),
            &order,
            rule.merge_key,
        )?;
        let server_order = current.clone().unwrap_or_default();
        let merged = match (current, change) {
            (Some(current), None) => current,
            (None, Some(change)) => list(fresh(Value::Array(change), onto).unwrap_or_default())?,
            (Some(current), Some(change)) if rule.merge => {
                merge_lists(current, change, rule, shape, false, onto)?
            }
            (Some(_), Some(change)) => change,
            (None, None) => continue,
        };
        let (ordered, server_only) = partition(merged, &order, rule.merge_key)?;
        let woven = weave(ordered, server_only, &order, &server_order, rule.merge_key)?;
        made.insert(name, Value::Array(woven));
    }
    patch.retain(|name, _| !made.contains_key(name));
    let original = original.changed(made, |_, _, value| Ok(Some(value)))?;
    Ok((original, patch))
}

/// The elements of the patch must stand in the order that `$setElementOrder` gives.
fn check_order(change: &[Value], order: &[Value], merge_key: &str) -> Result<(), Error> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in change.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let wanted = identity(item, merge_key).ok_or_else(|| no_merge_key(item, merge_key))?;
        if !rest.any(|one| identity(one, merge_key) == Some(wanted)) {
            return Err(Error::OrderMismatch {
                list: Value::Array(change.to_vec()).to_string(),
                order: Value::Array(order.to_vec()).to_string(),
            });
        }
    }
    Ok(())
}

fn merge_lists<S: Shape>(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    rule: FieldRule,
    shape: Option<S>,
    deletes: bool,
    onto: Onto,
) -> Result<Vec<Value>, Error> {
    let Some(first) = original.first().or(patch.first()) else {
        return Ok(original);
    };
    if matches!(first, Value::Array(_)) {
        return Err(Error::ListOfLists);
    }
    let same = |item: &Value| std::mem::discriminant(item) == std::mem::discriminant(first);
    if !original.iter().chain(&patch).all(same) {
        return Err(Error::MixedList {
            original: super::in_go(&Value::Array(original)),
            patch: super::in_go(&Value::Array(patch)),
        });
    }
    match first {
        Value::Object(_) if rule.merge_key.is_empty() => return Err(Error::NoKeyForList),
        Value::Object(_) => {}
        _ if deletes => {
            let gone = Positions::of(&patch, "");
            original.retain(|item| gone.find(item).is_none());
            return Ok(original);
        }
        _ => {
            let server_order = original.clone();
            let mut seen = Seen::new();
            let all = original.iter().chain(&patch);
            let merged: Vec<Value> = all
                .filter(|&item| seen.insert(Key::of(item)))
                .cloned()
                .collect();
            let (ordered, server_only) = partition(merged, &patch, "")?;
            return weave(ordered, server_only, &patch, &server_order, "");
        }
    }

    let key = rule.merge_key;
    let mut additions = Vec::new();
    let mut deletions = Vec::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(fields) = &item else {
            return Err(Error::WrongType {
                expected: "map",
                received: "scalar",
            });
        };
        match fields.get(DIRECTIVE).map(|directive| directive.as_str()) {
            None => additions.push(item),
            Some(Some("delete")) => {
                if !fields.contains(key) {
                    return Err(no_merge_key(&item, key));
                }
                deletions.push(item);
            }
            Some(Some("replace")) => replace = true,
            Some(Some("merge")) => return Err(Error::MergeInList),
            Some(_) => {
                let directive = fields.get(DIRECTIVE).cloned().unwrap_or_default();
                return Err(unknown_directive(&directive, &item));
            }
        }
    }
    if replace {
        return Ok(additions);
    }
    if !deletions.is_empty() {
        let gone = Positions::of(&deletions, key);
        original.retain(|one| gone.find(one).is_none());
    }
    let server_order = original.clone();
    let mut places = Positions::of(&server_order, key);
    let mut merged = original;
    for item in &additions {
        if identity(item, key).is_none() {
            return Err(no_merge_key(item, key));
        }
        match places.find(item) {
            Some(at) => {
                let current = std::mem::take(&mut merged[at]);
                let (Value::Object(current), Value::Object(change)) = (current, item.clone())
                else {
                    return Err(Error::WrongType {
                        expected: "map",
                        received: "scalar",
                    });
                };
                merged[at] = Value::Object(merge_objects(current, change, shape, onto)?);
            }
            // As it is, nulls and all.
            None => {
                places.add(item, merged.len());
                merged.push(item.clone());
            }
        }
    }
    let (ordered, server_only) = partition(merged, &additions, key)?;
    weave(ordered, server_only, &additions, &server_order, key)
}

fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

fn list(value: Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(Error::WrongType {
            expected: "slice",
            received: "map",
        }),
    }
}

fn unknown_directive(directive: &Value, map: &Value) -> Error {
    let mut shown = map.clone();
    shown.set(&["$patch"], directive.clone());
    Error::UnknownDirective {
        directive: directive.as_str().unwrap_or_default().to_string(),
        map: super::in_go(&shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use crate::patch::shape;

    const POD: &str = "io.k8s.api.core.v1.Pod";

    fn check(object: Value, patch: Value, expected: Value) {
        let merged = apply(&object, &patch, shape::of(POD));
        assert_eq!(merged.as_ref(), Ok(&expected), "{patch}");
    }

    #[test]
    fn maps_merge_and_nulls_delete() {
        check(
            document!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            document!({"metadata": {"labels": {"b": null, "c": "3", "d": null}}}),
            document!({"metadata": {"labels": {"a": "1", "c": "3"}}}),
        );
        check(
            document!({}),
            document!({"metadata": {"labels": {"b": null, "c": "3"}}}),
            document!({"metadata": {"labels": {"c": "3"}}}),
        );
    }

    #[test]
    fn lists_merge_by_key_and_new_elements_go_first() {
        check(
            document!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}}),
            document!({"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "c"}]}}),
            document!({"spec": {"containers": [
                {"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c"},
            ]}}),
        );
        check(
            document!({"spec": {"containers": [{"name": "a"}]}}),
            document!({"spec": {"containers": [{"name": "c"}]}}),
            document!({"spec": {"containers": [{"name": "c"}, {"name": "a"}]}}),
        );
        // Ports merge by containerPort; tolerations have no key and are replaced.
        check(
            document!({"spec": {
                "containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "x"}]}],
                "tolerations": [{"key": "one"}],
            }}),
            document!({"spec": {
                "containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "y"}]}],
                "tolerations": [{"key": "two"}],
            }}),
            document!({"spec": {
                "containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "y"}]}],
                "tolerations": [{"key": "two"}],
            }}),
        );
    }

    #[test]
    fn long_lists_and_maps_cost_n_log_n() {
        let named = |count: usize, image: &str| -> Vec<Value> {
            let one = |name: usize| document!({"name": format!("{name:06}"), "image": image});
            (0..count).rev().map(one).collect()
        };
        let texts = |from: usize, count: usize| -> Vec<Value> {
            (from..from + count)
                .rev()
                .map(|text| format!("{text:06}").into())
                .collect()
        };
        let labels = |from: usize, count: usize| -> Value {
            let label = |key: usize| (format!("{key:06}"), "x".into());
            Value::Object((from..from + count).map(label).collect())
        };
        crate::steps::assert_n_log_n(|count| {
            let (live, half) = (named(count, "1"), named(count / 2, "2"));
            let gone: Vec<Value> = (0..count / 4)
                .map(|name| document!({"name": format!("{name:06}"), "$patch": "delete"}))
                .collect();
            let object = document!({
                "metadata": {"finalizers": texts(0, count), "labels": labels(0, count)},
                "spec": {"containers": live.clone(), "initContainers": live},
            });
            let patch = document!({
                "metadata": {
                    "labels": labels(count / 2, count),
                    "finalizers": texts(count / 2, count),
                    "$deleteFromPrimitiveList/finalizers": texts(0, count / 3),
                },
                "spec": {
                    "$setElementOrder/containers": half.clone(),
                    "containers": half,
                    "initContainers": gone,
                },
            });
            crate::steps::of(|| drop(apply(&object, &patch, shape::of(POD)).unwrap()))
        });
    }

    #[test]
    fn patch_directives() {
        check(
            document!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            document!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
            document!({"spec": {"containers": [{"name": "b"}]}}),
        );
        check(
            document!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            document!({"spec": {"containers": [{"name": "c"}, {"$patch": "replace"}]}}),
            document!({"spec": {"containers": [{"name": "c"}]}}),
        );
        check(
            document!({"metadata": {"labels": {"a": "1"}}}),
            document!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}}),
            document!({"metadata": {"labels": {"b": "2"}}}),
        );
        check(
            document!({"metadata": {"labels": {"a": "1"}}}),
            document!({"metadata": {"labels": {"$patch": "delete"}}}),
            document!({"metadata": {"labels": {}}}),
        );
    }

    #[test]
    fn retain_keys_drop_the_other_member_of_a_union() {
        check(
            document!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            document!({"spec": {"volumes": [{
                "name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"},
            }]}}),
            document!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}}),
        );
    }

    #[test]
    fn primitive_lists() {
        check(
            document!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            document!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["b"], "finalizers": ["d"],
            }}),
            document!({"metadata": {"finalizers": ["d", "a", "c"]}}),
        );
        check(
            document!({"metadata": {"finalizers": ["a", "b"]}}),
            document!({"metadata": {"$setElementOrder/finalizers": ["b", "c", "a"], "finalizers": ["c"]}}),
            document!({"metadata": {"finalizers": ["b", "c", "a"]}}),
        );
    }

    #[test]
    fn element_order() {
        check(
            document!({"spec": {"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]}}),
            document!({"spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "b", "image": "2"}],
            }}),
            document!({"spec": {"containers": [
                {"name": "x"}, {"name": "b", "image": "2"}, {"name": "a"},
            ]}}),
        );
    }

    #[test]
    fn errors() {
        let check = |patch: Value, expected: &str| {
            let object = document!({"spec": {"containers": [{"name": "a"}]}});
            let error = apply(&object, &patch, shape::of(POD)).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(
            document!({"spec": {"containers": [{"image": "x"}]}}),
            "map: map[image:x] does not contain declared merge key: name",
        );
        check(
            document!({"spec": {"$patch": "jump"}}),
            "unknown patch type: jump in map: map[$patch:jump]",
        );
        check(
            document!({"spec": {"$retainKeys": ["x"], "y": 1}}),
            "invalid patch format of retainKeys",
        );
    }
}
