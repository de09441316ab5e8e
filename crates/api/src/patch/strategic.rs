//! Applying a strategic merge patch, with its directives `$patch`, `$retainKeys`,
//! `$deleteFromPrimitiveList/…` and `$setElementOrder/…`.

use crate::document::{Object, Value};
use crate::patch::order::{identity, no_merge_key, partition, position, weave};
use crate::patch::shape::{Shape, below};
use crate::patch::{Error, FieldRule};

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
    set_orders(&mut original, &mut patch, shape, onto)?;
    for (key, change) in patch {
        let (name, deletes_from_list) = match key.split_once('/') {
            Some((DELETE_FROM, _)) if onto == Onto::Patch => {
                original.insert(key, change);
                continue;
            }
            Some((DELETE_FROM, name)) => (name, true),
            _ if key.starts_with(DELETE_FROM) => return Err(Error::PrimitiveList),
            _ => (key.as_str(), false),
        };
        if change.is_null() {
            original.remove(name);
            if onto == Onto::Object {
                continue;
            }
        }
        let Some(current) = original.remove(name) else {
            if !deletes_from_list {
                put(&mut original, name, change, onto);
            }
            continue;
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
        let merged = match (current, change) {
            (Value::Object(_), change @ Value::Object(_)) if rule.replace => change,
            (Value::Object(current), Value::Object(change)) => {
                Value::Object(merge_objects(current, change, shape, onto)?)
            }
            (Value::Array(current), Value::Array(change)) if rule.merge || deletes_from_list => {
                Value::Array(merge_lists(
                    current,
                    change,
                    rule,
                    shape,
                    deletes_from_list,
                    onto,
                )?)
            }
            (Value::Array(_), change @ Value::Array(_)) => change,
            (current, _) if deletes_from_list => current,
            (_, change) => {
                put(&mut original, name, change, onto);
                continue;
            }
        };
        original.insert(name, merged);
    }
    Ok(original)
}

/// Takes a value of the patch as it is, without nulls and directives where an object results.
fn put(original: &mut Object, name: &str, mut value: Value, onto: Onto) {
    if onto == Onto::Object {
        discard_nulls(&mut value);
    }
    if let Some(value) = without_directives(value, onto) {
        original.insert(name, value);
    }
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
    let listed = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    for (name, value) in patch.iter() {
        let directive = name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
        if !value.is_null() && !directive && !listed(name) {
            return Err(Error::RetainKeys);
        }
    }
    original.retain(|name, _| listed(name));
    Ok(())
}

/// Merges the lists whose order the patch gives, and orders them.
fn set_orders<S: Shape>(
    original: &mut Object,
    patch: &mut Object,
    shape: Option<S>,
    onto: Onto,
) -> Result<(), Error> {
    let directives: Vec<String> = patch
        .iter()
        .filter(|(name, _)| name.starts_with(SET_ORDER))
        .map(|(name, _)| name.to_string())
        .collect();
    for directive in directives {
        let order = patch.remove(&directive).unwrap_or_default();
        if onto == Onto::Patch {
            match original.get(&directive) {
                Some(other) if *other != order => return Err(Error::SetElementOrder),
                _ => drop(original.insert(directive.as_str(), order.clone())),
            }
        }
        let order = list(order)?;
        let (_, name) = directive.split_once('/').ok_or(Error::SetElementOrder)?;
        let (rule, shape) = below(shape, name);
        let current = original.get(name).cloned().map(list).transpose()?;
        let change = patch.get(name).cloned().map(list).transpose()?;
        check_order(
            change.as_deref().unwrap_or_default(),
            &order,
            rule.merge_key,
        )?;
        let server_order = current.clone().unwrap_or_default();
        let merged = match (current, change) {
            (Some(current), None) => current,
            (None, Some(change)) => {
                let mut change = Value::Array(change);
                if onto == Onto::Object {
                    discard_nulls(&mut change);
                }
                list(without_directives(change, onto).unwrap_or_default())?
            }
            (Some(current), Some(change)) if rule.merge => {
                merge_lists(current, change, rule, shape, false, onto)?
            }
            (Some(_), Some(change)) => change,
            (None, None) => continue,
        };
        let (ordered, server_only) = partition(merged, &order, rule.merge_key)?;
        let woven = weave(ordered, server_only, &order, &server_order, rule.merge_key)?;
        original.insert(name, woven);
        patch.remove(name);
    }
    Ok(())
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
            original.retain(|item| !patch.contains(item));
            return Ok(original);
        }
        _ => {
            let server_order = original.clone();
            let mut merged: Vec<Value> = Vec::new();
            for item in original.into_iter().chain(patch.iter().cloned()) {
                if !merged.contains(&item) {
                    merged.push(item);
                }
            }
            let (ordered, server_only) = partition(merged, &patch, "")?;
            return weave(ordered, server_only, &patch, &server_order, "");
        }
    }

    let key = rule.merge_key;
    let mut additions = Vec::new();
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
                let gone = fields.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                original.retain(|one| one.get(key) != Some(gone));
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
    let server_order = original.clone();
    let mut merged = original;
    for item in &additions {
        if identity(item, key).is_none() {
            return Err(no_merge_key(item, key));
        }
        match position(&merged, item, key) {
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
            None => merged.push(item.clone()),
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
