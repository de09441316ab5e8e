//! Roles, reviews, tokens.

use api::Value;
use apiserver::Identity;

use crate::harness::{Cluster, config_map};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[tokio::test(start_paused = true)]
async fn a_role_and_its_binding_allow_what_they_say() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let jane = cluster.client(Identity::component("jane", &[]));
    let maps = "/api/v1/namespaces/default/configmaps";
    jane.get(maps).await.failure(403, "Forbidden");
    let role = api::document!({
        "metadata": {"name": "reader"},
        "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}],
    });
    let namespace = format!("{RBAC}/namespaces/default");
    admin
        .post(&format!("{namespace}/roles"), &role)
        .await
        .expect(201);
    let binding = api::document!({
        "metadata": {"name": "jane-reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    admin
        .post(&format!("{namespace}/rolebindings"), &binding)
        .await
        .expect(201);
    admin.get(maps).await.expect(200);
    jane.get(maps).await.expect(200);
    jane.get("/api/v1/namespaces/kube-system/configmaps")
        .await
        .failure(403, "Forbidden");
    jane.post(maps, &config_map("a"))
        .await
        .failure(403, "Forbidden");
    let named = api::document!({
        "metadata": {"name": "one"},
        "rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"]}],
    });
    admin
        .post(&format!("{namespace}/roles"), &named)
        .await
        .expect(201);
    let mut second = binding.clone();
    second.set(&["metadata", "name"], "jane-one");
    second.set(&["roleRef", "name"], "one");
    admin
        .post(&format!("{namespace}/rolebindings"), &second)
        .await
        .expect(201);
    let secrets = "/api/v1/namespaces/default/secrets";
    admin.get(secrets).await.expect(200);
    jane.get(secrets).await.failure(403, "Forbidden");
    jane.get(&format!("{secrets}?fieldSelector=metadata.name%3Ds"))
        .await
        .expect(200);
    jane.get("/version").await.expect(200);
    jane.get("/api").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn users_grant_only_what_they_have() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let binding = api::document!({
        "metadata": {"name": "jane-admin", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    let namespace = format!("{RBAC}/namespaces/default");
    admin
        .post(&format!("{namespace}/rolebindings"), &binding)
        .await
        .expect(201);
    admin.get("/api/v1/nodes").await.expect(200);
    let jane = cluster.client(Identity::component("jane", &[]));
    let role = |resource: &str| {
        api::document!({
            "metadata": {"name": format!("r-{resource}")},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}],
        })
    };
    jane.post(&format!("{namespace}/roles"), &role("pods"))
        .await
        .expect(201);
    let message = jane
        .post(&format!("{namespace}/roles"), &role("nodes"))
        .await
        .failure(403, "Forbidden");
    assert!(
        message.contains("is attempting to grant RBAC permissions not currently held"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn our_components_may_do_their_work() {
    let cluster = Cluster::start().await;
    for (identity, path) in [
        (
            Identity::component("system:kube-scheduler", &[]),
            "/api/v1/pods",
        ),
        (
            Identity::component("system:kube-controller-manager", &[]),
            "/apis/apps/v1/deployments",
        ),
        (Identity::node("n1"), "/api/v1/services"),
        (
            Identity::component("system:kube-proxy", &[]),
            "/apis/discovery.k8s.io/v1/endpointslices",
        ),
        (
            Identity::component("system:coracle:dns", &[]),
            "/api/v1/services",
        ),
    ] {
        let user = identity.user().to_string();
        let answer = cluster.client(identity).get(path).await;
        assert_eq!(answer.code, 200, "{user} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn access_reviews_answer() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let review = |user: &str| {
        api::document!({"spec": {"user": user, "resourceAttributes": {
            "verb": "list", "resource": "services", "namespace": "default",
        }}})
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let allowed = |answer: &Value| answer.at(&["status", "allowed"]).and_then(Value::as_bool);
    let proxy = admin
        .post(path, &review("system:kube-proxy"))
        .await
        .expect(201);
    assert_eq!(allowed(&proxy), Some(true));
    assert!(
        proxy
            .str_at(&["status", "reason"])
            .starts_with("RBAC: allowed by ClusterRoleBinding")
    );
    let nobody = admin.post(path, &review("nobody")).await.expect(201);
    assert_eq!(allowed(&nobody), Some(false));
    let own = api::document!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let nobody = cluster.client(Identity::component("nobody", &[]));
    let answer = nobody
        .post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            &own,
        )
        .await
        .expect(201);
    assert_eq!(allowed(&answer), Some(false));
    let who = nobody
        .post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            &Value::object(),
        )
        .await
        .expect(201);
    assert_eq!(who.str_at(&["status", "userInfo", "username"]), "nobody");
    let rules = nobody
        .post(
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            &api::document!({"spec": {"namespace": "default"}}),
        )
        .await
        .expect(201);
    assert!(
        !rules
            .at(&["status", "resourceRules"])
            .and_then(Value::as_array)
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_live_as_long_as_what_they_are_bound_to() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let pods = "/api/v1/namespaces/default/pods";
    admin
        .post(pods, &crate::harness::pod("a"))
        .await
        .expect(201);
    let request = api::document!({"spec": {
        "expirationSeconds": 600,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "a"},
    }});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let issued = admin.post(path, &request).await.expect(201);
    let token = issued.str_at(&["status", "token"]).to_string();
    let review = api::document!({"spec": {"token": token}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = admin.post(reviews, &review).await.expect(201);
    assert_eq!(
        answer
            .at(&["status", "authenticated"])
            .and_then(Value::as_bool),
        Some(true)
    );
    assert_eq!(
        answer.str_at(&["status", "user", "username"]),
        "system:serviceaccount:default:default"
    );
    admin.delete(&format!("{pods}/a")).await.expect(200);
    admin.get(pods).await.expect(200);
    let answer = admin.post(reviews, &review).await.expect(201);
    assert_eq!(
        answer
            .at(&["status", "authenticated"])
            .and_then(Value::as_bool),
        None
    );
    // Unbound, it ends with time.
    let request = api::document!({"spec": {"expirationSeconds": 600}});
    let issued = admin.post(path, &request).await.expect(201);
    let review = api::document!({"spec": {"token": issued.str_at(&["status", "token"])}});
    let answer = admin.post(reviews, &review).await.expect(201);
    assert_eq!(
        answer
            .at(&["status", "authenticated"])
            .and_then(Value::as_bool),
        Some(true)
    );
    tokio::time::sleep(std::time::Duration::from_secs(601)).await;
    let answer = admin.post(reviews, &review).await.expect(201);
    assert_eq!(
        answer
            .at(&["status", "authenticated"])
            .and_then(Value::as_bool),
        None
    );
    let short = api::document!({"spec": {"expirationSeconds": 5}});
    admin.post(path, &short).await.failure(422, "Invalid");
}

/// A user who may write cluster roles and bindings, read pods, and no more.
async fn role_writer(cluster: &Cluster) -> crate::harness::Client {
    let admin = cluster.admin();
    // Everything but the two verbs that lift the check.
    let verbs = ["create", "update", "patch", "get", "list", "delete"];
    let role = api::document!({
        "metadata": {"name": "role-writer"},
        "rules": [
            {"verbs": verbs, "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        ],
    });
    let roles = format!("{RBAC}/clusterroles");
    admin.post(&roles, &role).await.expect(201);
    let binding = api::document!({
        "metadata": {"name": "role-writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "role-writer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    let bindings = format!("{RBAC}/clusterrolebindings");
    admin.post(&bindings, &binding).await.expect(201);
    admin.get(&bindings).await.expect(200);
    cluster.client(Identity::component("jane", &[]))
}

#[tokio::test(start_paused = true)]
async fn an_aggregation_rule_needs_all_rights_on_every_way_of_writing() {
    let cluster = Cluster::start().await;
    let jane = role_writer(&cluster).await;
    let admin = cluster.admin();
    let roles = format!("{RBAC}/clusterroles");
    let plain = |name: &str| {
        api::document!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name},
        })
    };
    let aggregating = |name: &str| {
        let mut role = plain(name);
        let selectors =
            api::document!([{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]);
        role.set(&["aggregationRule", "clusterRoleSelectors"], selectors);
        role
    };
    jane.post(&roles, &plain("empty")).await.expect(201);
    let path = format!("{roles}/empty");
    let json = br#"[{"op":"add","path":"/aggregationRule","value":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}]"#;
    let patch = aggregating("empty").to_json();
    let refused = "clusterroles.rbac.authorization.k8s.io \"empty\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    let message = jane.post(&roles, &aggregating("new")).await;
    assert_eq!(
        message.failure(403, "Forbidden"),
        refused.replace("empty", "new")
    );
    let message = jane.put(&path, &aggregating("empty")).await;
    assert_eq!(message.failure(403, "Forbidden"), refused);
    for (kind, body) in [
        ("application/json-patch+json", &json[..]),
        ("application/merge-patch+json", &patch),
        ("application/strategic-merge-patch+json", &patch),
        ("application/apply-patch+yaml", &patch),
    ] {
        let answer = jane
            .send("PATCH", &format!("{path}?fieldManager=m"), kind, body)
            .await;
        assert_eq!(answer.failure(403, "Forbidden"), refused, "{kind}");
    }
    // What creates on the way of an update or an apply is no way around.
    let absent = format!("{roles}/absent");
    let body = aggregating("absent");
    jane.put(&absent, &body).await.failure(403, "Forbidden");
    let applied = format!("{absent}?fieldManager=m");
    jane.send(
        "PATCH",
        &applied,
        "application/apply-patch+yaml",
        &body.to_json(),
    )
    .await
    .failure(403, "Forbidden");
    // Who may do everything may also aggregate; then nobody else touches the role.
    admin.put(&path, &aggregating("empty")).await.expect(200);
    let message = jane.put(&path, &plain("empty")).await;
    assert_eq!(message.failure(403, "Forbidden"), refused);
    jane.delete(&path).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn any_change_of_a_role_or_binding_needs_what_it_grants() {
    let cluster = Cluster::start().await;
    let jane = role_writer(&cluster).await;
    let label = api::document!({"metadata": {"labels": {
        "rbac.authorization.k8s.io/aggregate-to-view": "true",
    }}});
    // A label would make this role part of `view`, which others are bound to.
    let message = jane
        .merge(&format!("{RBAC}/clusterroles/cluster-admin"), &label)
        .await
        .failure(403, "Forbidden");
    assert!(
        message.contains("is attempting to grant RBAC permissions not currently held"),
        "{message}"
    );
    jane.merge(&format!("{RBAC}/clusterrolebindings/cluster-admin"), &label)
        .await
        .failure(403, "Forbidden");
    // What the garbage collector writes is not a grant.
    let finalizers = api::document!({"metadata": {"finalizers": ["example.com/hold"]}});
    jane.merge(&format!("{RBAC}/clusterroles/cluster-admin"), &finalizers)
        .await
        .expect(200);
    jane.merge(&format!("{RBAC}/clusterroles/role-writer"), &label)
        .await
        .expect(200);
}

#[tokio::test(start_paused = true)]
async fn escalate_for_one_name_does_not_cover_a_role_that_is_only_named_in_the_body() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let jane = role_writer(&cluster).await;
    let role = api::document!({
        "metadata": {"name": "escalator"},
        "rules": [{"verbs": ["escalate"], "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"], "resourceNames": ["one"]}],
    });
    let roles = format!("{RBAC}/clusterroles");
    admin.post(&roles, &role).await.expect(201);
    let binding = api::document!({
        "metadata": {"name": "escalator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "escalator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    let bindings = format!("{RBAC}/clusterrolebindings");
    admin.post(&bindings, &binding).await.expect(201);
    admin.get(&bindings).await.expect(200);
    let one = api::document!({
        "metadata": {"name": "one"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}],
    });
    jane.post(&roles, &one).await.failure(403, "Forbidden");
    jane.put(&format!("{roles}/one"), &one).await.expect(201);
}
