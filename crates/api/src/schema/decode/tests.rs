//! The answers below are those of Kubernetes v1.36.4 to the same bodies.

use super::*;
use crate::catalogue::built_in;

fn decoded(plural: &str, body: &str) -> Result<(Value, Vec<String>), String> {
    let resource = match plural {
        "deployments" => built_in().find("apps", "v1", plural),
        _ => built_in().find("", "v1", plural),
    };
    decode_json(resource.unwrap(), body.as_bytes())
        .map(|(value, problems)| {
            (
                value,
                problems.iter().map(FieldProblem::to_string).collect(),
            )
        })
        .map_err(|status| status.message)
}

#[test]
fn wrong_types_are_named_as_in_go() {
    const QUANTITY: &str = "quantities must match the regular expression \
        '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let field = |found: &str, place: &str, wanted: &str| {
        format!("json: cannot unmarshal {found} into Go struct field {place} of type {wanted}")
    };
    let template = |spec: &str| format!(r#"{{"spec":{{"template":{{"spec":{spec}}}}}}}"#);
    for (body, error) in [
        (
            r#"{"spec":{"replicas":"three"}}"#.to_string(),
            field("string", "DeploymentSpec.spec.replicas", "int32"),
        ),
        (
            r#"{"spec":{"replicas":3.0}}"#.to_string(),
            field("number 3.0", "DeploymentSpec.spec.replicas", "int32"),
        ),
        (
            r#"{"spec":{"replicas":3000000000}}"#.to_string(),
            field("number 3000000000", "DeploymentSpec.spec.replicas", "int32"),
        ),
        (
            r#"{"spec":[]}"#.to_string(),
            field("array", "Deployment.spec", "v1.DeploymentSpec"),
        ),
        (
            r#"{"spec":{"template":5}}"#.to_string(),
            field(
                "number",
                "DeploymentSpec.spec.template",
                "v1.PodTemplateSpec",
            ),
        ),
        (
            template(r#"{"containers":{}}"#),
            field(
                "object",
                "PodSpec.spec.template.spec.containers",
                "[]v1.Container",
            ),
        ),
        (
            template(r#"{"containers":[5]}"#),
            field(
                "number",
                "PodSpec.spec.template.spec.containers",
                "v1.Container",
            ),
        ),
        (
            template(r#"{"restartPolicy":5}"#),
            field(
                "number",
                "PodSpec.spec.template.spec.restartPolicy",
                "v1.RestartPolicy",
            ),
        ),
        (
            template(r#"{"nodeSelector":{"a":5}}"#),
            field(
                "number",
                "PodSpec.spec.template.spec.nodeSelector",
                "string",
            ),
        ),
        (
            template(r#"{"nodeSelector":[]}"#),
            field(
                "array",
                "PodSpec.spec.template.spec.nodeSelector",
                "map[string]string",
            ),
        ),
        (
            template(r#"{"volumes":[{"emptyDir":5}]}"#),
            field(
                "number",
                "Volume.spec.template.spec.volumes.VolumeSource.emptyDir",
                "v1.EmptyDirVolumeSource",
            ),
        ),
        (
            template(r#"{"volumes":[{"emptyDir":{"sizeLimit":true}}]}"#),
            QUANTITY.to_string(),
        ),
        (
            template(r#"{"containers":[{"resources":{"limits":{"cpu":"x"}}}]}"#),
            QUANTITY.to_string(),
        ),
        (
            r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1.5}}}}"#.to_string(),
            field(
                "number 1.5",
                "RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge",
                "int32",
            ),
        ),
        (
            r#"{"metadata":{"creationTimestamp":5}}"#.to_string(),
            field("number", "ObjectMeta.metadata.creationTimestamp", "string"),
        ),
        (
            r#"{"metadata":{"annotations":{"a":{"b":1}}}}"#.to_string(),
            field("object", "ObjectMeta.metadata.annotations", "string"),
        ),
    ] {
        assert_eq!(
            decoded("deployments", &body).unwrap_err(),
            format!(r#"Deployment in version "v1" cannot be handled as a Deployment: {error}"#),
        );
    }
    for (body, error) in [
        (
            r#"{"data":{"a":1}}"#,
            field("number", "ConfigMap.data", "string"),
        ),
        (
            r#"{"binaryData":{"a":"***"}}"#,
            "illegal base64 data at input byte 0".to_string(),
        ),
        (
            r#"{"binaryData":{"a":5}}"#,
            field("number", "ConfigMap.binaryData", "[]uint8"),
        ),
        (
            r#"{"immutable":"true"}"#,
            field("string", "ConfigMap.immutable", "bool"),
        ),
    ] {
        assert_eq!(
            decoded("configmaps", body).unwrap_err(),
            format!(r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: {error}"#),
        );
    }
}

#[test]
fn unknown_and_repeated_fields_are_returned_in_order() {
    let (value, problems) = decoded(
        "deployments",
        r#"{"spec":{"replicas":null,"foo":1,"template":{"spec":{"containers":[
            {"name":"a","nme":"b"},{"x":1,"name":"1","name":"2"}]}}},
            "Spec":{},"metadata":{"labels":{"a":"1","a":"2"}}}"#,
    )
    .unwrap();
    assert_eq!(
        problems,
        [
            r#"unknown field "spec.foo""#,
            r#"unknown field "spec.template.spec.containers[0].nme""#,
            r#"unknown field "spec.template.spec.containers[1].x""#,
            r#"duplicate field "spec.template.spec.containers[1].name""#,
            r#"unknown field "Spec""#,
            r#"duplicate field "metadata.labels.a""#,
        ]
    );
    assert_eq!(value.str_at(&["metadata", "labels", "a"]), "2");
    assert_eq!(value.at(&["spec", "foo"]), None);
    assert_eq!(value.at(&["spec", "replicas"]), None);
    assert_eq!(value.str_at(&["apiVersion"]), "apps/v1");
    let (_, problems) =
        decoded("configmaps", r#"{"foo":1,"foo":2,"data":{},"data":null}"#).unwrap();
    assert_eq!(
        problems,
        [r#"unknown field "foo""#, r#"duplicate field "data""#]
    );
    let target = Target::of(built_in().find("", "v1", "configmaps").unwrap());
    let problems = [FieldProblem {
        path: "foo".to_string(),
        duplicate: false,
    }];
    assert_eq!(
        strict_error(&target, &problems).message,
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo""#
    );
}

#[test]
fn bodies_of_another_kind_are_refused() {
    const PREFIX: &str = "the object provided is unrecognized (must be of type Deployment):";
    const PARSE: &str = "couldn't get version/kind; json parse error:";
    for (body, error) in [
        (r#"{"apiVersion":"v1","kind":"Pod"}"#,
            r#"Pod in version "v1" cannot be handled as a Deployment: converting (v1.Pod) to (apps.Deployment): unknown conversion"#.to_string()),
        (r#"{"apiVersion":"apps/v1","kind":"Foo"}"#,
            r#"Foo in version "v1" cannot be handled as a Deployment: no kind "Foo" is registered for version "apps/v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#.to_string()),
        (r#"{"apiVersion":"a/b/c","kind":"Deployment"}"#,
            format!(r#"{PREFIX} unexpected GroupVersion string: a/b/c ({{"apiVersion":"a/b/c","kind":" ...)"#)),
        (r#"{"kind":5}"#, format!(r#"{PREFIX} {PARSE} json: cannot unmarshal number into Go struct field .kind of type string ({{"kind":5}})"#)),
        (r#"{"kind":"Deployment""#, format!(r#"{PREFIX} {PARSE} unexpected end of JSON input ({{"kind":"Deployment")"#)),
        ("foo", format!("{PREFIX} {PARSE} invalid character 'o' in literal false (expecting 'a') (666f6f)")),
        ("", format!("{PREFIX} {PARSE} unexpected end of JSON input (<empty>)")),
    ] {
        assert_eq!(decoded("deployments", body).unwrap_err(), error, "{body}");
    }
    assert!(decoded("deployments", "{}").is_ok());
    assert!(
        decoded("deployments", "[]")
            .unwrap_err()
            .contains("cannot unmarshal array into Go value of type struct {")
    );
}

#[test]
fn values_become_canonical() {
    let (value, _) = decoded(
        "pods",
        r#"{"metadata":{"creationTimestamp":"2020-01-01T02:00:00+02:00"},
            "spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":1.5,"memory":"1024Mi"}}}, null]}}"#,
    )
    .unwrap();
    assert_eq!(
        value.str_at(&["metadata", "creationTimestamp"]),
        "2020-01-01T00:00:00Z"
    );
    assert_eq!(
        value.at(&["spec", "containers"]).unwrap(),
        &crate::document!([
            {"name": "a", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}},
            {"name": "", "resources": {}},
        ])
    );
    assert_eq!(value.at(&["status"]), Some(&Value::object()));
}

#[test]
fn documents_are_decoded_like_bytes() {
    let pods = built_in().find("", "v1", "pods").unwrap();
    let mut body = crate::document!({"kind": "Pod", "spec": {"foo": 1, "containers": []}});
    let problems = decode(pods, &mut body).unwrap();
    assert_eq!(
        problems,
        [FieldProblem {
            path: "spec.foo".to_string(),
            duplicate: false
        }]
    );
    let mut body = crate::document!({"spec": {"containers": "x"}});
    assert!(
        decode(pods, &mut body)
            .unwrap_err()
            .message
            .ends_with("PodSpec.spec.containers of type []v1.Container")
    );
    let binding = Target::of_kind("", "v1", "Binding").unwrap();
    let (value, _) = decode_json_as(&binding, br#"{"target":{"kind":"Node","name":"n"}}"#).unwrap();
    assert_eq!(value.str_at(&["target", "name"]), "n");
}

#[test]
fn options_come_in_any_group_version() {
    let target = Target::of_kind("", "v1", "DeleteOptions").unwrap();
    let body = br#"{"kind":"DeleteOptions","apiVersion":"apps/v1","gracePeriodSeconds":0}"#;
    let (value, problems) = decode_json_as(&target, body).unwrap();
    assert_eq!(value.at(&["gracePeriodSeconds"]), Some(&Value::Integer(0)));
    assert_eq!(problems, []);
    assert!(decode_json_as(&target, br#"{"kind":"Pod","apiVersion":"v1"}"#).is_err());
    assert!(Target::of_kind("apps", "v1", "DeleteOptions").is_some());
    assert!(Target::of_kind("apps", "v1", "Pod").is_none());
}

/// A ConfigMap with `count` keys in descending order, the last of them twice.
fn descending(count: usize) -> String {
    let keys: Vec<String> = (0..count)
        .rev()
        .map(|key| format!("\"{key:07}\":\"x\""))
        .collect();
    let data = format!("{},\"0000000\":\"y\"", keys.join(","));
    format!(r#"{{"metadata":{{"name":"a"}},"data":{{{data}}}}}"#)
}

#[test]
fn maps_with_many_keys_cost_n_log_n() {
    let maps = built_in().find("", "v1", "configmaps").unwrap();
    crate::steps::assert_n_log_n(|count| {
        let body = descending(count);
        crate::steps::of(|| {
            let (object, problems) = decode_json(maps, body.as_bytes()).unwrap();
            assert_eq!(object.str_at(&["data", "0000000"]), "y");
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(repeated_fields(body.as_bytes()), problems);
        })
    });
}

#[test]
fn paths_of_repeated_fields_take_little_room() {
    // A long key, and below it the same unknown field again and again.
    let key = "k".repeat(100_000);
    let fields = vec!["\"a\":1,\"a\":2"; 1_000].join(",");
    let body = format!(r#"{{"{key}":{{{fields}}}}}"#);
    let told: usize = repeated_fields(body.as_bytes())
        .iter()
        .map(|problem| problem.path.len())
        .sum();
    assert!(told <= 1 << 20, "{told}");
}

#[test]
fn errors_in_schemas_of_a_strategic_patch_are_those_of_a_json_document_of_their_own() {
    let definition = table()
        .of_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
        .expect("a kind of the table");
    let field = |name: &str, kind: &str| {
        format!(
            "json: cannot unmarshal string into Go struct field JSONSchemaProps.{name} of type {kind}"
        )
    };
    for (schema, error) in [
        (
            crate::document!({"items": {"maxItems": "3"}}),
            field("maxItems", "int64"),
        ),
        (
            crate::document!({"items": {"properties": {"k": "text"}}}),
            field("properties", "v1.JSONSchemaProps"),
        ),
        (
            crate::document!({"items": {"items": {"maxItems": "3"}}}),
            field("items.maxItems", "int64"),
        ),
        (
            crate::document!({"additionalProperties": {"nullable": "true"}}),
            field("nullable", "bool"),
        ),
        (
            crate::document!({"additionalProperties": "text"}),
            "boolean or JSON schema expected".to_string(),
        ),
        (
            crate::document!({"maxItems": "3"}),
            "unrecognized type: int64".to_string(),
        ),
    ] {
        let shown = schema.to_string();
        let mut version = crate::document!({"name": "v1"});
        version.set(&["schema", "openAPIV3Schema", "properties", "f"], schema);
        let mut body = Value::object();
        body.set(&["spec", "versions"], vec![version]);
        let refused = restore(definition, body).map(|_| ());
        assert_eq!(refused.unwrap_err().to_string(), error, "{shown}");
    }
}
