//! MutatingAdmissionPolicies: what they make of objects, in which order, and what becomes of those that
//! cannot be made.

use api::Value;

use crate::custom_harness::{WIDGETS, establish, widget, widgets};
use crate::harness::{Client, Cluster, config_map, pod};
use crate::hook_server::{HookServer, MUTATING, configure, patched};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn start() -> (Cluster, Client) {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    (cluster, admin)
}

fn configuration(text: &str) -> Value {
    api::document!({
        "patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text},
    })
}

fn patch(text: &str) -> Value {
    api::document!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}})
}

/// A policy for objects of this group and resource.
fn policy(name: &str, (group, resource): (&str, &str), mutations: Vec<Value>) -> Value {
    api::document!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["*"],
                "resources": [resource],
            }]},
            "reinvocationPolicy": "Never",
            "mutations": mutations,
        },
    })
}

fn binding(name: &str, policy: &str) -> Value {
    api::document!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": policy},
    })
}

/// Writes a policy and a binding of the same name.
async fn bind(admin: &Client, policy: &Value) {
    let name = policy.str_at(&["metadata", "name"]);
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    admin.post(&path, policy).await.expect(201);
    let path = format!("{GROUP}/mutatingadmissionpolicybindings");
    admin.post(&path, &binding(name, name)).await.expect(201);
}

/// Appends a word to `data.order`.
fn appending(word: &str) -> Value {
    patch(&format!(
        r#"[JSONPatch{{op: "add", path: "/data/order",
            value: (has(object.data.order) ? object.data.order : "") + "{word}"}}]"#
    ))
}

#[tokio::test]
async fn a_configuration_adds_a_sidecar_and_a_label_to_a_pod() {
    let (_cluster, admin) = start().await;
    let text = r#"
        Object{
            metadata: Object.metadata{labels: {"injected": variables.value}},
            spec: Object.spec{initContainers: [Object.spec.initContainers{
                name: "proxy", image: "proxy:2", restartPolicy: "Always",
            }]},
        }"#;
    let mut policy = policy("sidecar", ("", "pods"), vec![configuration(text)]);
    policy.set(
        &["spec", "variables"],
        api::document!([{"name": "value", "expression": "request.operation + '-' + namespaceObject.metadata.name"}]),
    );
    policy.set(
        &["spec", "matchConditions"],
        api::document!([{"name": "wanted", "expression": "object.metadata.name != 'plain'"}]),
    );
    bind(&admin, &policy).await;
    let path = format!("{PODS}?fieldManager=me");
    let made = admin.post(&path, &pod("a")).await.expect(201);
    assert_eq!(
        made.str_at(&["metadata", "labels", "injected"]),
        "CREATE-default"
    );
    let sidecar = &made.list_at(&["spec", "initContainers"])[0];
    assert_eq!(sidecar.str_at(&["name"]), "proxy");
    // What a policy sets is defaulted, and belongs to nobody.
    assert_eq!(sidecar.str_at(&["imagePullPolicy"]), "IfNotPresent");
    let owners = made.list_at(&["metadata", "managedFields"]);
    assert_eq!(owners.len(), 1);
    let owned = owners[0].to_string();
    assert!(owned.contains("f:containers"), "{owned}");
    assert!(
        !owned.contains("injected") && !owned.contains("f:initContainers"),
        "{owned}"
    );
    let plain = admin.post(PODS, &pod("plain")).await.expect(201);
    assert!(!plain.has(&["spec", "initContainers"]));
}

#[tokio::test]
async fn lists_of_a_custom_kind_merge_by_their_keys() {
    let (_cluster, admin) = start().await;
    establish(&admin, &widgets()).await;
    let text = r#"Object{spec: Object.spec{
        replicas: object.spec.ports.size(),
        ports: [Object.spec.ports{name: "b", number: 3}, Object.spec.ports{name: "c", number: 4}],
    }}"#;
    let policy = policy(
        "ports",
        ("example.com", "widgets"),
        vec![configuration(text)],
    );
    bind(&admin, &policy).await;
    let spec = api::document!({
        "ports": [{"name": "a", "number": 1}, {"name": "b", "number": 2}],
    });
    let made = admin.post(WIDGETS, &widget("w", spec)).await.expect(201);
    assert_eq!(
        made.get("spec"),
        Some(&api::document!({
            "color": "red", "replicas": 2,
            "ports": [
                {"name": "a", "number": 1}, {"name": "b", "number": 3}, {"name": "c", "number": 4},
            ],
        }))
    );
}

#[tokio::test]
async fn a_json_patch_changes_what_its_tests_find() {
    let (_cluster, admin) = start().await;
    let text = r#"[
        JSONPatch{op: "test", path: "/data/a", value: "1"},
        JSONPatch{op: "replace", path: "/data/a", value: "2"},
        JSONPatch{op: "add", path: "/metadata/labels", value: {}},
        JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/x"), value: "y"},
    ]"#;
    let policy = policy("patch", ("", "configmaps"), vec![patch(text)]);
    bind(&admin, &policy).await;
    let made = admin.post(MAPS, &config_map("a")).await.expect(201);
    assert_eq!(made.str_at(&["data", "a"]), "2");
    assert_eq!(made.str_at(&["metadata", "labels", "example.com/x"]), "y");
    // The test fails now, which leaves the object as it was sent.
    let change = api::document!({"data": {"a": "3"}});
    let made = admin.merge(&format!("{MAPS}/a"), &change).await.expect(200);
    assert_eq!(made.str_at(&["data", "a"]), "3");
}

#[tokio::test]
async fn policies_are_made_by_name_and_again_if_they_ask_for_it() {
    let (_cluster, admin) = start().await;
    let of_maps = ("", "configmaps");
    bind(&admin, &policy("b", of_maps, vec![appending("b")])).await;
    let mut first = policy("a", of_maps, vec![appending("a"), appending("A")]);
    first.set(&["spec", "reinvocationPolicy"], "IfNeeded");
    bind(&admin, &first).await;
    let made = admin.post(MAPS, &config_map("x")).await.expect(201);
    assert_eq!(made.str_at(&["data", "order"]), "aAbaA");
}

#[tokio::test]
async fn policies_come_before_hooks_and_both_see_what_the_other_did_after_them() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|path, asked| {
        let before = asked.str_at(&["request", "object", "data", "order"]);
        let value = format!("{before}{path}");
        patched(
            asked,
            &api::document!([{"op": "add", "path": "/data/order", "value": value}]),
        )
    })
    .await;
    let mut hook = server.hook("h", &["CREATE"], &["configmaps"]);
    hook.set(&["reinvocationPolicy"], "IfNeeded");
    configure(&admin, MUTATING, "c", vec![hook]).await;
    let once = policy("p", ("", "configmaps"), vec![appending("p")]);
    bind(&admin, &once).await;
    let made = admin.post(MAPS, &config_map("x")).await.expect(201);
    assert_eq!(made.str_at(&["data", "order"]), "p/h");
    let path = format!("{GROUP}/mutatingadmissionpolicies/p");
    admin
        .merge(
            &path,
            &api::document!({"spec": {"reinvocationPolicy": "IfNeeded"}}),
        )
        .await
        .expect(200);
    let made = admin.post(MAPS, &config_map("y")).await.expect(201);
    assert_eq!(made.str_at(&["data", "order"]), "p/hp/h");
}

#[tokio::test]
async fn a_policy_is_made_once_for_each_of_its_parameters() {
    let (_cluster, admin) = start().await;
    for (name, word) in [("one", "1"), ("two", "2")] {
        let mut param = config_map(name);
        param.set(&["metadata", "labels"], api::document!({"of": "policy"}));
        param.set(&["data", "word"], word);
        admin.post(MAPS, &param).await.expect(201);
    }
    let text = r#"[JSONPatch{op: "add", path: "/metadata/annotations/" + params.metadata.name,
        value: params.data.word}]"#;
    let prepare =
        configuration(r#"Object{metadata: Object.metadata{annotations: {"policy": "yes"}}}"#);
    let mut policy = policy("params", ("", "secrets"), vec![prepare, patch(text)]);
    policy.set(
        &["spec", "paramKind"],
        api::document!({"apiVersion": "v1", "kind": "ConfigMap"}),
    );
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    admin.post(&path, &policy).await.expect(201);
    let mut binding = binding("params", "params");
    binding.set(
        &["spec", "paramRef"],
        api::document!({
            "selector": {"matchLabels": {"of": "policy"}}, "parameterNotFoundAction": "Deny",
        }),
    );
    let path = format!("{GROUP}/mutatingadmissionpolicybindings");
    admin.post(&path, &binding).await.expect(201);
    let secret = |name: &str| api::document!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let secrets = "/api/v1/namespaces/default/secrets";
    let made = admin.post(secrets, &secret("a")).await.expect(201);
    assert_eq!(
        made.at(&["metadata", "annotations"]),
        Some(&api::document!({"policy": "yes", "one": "1", "two": "2"}))
    );
    for name in ["one", "two"] {
        admin.delete(&format!("{MAPS}/{name}")).await.expect(200);
    }
    let message = admin
        .post(secrets, &secret("b"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "policy 'params' with binding 'params' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    );
}

#[tokio::test]
async fn what_cannot_be_made_is_refused_unless_the_policy_says_to_ignore_it() {
    let (_cluster, admin) = start().await;
    let text = r#"Object{metadata: Object.metadata{labels: {"a": object.data.missing}}}"#;
    let policy = policy("p", ("", "configmaps"), vec![configuration(text)]);
    bind(&admin, &policy).await;
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(403, "Invalid");
    assert_eq!(
        message,
        format!(
            "policy 'p' with binding 'p' denied request: expression '{text}' resulted in error: no such key: missing"
        )
    );
    let path = format!("{GROUP}/mutatingadmissionpolicies/p");
    let change = api::document!({"spec": {"failurePolicy": "Ignore"}});
    admin.merge(&path, &change).await.expect(200);
    let made = admin.post(MAPS, &config_map("a")).await.expect(201);
    assert!(!made.has(&["metadata", "labels"]));
}

#[tokio::test]
async fn a_wrong_mutation_is_refused_in_upstreams_words() {
    let (_cluster, admin) = start().await;
    let cases = [
        (
            r#"Object{spec: Object.spec{nodeSelector: {"a": "b"}}}"#,
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector",
        ),
        (
            r#"Object{spec: Object.spec{nothing: "b"}}"#,
            "error applying patch: failed to convert patch object to typed object: .spec.nothing: field not declared in schema",
        ),
        (
            r#"Object{spec: Object.other{}}"#,
            r#"type mismatch: unexpected type name "Object.other", expected "Object.spec", which matches field name path from root Object type"#,
        ),
    ];
    for (index, (text, expected)) in cases.into_iter().enumerate() {
        let name = format!("p{index}");
        let policy = policy(&name, ("", "pods"), vec![configuration(text)]);
        bind(&admin, &policy).await;
        let message = admin.post(PODS, &pod("a")).await.failure(403, "Invalid");
        let told = format!("policy '{name}' with binding '{name}' denied request: {expected}");
        assert_eq!(message, told);
        let path = format!("{GROUP}/mutatingadmissionpolicies/{name}");
        admin.delete(&path).await.expect(200);
    }
    let text = r#"[JSONPatch{op: "remove", path: "/spec/none/deeper"}]"#;
    bind(&admin, &policy("patch", ("", "pods"), vec![patch(text)])).await;
    let message = admin.post(PODS, &pod("a")).await.failure(403, "Invalid");
    assert_eq!(
        message,
        "policy 'patch' with binding 'patch' denied request: JSON Patch: remove operation does not apply: doc is missing path: \"/spec/none/deeper\": missing value"
    );
}

#[tokio::test]
async fn a_mutation_that_makes_an_object_invalid_is_refused_by_validation() {
    let (_cluster, admin) = start().await;
    let text = r#"Object{metadata: Object.metadata{labels: {"not valid": "x"}}}"#;
    bind(
        &admin,
        &policy("p", ("", "configmaps"), vec![configuration(text)]),
    )
    .await;
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    assert!(
        message.contains("metadata.labels: Invalid value: \"not valid\""),
        "{message}"
    );
}

#[tokio::test]
async fn policies_do_not_change_policies() {
    let (_cluster, admin) = start().await;
    let text = r#"Object{metadata: Object.metadata{labels: {"changed": "yes"}}}"#;
    let all = policy("all", ("*", "*"), vec![configuration(text)]);
    bind(&admin, &all).await;
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    let other = policy("other", ("", "pods"), vec![configuration("Object{}")]);
    let made = admin.post(&path, &other).await.expect(201);
    assert!(!made.has(&["metadata", "labels"]));
    let made = admin.post(MAPS, &config_map("a")).await.expect(201);
    assert_eq!(made.str_at(&["metadata", "labels", "changed"]), "yes");
    // It can be taken back.
    admin.delete(&format!("{path}/all")).await.expect(200);
    let made = admin.post(MAPS, &config_map("b")).await.expect(201);
    assert!(!made.has(&["metadata", "labels"]));
}

#[tokio::test]
async fn mutations_are_counted() {
    let (_cluster, admin) = start().await;
    let text = r#"Object{metadata: Object.metadata{labels: {"a": "b"}}}"#;
    bind(
        &admin,
        &policy("p", ("", "configmaps"), vec![configuration(text)]),
    )
    .await;
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let answer = admin.get("/metrics").await;
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    let line = "apiserver_mutating_admission_policy_check_total{error_type=\"no_error\",policy=\"p\",policy_binding=\"p\"} 1";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn a_policy_that_does_not_compile_is_not_stored() {
    let (_cluster, admin) = start().await;
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    let wrong = policy("p", ("", "pods"), vec![configuration("Object.spec{}")]);
    let message = admin.post(&path, &wrong).await.failure(422, "Invalid");
    assert_eq!(
        message,
        "MutatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.mutations[0].applyConfiguration.expression: Invalid value: \"Object.spec{}\": must evaluate to Object but got Object.spec"
    );
}
