//! ValidatingAdmissionPolicies: what they refuse, warn of and leave alone.

use api::Value;
use apiserver::Identity;

use crate::custom_harness::{WIDGETS, establish, widget, widgets};
use crate::harness::{Answer, Client, Cluster, config_map, pod};

pub const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub const BINDINGS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ALL: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

pub async fn start() -> (Cluster, Client) {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    (cluster, admin)
}

/// A policy about creations and updates of ConfigMaps.
pub fn policy(name: &str, validations: Value) -> Value {
    let mut policy = api::document!({
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule(&["CREATE", "UPDATE"], "", &["configmaps"])]}},
    });
    policy.set(&["spec", "validations"], validations);
    policy
}

pub fn rule(operations: &[&str], group: &str, resources: &[&str]) -> Value {
    let list = |texts: &[&str]| Value::Array(texts.iter().map(|text| (*text).into()).collect());
    let mut rule = api::document!({"apiGroups": [group], "apiVersions": ["*"]});
    rule.set(&["operations"], list(operations));
    rule.set(&["resources"], list(resources));
    rule
}

pub fn with(mut document: Value, path: &[&str], value: Value) -> Value {
    document.set(path, value);
    document
}

pub fn binding(name: &str, policy: &str, action: &str) -> Value {
    api::document!({
        "metadata": {"name": name},
        "spec": {"policyName": policy, "validationActions": [action]},
    })
}

/// Creates a policy and a binding of the same name that denies.
async fn enforce(admin: &Client, policy: &Value) {
    let name = policy.str_at(&["metadata", "name"]);
    admin.post(POLICIES, policy).await.expect(201);
    admin
        .post(BINDINGS, &binding(name, name, "Deny"))
        .await
        .expect(201);
}

fn warnings(answer: &Answer) -> Vec<String> {
    let warnings = answer.headers.get_all("warning").iter();
    warnings
        .map(|warning| warning.to_str().unwrap().to_string())
        .collect()
}

async fn count(admin: &Client, line: &str) -> u64 {
    let answer = admin.get("/metrics").await;
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    let found = text.lines().find_map(|one| one.strip_prefix(line));
    found.map_or(0, |number| number.trim().parse().unwrap())
}

#[tokio::test]
async fn a_denial_has_upstreams_words_reason_and_causes() {
    let (_cluster, admin) = start().await;
    let validations = api::document!([
        {"expression": "object.data.a != 'bad'", "message": "a is bad"},
        {"expression": "object.data.a != 'worse'", "reason": "Forbidden"},
    ]);
    enforce(&admin, &policy("p", validations)).await;
    admin.post(MAPS, &config_map("good")).await.expect(201);
    let bad = with(config_map("bad"), &["data", "a"], "bad".into());
    let status = admin.post(MAPS, &bad).await.expect(422);
    let words = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: a is bad";
    assert_eq!(
        status,
        api::document!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": format!("configmaps \"bad\" is forbidden: {words}"),
            "reason": "Invalid", "code": 422,
            "details": {"name": "bad", "kind": "configmaps", "causes": [{"message": words}]},
        })
    );
    let worse = with(config_map("bad"), &["data", "a"], "worse".into());
    let message = admin.post(MAPS, &worse).await.failure(403, "Forbidden");
    assert_eq!(
        message,
        "configmaps \"bad\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: failed expression: object.data.a != 'worse'"
    );
    let change = api::document!({"data": {"a": "bad"}});
    let path = format!("{MAPS}/good");
    admin.merge(&path, &change).await.failure(422, "Invalid");
    let dry = format!("{MAPS}?dryRun=All");
    admin.post(&dry, &bad).await.failure(422, "Invalid");
    let line = "apiserver_validating_admission_policy_check_total{enforcement_action=\"deny\",error_type=\"invalid_error\",policy=\"p\",policy_binding=\"p\"}";
    assert_eq!(count(&admin, line).await, 4);
}

#[tokio::test]
async fn warn_and_audit_let_the_request_pass() {
    let (_cluster, admin) = start().await;
    let validations = api::document!([{"expression": "object.data.a != 'bad'"}]);
    admin
        .post(POLICIES, &policy("p", validations))
        .await
        .expect(201);
    let mut binding = binding("b", "p", "Warn");
    binding.set(
        &["spec", "validationActions"],
        api::document!(["Warn", "Audit"]),
    );
    admin.post(BINDINGS, &binding).await.expect(201);
    let bad = with(config_map("bad"), &["data", "a"], "bad".into());
    let answer = admin.post(MAPS, &bad).await;
    assert_eq!(
        warnings(&answer),
        [
            "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: object.data.a != 'bad'\""
        ]
    );
    answer.expect(201);
    for action in ["warn", "audit"] {
        let line = format!(
            "apiserver_validating_admission_policy_check_total{{enforcement_action=\"{action}\",error_type=\"invalid_error\",policy=\"p\",policy_binding=\"b\"}}"
        );
        assert_eq!(count(&admin, &line).await, 1, "{action}");
    }
}

#[tokio::test]
async fn a_change_of_a_policy_is_seen_by_the_next_request() {
    let (_cluster, admin) = start().await;
    let refuse = policy("p", api::document!([{"expression": "false"}]));
    // A policy without a binding does nothing, nor does a binding without a policy.
    admin.post(POLICIES, &refuse).await.expect(201);
    admin.post(MAPS, &config_map("a")).await.expect(201);
    for round in 0..20 {
        let name = format!("m{round}");
        admin
            .post(BINDINGS, &binding("b", "p", "Deny"))
            .await
            .expect(201);
        admin
            .post(MAPS, &config_map(&name))
            .await
            .failure(422, "Invalid");
        let allow = api::document!({"spec": {"validations": [{"expression": "true"}]}});
        let path = format!("{POLICIES}/p");
        admin.merge(&path, &allow).await.expect(200);
        admin.post(MAPS, &config_map(&name)).await.expect(201);
        let refuse = api::document!({"spec": {"validations": [{"expression": "false"}]}});
        admin.merge(&path, &refuse).await.expect(200);
        let map = format!("{MAPS}/{name}");
        let change = api::document!({"data": {"b": "2"}});
        admin.merge(&map, &change).await.failure(422, "Invalid");
        admin.delete(&format!("{BINDINGS}/b")).await.expect(200);
        admin.merge(&map, &change).await.expect(200);
    }
    admin
        .post(BINDINGS, &binding("b", "p", "Deny"))
        .await
        .expect(201);
    admin.delete(&format!("{POLICIES}/p")).await.expect(200);
    admin.post(MAPS, &config_map("last")).await.expect(201);
}

#[tokio::test]
async fn policies_are_not_asked_about_policies() {
    let (_cluster, admin) = start().await;
    let mut refuse = policy("p", api::document!([{"expression": "false"}]));
    let rules = api::document!([rule(&ALL, "*", &["*/*"])]);
    refuse.set(&["spec", "matchConstraints", "resourceRules"], rules);
    enforce(&admin, &refuse).await;
    admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    // Webhook configurations are not exempt.
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let configuration = api::document!({"metadata": {"name": "c"}});
    admin
        .post(path, &configuration)
        .await
        .failure(422, "Invalid");
    let other = policy("q", api::document!([{"expression": "true"}]));
    admin.post(POLICIES, &other).await.expect(201);
    admin
        .post(BINDINGS, &binding("q", "q", "Deny"))
        .await
        .expect(201);
    let label = api::document!({"metadata": {"labels": {"x": "y"}}});
    for path in [POLICIES, BINDINGS] {
        for name in ["p", "q"] {
            admin
                .merge(&format!("{path}/{name}"), &label)
                .await
                .expect(200);
        }
    }
    let mutating = api::document!({
        "metadata": {"name": "m"}, "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule(&["CREATE"], "", &["configmaps"])]},
            "mutations": [{"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": "Object{}"}}],
        },
    });
    let path = POLICIES.replace("validating", "mutating");
    admin.post(&path, &mutating).await.expect(201);
    admin.delete(&format!("{BINDINGS}/p")).await.expect(200);
    admin.delete(&format!("{POLICIES}/p")).await.expect(200);
    admin.post(MAPS, &config_map("a")).await.expect(201);
}

#[tokio::test]
async fn deletions_connections_and_subresources_are_asked_about() {
    let (_cluster, admin) = start().await;
    admin.post(MAPS, &config_map("kept")).await.expect(201);
    admin.post(PODS, &pod("p")).await.expect(201);
    let validations = api::document!([{
        "expression": "object == null && oldObject.metadata.name != 'kept'",
        "messageExpression": "request.operation + ' of ' + request.name",
    }]);
    let mut deletions = policy("deletions", validations);
    let rules = api::document!([rule(&["DELETE"], "", &["configmaps"])]);
    deletions.set(&["spec", "matchConstraints", "resourceRules"], rules);
    enforce(&admin, &deletions).await;
    let message = admin
        .delete(&format!("{MAPS}/kept"))
        .await
        .failure(422, "Invalid");
    assert!(
        message.ends_with("denied request: DELETE of kept"),
        "{message}"
    );

    let validations = api::document!([{
        "expression": "object.kind != 'PodExecOptions' || has(object.stdin)",
        "messageExpression": "request.subResource + ' without stdin'",
    }]);
    let mut connections = policy("connections", validations);
    let rules = api::document!([rule(&["CONNECT"], "", &["pods/exec"])]);
    connections.set(&["spec", "matchConstraints", "resourceRules"], rules);
    enforce(&admin, &connections).await;
    let message = admin
        .post(
            &format!("{PODS}/p/exec?command=ls&stdout=true"),
            &Value::Null,
        )
        .await
        .failure(422, "Invalid");
    assert!(
        message.ends_with("denied request: exec without stdin"),
        "{message}"
    );

    let validations = api::document!([{"expression": "object.spec.replicas < 5"}]);
    let mut scales = policy("scales", validations);
    let rules = api::document!([rule(&["UPDATE"], "apps", &["deployments/scale"])]);
    scales.set(&["spec", "matchConstraints", "resourceRules"], rules);
    enforce(&admin, &scales).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = api::document!({
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    admin.post(deployments, &deployment).await.expect(201);
    let scale = format!("{deployments}/d/scale");
    let wanted = |replicas: i64| api::document!({"spec": {"replicas": replicas}});
    admin.merge(&scale, &wanted(4)).await.expect(200);
    admin
        .merge(&scale, &wanted(9))
        .await
        .failure(422, "Invalid");
}

#[tokio::test]
async fn constraints_bindings_names_exclusions_and_selectors_decide_what_is_asked() {
    let (_cluster, admin) = start().await;
    let other = api::document!({"metadata": {"name": "other", "labels": {"env": "prod"}}});
    admin.post("/api/v1/namespaces", &other).await.expect(201);
    let mut refuse = policy("p", api::document!([{"expression": "false"}]));
    let constraints = ["spec", "matchConstraints"];
    let excluded = api::document!([with(
        rule(&["*"], "", &["configmaps"]),
        &["resourceNames"],
        api::document!(["free"])
    )]);
    refuse.set(
        &[constraints[0], constraints[1], "excludeResourceRules"],
        excluded,
    );
    let selector = api::document!({"matchLabels": {"checked": "yes"}});
    refuse.set(
        &[constraints[0], constraints[1], "objectSelector"],
        selector,
    );
    admin.post(POLICIES, &refuse).await.expect(201);
    let mut bound = binding("b", "p", "Deny");
    let selector = api::document!({"namespaceSelector": {"matchLabels": {"env": "prod"}}});
    bound.set(&["spec", "matchResources"], selector);
    admin.post(BINDINGS, &bound).await.expect(201);
    let elsewhere = "/api/v1/namespaces/other/configmaps";
    let map = |name: &str| {
        let labels = api::document!({"checked": "yes"});
        with(config_map(name), &["metadata", "labels"], labels)
    };
    admin
        .post(elsewhere, &map("a"))
        .await
        .failure(422, "Invalid");
    admin.post(elsewhere, &map("free")).await.expect(201);
    admin
        .post(elsewhere, &config_map("unchecked"))
        .await
        .expect(201);
    admin.post(MAPS, &map("a")).await.expect(201);
}

#[tokio::test]
async fn other_versions_of_a_resource_are_equivalent() {
    let (_cluster, admin) = start().await;
    let validations = api::document!([{
        "expression": "object.apiVersion == 'autoscaling/v1'",
        "messageExpression": "request.kind.version + ' ' + request.requestKind.version + ' ' + string(object.spec.targetCPUUtilizationPercentage)",
    }, {
        "expression": "object.spec.targetCPUUtilizationPercentage < 80",
        "messageExpression": "request.kind.version + ' for ' + request.requestKind.version",
    }]);
    let mut scalers = policy("p", validations);
    let mut one = rule(&["CREATE"], "autoscaling", &["horizontalpodautoscalers"]);
    one.set(&["apiVersions"], api::document!(["v1"]));
    scalers.set(
        &["spec", "matchConstraints", "resourceRules"],
        api::document!([one]),
    );
    enforce(&admin, &scalers).await;
    let scaler = api::document!({
        "metadata": {"name": "s"},
        "spec": {
            "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 90},
            }}],
        },
    });
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let message = admin.post(path, &scaler).await.failure(422, "Invalid");
    assert!(message.ends_with("denied request: v1 for v2"), "{message}");
}

#[tokio::test]
async fn match_conditions_decide_and_fail_by_the_failure_policy() {
    let (_cluster, admin) = start().await;
    let mut refuse = policy("p", api::document!([{"expression": "false"}]));
    let conditions = api::document!([
        {"name": "not-free", "expression": "request.name != 'free'"},
        {"name": "broken", "expression": "object.data.a == '1' || object.nothing"},
    ]);
    refuse.set(&["spec", "matchConditions"], conditions);
    enforce(&admin, &refuse).await;
    admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    admin.post(MAPS, &config_map("free")).await.expect(201);
    let broken = with(config_map("broken"), &["data", "a"], "2".into());
    let message = admin.post(MAPS, &broken).await.failure(422, "Invalid");
    assert!(
        message.ends_with("denied request: expression 'object.data.a == '1' || object.nothing' resulted in error: no such key: nothing"),
        "{message}"
    );
    let ignore = api::document!({"spec": {"failurePolicy": "Ignore"}});
    admin
        .merge(&format!("{POLICIES}/p"), &ignore)
        .await
        .expect(200);
    admin.post(MAPS, &broken).await.expect(201);
}

#[tokio::test]
async fn expressions_that_fail_are_decided_by_the_failure_policy() {
    let (_cluster, admin) = start().await;
    let validations = api::document!([{"expression": "object.data.missing == 'x'"}]);
    enforce(&admin, &policy("p", validations)).await;
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(422, "Invalid");
    assert!(
        message.ends_with("denied request: expression 'object.data.missing == 'x'' resulted in error: no such key: missing"),
        "{message}"
    );
    let ignore = api::document!({"spec": {"failurePolicy": "Ignore"}});
    admin
        .merge(&format!("{POLICIES}/p"), &ignore)
        .await
        .expect(200);
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let line = "apiserver_validating_admission_policy_check_total{enforcement_action=\"allow\",error_type=\"invalid_error\",policy=\"p\",policy_binding=\"p\"}";
    assert_eq!(count(&admin, line).await, 1);
}

#[tokio::test]
async fn variables_that_are_not_read_do_no_harm() {
    let (_cluster, admin) = start().await;
    let mut policy = policy(
        "p",
        api::document!([{"expression": "variables.length < 3", "messageExpression": "'length ' + string(variables.length)"}]),
    );
    let variables = api::document!([
        {"name": "broken", "expression": "object.data.missing.at.all"},
        {"name": "value", "expression": "string(object.data.a)"},
        {"name": "length", "expression": "size(variables.value)"},
    ]);
    policy.set(&["spec", "variables"], variables);
    enforce(&admin, &policy).await;
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let long = with(config_map("b"), &["data", "a"], "1234".into());
    let message = admin.post(MAPS, &long).await.failure(422, "Invalid");
    assert!(message.ends_with("denied request: length 4"), "{message}");
}

#[tokio::test]
async fn expressions_see_the_namespace_and_the_user() {
    let (_cluster, admin) = start().await;
    let labels = api::document!({"metadata": {"labels": {"most": "2"}}});
    admin
        .merge("/api/v1/namespaces/default", &labels)
        .await
        .expect(200);
    let validations = api::document!([
        {"expression": "size(object.data) <= int(namespaceObject.metadata.labels.most)"},
        {"expression": "request.userInfo.username == 'system:admin'"},
        {"expression": "request.namespace == namespaceObject.metadata.name"},
    ]);
    enforce(&admin, &policy("p", validations)).await;
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let many = with(
        config_map("b"),
        &["data"],
        api::document!({"a": "", "b": "", "c": ""}),
    );
    admin.post(MAPS, &many).await.failure(422, "Invalid");
    // What is in no namespace has none.
    let validations = api::document!([{"expression": "namespaceObject == null"}]);
    let mut nodes = policy("nodes", validations);
    let rules = api::document!([rule(&["CREATE"], "", &["nodes", "namespaces"])]);
    nodes.set(&["spec", "matchConstraints", "resourceRules"], rules);
    enforce(&admin, &nodes).await;
    let node = api::document!({"metadata": {"name": "n"}});
    admin.post("/api/v1/nodes", &node).await.expect(201);
    admin.post("/api/v1/namespaces", &node).await.expect(201);
}

#[tokio::test]
async fn the_authorizer_is_asked_on_behalf_of_the_user() {
    let (cluster, admin) = start().await;
    let validations = api::document!([{
        "expression": "authorizer.group('').resource('secrets').namespace('default').check('delete').allowed() && authorizer.requestResource.check('create').allowed()",
        "message": "must be allowed to delete secrets",
    }]);
    enforce(&admin, &policy("p", validations)).await;
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let role = api::document!({
        "metadata": {"name": "maps"},
        "rules": [{"verbs": ["create"], "apiGroups": [""], "resources": ["configmaps"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    admin
        .post(&format!("{rbac}/roles"), &role)
        .await
        .expect(201);
    let bound = api::document!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    admin
        .post(&format!("{rbac}/rolebindings"), &bound)
        .await
        .expect(201);
    admin.get("/api/v1/nodes").await.expect(200);
    let jane = cluster.client(Identity::component("jane", &[]));
    let message = jane
        .post(MAPS, &config_map("b"))
        .await
        .failure(422, "Invalid");
    assert!(
        message.ends_with("must be allowed to delete secrets"),
        "{message}"
    );
}

#[tokio::test]
async fn policies_are_asked_about_custom_objects() {
    let (_cluster, admin) = start().await;
    establish(&admin, &widgets()).await;
    let validations = api::document!([{"expression": "object.spec.color != 'blue'"}]);
    let mut colors = policy("p", validations);
    let rules = api::document!([rule(&["*"], "example.com", &["widgets"])]);
    colors.set(&["spec", "matchConstraints", "resourceRules"], rules);
    enforce(&admin, &colors).await;
    let blue = widget("w", api::document!({"color": "blue"}));
    let message = admin.post(WIDGETS, &blue).await.failure(422, "Invalid");
    assert!(
        message.starts_with("widgets.example.com \"w\" is forbidden: "),
        "{message}"
    );
    let red = widget("w", api::document!({"color": "red"}));
    admin.post(WIDGETS, &red).await.expect(201);
}

#[tokio::test]
async fn what_costs_too_much_is_refused() {
    let (_cluster, admin) = start().await;
    let list = "object.data.list.split(',')";
    let expression = format!("{list}.all(a, {list}.all(b, {list}.all(c, a + b + c != '')))");
    let validations: Value = api::document!([{"expression": expression}]);
    enforce(&admin, &policy("p", validations)).await;
    let small = with(config_map("a"), &["data", "list"], "1,2,3".into());
    admin.post(MAPS, &small).await.expect(201);
    let long = vec!["x"; 300].join(",");
    let large = with(config_map("b"), &["data", "list"], long.into());
    let message = admin.post(MAPS, &large).await.failure(422, "Invalid");
    assert!(
        message.ends_with("resulted in error: operation cancelled: actual cost limit exceeded"),
        "{message}"
    );
}
