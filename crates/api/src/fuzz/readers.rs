//! JSON, YAML, selectors and patches: read what anybody sends, and never fall over.

use super::{Random, document, input, random, rounds};
use crate::catalogue;
use crate::document::{Value, yaml};
use crate::patch;
use crate::schema::{decode_json, table};
use crate::selector::{FieldSelector, LabelSelector};

/// Pieces of which selectors, documents and pointers are made.
const PIECES: [&str; 26] = [
    "a", "app", "!", "=", "==", "!=", " in ", " notin ", "(", ")", ",", "/", "\\", "\"", "'", "{",
    "}", "[", "]", ":", "- ", "\n", "*a", "&a ", "0", "~1",
];

fn pieces(random: &mut Random) -> String {
    let count = random.below(16);
    (0..count).map(|_| *random.pick(&PIECES)).collect()
}

/// A random object of some served kind, and that kind.
fn some_object(random: &mut Random) -> (&'static catalogue::Resource, Value) {
    let resource = random.pick(catalogue::resources());
    let definition = table()
        .definition(resource.definition)
        .expect("in the table");
    let mut object = document(definition, random);
    object.set(&["apiVersion"], resource.api_version());
    object.set(&["kind"], resource.kind);
    (resource, object)
}

#[test]
fn objects_in_json_and_yaml() {
    for round in 0..rounds() {
        let mut random = random("json and yaml", round);
        for _ in 0..300 {
            let (resource, object) = some_object(&mut random);
            let json = object.to_json();
            let (read, _) = decode_json(resource, &json).expect("a document of that kind");
            assert_eq!(read, object, "{}", resource.kind);
            let damaged = input::damaged(&json, &mut random);
            let _ = decode_json(resource, &damaged);
            let _ = yaml::parse_documents(&damaged);
            let _ = decode_json(resource, pieces(&mut random).as_bytes());
            let _ = yaml::parse_documents(pieces(&mut random).as_bytes());
            let _ = yaml::parse_documents(&random.bytes(60));
        }
    }
}

#[test]
fn depth_is_bounded() {
    let pods = catalogue::find("", "v1", "pods").expect("Pods are served");
    for deep in ["[".repeat(200_000), "{\"a\":".repeat(200_000)] {
        assert!(decode_json(pods, deep.as_bytes()).is_err());
        let _ = yaml::parse_documents(deep.as_bytes());
    }
    // Each level doubles the one before: a few lines of text for a terabyte.
    let mut laughs = String::from("a0: &a0 [x, x]\n");
    for level in 1..40 {
        let before = level - 1;
        laughs.push_str(&format!("a{level}: &a{level} [*a{before}, *a{before}]\n"));
    }
    assert!(yaml::parse_documents(laughs.as_bytes()).is_err());
}

#[test]
fn selectors() {
    for round in 0..rounds() {
        let mut random = random("selectors", round);
        for _ in 0..3_000 {
            let text = pieces(&mut random);
            if let Ok(selector) = LabelSelector::parse(&text) {
                let _ = selector.matches(|_| Some("a"));
                let _ = selector.matches(|_| None);
            }
            if let Ok(selector) = FieldSelector::parse(&text) {
                let _ = selector.matches(&[("metadata.name", "a".to_string())]);
            }
            let bytes = random.bytes(40);
            let text = String::from_utf8_lossy(&bytes);
            let _ = LabelSelector::parse(&text);
            let _ = FieldSelector::parse(&text);
        }
    }
}

#[test]
fn patches() {
    let operations = ["add", "remove", "replace", "move", "copy", "test", "odd"];
    for round in 0..rounds() {
        let mut random = random("patches", round);
        for _ in 0..300 {
            let (resource, object) = some_object(&mut random);
            let definition = table()
                .definition(resource.definition)
                .expect("in the table");
            let other = document(definition, &mut random);
            let merged = patch::merge_patch(&object, &other);
            assert_eq!(patch::merge_patch(&merged, &other), merged, "idempotent");
            let _ = patch::strategic_merge(&object, &other, resource.definition);
            if let Ok(difference) = patch::two_way(&object, &other, resource.definition) {
                let _ = patch::strategic_merge(&object, &difference, resource.definition);
            }
            let list: Vec<Value> = (0..=random.below(4))
                .map(|_| {
                    let mut operation = Value::object();
                    operation.set(&["op"], *random.pick(&operations));
                    let place = |random: &mut Random| match random.one_in(3) {
                        true => pieces(random),
                        false => {
                            (*random.pick(&["", "/metadata/name", "/spec", "/spec/-", "/a/0"]))
                                .to_string()
                        }
                    };
                    operation.set(&["path"], place(&mut random));
                    operation.set(&["from"], place(&mut random));
                    if random.one_in(2) {
                        operation.set(&["value"], other.clone());
                    }
                    operation
                })
                .collect();
            let _ = patch::json_patch(&object, &Value::Array(list));
        }
    }
}
