//! Rules of custom resources over schemas and documents.

use super::{RULES, names};
use crate::custom::{Judged, Schema};
use crate::document;
use crate::document::Value;

fn schema(spec: Value) -> Schema {
    let root = document!({"type": "object", "properties": {"spec": spec}});
    Schema::from_document(&root).expect("a structural schema")
}

/// The errors of an object's rules.
fn judged(schema: &Schema, spec: Value, old: Option<Value>) -> Vec<String> {
    let wrap = |spec: Value| document!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    let (object, old) = (wrap(spec), old.map(wrap));
    let findings = schema.judge(Judged {
        object: &object,
        old: old.as_ref(),
        status_only: false,
        scale: None,
        expressions: Some(RULES),
        errors: Vec::new(),
    });
    findings.errors.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_compare_fields() {
    let schema = schema(document!({
        "type": "object",
        "properties": {
            "replicas": {"type": "integer"}, "maxReplicas": {"type": "integer"},
            "name": {"type": "string"}, "when": {"type": "string", "format": "date-time"},
            "ratio": {"type": "number"}, "port": {"x-kubernetes-int-or-string": true},
            "a-b": {"type": "boolean"}, "namespace": {"type": "string"},
        },
        "x-kubernetes-validations": [
            {"rule": "self.replicas <= self.maxReplicas", "message": "too many"},
            {"rule": "!has(self.name) || self.name.startsWith('a')", "messageExpression": "'bad name ' + self.name"},
            {"rule": "!has(self.when) || self.when > timestamp('2000-01-01T00:00:00Z')"},
            {"rule": "!has(self.ratio) || self.ratio < 1.0"},
            {"rule": "!has(self.port) || (type(self.port) == int ? self.port < 100 : self.port == 'http')"},
            {"rule": "!has(self.a__dash__b) || self.a__dash__b"},
            {"rule": "!has(self.__namespace__) || self.__namespace__ != 'x'"},
            {"rule": "!has(self.namespace) || self.namespace != 'x'"},
        ],
    }));
    let good = document!({
        "replicas": 1, "maxReplicas": 2, "name": "ab", "when": "2026-01-01T00:00:00Z",
        "ratio": 0, "port": 80, "a-b": true, "namespace": "y",
    });
    assert_eq!(judged(&schema, good, None), [""; 0]);
    let bad = document!({
        "replicas": 3, "maxReplicas": 2, "name": "b", "when": "1999-01-01T00:00:00Z",
        "ratio": 1, "port": "ftp", "a-b": false, "namespace": "x",
    });
    let errors = judged(&schema, bad, None);
    assert_eq!(errors.len(), 8, "{errors:?}");
    assert_eq!(errors[0], "spec: Invalid value: too many");
    assert_eq!(errors[1], "spec: Invalid value: bad name b");
    assert!(
        errors[2].contains("failed rule: !has(self.when)"),
        "{}",
        errors[2]
    );
}

#[test]
fn transition_rules_see_the_old_value() {
    let schema = schema(document!({
        "type": "object",
        "properties": {
            "class": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "class is immutable"}]},
            "size": {"type": "integer", "x-kubernetes-validations": [
                {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true, "message": "cannot shrink"}]},
        },
    }));
    let spec = |class: &str, size: i64| document!({"class": class, "size": size});
    assert_eq!(judged(&schema, spec("a", 1), None), [""; 0]);
    assert_eq!(judged(&schema, spec("a", 2), Some(spec("a", 1))), [""; 0]);
    let errors = judged(&schema, spec("b", 1), Some(spec("a", 2)));
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("class is immutable"), "{errors:?}");
    assert!(errors[1].contains("cannot shrink"), "{errors:?}");
}

#[test]
fn lists_of_keyed_items_and_maps_are_read_in_place() {
    let schema = schema(document!({
        "type": "object",
        "properties": {
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "maxItems": 5,
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "x-kubernetes-validations": [
            {"rule": "self.ports.all(p, p.port > 0)"},
            {"rule": "!has(self.labels) || self.labels.all(key, self.labels[key] != '')"},
            {"rule": "self.ports == oldSelf.ports", "message": "changed"},
        ],
    }));
    let port = |name: &str, port: i64| document!({"name": name, "port": port});
    let two = document!({"ports": [port("a", 1), port("b", 2)], "labels": {"x-y": "1"}});
    let turned = document!({"ports": [port("b", 2), port("a", 1)], "labels": {"x-y": "1"}});
    assert_eq!(judged(&schema, turned, Some(two.clone())), [""; 0]);
    let other = document!({"ports": [port("b", 3), port("a", 1)], "labels": {"x-y": ""}});
    let errors = judged(&schema, other, Some(two));
    assert_eq!(errors.len(), 2, "{errors:?}");
}

#[test]
fn parts_that_no_schema_describes_still_count_in_comparisons() {
    let schema = schema(document!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"any": {"x-kubernetes-preserve-unknown-fields": true}},
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}],
    }));
    let spec = |value: i64| document!({"any": {"deep": [value]}, "other": {"x": 1}});
    assert_eq!(judged(&schema, spec(1), Some(spec(1))), [""; 0]);
    let errors = judged(&schema, spec(2), Some(spec(1)));
    assert_eq!(errors, ["spec: Invalid value: immutable"]);
}

#[test]
fn mistakes_in_rules_are_worded_as_upstream_words_them() {
    let schema = schema(document!({
        "type": "object", "properties": {"a": {"type": "integer"}},
        "x-kubernetes-validations": [
            {"rule": "self.b > 1"}, {"rule": "self.a"}, {"rule": "self.a + 'x' == 'x'"}],
    }));
    let errors = judged(&schema, document!({"a": 1}), None);
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(
        errors[0].contains("compilation failed: ERROR: <input>:1:5: undefined field 'b'"),
        "{errors:?}"
    );
    assert!(
        errors[1].contains("cel expression must evaluate to a bool"),
        "{errors:?}"
    );
    assert!(
        errors[2].contains("found no matching overload for '_+_' applied to '(int, string)'"),
        "{errors:?}"
    );
}

#[test]
fn a_rule_that_explodes_ends_by_its_cost() {
    let schema = schema(document!({
        "type": "object",
        "properties": {"list": {"type": "array", "items": {"type": "integer"}}},
        "x-kubernetes-validations": [
            {"rule": "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))"}],
    }));
    let list: Vec<Value> = (0..1_000).map(Value::from).collect();
    let errors = judged(&schema, document!({"list": list}), None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].contains("call cost exceeds limit for rule"),
        "{errors:?}"
    );
}

#[test]
fn properties_are_named_by_identifiers() {
    for (name, identifier) in [
        ("plain", "plain"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
    ] {
        assert_eq!(names::escape(name).as_deref(), Some(identifier));
        assert_eq!(names::unescape(identifier).as_deref(), Some(name));
    }
    for name in ["", "1a", "a b", "ä"] {
        assert_eq!(names::escape(name), None, "{name}");
    }
    assert_eq!(names::unescape("a__nothing__b"), None);
}
