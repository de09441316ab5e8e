//! Messages as Kubernetes has them.

use crate::custom::Schema;
use crate::document::Value;
use crate::{FieldError, document};

/// Judges `spec.x` by a schema.
fn errors(schema: Value, value: Value) -> Vec<String> {
    let mut document = document!({"type": "object", "properties": {"spec": {"type": "object"}}});
    document.set(&["properties", "spec", "properties", "x"], schema);
    let schema = Schema::from_document(&document).expect("a structural schema");
    let mut object = document!({"spec": {}});
    object.set(&["spec", "x"], value);
    let errors = schema.validate(&object, None);
    errors.iter().map(FieldError::to_string).collect()
}

#[test]
fn single_checks_have_upstreams_words() {
    let check = |schema: Value, value: Value, expected: &str| {
        assert_eq!(errors(schema, value), [expected]);
    };
    check(
        document!({"type": "integer", "minimum": 1}),
        document!(0),
        "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
    );
    check(
        document!({"type": "number", "maximum": 1, "exclusiveMaximum": true}),
        document!(1.5),
        "spec.x: Invalid value: 1.5: spec.x in body should be less than 1",
    );
    check(
        document!({"type": "string"}),
        document!(null),
        "spec.x: Invalid value: \"null\": spec.x in body must be of type string: \"null\"",
    );
    check(
        document!({"type": "string", "pattern": "^a$"}),
        document!("b"),
        "spec.x: Invalid value: \"b\": spec.x in body should match '^a$'",
    );
    check(
        document!({"type": "string", "minLength": 2}),
        document!("b"),
        "spec.x: Invalid value: \"b\": spec.x in body should be at least 2 chars long",
    );
    check(
        document!({"type": "string", "enum": ["a", "b"]}),
        document!("c"),
        "spec.x: Unsupported value: \"c\": supported values: \"a\", \"b\"",
    );
    check(
        document!({"type": "string", "format": "ipv4"}),
        document!("c"),
        "spec.x: Invalid value: \"c\": spec.x in body must be of type ipv4: \"c\"",
    );
    check(
        document!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
        document!(["a", "b"]),
        "spec.x: Too many: 2: must have at most 1 item",
    );
    check(
        document!({"type": "object", "minProperties": 1}),
        document!({}),
        "spec.x: Invalid value: 0: spec.x in body should have at least 1 properties",
    );
    check(
        document!({"type": "object", "required": ["y"]}),
        document!({}),
        "spec.x.y: Required value",
    );
    check(
        document!({"type": "integer", "multipleOf": 3}),
        document!(4),
        "spec.x: Invalid value: 4: spec.x in body should be a multiple of 3",
    );
    check(
        document!({"type": "integer", "format": "int32"}),
        document!(2_147_483_648_i64),
        "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.x",
    );
}

#[test]
fn alternatives_tell_the_errors_of_the_one_that_matched_best() {
    let schema = document!({
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    });
    assert_eq!(
        errors(schema.clone(), document!({"a": "1", "b": "2"})),
        [
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). \
             Found 2 valid alternatives"
        ]
    );
    assert_eq!(
        errors(schema, document!({})),
        [
            "<nil>: Invalid value: \"\": \"spec.x\" must validate one and only one schema (oneOf). \
             Found none valid",
            "spec.x.a: Required value",
        ]
    );
    let schema = document!({"type": "string", "not": {"enum": ["a"]}});
    assert_eq!(
        errors(schema, document!("a")),
        ["<nil>: Invalid value: \"\": \"spec.x\" must not validate the schema (not)"]
    );
}

#[test]
fn errors_are_bounded() {
    let values: Vec<String> = (0..200).map(|number| format!("value-{number}")).collect();
    let mut schema = document!({"type": "array", "items": {"type": "string"}});
    let allowed = values.into_iter().map(Value::from).collect::<Vec<_>>();
    schema.set(&["items", "enum"], allowed);
    let items = vec![Value::from("x"); 20_000];
    let found = errors(schema, Value::Array(items));
    assert!(!found.is_empty() && found.len() < 2000, "{}", found.len());
}

#[test]
fn the_work_for_one_object_is_bounded() {
    let listed: Vec<Value> = (0..5_000).map(Value::from).collect();
    let mut schema = document!({"type": "array", "items": {"type": "integer"}});
    schema.set(&["items", "enum"], listed);
    let fit: Vec<Value> = vec![0.into(); 5_000];
    assert!(errors(schema.clone(), Value::Array(fit)).is_empty());
    let items: Vec<Value> = vec![0.into(); 20_000];
    assert_eq!(
        errors(schema.clone(), Value::Array(items.clone())),
        [
            "<nil>: Invalid value: \"\": the object was not validated to its end: object and schema \
             together need more than 50000000 steps"
        ]
    );
    // An alternative that was not judged to its end does not pass for one that does not hold.
    let listed = schema.at(&["items", "enum"]).cloned().expect("declared");
    let schema = document!({
        "type": "array", "items": {"type": "integer"}, "not": {"items": {"enum": listed}},
    });
    let items = [vec![(-1).into()], items].concat();
    assert_eq!(errors(schema, Value::Array(items)).len(), 1);
}
