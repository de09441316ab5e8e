//! What the results of mutations make of objects.

use super::*;
use crate::custom::Schema;
use crate::document;

const POD: &str = "io.k8s.api.core.v1.Pod";

fn environment() -> cel::Environment {
    cel::Environment::for_new_expressions()
        .extend()
        .provider(std::sync::Arc::new(
            crate::expressions::patch_types::MutationTypes,
        ))
        .overloads(cel::libraries::jsonpatch::overloads())
        .variable("object", cel::Type::Dyn)
        .done()
}

/// Runs an expression over an object and hands the result on.
fn with_result<T>(
    text: &str,
    object: &document::Value,
    then: impl FnOnce(&Value<'_>) -> T,
) -> (cel::Type, T) {
    let checked = environment().compile(text).unwrap();
    let program = cel::Program::new(&checked).unwrap();
    let variables = [("object", super::super::dynamic::dynamic(object))];
    let outcome = program.evaluate(&variables, cel::Limits::default());
    (checked.result_type().clone(), then(&outcome.value.unwrap()))
}

fn applied(
    text: &str,
    target: Target<'_>,
    object: &document::Value,
) -> Result<document::Value, MutationError> {
    let (of, made) = with_result(text, object, |result| {
        apply_configuration(result, target, object)
    });
    assert_eq!(of, object_type());
    made
}

fn patched(text: &str, object: &document::Value) -> Result<Option<document::Value>, MutationError> {
    let (of, made) = with_result(text, object, |result| json_patch(result, object));
    assert_eq!(of, patches_type());
    made
}

fn pod() -> document::Value {
    document!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    })
}

fn refused(text: &str) -> String {
    let made = applied(text, Target::BuiltIn(POD), &pod());
    made.unwrap_err().to_string()
}

#[test]
fn a_sidecar_and_a_label_are_merged_into_a_pod() {
    let text = r#"
        Object{
            metadata: Object.metadata{labels: {"injected": "yes"}},
            spec: Object.spec{containers: [
                Object.spec.containers{name: "proxy", image: "proxy:2"},
                Object.spec.containers{name: "main", imagePullPolicy: "Always"},
            ]},
        }"#;
    let made = applied(text, Target::BuiltIn(POD), &pod()).unwrap();
    let expected = document!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web", "injected": "yes"}},
        "spec": {"containers": [
            {"name": "proxy", "image": "proxy:2"},
            {"name": "main", "image": "nginx:1", "imagePullPolicy": "Always"},
        ]},
    });
    assert_eq!(made, expected);
}

#[test]
fn a_configuration_is_of_the_kind_of_its_object() {
    let text = r#"Object{kind: "Service", apiVersion: "apps/v1"}"#;
    let made = applied(text, Target::BuiltIn(POD), &pod()).unwrap();
    assert_eq!(made, pod());
}

#[test]
fn values_of_the_object_are_copied_into_a_configuration() {
    let text = r#"Object{metadata: Object.metadata{annotations: object.metadata.labels}}"#;
    let made = applied(text, Target::BuiltIn(POD), &pod()).unwrap();
    assert_eq!(made.str_at(&["metadata", "annotations", "app"]), "web");
}

#[test]
fn what_is_atomic_is_not_mutated() {
    assert_eq!(
        refused(r#"Object{spec: Object.spec{nodeSelector: {"a": "b"}}}"#),
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector"
    );
    assert_eq!(
        refused(
            r#"Object{spec: Object.spec{containers: [
                Object.spec.containers{name: "main", args: ["a"]},
            ]}}"#
        ),
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args"
    );
}

#[test]
fn what_the_schema_does_not_have_is_refused() {
    assert_eq!(
        refused(r#"Object{spec: Object.spec{nonsense: 1}}"#),
        "error applying patch: failed to convert patch object to typed object: .spec.nonsense: field not declared in schema"
    );
}

#[test]
fn types_say_where_their_objects_are() {
    assert_eq!(
        refused(r#"Object{spec: Object.wrong{}}"#),
        r#"type mismatch: unexpected type name "Object.wrong", expected "Object.spec", which matches field name path from root Object type"#
    );
    let text = r#"Object{spec: Object.spec{containers: [Object.spec.initContainers{name: "a"}]}}"#;
    assert_eq!(
        refused(text),
        r#"type mismatch: unexpected type name "Object.spec.initContainers", expected "Object.spec.containers", which matches field name path from root Object type"#
    );
}

#[test]
fn what_has_no_form_in_json_is_refused() {
    let text = r#"Object{metadata: Object.metadata{labels: {1: "a"}}}"#;
    assert_eq!(refused(text), "invalid return type: *dynamic.ObjectVal");
}

#[test]
fn lists_of_a_custom_kind_merge_by_their_keys() {
    let schema = Schema::from_document(&document!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "number": {"type": "integer"},
                }},
            },
            "plain": {"type": "array", "items": {"type": "string"}},
        }}},
    }))
    .unwrap();
    let widget = document!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"ports": [{"name": "a", "number": 1}, {"name": "b", "number": 2}]},
    });
    let text = r#"Object{spec: Object.spec{ports: [
        Object.spec.ports{name: "b", number: 3}, Object.spec.ports{name: "c"},
    ]}}"#;
    let made = applied(text, Target::Custom(&schema), &widget).unwrap();
    assert_eq!(
        made.at(&["spec", "ports"]),
        Some(&document!([
            {"name": "a", "number": 1}, {"name": "b", "number": 3}, {"name": "c"},
        ]))
    );
    let text = r#"Object{spec: Object.spec{plain: ["a"]}}"#;
    let made = applied(text, Target::Custom(&schema), &widget);
    assert_eq!(
        made.unwrap_err().to_string(),
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.plain"
    );
}

#[test]
fn a_json_patch_adds_replaces_and_removes() {
    let text = r#"[
        JSONPatch{op: "test", path: "/metadata/labels/app", value: "web"},
        JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/a~b"), value: "1"},
        JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "nginx:2"},
        JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "proxy"}},
        JSONPatch{op: "copy", from: "/metadata/labels/app", path: "/metadata/labels/copy"},
        JSONPatch{op: "remove", path: "/metadata/labels/app"},
    ]"#;
    let made = patched(text, &pod()).unwrap().unwrap();
    let expected = document!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"copy": "web", "example.com/a~b": "1"}},
        "spec": {"containers": [{"name": "main", "image": "nginx:2"}, {"name": "proxy"}]},
    });
    assert_eq!(made, expected);
}

#[test]
fn a_failed_test_leaves_the_object_as_it_is() {
    let text = r#"[
        JSONPatch{op: "test", path: "/metadata/labels/app", value: "other"},
        JSONPatch{op: "remove", path: "/metadata/labels"},
    ]"#;
    assert_eq!(patched(text, &pod()), Ok(None));
}

#[test]
fn a_patch_that_does_not_apply_is_refused_in_upstreams_words() {
    let text = r#"[JSONPatch{op: "remove", path: "/spec/none/deeper"}]"#;
    assert_eq!(
        patched(text, &pod()).unwrap_err().to_string(),
        "JSON Patch: remove operation does not apply: doc is missing path: \"/spec/none/deeper\": missing value"
    );
    let text = r#"[JSONPatch{op: "add", path: "/spec", value: Object.spec{a: Object.spec.b{}}}]"#;
    assert_eq!(
        patched(text, &pod()).unwrap_err().to_string(),
        r#"type mismatch: unexpected type name "Object.spec.b", expected "Object.spec.a", which matches field name path from root Object type"#
    );
}

#[test]
fn values_of_patches_are_written_as_protocol_buffers_write_json() {
    let text = r#"[JSONPatch{op: "add", path: "/metadata/annotations", value: {
        "bytes": dyn(b"abc"), "duration": dyn(duration("90s")), "large": dyn(9007199254740993),
        "least": dyn(-9223372036854775808), "most": dyn(18446744073709551615u),
        "small": dyn(3), "time": dyn(timestamp("2026-01-02T03:04:05Z")), "nothing": dyn(null),
    }}]"#;
    let made = patched(text, &pod()).unwrap().unwrap();
    let expected = document!({
        "bytes": "YWJj", "duration": "90s", "large": "9007199254740993", "small": 3,
        "least": "-9223372036854775808", "most": "18446744073709551615",
        "time": "2026-01-02T03:04:05Z", "nothing": null,
    });
    assert_eq!(made.at(&["metadata", "annotations"]), Some(&expected));
}

#[test]
fn a_value_that_is_huge_when_written_is_refused() {
    let mut value = Value::from("0123456789");
    for _ in 0..40 {
        value = Value::list(vec![value.clone(), value]);
    }
    let object = cel::value::Object::new("Object".into(), vec![("spec".into(), value)]);
    let made = apply_configuration(
        &Value::Object(std::sync::Arc::new(object)),
        Target::BuiltIn(POD),
        &pod(),
    );
    assert_eq!(made, Err(MutationError::Unwritable(NotJson::TooLarge)));
}
