//! Making strategic merge patches: two-way, and three-way as `apply` needs it.

use crate::document::{Object, Value};
use crate::patch::Error;
use crate::patch::order::{Key, Positions, has_keys, identity, sort_by};
use crate::patch::shape::{FieldRule, Shape, below};
use crate::patch::strategic::{
    DELETE_FROM, DIRECTIVE, Onto, RETAIN_KEYS, SET_ORDER, merge_objects,
};
use crate::repeats::Seen;

/// Which differences go into the patch.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    changes: bool,
    deletions: bool,
    retain_keys: bool,
}

/// Everything that differs.
pub fn two_way<S: Shape>(
    original: &Value,
    modified: &Value,
    shape: Option<S>,
) -> Result<Value, Error> {
    let wanted = Wanted {
        changes: true,
        deletions: true,
        retain_keys: false,
    };
    let patch = diff_objects(object(original)?, object(modified)?, shape, wanted)?;
    Ok(Value::Object(patch))
}

/// Changes from `live` to `modified`, and deletions from `last_applied` to `modified`.
pub fn three_way<S: Shape>(
    last_applied: &Value,
    live: &Value,
    modified: &Value,
    shape: Option<S>,
) -> Result<Value, Error> {
    let empty = Object::default();
    let last_applied = match last_applied {
        Value::Null => &empty,
        other => object(other)?,
    };
    let (live, modified) = (object(live)?, object(modified)?);
    let changes = Wanted {
        changes: true,
        deletions: false,
        retain_keys: false,
    };
    let deletions = Wanted {
        changes: false,
        deletions: true,
        retain_keys: false,
    };
    let changes = diff_objects(live, modified, shape, changes)?;
    let deletions = diff_objects(last_applied, modified, shape, deletions)?;
    let patch = merge_objects(deletions, changes, shape, Onto::Patch)?;
    Ok(Value::Object(patch))
}

fn diff_objects<S: Shape>(
    original: &Object,
    modified: &Object,
    shape: Option<S>,
    wanted: Wanted,
) -> Result<Object, Error> {
    let mut patch = Vec::new();
    for (name, new) in modified.iter() {
        match original.get(name) {
            None if wanted.changes => patch.push((name.to_string(), new.clone())),
            None => {}
            Some(old) => diff_field(&mut patch, name, old, new, shape, wanted)?,
        }
    }
    if wanted.deletions {
        for (name, _) in original.iter() {
            if !modified.contains(name) {
                patch.push((name.to_string(), Value::Null));
            }
        }
    }
    let dropped = |(name, value): (&str, &Value)| !value.is_null() && !modified.contains(name);
    if wanted.retain_keys && (!patch.is_empty() || original.iter().any(dropped)) {
        let keys: Vec<Value> = modified
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, _)| name.into())
            .collect();
        if !keys.is_empty() {
            patch.push((RETAIN_KEYS.to_string(), keys.into()));
        }
    }
    Ok(Object::from_fields(patch))
}

fn diff_field<S: Shape>(
    patch: &mut Vec<(String, Value)>,
    name: &str,
    old: &Value,
    new: &Value,
    shape: Option<S>,
    wanted: Wanted,
) -> Result<(), Error> {
    let (rule, shape) = below(shape, name);
    let wanted_below = Wanted {
        retain_keys: rule.retain_keys,
        ..wanted
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if !rule.replace => {
            let difference = diff_objects(old, new, shape, wanted_below)?;
            if !difference.is_empty() {
                patch.push((name.to_string(), difference.into()));
            }
        }
        (Value::Array(old), Value::Array(new)) if rule.merge => {
            diff_lists(patch, name, old, new, rule, shape, wanted_below)?;
        }
        _ if wanted.changes && old != new => patch.push((name.to_string(), new.clone())),
        _ => {}
    }
    Ok(())
}

fn diff_lists<S: Shape>(
    patch: &mut Vec<(String, Value)>,
    name: &str,
    old: &[Value],
    new: &[Value],
    rule: FieldRule,
    shape: Option<S>,
    wanted: Wanted,
) -> Result<(), Error> {
    let Some(first) = old.first() else {
        if wanted.changes && !new.is_empty() {
            patch.push((name.to_string(), new.to_vec().into()));
        }
        return Ok(());
    };
    let order_name = format!("{SET_ORDER}/{name}");
    match first {
        Value::Array(_) => Err(Error::ListOfLists),
        Value::Object(_) => {
            let key = rule.merge_key;
            if key.is_empty() {
                return Err(Error::NoKeyForList);
            }
            let items = diff_keyed_lists(old, new, key, shape, wanted)?;
            let same_order = old.len() == new.len()
                && std::iter::zip(old, new)
                    .all(|(old, new)| identity(old, key) == identity(new, key));
            let reorder = wanted.changes && (!items.is_empty() || !same_order)
                || wanted.deletions && !items.is_empty();
            if reorder && !new.is_empty() {
                let order: Vec<Value> = new
                    .iter()
                    .map(|item| {
                        let mut only_key = Object::default();
                        only_key.insert(key, item.get(key).cloned().unwrap_or_default());
                        Value::Object(only_key)
                    })
                    .collect();
                patch.push((order_name, order.into()));
            }
            if !items.is_empty() {
                patch.push((name.to_string(), items.into()));
            }
            Ok(())
        }
        _ => {
            let missing = |from: &[Value], other: &[Value]| -> Vec<Value> {
                let other = Positions::of(other, "");
                let mut seen = Seen::new();
                let missing = from
                    .iter()
                    .filter(|&item| other.find(item).is_none() && seen.insert(Key::of(item)));
                missing.cloned().collect()
            };
            let (added, mut deleted) = (missing(new, old), missing(old, new));
            deleted.sort_by_cached_key(Value::to_string);
            let reorder = wanted.deletions && !deleted.is_empty() || wanted.changes && old != new;
            if wanted.changes && !added.is_empty() {
                patch.push((name.to_string(), added.into()));
            }
            if wanted.deletions && !deleted.is_empty() {
                patch.push((format!("{DELETE_FROM}/{name}"), deleted.into()));
            }
            if reorder && !new.is_empty() {
                patch.push((order_name, new.to_vec().into()));
            }
            Ok(())
        }
    }
}

fn diff_keyed_lists<S: Shape>(
    old: &[Value],
    new: &[Value],
    key: &str,
    shape: Option<S>,
    wanted: Wanted,
) -> Result<Vec<Value>, Error> {
    has_keys(old, key)?;
    has_keys(new, key)?;
    let (in_old, in_new) = (Positions::of(old, key), Positions::of(new, key));
    let mut items = Vec::new();
    for item in new {
        match in_old.find(item) {
            None if wanted.changes => items.push(item.clone()),
            None => {}
            Some(at) => {
                let mut difference = diff_objects(object(&old[at])?, object(item)?, shape, wanted)?;
                if !difference.is_empty() {
                    difference.insert(key, item.get(key).cloned().unwrap_or_default());
                    items.push(Value::Object(difference));
                }
            }
        }
    }
    let mut items = sort_by(items, new, key)?;
    if wanted.deletions {
        let text = |item: &Value| match item.get(key) {
            Some(Value::String(text)) => text.clone(),
            other => other.map(Value::to_string).unwrap_or_default(),
        };
        let mut gone: Vec<&Value> = old
            .iter()
            .filter(|item| in_new.find(item).is_none())
            .collect();
        gone.sort_by_cached_key(|item| text(item));
        for item in gone {
            let mut deletion = Object::default();
            deletion.insert(DIRECTIVE, "delete");
            deletion.insert(key, item.get(key).cloned().unwrap_or_default());
            items.push(Value::Object(deletion));
        }
    }
    Ok(items)
}

fn object(value: &Value) -> Result<&Object, Error> {
    value.as_object().ok_or(Error::NotAnObject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use crate::patch::shape;
    use crate::patch::strategic;

    const DEPLOYMENT: &str = "io.k8s.api.apps.v1.Deployment";

    /// The patch is as expected, and applied it gives `result`.
    fn check(last: Value, live: Value, modified: Value, expected: Value, result: Value) {
        let shape = shape::of(DEPLOYMENT);
        let patch = three_way(&last, &live, &modified, shape).unwrap();
        assert_eq!(patch, expected);
        assert_eq!(strategic::apply(&live, &patch, shape).unwrap(), result);
    }

    fn template(containers: Value) -> Value {
        document!({"spec": {"template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn nothing_changed() {
        let same = document!({"spec": {"replicas": 1}});
        let live = document!({"spec": {"replicas": 1, "paused": false}});
        check(same.clone(), live.clone(), same, document!({}), live);
    }

    #[test]
    fn others_fields_stay_and_dropped_fields_go() {
        check(
            document!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            document!({"metadata": {"labels": {"a": "1", "b": "2", "theirs": "x"}}}),
            document!({"metadata": {"labels": {"a": "3"}}}),
            document!({"metadata": {"labels": {"a": "3", "b": null}}}),
            document!({"metadata": {"labels": {"a": "3", "theirs": "x"}}}),
        );
    }

    #[test]
    fn containers_change_appear_and_disappear() {
        check(
            template(document!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])),
            template(document!([
                {"name": "a", "image": "1", "imagePullPolicy": "Always"},
                {"name": "b", "image": "1"},
                {"name": "injected", "image": "9"},
            ])),
            template(document!([{"name": "a", "image": "2"}, {"name": "c", "image": "1"}])),
            document!({"spec": {"template": {"spec": {
                "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}],
                "containers": [
                    {"name": "a", "image": "2"},
                    {"name": "c", "image": "1"},
                    {"name": "b", "$patch": "delete"},
                ],
            }}}}),
            template(document!([
                {"name": "a", "image": "2", "imagePullPolicy": "Always"},
                {"name": "c", "image": "1"},
                {"name": "injected", "image": "9"},
            ])),
        );
    }

    #[test]
    fn a_volume_changes_its_source() {
        let volumes =
            |volumes: Value| document!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        check(
            volumes(document!([{"name": "v", "emptyDir": {}}])),
            volumes(document!([{"name": "v", "emptyDir": {}}])),
            volumes(document!([{"name": "v", "configMap": {"name": "c"}}])),
            document!({"spec": {"template": {"spec": {
                "$setElementOrder/volumes": [{"name": "v"}],
                "volumes": [{
                    "name": "v", "configMap": {"name": "c"}, "emptyDir": null,
                    "$retainKeys": ["configMap", "name"],
                }],
            }}}}),
            volumes(document!([{"name": "v", "configMap": {"name": "c"}}])),
        );
    }

    #[test]
    fn two_way_undoes_itself() {
        let old = template(document!([{"name": "a", "args": ["x"]}, {"name": "b"}]));
        let new = template(document!([{"name": "b", "image": "i"}, {"name": "a", "args": ["y"]}]));
        let shape = shape::of(DEPLOYMENT);
        let patch = two_way(&old, &new, shape).unwrap();
        assert_eq!(strategic::apply(&old, &patch, shape).unwrap(), new);
    }
}
