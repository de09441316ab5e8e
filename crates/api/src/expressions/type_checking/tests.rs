//! Which kinds are checked, and what is found.

use super::*;
use crate::document;

const DEPLOYMENT: &str = "io.k8s.api.apps.v1.Deployment";
const REPLICA_SET: &str = "io.k8s.api.apps.v1.ReplicaSet";
const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";

fn kind(name: &str) -> KindName {
    KindName {
        group: "apps".to_string(),
        version: "v1".to_string(),
        kind: name.to_string(),
    }
}

fn deployments() -> Vec<(KindName, KindSchema)> {
    vec![(kind("Deployment"), KindSchema::BuiltIn(DEPLOYMENT))]
}

fn policy(expression: &str) -> Value {
    document!({"spec": {"validations": [{"expression": expression}]}})
}

fn check(expression: &str) -> Vec<ExpressionWarning> {
    warnings(&policy(expression), &deployments(), &ParamTypes::Absent)
}

#[test]
fn what_fits_the_kind_has_no_warning() {
    for expression in [
        "object.spec.replicas > 1",
        "object.metadata.labels['a'] == 'b' && oldObject == null",
        "object.spec.template.spec.containers.all(c, c.image.startsWith('a'))",
        "object.metadata.creationTimestamp < timestamp('2026-01-01T00:00:00Z')",
        "object.spec.strategy.rollingUpdate.maxSurge == 3",
        "request.operation == 'CREATE' && namespaceObject.metadata.name == 'a'",
        "authorizer.group('').resource('pods').check('get').allowed()",
    ] {
        assert_eq!(check(expression), [], "{expression}");
    }
}

#[test]
fn a_field_that_the_kind_does_not_have_is_told() {
    let expected = ExpressionWarning {
        field_ref: "spec.validations[0].expression".to_string(),
        warning: "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replicated'\n | object.spec.replicated > 1\n | ...........^\n"
            .to_string(),
    };
    assert_eq!(check("object.spec.replicated > 1"), [expected]);
}

#[test]
fn types_are_compared() {
    let found = check("object.spec.replicas > '1'");
    assert!(
        found[0]
            .warning
            .contains("no matching overload for '_>_' applied to '(int, string)'"),
        "{found:?}"
    );
}

#[test]
fn every_kind_has_a_warning_of_its_own() {
    let kinds = [
        (kind("Deployment"), KindSchema::BuiltIn(DEPLOYMENT)),
        (kind("ReplicaSet"), KindSchema::BuiltIn(REPLICA_SET)),
    ];
    let policy = document!({"spec": {"validations": [{
        "expression": "has(object.spec.strategy)", "messageExpression": "object.spec.nothing",
    }]}});
    let found = warnings(&policy, &kinds, &ParamTypes::Absent);
    let refs: Vec<&str> = found.iter().map(|found| found.field_ref.as_str()).collect();
    assert_eq!(
        refs,
        [
            "spec.validations[0].expression",
            "spec.validations[0].messageExpression"
        ]
    );
    assert!(found[0].warning.starts_with("apps/v1, Kind=ReplicaSet: "));
    let two: Vec<&str> = found[1].warning.split("\n\n").collect();
    assert_eq!(two.len(), 2);
    assert!(two[0].starts_with("apps/v1, Kind=Deployment: "));
    assert!(two[1].starts_with("apps/v1, Kind=ReplicaSet: "));
}

#[test]
fn variables_have_the_types_of_their_expressions() {
    let policy = document!({"spec": {
        "variables": [
            {"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "twice", "expression": "variables.replicas * 2"},
            {"name": "wrong", "expression": "object.nothing"},
        ],
        "validations": [
            {"expression": "variables.twice > 2 && variables.wrong == 'a'"},
            {"expression": "variables.twice > '2'"},
            {"expression": "variables.unknown"},
        ],
    }});
    let found = warnings(&policy, &deployments(), &ParamTypes::Absent);
    let refs: Vec<&str> = found.iter().map(|found| found.field_ref.as_str()).collect();
    assert_eq!(
        refs,
        [
            "spec.validations[1].expression",
            "spec.validations[2].expression"
        ]
    );
}

#[test]
fn parameters_have_the_types_of_their_kind() {
    let typed = ParamTypes::Known(KindSchema::BuiltIn(CONFIG_MAP));
    let found =
        |text: &str, params: &ParamTypes| warnings(&policy(text), &deployments(), params).len();
    assert_eq!(found("params.data['a'] == 'b'", &typed), 0);
    assert_eq!(found("params.spec == 'b'", &typed), 1);
    assert_eq!(found("params.spec == 'b'", &ParamTypes::Unknown), 0);
    assert_eq!(found("params.spec == 'b'", &ParamTypes::Absent), 1);
}

#[test]
fn a_kind_of_others_is_read_from_its_document() {
    let document = document!({"components": {"schemas": {
        "com.example.v1.Widget": {"type": "object", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"allOf": [
                {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
            ]},
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer"},
                "ports": {"type": "array", "items": {"type": "object", "properties": {
                    "a-name": {"type": "string"}, "number": {"x-kubernetes-int-or-string": true},
                }}},
                "anything": {"x-kubernetes-preserve-unknown-fields": true},
                "same": {"$ref": "#/components/schemas/com.example.v1.Same"},
            }},
        }},
        "com.example.v1.Same": {
            "type": "array", "items": {"$ref": "#/components/schemas/com.example.v1.Same"},
        },
    }}});
    let schema = KindSchema::Published {
        document: Arc::new(document),
        name: "com.example.v1.Widget".to_string(),
    };
    let widget = KindName {
        group: "example.com".to_string(),
        version: "v1".to_string(),
        kind: "Widget".to_string(),
    };
    let kinds = [(widget, schema)];
    let found = |text: &str| warnings(&policy(text), &kinds, &ParamTypes::Absent).len();
    assert_eq!(
        found("object.spec.size > 1 && object.metadata.labels['a'] == 'b'"),
        0
    );
    assert_eq!(found("object.spec.ports[0].a__dash__name == 'a'"), 0);
    assert_eq!(found("object.spec.ports[0].number == 1"), 0);
    assert_eq!(found("object.spec.size == 'a'"), 1);
    assert_eq!(found("object.spec.anything.x == 1"), 1);
    // It refers to itself without end, so that it has no type.
    assert_eq!(found("object.spec.same[0] == 1"), 1);
}

#[test]
fn what_has_a_wildcard_or_a_subresource_is_not_checked() {
    let rule = |groups: Value, versions: Value, resources: Value| document!({"apiGroups": groups, "apiVersions": versions, "resources": resources});
    let kinds = |rules: Vec<Value>| {
        let policy = document!({"spec": {"matchConstraints": {"resourceRules": rules}}});
        let kinds = kinds_to_check(&policy, |_, _, resource| {
            (resource != "unknown").then(|| resource.to_uppercase())
        });
        let kinds = kinds.iter().map(ToString::to_string);
        kinds.collect::<Vec<String>>()
    };
    assert_eq!(
        kinds(vec![rule(
            document!(["b", "a"]),
            document!(["v1"]),
            document!(["pods", "pods/status", "*", "unknown"])
        )]),
        ["a/v1, Kind=PODS", "b/v1, Kind=PODS"]
    );
    assert!(
        kinds(vec![rule(
            document!(["*"]),
            document!(["v1"]),
            document!(["pods"])
        )])
        .is_empty()
    );
    assert!(
        kinds(vec![rule(
            document!([""]),
            document!(["v1", "*"]),
            document!(["pods"])
        )])
        .is_empty()
    );
}

#[test]
fn no_more_than_ten_kinds_of_a_rule_are_checked() {
    let resources: Vec<Value> = (10..30).map(|number| format!("r{number}").into()).collect();
    let policy = document!({"spec": {"matchConstraints": {"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "resources": resources,
    }]}}});
    let kinds = kinds_to_check(&policy, |_, _, resource| Some(resource.to_string()));
    assert_eq!(kinds.len(), 10);
    assert_eq!(kinds[9].kind, "r19");
}
