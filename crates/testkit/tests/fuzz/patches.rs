//! The four patch types, on objects of every kind. An input is a JSON list of the object and the
//! patch, so that a failure shows both.

use api::apply::{Write, apply};
use api::document::{MAX_DEPTH, Value, yaml};
use api::patch::{json_patch, merge_patch, strategic_merge, three_way, two_way};
use api::{Resource, catalogue};

use crate::documents::{object_of, some_object};
use crate::driver::{Bound, run};
use crate::input;
use crate::random::Random;

/// Both documents are gone through several times.
const MERGING: Bound = Bound {
    bytes: 16 << 20,
    bytes_per_byte: 20_000,
};
/// A few copies may make three mebibytes of JSON, which are many small values.
const COPYING: Bound = Bound {
    bytes: 512 << 20,
    bytes_per_byte: 20_000,
};

fn pair(object: Value, patch: Value) -> Vec<u8> {
    Value::Array(vec![object, patch]).to_json()
}

/// The object with its kind, and the patch.
fn unpaired(input: &[u8]) -> Option<(&'static Resource, Value, Value)> {
    let Ok(Value::Array(both)) = Value::from_json(input) else {
        return None;
    };
    let [object, patch] = <[Value; 2]>::try_from(both).ok()?;
    let (group, version) = api::resource::split_api_version(object.str_at(&["apiVersion"]));
    let resource = catalogue::built_in().find_kind(group, version, object.str_at(&["kind"]))?;
    Some((resource, object, patch))
}

/// An object, and another of its kind with something done to it.
fn two_objects(random: &mut Random) -> Vec<u8> {
    let (resource, object) = some_object(random);
    let mut other = match random.one_in(4) {
        true => object.clone(),
        false => object_of(resource, random),
    };
    if random.one_in(3) {
        disturb(&mut other, random);
    }
    if random.one_in(50) {
        let keys = Value::from_json(input::many_keys(random).as_bytes()).expect("JSON");
        other.set(&["metadata", "labels"], keys);
    }
    pair(object, other)
}

/// Nulls, directives, other types and repeated items at places of a document.
fn disturb(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(fields) => {
            let names: Vec<String> = fields.iter().map(|(name, _)| name.to_string()).collect();
            for name in &names {
                if random.one_in(3)
                    && let Some(value) = fields.get_mut(name)
                {
                    disturb(value, random);
                }
            }
            match random.below(8) {
                0 => drop(fields.insert("$patch", *random.pick(&["delete", "replace", "x"]))),
                1 => {
                    drop(fields.insert("$retainKeys", vec![Value::from("name"), Value::from("a")]))
                }
                2 if !names.is_empty() => {
                    let name = random.pick(&names);
                    let order = fields.get(name).cloned().unwrap_or_default();
                    fields.insert(format!("$setElementOrder/{name}"), order);
                }
                3 if !names.is_empty() => {
                    let name = random.pick(&names);
                    let gone = fields.get(name).cloned().unwrap_or_default();
                    fields.insert(format!("$deleteFromPrimitiveList/{name}"), gone);
                }
                4 if !names.is_empty() => {
                    drop(fields.insert(random.pick(&names).as_str(), Value::Null))
                }
                _ => {}
            }
        }
        Value::Array(items) => {
            if let Some(last) = items.last().cloned() {
                items.extend(vec![last; random.below(3)]);
            }
            for item in items {
                disturb(item, random);
            }
        }
        other if random.one_in(2) => {
            *other = match random.below(4) {
                0 => Value::Null,
                1 => Value::object(),
                2 => Value::Array(vec![1.into()]),
                _ => "a".into(),
            };
        }
        _ => {}
    }
}

#[test]
fn random_merge_patches_do_not_panic_or_explode() {
    run("merge-patch", MERGING, two_objects, |input| {
        let Some((_, object, patch)) = unpaired(input) else {
            return;
        };
        let merged = merge_patch(&object, &patch);
        assert!(!merged.is_deeper_than(MAX_DEPTH));
        assert_eq!(merge_patch(&merged, &patch), merged, "idempotent");
    });
}

#[test]
fn random_strategic_merge_patches_do_not_panic_or_explode() {
    run("strategic", MERGING, two_objects, |input| {
        let Some((resource, object, patch)) = unpaired(input) else {
            return;
        };
        let definition = resource.definition;
        if let Ok(merged) = strategic_merge(&object, &patch, definition) {
            assert!(!merged.is_deeper_than(MAX_DEPTH));
        }
        if let Ok(difference) = two_way(&object, &patch, definition) {
            let _ = strategic_merge(&object, &difference, definition);
        }
        let _ = three_way(&patch, &object, &patch, definition);
    });
}

#[test]
fn random_applied_configurations_do_not_panic_or_explode() {
    run("apply", MERGING, two_objects, |input| {
        let Some((resource, object, patch)) = unpaired(input) else {
            return;
        };
        let text = yaml::to_yaml(&patch);
        let Ok(documents) = yaml::parse_documents(text.as_bytes()) else {
            return;
        };
        let time = "2026-01-01T00:00:00Z".to_string();
        let write = Write::new(resource, "", "fuzz", time);
        for document in &documents {
            if let Ok(first) = apply(&write, Some(&object), document, true) {
                let again = apply(&write, Some(&first), document, true);
                assert!(again.is_ok(), "{again:?}");
            }
            let _ = apply(&write, None, document, false);
        }
    });
}

fn operations(random: &mut Random) -> Vec<u8> {
    const NAMES: [&str; 7] = ["add", "remove", "replace", "move", "copy", "test", "odd"];
    const PLACES: [&str; 9] = [
        "",
        "/metadata",
        "/metadata/name",
        "/metadata/labels",
        "/spec",
        "/spec/-",
        "/a",
        "/a/-",
        "/a/0",
    ];
    let (_, mut object) = some_object(random);
    object.set(&["a"], vec![Value::from(1), Value::from(2)]);
    let other = some_object(random).1;
    let place = |random: &mut Random| match random.one_in(5) {
        true => input::pieces(random),
        false => (*random.pick(&PLACES)).to_string(),
    };
    let count = match random.one_in(100) {
        true => 200,
        false => random.below(12),
    };
    let repeated = random.one_in(20);
    let mut list: Vec<Value> = Vec::new();
    for _ in 0..count {
        if let (true, Some(last)) = (repeated, list.last()) {
            list.push(last.clone());
            continue;
        }
        let mut operation = Value::object();
        operation.set(&["op"], *random.pick(&NAMES));
        operation.set(&["path"], place(random));
        operation.set(&["from"], place(random));
        if random.one_in(2) {
            operation.set(&["value"], other.clone());
        }
        list.push(operation);
    }
    pair(object, Value::Array(list))
}

#[test]
fn random_json_patches_do_not_panic_or_explode() {
    run("json-patch", COPYING, operations, |input| {
        let Some((_, object, patch)) = unpaired(input) else {
            return;
        };
        if let Ok(patched) = json_patch(&object, &patch) {
            assert!(!patched.is_deeper_than(MAX_DEPTH));
            assert!(patched.to_json().len() < input.len() + (4 << 20));
        }
    });
}
