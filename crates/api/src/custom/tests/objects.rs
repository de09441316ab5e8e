//! What a schema does to objects.

use super::*;
use crate::document;

#[test]
fn unknown_fields_are_pruned_and_reported_in_order() {
    let schema = with_spec(document!({
        "known": {"type": "string"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
    }));
    let mut object = document!({
        "apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "extra": 1,
        "spec": {
            "known": "k", "unknown": {"a": 1},
            "list": [{"a": "1", "b": "2"}],
            "free": {"anything": [1], "strict": {"a": "1", "b": "2"}},
            "map": {"k": "v"},
        },
    });
    let pruned = schema.prune(&mut object);
    assert_eq!(
        pruned,
        [
            "extra",
            "spec.free.strict.b",
            "spec.list[0].b",
            "spec.unknown"
        ]
    );
    assert_eq!(
        object,
        document!({
            "apiVersion": "v1", "kind": "X", "metadata": {"name": "x"},
            "spec": {
                "known": "k", "list": [{"a": "1"}],
                "free": {"anything": [1], "strict": {"a": "1"}}, "map": {"k": "v"},
            },
        })
    );
}

#[test]
fn the_content_of_objects_below_additional_properties_without_a_schema_is_pruned() {
    let schema = with_spec(document!({"map": {"type": "object", "additionalProperties": true}}));
    let mut object = document!({"spec": {"map": {"a": 1, "b": {"c": 1}}}});
    assert_eq!(schema.prune(&mut object), ["spec.map.b.c"]);
    assert_eq!(object, document!({"spec": {"map": {"a": 1, "b": {}}}}));
}

#[test]
fn defaults_fill_what_is_missing_and_what_may_not_be_null() {
    let schema = with_spec(document!({
        "a": {"type": "string", "default": "x"},
        "b": {"type": "string", "nullable": true, "default": "y"},
        "deep": {"type": "object", "default": {}, "properties": {
            "replicas": {"type": "integer", "default": 3}}},
        "items": {"type": "array", "items": {"type": "object", "default": {"n": 1},
            "properties": {"n": {"type": "integer"}, "m": {"type": "integer", "default": 2}}}},
        "none": {"type": "string"},
    }));
    let mut object = document!({"spec": {"a": null, "b": null, "items": [null, {}], "none": null}});
    schema.prune_nulls(&mut object);
    schema.default(&mut object);
    assert_eq!(
        object,
        document!({"spec": {
            "a": "x", "b": null, "deep": {"replicas": 3},
            "items": [{"n": 1, "m": 2}, {"m": 2}],
        }})
    );
}

#[test]
fn objects_from_the_store_lose_malformed_metadata_and_gain_a_generation() {
    let schema = with_spec(document!({
        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
    }));
    let object = document!({
        "apiVersion": "a.b/v1", "kind": "X",
        "metadata": {"name": "x", "labels": 7, "odd": true},
        "spec": {"template": {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "odd": 1, "creationTimestamp": null}, "spec": {"x": 1}}},
    });
    let mut stored = object.clone();
    schema.conform(&mut stored, Malformed::Dropped).unwrap();
    assert_eq!(stored.at(&["metadata", "labels"]), None);
    assert_eq!(stored.i64_at(&["metadata", "generation"]), Some(1));
    let template = stored.at(&["spec", "template"]).unwrap();
    assert_eq!(template.get("metadata"), Some(&document!({"name": "p"})));
    assert_eq!(template.at(&["spec", "x"]), Some(&Value::Integer(1)));

    let mut sent = object;
    let error = schema.conform(&mut sent, Malformed::Refused).unwrap_err();
    assert!(
        error.to_string().contains("cannot unmarshal number"),
        "{error}"
    );
    sent.set(&["metadata", "labels"], document!({"a": "b"}));
    let unknown = schema.conform(&mut sent, Malformed::Refused).unwrap();
    assert_eq!(unknown, ["metadata.odd", "spec.template.metadata.odd"]);
}

#[test]
fn embedded_resources_have_a_type_and_valid_metadata() {
    let schema = with_spec(document!({
        "template": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
    }));
    let object = document!({"spec": {"template": {
        "apiVersion": "a/b/c", "metadata": {"name": "..", "labels": {"a b": "c"}}}}});
    let errors = texts(&schema.validate_embedded(&object));
    assert!(
        errors.contains(&"spec.template.kind: Required value".to_string()),
        "{errors:?}"
    );
    let version = "spec.template.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion \
                   string: a/b/c";
    assert!(errors.contains(&version.to_string()), "{errors:?}");
    assert!(
        errors
            .iter()
            .any(|error| error.starts_with("spec.template.metadata.name: "))
    );
    assert!(
        errors
            .iter()
            .any(|error| error.starts_with("spec.template.metadata.labels: "))
    );
}

#[test]
fn sets_and_maps_have_no_repeated_items() {
    let schema = with_spec(document!({
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "port"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "port": {"type": "integer", "default": 1}}}},
    }));
    let object = document!({"spec": {
        "set": ["a", "b", "a", "a"],
        "map": [{"name": "x", "port": 1}, {"name": "x", "port": 2}, {"name": "x", "port": 1}],
    }});
    assert_eq!(
        texts(&schema.validate_list_types(&object)),
        [
            "spec.map[2]: Duplicate value: {\"name\":\"x\",\"port\":1}",
            "spec.set[2]: Duplicate value: \"a\"",
        ]
    );
    // An object that had repeated items may keep them.
    let judged = |old: Option<&Value>| {
        schema.judge(Judged {
            object: &object,
            old,
            status_only: false,
            scale: None,
            expressions: None,
            errors: Vec::new(),
        })
    };
    assert_eq!(judged(None).errors.len(), 2);
    assert_eq!(judged(Some(&object)).errors.len(), 0);
}

#[test]
fn unchanged_parts_are_not_judged_again() {
    let schema = with_spec(document!({
        "a": {"type": "string", "maxLength": 1},
        "b": {"type": "string", "maxLength": 1},
        "list": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "n": {"type": "integer", "maximum": 1}}}},
        "atomic": {"type": "array", "items": {"type": "integer", "maximum": 1}},
    }));
    let old = document!({"spec": {
        "a": "long", "b": "x", "list": [{"name": "one", "n": 7}], "atomic": [7]}});
    let mut new = old.clone();
    new.set(&["spec", "b"], "long");
    assert_eq!(
        texts(&schema.validate(&new, Some(&old))),
        ["spec.b: Too long: may not be more than 1 byte"]
    );
    // Items with keys are found wherever they stand; items without are judged once the list changed.
    let list = document!([{"name": "two", "n": 1}, {"name": "one", "n": 7}]);
    new.set(&["spec", "list"], list);
    new.set(&["spec", "b"], "x");
    assert_eq!(schema.validate(&new, Some(&old)), []);
    new.set(&["spec", "atomic"], document!([7, 1]));
    assert_eq!(
        texts(&schema.validate(&new, Some(&old))),
        [
            "spec.atomic[0]: Invalid value: 7: spec.atomic[0] in body should be less than or equal \
             to 1"
        ]
    );
}

#[test]
fn the_status_is_judged_by_its_own_schema() {
    let schema = schema(document!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["x"]},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }}));
    let object = document!({"spec": {}, "status": {"replicas": "x"}});
    let findings = schema.judge(Judged {
        object: &object,
        old: Some(&document!({"spec": {}})),
        status_only: true,
        scale: None,
        expressions: None,
        errors: Vec::new(),
    });
    assert_eq!(
        texts(&findings.errors),
        [
            "status.replicas: Invalid value: \"string\": replicas in body must be of type integer: \
             \"string\""
        ]
    );
}

#[test]
fn replicas_of_a_scale_are_whole_and_in_range() {
    let scale = ScalePaths::of(&document!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector"}));
    let object = document!({"spec": {"replicas": -1}, "status": {"replicas": "x", "selector": 1}});
    assert_eq!(
        texts(&scale.validate_spec(&object)),
        [".spec.replicas: Invalid value: -1: should be a non-negative integer"]
    );
    assert_eq!(
        texts(&scale.validate_status(&object)),
        [
            ".status.replicas: Invalid value: 0: .status.replicas accessor error: x is of the type \
             string, expected int64",
            ".status.selector: Invalid value: \"\": .status.selector accessor error: 1 is of the \
             type int64, expected string",
        ]
    );
}

#[test]
fn defaults_are_filled_in_up_to_a_bound() {
    let schema = with_spec(document!({
        "list": {"type": "array", "items": {"type": "object", "properties": {
            "a": {"type": "string", "default": "x".repeat(1_000)},
            "b": {"type": "string", "default": "y"}}}},
    }));
    let filled = |count: usize| {
        let mut object = document!({"spec": {"list": vec![Value::object(); count]}});
        schema.default(&mut object);
        let items = object.list_at(&["spec", "list"]).iter();
        items
            .filter(|item| item.has(&["a"]) && item.has(&["b"]))
            .count()
    };
    assert_eq!(filled(1_000), 1_000);
    // More than could be stored, and not much more than that.
    let most = filled(1_000_000);
    assert!((1_500..3_500).contains(&most), "{most}");
}
