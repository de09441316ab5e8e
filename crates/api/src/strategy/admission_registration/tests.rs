//! What upstream answers to configurations and policies that are wrong.

use super::*;
use crate::resource::Strategy;

const MUTATING: WebhookConfiguration = WebhookConfiguration { is_mutating: true };

fn hook() -> Value {
    crate::document!({
        "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "hook", "namespace": "shop", "path": "/a"}},
        "rules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods"],
        }],
    })
}

fn configuration(hook: Value) -> Value {
    let mut configuration = crate::document!({"metadata": {"name": "c"}});
    configuration.set(&["webhooks"], vec![hook]);
    MUTATING.default(&mut configuration);
    configuration
}

#[track_caller]
fn check_hook(change: impl FnOnce(&mut Value), expected: &[&str]) {
    let mut hook = hook();
    change(&mut hook);
    let errors = MUTATING.validate_create(&configuration(hook));
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

#[test]
fn a_hook_is_filled_in_as_upstream_fills_it_in() {
    let made = configuration(hook());
    let expected = crate::document!({
        "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {},
        "objectSelector": {}, "timeoutSeconds": 10, "reinvocationPolicy": "Never",
    });
    let made = &made.list_at(&["webhooks"])[0];
    for (field, value) in expected.fields_at(&[]) {
        assert_eq!(made.get(field), Some(value), "{field}");
    }
    assert_eq!(made.i64_at(&["clientConfig", "service", "port"]), Some(443));
    assert_eq!(made.list_at(&["rules"])[0].str_at(&["scope"]), "*");
    check_hook(|_| {}, &[]);
}

#[test]
fn a_hook_has_a_full_name_and_says_what_it_understands() {
    check_hook(
        |hook| hook.set(&["name"], "hook"),
        &[
            "webhooks[0].name: Invalid value: \"hook\": should be a domain with at least three segments separated by dots",
        ],
    );
    check_hook(
        |hook| hook.set(&["admissionReviewVersions"], crate::document!(["v3"])),
        &[
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v3\"]: must include at least one of v1, v1beta1",
        ],
    );
    check_hook(
        |hook| drop(hook.remove(&["admissionReviewVersions"])),
        &["webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"],
    );
    check_hook(
        |hook| hook.set(&["sideEffects"], "Some"),
        &[
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ],
    );
    check_hook(
        |hook| drop(hook.remove(&["sideEffects"])),
        &["webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"],
    );
    check_hook(
        |hook| hook.set(&["timeoutSeconds"], 31),
        &[
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ],
    );
}

#[test]
fn a_hook_is_at_one_place() {
    let config = ["clientConfig"];
    check_hook(
        |hook| hook.set(&config, Value::object()),
        &["webhooks[0].clientConfig: Required value: exactly one of url or service is required"],
    );
    check_hook(
        |hook| hook.set(&config, crate::document!({"url": "http://user@/x?a#b"})),
        &[
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
            "webhooks[0].clientConfig.url: Invalid value: \"\": host must be specified; desired format: https://host[/path]",
            "webhooks[0].clientConfig.url: Invalid value: \"user\": user information is not permitted in the URL",
            "webhooks[0].clientConfig.url: Invalid value: \"b\": fragments are not permitted in the URL",
            "webhooks[0].clientConfig.url: Invalid value: \"a\": query parameters are not permitted in the URL",
        ],
    );
    check_hook(
        |hook| hook.set(&["clientConfig", "service", "path"], "foo//"),
        &[
            "webhooks[0].clientConfig.service.path: Invalid value: \"foo//\": must start with a '/'",
            "webhooks[0].clientConfig.service.path: Invalid value: \"foo//\": segment[1] may not be empty",
        ],
    );
}

#[test]
fn a_rule_names_something_and_not_twice() {
    let rules = |resources: Value| {
        let mut rule = crate::document!({
            "operations": ["*", "CREATE"], "apiGroups": ["a", "*"], "apiVersions": [""],
        });
        rule.set(&["resources"], resources);
        Value::Array(vec![rule])
    };
    let at = "webhooks[0].rules[0]";
    check_hook(
        |hook| hook.set(&["rules"], rules(crate::document!(["a/*", "a/b", "*/*"]))),
        &[
            &format!(
                "{at}.operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations"
            ),
            &format!(
                "{at}.apiGroups: Invalid value: [\"a\",\"*\"]: if '*' is present, must not specify other API groups"
            ),
            &format!("{at}.apiVersions[0]: Required value"),
            &format!(
                "{at}.resources[1]: Invalid value: \"a/b\": if 'a/*' is present, must not specify a/b"
            ),
            &format!(
                "{at}.resources: Invalid value: [\"a/*\",\"a/b\",\"*/*\"]: if '*/*' is present, must not specify other resources"
            ),
        ],
    );
}

#[test]
fn what_was_stored_wrong_may_stay_wrong() {
    let mut old = configuration(hook());
    old.list_at_mut(&["webhooks"])[0].set(&["sideEffects"], "Unknown");
    let errors = MUTATING.validate_update_content(&old, &old, "");
    assert!(errors.is_empty(), "{errors:?}");
    let good = configuration(hook());
    let errors = MUTATING.validate_update_content(&old, &good, "");
    assert_eq!(errors.len(), 1, "{errors:?}");
}

fn policy() -> Value {
    let mut policy = crate::document!({
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods"],
            }]},
            "validations": [{"expression": "true"}],
        },
    });
    ValidatingAdmissionPolicy.default(&mut policy);
    policy
}

#[track_caller]
fn check_policy(change: impl FnOnce(&mut Value), expected: &[&str]) {
    let mut policy = policy();
    change(&mut policy);
    let errors = ValidatingAdmissionPolicy.validate_create(&policy);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

#[test]
fn a_validating_policy_says_what_it_validates() {
    check_policy(|_| {}, &[]);
    check_policy(
        |policy| drop(policy.remove(&["spec", "matchConstraints"])),
        &["spec.matchConstraints: Required value"],
    );
    check_policy(
        |policy| drop(policy.remove(&["spec", "validations"])),
        &[
            "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
            "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
        ],
    );
    let validation = crate::document!([{"expression": " ", "message": "a\nb", "reason": "Other"}]);
    check_policy(
        |policy| policy.set(&["spec", "validations"], validation),
        &[
            "spec.validations[0].expression: Required value: expression is not specified",
            "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
            "spec.validations[0].reason: Unsupported value: \"Other\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
        ],
    );
    let variables = crate::document!([{"name": "while", "expression": "1"}]);
    check_policy(
        |policy| policy.set(&["spec", "variables"], variables),
        &["spec.variables[0].name: Invalid value: \"while\": must be a valid CEL identifier"],
    );
    let kind = crate::document!({"apiVersion": "a/b/c", "kind": "A_B"});
    check_policy(
        |policy| policy.set(&["spec", "paramKind"], kind),
        &[
            "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "spec.paramKind.kind: Invalid value: \"A_B\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
}

#[test]
fn a_mutating_policy_says_how_it_mutates() {
    let mut policy = policy();
    policy.remove(&["spec", "validations"]);
    policy.set(
        &["spec", "mutations"],
        crate::document!([
            {"patchType": "JSONPatch", "applyConfiguration": {"expression": "x"}},
            {"patchType": "Other"},
        ]),
    );
    let rules = policy.at_mut(&["spec", "matchConstraints", "resourceRules"]);
    if let Some(Value::Array(rules)) = rules {
        rules[0].set(&["operations"], crate::document!(["DELETE"]));
    }
    let errors = MutatingAdmissionPolicy.validate_create(&policy);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
            "spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch",
            "spec.mutations[1].patchType: Unsupported value: \"Other\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
            "spec.reinvocationPolicy: Required value",
        ]
    );
}

#[test]
fn a_binding_names_a_policy_and_one_way_to_its_parameters() {
    let binding = PolicyBinding { is_mutating: false };
    let mut object = crate::document!({
        "metadata": {"name": "b"},
        "spec": {
            "paramRef": {"name": "a", "selector": {}}, "validationActions": ["Deny", "Warn", "Deny"],
        },
    });
    binding.default(&mut object);
    let errors = binding.validate_create(&object);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "spec.policyName: Required value",
            "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
            "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
            "spec.paramRef.parameterNotFoundAction: Required value",
            "spec.validationActions[2]: Duplicate value: \"Deny\"",
            "spec.validationActions: Invalid value: [\"Deny\",\"Warn\",\"Deny\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        ]
    );
    let now = jiff::Timestamp::UNIX_EPOCH;
    assert_eq!(binding.cells(&object, now)[2], Value::from("*/a"));
}
