//! The parameters of ValidatingAdmissionPolicies: which objects they are, and who may use them.

use api::Value;
use apiserver::Identity;

use crate::custom_harness::{WIDGETS, definition, establish, widget, widgets};
use crate::harness::config_map;
use crate::policies::{BINDINGS, MAPS, POLICIES, binding, policy, rule, start};

fn limited() -> Value {
    let validations = api::document!([{
        "expression": "params == null || size(object.data) <= int(params.data.most)",
        "messageExpression": "'at most ' + params.data.most",
    }]);
    let kind = api::document!({"apiVersion": "v1", "kind": "ConfigMap"});
    let mut policy = policy("p", validations);
    policy.set(&["spec", "paramKind"], kind);
    // Parameters are ConfigMaps as well.
    let selector =
        api::document!({"matchExpressions": [{"key": "limit", "operator": "DoesNotExist"}]});
    policy.set(&["spec", "matchConstraints", "objectSelector"], selector);
    policy
}

fn limit(name: &str, most: &str) -> Value {
    api::document!({
        "metadata": {"name": name, "labels": {"limit": "yes"}}, "data": {"most": most},
    })
}

#[tokio::test]
async fn parameters_are_named_or_selected() {
    let (_cluster, admin) = start().await;
    admin.post(POLICIES, &limited()).await.expect(201);
    let mut bound = binding("b", "p", "Deny");
    let reference = api::document!({"name": "limit", "parameterNotFoundAction": "Deny"});
    bound.set(&["spec", "paramRef"], reference);
    admin.post(BINDINGS, &bound).await.expect(201);
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    assert!(
        message.ends_with("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{message}"
    );
    admin.post(MAPS, &limit("limit", "0")).await.expect(201);
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    assert!(message.ends_with("denied request: at most 0"), "{message}");

    let path = format!("{BINDINGS}/b");
    let reference = api::document!({"spec": {"paramRef": {
        "name": "other", "parameterNotFoundAction": "Allow",
    }}});
    admin.merge(&path, &reference).await.expect(200);
    admin.post(MAPS, &config_map("a")).await.expect(201);

    let reference = api::document!({"spec": {"paramRef": {
        "name": null, "selector": {"matchLabels": {"limit": "yes"}},
    }}});
    admin.merge(&path, &reference).await.expect(200);
    admin.post(MAPS, &limit("second", "9")).await.expect(201);
    let message = admin
        .post(MAPS, &config_map("b"))
        .await
        .failure(422, "Invalid");
    assert!(message.ends_with("denied request: at most 0"), "{message}");
    admin.delete(&format!("{MAPS}/limit")).await.expect(200);
    admin
        .get(&format!("{MAPS}/limit"))
        .await
        .failure(404, "NotFound");
    admin.post(MAPS, &config_map("b")).await.expect(201);

    // Without a reference there is nothing in `params`.
    let reference = api::document!({"spec": {"paramRef": null}});
    admin.merge(&path, &reference).await.expect(200);
    admin.post(MAPS, &config_map("c")).await.expect(201);
}

#[tokio::test]
async fn parameters_of_a_namespace_are_those_of_the_request_unless_one_is_named() {
    let (_cluster, admin) = start().await;
    let other = api::document!({"metadata": {"name": "other"}});
    admin.post("/api/v1/namespaces", &other).await.expect(201);
    let elsewhere = "/api/v1/namespaces/other/configmaps";
    let mut policy = limited();
    let rules = api::document!([rule(&["CREATE"], "", &["configmaps", "nodes"])]);
    policy.set(&["spec", "matchConstraints", "resourceRules"], rules);
    admin.post(POLICIES, &policy).await.expect(201);
    let mut bound = binding("b", "p", "Deny");
    let reference = api::document!({"name": "limit", "parameterNotFoundAction": "Allow"});
    bound.set(&["spec", "paramRef"], reference);
    admin.post(BINDINGS, &bound).await.expect(201);
    admin.post(MAPS, &limit("limit", "0")).await.expect(201);
    admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    admin.post(elsewhere, &config_map("a")).await.expect(201);
    let node = api::document!({"metadata": {"name": "n"}});
    let message = admin
        .post("/api/v1/nodes", &node)
        .await
        .failure(422, "Invalid");
    assert!(
        message.ends_with("failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"),
        "{message}"
    );
    let reference = api::document!({"spec": {"paramRef": {"namespace": "default"}}});
    admin
        .merge(&format!("{BINDINGS}/b"), &reference)
        .await
        .expect(200);
    admin
        .post(elsewhere, &config_map("b"))
        .await
        .failure(422, "Invalid");
}

#[tokio::test]
async fn parameters_of_custom_kinds_are_read_and_a_kind_that_is_missing_fails_the_policy() {
    let (_cluster, admin) = start().await;
    let validations = api::document!([{
        "expression": "size(object.data) <= params.spec.replicas",
        "messageExpression": "'at most ' + string(params.spec.replicas)",
    }]);
    let mut policy = policy("p", validations);
    let kind = api::document!({"apiVersion": "example.com/v1", "kind": "Widget"});
    policy.set(&["spec", "paramKind"], kind);
    admin.post(POLICIES, &policy).await.expect(201);
    let mut bound = binding("b", "p", "Deny");
    let reference = api::document!({
        "name": "w", "namespace": "default", "parameterNotFoundAction": "Deny",
    });
    bound.set(&["spec", "paramRef"], reference);
    admin.post(BINDINGS, &bound).await.expect(201);
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    assert_eq!(
        message,
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Widget'"
    );
    establish(&admin, &widgets()).await;
    let one = widget("w", api::document!({"replicas": 1}));
    admin.post(WIDGETS, &one).await.expect(201);
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let none = api::document!({"spec": {"replicas": 0}});
    admin
        .merge(&format!("{WIDGETS}/w"), &none)
        .await
        .expect(200);
    admin.get(&format!("{WIDGETS}/w")).await.expect(200);
    let message = admin
        .post(MAPS, &config_map("b"))
        .await
        .failure(422, "Invalid");
    assert!(message.ends_with("denied request: at most 0"), "{message}");
}

#[tokio::test]
async fn parameters_may_be_of_the_cluster() {
    let (_cluster, admin) = start().await;
    let mut gauges = definition("example.com", "gauges", "Gauge");
    gauges.set(&["spec", "scope"], "Cluster");
    establish(&admin, &gauges).await;
    let gauge = api::document!({
        "apiVersion": "example.com/v1", "kind": "Gauge", "metadata": {"name": "g"},
        "spec": {"replicas": 0},
    });
    admin
        .post("/apis/example.com/v1/gauges", &gauge)
        .await
        .expect(201);
    let validations = api::document!([{"expression": "size(object.data) <= params.spec.replicas"}]);
    let mut policy = policy("p", validations);
    let kind = api::document!({"apiVersion": "example.com/v1", "kind": "Gauge"});
    policy.set(&["spec", "paramKind"], kind);
    admin.post(POLICIES, &policy).await.expect(201);
    let mut bound = binding("b", "p", "Deny");
    let reference = api::document!({"name": "g", "parameterNotFoundAction": "Deny"});
    bound.set(&["spec", "paramRef"], reference);
    admin.post(BINDINGS, &bound).await.expect(201);
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    assert!(message.contains("failed expression"), "{message}");
    let reference = api::document!({"spec": {"paramRef": {"namespace": "default"}}});
    admin
        .merge(&format!("{BINDINGS}/b"), &reference)
        .await
        .expect(200);
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    assert!(
        message
            .ends_with("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
        "{message}"
    );
}

#[tokio::test]
async fn who_cannot_read_parameters_cannot_use_them() {
    let (cluster, admin) = start().await;
    let role = api::document!({
        "metadata": {"name": "author"},
        "rules": [
            {"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
        ],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    admin
        .post(&format!("{rbac}/clusterroles"), &role)
        .await
        .expect(201);
    let bound = api::document!({
        "metadata": {"name": "author"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "author"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    admin
        .post(&format!("{rbac}/clusterrolebindings"), &bound)
        .await
        .expect(201);
    admin.get("/api/v1/nodes").await.expect(200);
    let jane = cluster.client(Identity::component("jane", &[]));
    let mut secret = policy("secret", api::document!([{"expression": "true"}]));
    let kind = api::document!({"apiVersion": "v1", "kind": "Secret"});
    secret.set(&["spec", "paramKind"], kind);
    let message = jane.post(POLICIES, &secret).await.failure(422, "Invalid");
    assert!(
        message.starts_with("ValidatingAdmissionPolicy.admissionregistration.k8s.io \"secret\" is invalid: spec.paramKind: Forbidden: user &{jane "),
        "{message}"
    );
    assert!(
        message.ends_with("must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"),
        "{message}"
    );
    jane.post(POLICIES, &limited()).await.expect(201);
    let mut bound = binding("b", "p", "Deny");
    let reference = api::document!({"name": "limit", "parameterNotFoundAction": "Deny"});
    bound.set(&["spec", "paramRef"], reference);
    jane.post(BINDINGS, &bound).await.expect(201);
    let reference = api::document!({
        "selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Deny",
    });
    bound.set(&["spec", "paramRef"], reference);
    bound.set(&["metadata", "name"], "c");
    let message = jane.post(BINDINGS, &bound).await.failure(422, "Invalid");
    assert!(
        message.ends_with("does not have \"list\" permission on the object referenced by paramRef"),
        "{message}"
    );
    bound.set(&["spec", "policyName"], "unknown");
    let message = jane.post(BINDINGS, &bound).await.failure(422, "Invalid");
    assert!(
        message.contains("spec.paramRef: Forbidden: unable to get policy unknown to determine minimum required permissions and user &{jane "),
        "{message}"
    );
}
