//! What upstream answers to policies whose expressions are wrong.

use super::*;
use crate::resource::Strategy;

fn constraints() -> Value {
    crate::document!({"resourceRules": [{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }]})
}

fn validating(spec: Value) -> Value {
    let mut policy = crate::document!({"metadata": {"name": "p"}, "spec": spec});
    policy.set(&["spec", "matchConstraints"], constraints());
    ValidatingAdmissionPolicy.default(&mut policy);
    policy
}

fn mutating(variables: Value, mutation: Value) -> Value {
    let mut policy = crate::document!({"metadata": {"name": "p"}, "spec": {
        "reinvocationPolicy": "Never", "variables": variables, "mutations": [mutation],
    }});
    policy.set(&["spec", "matchConstraints"], constraints());
    MutatingAdmissionPolicy.default(&mut policy);
    policy
}

fn configuration(text: &str) -> Value {
    crate::document!({
        "patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text},
    })
}

fn patch(text: &str) -> Value {
    crate::document!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}})
}

fn none() -> Value {
    crate::document!([])
}

#[track_caller]
fn check(strategy: &dyn Strategy, policy: &Value, expected: &[&str]) {
    let errors = strategy.validate_create(policy);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

#[track_caller]
fn check_validating(spec: Value, expected: &[&str]) {
    check(&ValidatingAdmissionPolicy, &validating(spec), expected);
}

#[track_caller]
fn check_mutating(variables: Value, mutation: Value, expected: &[&str]) {
    check(
        &MutatingAdmissionPolicy,
        &mutating(variables, mutation),
        expected,
    );
}

#[test]
fn variables_are_known_to_what_comes_after_them() {
    check_validating(
        crate::document!({
            "variables": [
                {"name": "a", "expression": "object.spec.replicas > 1"},
                {"name": "b", "expression": "variables.a ? 'x' : 'y'"},
            ],
            "validations": [{
                "expression": "variables.b == 'x'", "messageExpression": "variables.b",
            }],
            "auditAnnotations": [{"key": "k", "valueExpression": "variables.b"}],
        }),
        &[],
    );
    check_validating(
        crate::document!({
            "variables": [
                {"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "'x'"},
            ],
            "validations": [{"expression": "variables.b"}],
        }),
        &[
            "spec.variables[0].expression: Invalid value: \"variables.b\": compilation failed: ERROR: <input>:1:10: undefined field 'b'\n | variables.b\n | .........^",
            "spec.validations[0].expression: Invalid value: \"variables.b\": must evaluate to bool but got string",
        ],
    );
}

#[test]
fn a_policy_without_variables_has_none_to_read() {
    let spec = crate::document!({"validations": [{"expression": "variables.a"}]});
    check_validating(
        spec,
        &[
            "spec.validations[0].expression: Invalid value: \"variables.a\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.a\n | ^",
        ],
    );
}

#[test]
fn messages_and_annotations_return_text() {
    check_validating(
        crate::document!({
            "validations": [{"expression": "true", "messageExpression": "1 + 1"}],
            "auditAnnotations": [
                {"key": "a", "valueExpression": " true "}, {"key": "b", "valueExpression": "null"},
            ],
        }),
        &[
            "spec.validations[0].messageExpression: Invalid value: \"1 + 1\": must evaluate to string but got int",
            "spec.auditAnnotations[0].valueExpression: Invalid value: \" true \": must evaluate to one of [string null_type] but got bool",
        ],
    );
}

#[test]
fn messages_have_no_authorizer() {
    let text = "string(authorizer.path('/').check('get').allowed())";
    let spec =
        crate::document!({"validations": [{"expression": "true", "messageExpression": text}]});
    let errors = ValidatingAdmissionPolicy.validate_create(&validating(spec));
    assert!(
        errors[0]
            .to_string()
            .contains("undeclared reference to 'authorizer'"),
        "{errors:?}"
    );
}

#[test]
fn an_apply_configuration_returns_an_object() {
    let good = r#"Object{metadata: Object.metadata{labels: {"a": variables.value}}}"#;
    let variables = crate::document!([{"name": "value", "expression": "'x'"}]);
    check_mutating(variables, configuration(good), &[]);
    check_mutating(
        none(),
        configuration("Object.spec{}"),
        &[
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"Object.spec{}\": must evaluate to Object but got Object.spec",
        ],
    );
    check_mutating(
        none(),
        configuration("Objects{}"),
        &[
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"Objects{}\": compilation failed: ERROR: <input>:1:8: undeclared reference to 'Objects' (in container '')\n | Objects{}\n | .......^",
        ],
    );
}

#[test]
fn a_json_patch_returns_a_list_of_operations() {
    let good = r#"[JSONPatch{op: "add", path: "/a/" + jsonpatch.escapeKey("b/c"), value: 1}]"#;
    check_mutating(none(), patch(good), &[]);
    check_mutating(
        none(),
        patch("[1]"),
        &[
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"[1]\": must evaluate to list(JSONPatch) but got list(int)",
        ],
    );
    check_mutating(
        none(),
        patch("[JSONPatch{op: 1}]"),
        &[
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"[JSONPatch{op: 1}]\": compilation failed: ERROR: <input>:1:14: expected type of field 'op' is 'string' but provided type is 'int'\n | [JSONPatch{op: 1}]\n | .............^",
        ],
    );
}

#[test]
fn only_mutations_know_the_types_of_patches() {
    let spec = crate::document!({"validations": [{"expression": "Object{} == Object{}"}]});
    let errors = ValidatingAdmissionPolicy.validate_create(&validating(spec));
    assert!(
        errors[0]
            .to_string()
            .contains("undeclared reference to 'Object'"),
        "{errors:?}"
    );
}

#[test]
fn what_was_stored_may_use_what_newer_servers_have() {
    // Nothing that this version knows is newer than the version it is compatible with, so that the two
    // answers can only be the same; what is wrong stays wrong.
    let stored = mutating(none(), configuration("Object.spec{}"));
    let errors = MutatingAdmissionPolicy.validate_update_content(&stored, &stored, "");
    assert_eq!(errors.len(), 1);
    let spec = crate::document!({
        "matchConditions": [{"name": "a", "expression": "nothing"}],
        "validations": [{"expression": "true"}],
    });
    let stored = validating(spec);
    // Match conditions that stay as they are are not looked at.
    let errors = ValidatingAdmissionPolicy.validate_update_content(&stored, &stored, "");
    assert_eq!(errors, []);
}
