//! Compilation, sharing, paths, sizes and places.

use std::sync::Arc;

use super::*;
use crate::document;

#[test]
fn what_is_not_structural_is_refused_with_upstreams_words() {
    let check = |document: Value, expected: &[&str]| {
        let errors = Schema::from_document(&document).expect_err("not structural");
        assert_eq!(texts(&errors), expected);
    };
    check(
        document!({"properties": {"a": {}}}),
        &[
            "properties[a].type: Required value: must not be empty for specified object fields",
            "type: Required value: must not be empty at the root",
        ],
    );
    check(
        document!({"type": "object", "additionalProperties": true, "properties": {
        "list": {"type": "array"}, "metadata": {"type": "object", "description": "x"}}}),
        &[
            "additionalProperties: Forbidden: must not be used at the root",
            "properties[list].items: Required value: must be specified",
            "properties[metadata]: Forbidden: must not specify anything other than name and \
         generateName, but metadata is implicitly specified",
        ],
    );
    check(
        document!({"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}]}),
        &[
            "anyOf[0].properties[a].type: Forbidden: must be empty to be structural",
            "properties[a]: Required value: because it is defined in anyOf[0].properties[a]",
        ],
    );
    check(
        document!({"type": "object", "$ref": "x"}),
        &["<nil>: Invalid value: \"\": OpenAPIV3Schema '$ref' is not supported"],
    );
    check(
        document!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
        &[
            "properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but \
         isn't: error parsing regexp: missing closing ): `(`",
        ],
    );
}

#[test]
fn int_or_string_may_have_its_two_types_spelled_out() {
    for extra in [
        document!({}),
        document!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        document!({"allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"maxLength": 3}]}),
    ] {
        let mut port = extra;
        port.set(&["x-kubernetes-int-or-string"], true);
        let schema = with_spec(document!({"port": properties_of(&port)}));
        let valid = |value: Value| {
            let mut object = document!({"spec": {}});
            object.set(&["spec", "port"], value);
            schema.validate(&object, None).is_empty()
        };
        assert!(valid(1.into()) && valid("x".into()) && !valid(true.into()));
    }
}

#[test]
fn schemas_nested_too_deeply_are_refused() {
    let mut nested = document!({"type": "string"});
    for _ in 0..10_000 {
        nested = Value::Object(
            [
                ("items".to_string(), nested),
                ("type".to_string(), "array".into()),
            ]
            .into_iter()
            .collect(),
        );
    }
    let errors = Schema::from_document(&nested).expect_err("too deep");
    assert_eq!(
        texts(&errors),
        ["<nil>: Invalid value: exceeded max depth of 100"]
    );
    // Dropping it recurses, which documents that were read never are deep enough for.
    std::mem::forget(nested);
}

#[test]
fn equal_schemas_are_the_same_and_equal_parts_are_shared() {
    let document = document!({"type": "object", "properties": {
        "a": {"type": "string", "description": "one", "maxLength": 77},
        "b": {"type": "string", "description": "two", "maxLength": 77}}});
    let (one, another) = (schema(document.clone()), schema(document));
    assert!(Arc::ptr_eq(one.root(), another.root()));
    let property = |name| one.root().property(name).expect("declared").clone();
    assert!(Arc::ptr_eq(&property("a"), &property("b")));
}

#[test]
fn unused_schemas_are_removed() {
    let many: Vec<Schema> = (0..50)
        .map(|number| {
            with_spec(document!({"a": {"type": "integer", "maximum": 12_345_000 + number}}))
        })
        .collect();
    let (before, _) = shared_entries();
    drop(many);
    let (after, _) = shared_entries();
    assert!(after + 50 <= before, "{before} nodes, then {after}");
}

#[test]
fn defaults_are_kept_without_what_would_be_pruned() {
    let document = document!({"type": "object", "properties": {"a": {
        "type": "object", "default": {"known": "x", "unknown": "y"},
        "properties": {"known": {"type": "string"}}}}});
    let mut object = Value::object();
    schema(document.clone()).default(&mut object);
    assert_eq!(object, document!({"a": {"known": "x"}}));
    assert!(has_unpruned_defaults(&document));
    let errors = check_defaults(&document, &Path::new(""), true, None);
    assert_eq!(
        texts(&errors),
        [
            "properties[a].default: Invalid value: {\"known\":\"x\",\"unknown\":\"y\"}: must not \
             have unknown fields"
        ]
    );
}

#[test]
fn field_paths_follow_the_schema() {
    let schema = with_spec(document!({
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "a.b": {"type": "string"},
    }));
    let check = |path: &str, expected: Result<&str, &str>| {
        let found = field_path(path, schema.root(), true);
        let found = found
            .map(|found| found.text)
            .map_err(|error| error.to_string());
        assert_eq!(
            found,
            expected.map(str::to_string).map_err(str::to_string),
            "{path}"
        );
    };
    check(".spec.map.key", Ok("spec.map[key]"));
    check(".spec['a.b']", Ok("spec.a.b"));
    check("['spec']['map']['it\\'s']", Ok("spec.map[it's]"));
    check("spec", Err("expected [ or . but got: spec"));
    check(".spec.nothing", Err("does not refer to a valid field"));
    check(
        ".spec[map]",
        Err("expected single quoted string but got map"),
    );
    check(".", Err("unexpected end of JSON path"));
}

#[test]
fn columns_show_values_by_their_type() {
    let object = document!({
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a.b/c": "l"}},
        "spec": {"replicas": 3, "ratio": 1.5, "on": true, "hosts": ["x", "y"], "none": null},
        "status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
    });
    let now = "2026-01-01T01:30:00Z".parse().expect("a time");
    let cell = |kind: &str, path: &str| {
        let column = document!({"name": "X", "type": kind, "jsonPath": path});
        PrinterColumn::of(&column)
            .expect("a column")
            .cell(&object, now)
    };
    assert_eq!(cell("integer", ".spec.replicas"), document!(3));
    assert_eq!(cell("integer", ".spec.ratio"), document!(1));
    assert_eq!(cell("number", ".spec.replicas"), document!(3.0));
    assert_eq!(cell("string", ".spec.replicas"), document!("3"));
    assert_eq!(cell("string", ".spec.hosts"), document!("[\"x\",\"y\"]"));
    assert_eq!(cell("string", ".spec.hosts[*]"), document!("x"));
    assert_eq!(cell("string", ".spec.hosts[-1]"), document!("y"));
    assert_eq!(cell("string", ".spec.hosts[7]"), Value::Null);
    assert_eq!(cell("string", ".spec.nothing.here"), Value::Null);
    assert_eq!(cell("string", ".metadata.labels.a\\.b/c"), document!("l"));
    assert_eq!(
        cell("string", ".metadata.labels['a\\.b/c']"),
        document!("l")
    );
    assert_eq!(cell("boolean", ".spec.on"), document!(true));
    assert_eq!(cell("boolean", ".spec.replicas"), Value::Null);
    assert_eq!(
        cell("date", ".metadata.creationTimestamp"),
        document!("90m")
    );
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    assert_eq!(cell("string", ready), document!("True"));
    let other = ".status.conditions[?(@.type=='Other')].status";
    assert_eq!(cell("string", other), document!("False"));
    let broken = document!({"name": "X", "type": "string", "jsonPath": ".a[?(@.b"});
    assert!(PrinterColumn::of(&broken).is_err());
}

#[test]
fn sizes_are_estimated_from_declared_bounds() {
    let size = |document: Value| {
        let node = compile_unchecked(Props::of(&document));
        let size = estimate(&node, false).expect("visible");
        (size.max_elements, size.min_serialized_size)
    };
    assert_eq!(size(document!({"type": "string", "maxLength": 5})), (20, 2));
    assert_eq!(
        size(document!({"type": "string"})),
        (3 * 1024 * 1024 - 2, 2)
    );
    assert_eq!(
        size(document!({"type": "string", "enum": ["a", "abc"]})),
        (3, 2)
    );
    assert_eq!(
        size(document!({"type": "string", "format": "date-time"})),
        (32, 21)
    );
    assert_eq!(
        size(document!({"type": "array", "items": {"type": "integer"}})),
        ((3 * 1024 * 1024 - 2) / 2, 2)
    );
    assert_eq!(
        size(
            document!({"type": "object", "required": ["a", "b"], "properties": {
            "a": {"type": "boolean"}, "b": {"type": "string", "default": ""}}})
        ),
        (0, 2 + 1 + 4 + 4)
    );
}

#[test]
fn apply_knows_what_is_owned_in_parts() {
    let schema = with_spec(document!({
        "list": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object",
                "properties": {"name": {"type": "string", "default": "d"}}}},
        "plain": {"type": "array", "items": {"type": "string"}},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic",
            "additionalProperties": {"type": "string"}},
        "port": {"x-kubernetes-int-or-string": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }));
    let spec = schema.place().field("spec").expect("declared");
    let form = |name: &str| spec.field(name).expect("declared").form();
    assert_eq!(
        form("list"),
        Form::List {
            list_type: ListType::Map
        }
    );
    assert_eq!(
        form("plain"),
        Form::List {
            list_type: ListType::Atomic
        }
    );
    assert_eq!(form("atomic"), Form::Map { atomic: true });
    assert!(matches!(form("port"), Form::Any { .. }));
    assert!(matches!(
        schema.place().field("metadata"),
        Some(Place::Metadata)
    ));
    assert!(spec.field("nothing").is_none());
    let list = spec.field("list").expect("declared");
    assert_eq!(list.list_map_keys().len(), 1);
    assert_eq!(list.item().key_default("name"), Some(&"d".into()));
    let free = spec.field("free").expect("declared");
    assert!(matches!(free.field("x"), Some(Place::Deduced)));
}
