//! Hooks that work: when they are called, with what, in which order, and what becomes of their
//! answers.

use api::Value;

use crate::custom_harness::{WIDGETS, establish, widget, widgets};
use crate::harness::{Client, Cluster, config_map, pod};
use crate::hook_server::{
    HookServer, Identity, MUTATING, Reply, VALIDATING, allowed, configure, denied, patched, review,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ALL: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

async fn start() -> (Cluster, Client) {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    (cluster, admin)
}

/// Appends the path of the hook to `data.order`.
fn order(path: &str, asked: &Value) -> Reply {
    let before = asked.str_at(&["request", "object", "data", "order"]);
    let operations =
        api::document!([{"op": "add", "path": "/data/order", "value": format!("{before}{path}")}]);
    patched(asked, &operations)
}

#[tokio::test]
async fn a_hook_sees_the_request_as_upstream_shows_it() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|_, asked| allowed(asked)).await;
    let hook = server.hook("h", &ALL, &["configmaps"]);
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let path = format!("{MAPS}?fieldManager=me&fieldValidation=Strict");
    admin.post(&path, &config_map("a")).await.expect(201);
    let asked = server.take();
    let [(called, asked)] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert_eq!(called, "/h");
    assert_eq!(asked.str_at(&["apiVersion"]), "admission.k8s.io/v1");
    let request = asked.get("request").unwrap();
    let mut rest = request.clone();
    for field in ["uid", "object", "userInfo"] {
        rest.remove(&[field]);
    }
    assert_eq!(
        rest,
        api::document!({
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "a", "namespace": "default", "operation": "CREATE", "dryRun": false,
            "oldObject": null,
            "options": {
                "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
                "fieldValidation": "Strict",
            },
        })
    );
    assert_eq!(request.str_at(&["object", "kind"]), "ConfigMap");
    let owners = request.list_at(&["object", "metadata", "managedFields"]);
    assert_eq!(owners[0].str_at(&["manager"]), "me");
    assert!(!request.str_at(&["userInfo", "username"]).is_empty());

    let change = api::document!({"data": {"b": "2"}});
    admin.merge(&format!("{MAPS}/a"), &change).await.expect(200);
    admin.delete(&format!("{MAPS}/a")).await.expect(200);
    let [update, delete] = server.requests().try_into().unwrap();
    assert_eq!(update.str_at(&["operation"]), "UPDATE");
    assert_eq!(update.str_at(&["options", "kind"]), "UpdateOptions");
    assert_eq!(update.str_at(&["oldObject", "data", "a"]), "1");
    assert_eq!(update.str_at(&["object", "data", "b"]), "2");
    assert_eq!(delete.str_at(&["operation"]), "DELETE");
    assert_eq!(delete.get("object"), Some(&Value::Null));
    assert_eq!(delete.str_at(&["oldObject", "metadata", "name"]), "a");
    assert_eq!(delete.str_at(&["options", "kind"]), "DeleteOptions");
}

#[tokio::test]
async fn a_refusal_is_answered_with_its_code_and_reason() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|_, asked| {
        denied(
            asked,
            api::document!({"code": 418, "reason": "Teapot", "message": "short and stout"}),
        )
    })
    .await;
    let hook = server.hook("h", &["CREATE", "DELETE"], &["configmaps"]);
    admin.post(MAPS, &config_map("before")).await.expect(201);
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let told = "admission webhook \"h.example.com\" denied the request: short and stout";
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(418, "Teapot");
    assert_eq!(message, told);
    let path = format!("{MAPS}/before");
    let message = admin.delete(&path).await.failure(418, "Teapot");
    assert_eq!(message, told);
    // One by one, as if each had been deleted by its name.
    admin.delete(MAPS).await.failure(418, "Teapot");
    let request = server.requests().pop().unwrap();
    assert_eq!(request.str_at(&["oldObject", "metadata", "name"]), "before");
    admin.get(&path).await.expect(200);
}

#[tokio::test]
async fn mutating_hooks_are_called_by_name_one_after_another_and_again_if_they_ask_for_it() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(order).await;
    let hook = |name: &str, again: &str| {
        let mut hook = server.hook(name, &["CREATE"], &["configmaps"]);
        hook.set(&["reinvocationPolicy"], again);
        hook
    };
    // Written in another order than they are called in.
    let second = vec![hook("b1", "Never"), hook("b2", "IfNeeded")];
    configure(&admin, MUTATING, "b", second).await;
    let first = vec![hook("a1", "IfNeeded"), hook("a2", "Never")];
    configure(&admin, MUTATING, "a", first).await;
    let made = admin.post(MAPS, &config_map("x")).await.expect(201);
    // In the second round the first sees what came after it. What it changes then is news to the
    // last, which nobody had followed in the first round.
    let order = made.str_at(&["data", "order"]);
    assert_eq!(order, "/a1/a2/b1/b2/a1/b2");
    let uids: Vec<String> = server
        .requests()
        .iter()
        .map(|request| request.str_at(&["uid"]).to_string())
        .collect();
    let unique: std::collections::BTreeSet<&String> = uids.iter().collect();
    assert_eq!(unique.len(), uids.len());
}

#[tokio::test]
async fn what_a_hook_changes_has_no_owner_and_is_defaulted() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|_, asked| {
        let sidecar = api::document!({"name": "sidecar", "image": "proxy"});
        let mut operations = api::document!([{"op": "add", "path": "/spec/containers/-"}]);
        operations.list_at_mut(&[])[0].set(&["value"], sidecar);
        patched(asked, &operations)
    })
    .await;
    let hook = server.hook("h", &["CREATE"], &["pods"]);
    configure(&admin, MUTATING, "c", vec![hook]).await;
    let made = admin.post(PODS, &pod("a")).await.expect(201);
    let containers = made.list_at(&["spec", "containers"]);
    let [main, sidecar] = containers else {
        panic!("{made}");
    };
    assert_eq!(sidecar.str_at(&["imagePullPolicy"]), "Always");
    // The plugins ran again: the sidecar has the token of the account as well.
    let mounts = |container: &Value| container.list_at(&["volumeMounts"]).to_vec();
    assert_eq!(mounts(main), mounts(sidecar));
    assert_eq!(made.list_at(&["spec", "volumes"]).len(), 1);
    let owners = made.list_at(&["metadata", "managedFields"]);
    assert_eq!(owners.len(), 1);
    let owned = owners[0].to_string();
    assert!(owned.contains("k:{\\\"name\\\":\\\"main\\\"}"), "{owned}");
    assert!(!owned.contains("sidecar"), "{owned}");
}

#[tokio::test]
async fn a_dry_run_is_visible_to_the_hook_and_refused_where_it_has_side_effects() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|_, asked| allowed(asked)).await;
    let hook = server.hook("h", &["CREATE"], &["configmaps"]);
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let path = format!("{MAPS}?dryRun=All");
    admin.post(&path, &config_map("a")).await.expect(201);
    let request = server.requests().pop().unwrap();
    assert!(request.bool_at(&["dryRun"]));
    assert_eq!(
        request.at(&["options", "dryRun"]),
        Some(&api::document!(["All"]))
    );
    admin
        .get(&format!("{MAPS}/a"))
        .await
        .failure(404, "NotFound");
}

#[tokio::test]
async fn a_hook_is_asked_in_the_version_that_its_rules_name() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|path, asked| match path {
        "/changes" => {
            let field = "/spec/targetCPUUtilizationPercentage";
            patched(
                asked,
                &api::document!([{"op": "replace", "path": field, "value": 33}]),
            )
        }
        _ => allowed(asked),
    })
    .await;
    let versioned = |name: &str, version: &str, policy: &str| {
        let mut hook = server.hook(name, &["CREATE"], &["horizontalpodautoscalers"]);
        hook.list_at_mut(&["rules"])[0].set(&["apiGroups"], api::document!(["autoscaling"]));
        hook.list_at_mut(&["rules"])[0].set(&["apiVersions"], Value::Array(vec![version.into()]));
        hook.set(&["matchPolicy"], policy);
        hook
    };
    let changes = versioned("changes", "v1", "Equivalent");
    configure(&admin, MUTATING, "c", vec![changes]).await;
    let hooks = vec![
        versioned("same", "v2", "Exact"),
        versioned("other", "v1", "Exact"),
        versioned("equivalent", "v1", "Equivalent"),
    ];
    configure(&admin, VALIDATING, "c", hooks).await;
    let scaler = api::document!({
        "metadata": {"name": "a"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "minReplicas": 1, "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
            }}],
        },
    });
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let made = admin.post(path, &scaler).await.expect(201);
    let target = &made.list_at(&["spec", "metrics"])[0];
    let percent = target.i64_at(&["resource", "target", "averageUtilization"]);
    assert_eq!(percent, Some(33), "{made}");
    let mut asked = server.take();
    asked[1..].sort_by(|one, other| one.0.cmp(&other.0));
    let told: Vec<(&str, &str, &str, i64)> = asked
        .iter()
        .map(|(path, review)| {
            let at = |path: &[&str]| review.get("request").unwrap().str_at(path);
            let field = [
                "request",
                "object",
                "spec",
                "targetCPUUtilizationPercentage",
            ];
            (
                path.as_str(),
                at(&["kind", "version"]),
                at(&["requestKind", "version"]),
                review.i64_at(&field).unwrap_or(0),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("/changes", "v1", "v2", 50),
            ("/equivalent", "v1", "v2", 33),
            ("/same", "v2", "v2", 0),
        ]
    );
    let version = asked[1].1.str_at(&["request", "object", "apiVersion"]);
    assert_eq!(version, "autoscaling/v1");
}

#[tokio::test]
async fn selectors_choose_by_the_labels_of_namespace_and_of_either_object() {
    let (cluster, admin) = start().await;
    cluster.namespace("watched").await;
    let labels = api::document!({"metadata": {"labels": {"hooks": "on"}}});
    admin
        .merge("/api/v1/namespaces/watched", &labels)
        .await
        .expect(200);
    let server = HookServer::start(|_, asked| allowed(asked)).await;
    let selector = api::document!({"matchLabels": {"hooks": "on"}});
    let mut by_namespace = server.hook("namespace", &ALL, &["configmaps"]);
    by_namespace.set(&["namespaceSelector"], selector.clone());
    let mut by_object = server.hook("object", &ALL, &["configmaps"]);
    by_object.set(&["objectSelector"], selector);
    configure(&admin, VALIDATING, "c", vec![by_namespace, by_object]).await;
    let paths = || -> Vec<String> {
        let mut paths: Vec<String> = server.take().into_iter().map(|(path, _)| path).collect();
        paths.sort();
        paths
    };
    let other = "/api/v1/namespaces/watched/configmaps";
    admin.post(MAPS, &config_map("a")).await.expect(201);
    assert_eq!(paths(), [""; 0]);
    admin.post(other, &config_map("a")).await.expect(201);
    assert_eq!(paths(), ["/namespace"]);
    let path = format!("{MAPS}/a");
    admin.merge(&path, &labels).await.expect(200);
    assert_eq!(paths(), ["/object"]);
    // The label goes, but the object before had it.
    let gone = api::document!({"metadata": {"labels": {"hooks": null}}});
    admin.merge(&path, &gone).await.expect(200);
    assert_eq!(paths(), ["/object"]);
    admin
        .merge(&path, &api::document!({"data": {"x": "y"}}))
        .await
        .expect(200);
    assert_eq!(paths(), [""; 0]);
}

#[tokio::test]
async fn subresources_are_admitted_as_what_they_are() {
    let (_cluster, admin) = start().await;
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
    admin.post(PODS, &pod("p")).await.expect(201);
    let server = HookServer::start(|path, asked| match path {
        "/scales" => {
            let operation =
                api::document!([{"op": "replace", "path": "/spec/replicas", "value": 7}]);
            patched(asked, &operation)
        }
        _ => allowed(asked),
    })
    .await;
    let scales = server.hook("scales", &["UPDATE"], &["deployments/scale"]);
    configure(&admin, MUTATING, "c", vec![scales]).await;
    let below = server.hook(
        "below",
        &ALL,
        &["pods/*", "deployments/*", "serviceaccounts/*"],
    );
    configure(&admin, VALIDATING, "c", vec![below]).await;
    let change = api::document!({"spec": {"replicas": 3}});
    let scale = admin
        .merge(&format!("{deployments}/d/scale"), &change)
        .await
        .expect(200);
    assert_eq!(scale.i64_at(&["spec", "replicas"]), Some(7));
    let stored = admin.get(&format!("{deployments}/d")).await.expect(200);
    assert_eq!(stored.i64_at(&["spec", "replicas"]), Some(7));
    let shown = |request: &Value| {
        format!(
            "{} {}/{} {}",
            request.str_at(&["operation"]),
            request.str_at(&["resource", "resource"]),
            request.str_at(&["subResource"]),
            request.str_at(&["kind", "kind"])
        )
    };
    let asked: Vec<String> = server.requests().iter().map(shown).collect();
    assert_eq!(asked, vec!["UPDATE deployments/scale Scale"; 2]);

    let binding = api::document!({
        "metadata": {"name": "p"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    });
    admin
        .post(&format!("{PODS}/p/binding"), &binding)
        .await
        .expect(201);
    let status = api::document!({"status": {"phase": "Running"}});
    admin
        .merge(&format!("{PODS}/p/status"), &status)
        .await
        .expect(200);
    let token = api::document!({"spec": {"audiences": []}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    admin.post(path, &token).await.expect(201);
    // Fails for want of a kubelet, after it was admitted.
    let exec = format!("{PODS}/p/exec?command=ls&container=main&stdout=true");
    admin.send("POST", &exec, "", b"").await;
    let eviction = api::document!({"metadata": {"name": "p"}});
    admin
        .post(&format!("{PODS}/p/eviction"), &eviction)
        .await
        .expect(201);
    let requests = server.requests();
    let asked: Vec<String> = requests.iter().map(shown).collect();
    assert_eq!(
        asked,
        [
            "CREATE pods/binding Binding",
            "UPDATE pods/status Pod",
            "CREATE serviceaccounts/token TokenRequest",
            "CONNECT pods/exec PodExecOptions",
            // The deletion that follows is part of the eviction.
            "CREATE pods/eviction Eviction",
        ]
    );
    let exec = &requests[3];
    assert_eq!(
        exec.at(&["object", "command"]),
        Some(&api::document!(["ls"]))
    );
    assert_eq!(exec.get("options"), Some(&Value::Null));
}

#[tokio::test]
async fn a_patch_of_a_deletion_is_refused() {
    let (_cluster, admin) = start().await;
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let server = HookServer::start(order).await;
    let hook = server.hook("h", &["DELETE"], &["configmaps"]);
    configure(&admin, MUTATING, "c", vec![hook]).await;
    let path = format!("{MAPS}/a");
    let message = admin.delete(&path).await.failure(500, "InternalError");
    assert_eq!(
        message,
        "Internal error occurred: admission webhook \"h.example.com\" attempted to modify the object, which is not supported for this operation"
    );
    admin.get(&path).await.expect(200);
}

#[tokio::test]
async fn hooks_are_not_asked_about_the_configuration_of_hooks() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|_, asked| denied(asked, Value::object())).await;
    let mut everything = server.hook("h", &["*"], &["*/*"]);
    everything.list_at_mut(&["rules"])[0].set(&["operations"], api::document!(["*"]));
    configure(&admin, MUTATING, "c", vec![everything.clone()]).await;
    configure(&admin, VALIDATING, "c", vec![everything]).await;
    admin.post(MAPS, &config_map("a")).await.failure(400, "");
    admin.delete(&format!("{MUTATING}/c")).await.expect(200);
    admin.delete(&format!("{VALIDATING}/c")).await.expect(200);
    admin.get(VALIDATING).await.expect(200);
    admin.post(MAPS, &config_map("a")).await.expect(201);
    assert_eq!(server.take().len(), 1);
}

#[tokio::test]
async fn a_question_that_is_answered_on_the_spot_is_admitted_too() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|_, asked| allowed(asked)).await;
    let hook = server.hook("h", &["CREATE"], &["selfsubjectreviews"]);
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    admin.post(path, &Value::object()).await.expect(201);
    let request = server.requests().pop().unwrap();
    assert_eq!(request.str_at(&["kind", "kind"]), "SelfSubjectReview");
}

#[tokio::test]
async fn connections_are_reused_and_go_with_their_configuration() {
    for protocols in [vec!["http/1.1"], vec!["h2", "http/1.1"]] {
        let (_cluster, admin) = start().await;
        let identity = Identity {
            protocols,
            ..Identity::default()
        };
        let server = HookServer::with(identity, |_, asked| allowed(asked)).await;
        let mutating = server.hook("h", &["CREATE"], &["configmaps"]);
        configure(&admin, MUTATING, "c", vec![mutating]).await;
        let mut validating = server.hook("h", &["CREATE"], &["configmaps"]);
        configure(&admin, VALIDATING, "c", vec![validating.clone()]).await;
        for number in 0..20 {
            let made = config_map(&format!("a{number}"));
            admin.post(MAPS, &made).await.expect(201);
        }
        assert_eq!(server.take().len(), 40);
        // Both hooks are at the same place.
        assert_eq!(server.connections(), 1);
        // Something that is not about the place leaves the connections as they are.
        let stored = admin.get(&format!("{VALIDATING}/c")).await.expect(200);
        let mut changed = stored.clone();
        changed.list_at_mut(&["webhooks"])[0].set(&["timeoutSeconds"], 7);
        admin
            .put(&format!("{VALIDATING}/c"), &changed)
            .await
            .expect(200);
        admin.get(&format!("{VALIDATING}/c")).await.expect(200);
        admin.post(MAPS, &config_map("again")).await.expect(201);
        assert_eq!(server.connections(), 1);
        validating.set(&["clientConfig"], server.config("/other"));
        configure(&admin, VALIDATING, "d", vec![validating]).await;
        admin.post(MAPS, &config_map("other")).await.expect(201);
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn warnings_reach_the_client_and_calls_are_counted() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|path, asked| match path {
        "/denies" => denied(asked, api::document!({"code": 403})),
        _ => {
            let warnings = api::document!({"allowed": true, "warnings": ["mind the gap"]});
            Reply::Json(review(asked, warnings))
        }
    })
    .await;
    let warns = server.hook("warns", &["CREATE"], &["configmaps"]);
    let denies = server.hook("denies", &["CREATE"], &["secrets"]);
    configure(&admin, VALIDATING, "c", vec![warns, denies]).await;
    let answer = admin.post(MAPS, &config_map("a")).await;
    assert_eq!(answer.headers["warning"], "299 - \"mind the gap\"");
    answer.expect(201);
    let secret = api::document!({"metadata": {"name": "s"}});
    admin
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .failure(403, "");
    let metrics = admin.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.bytes).into_owned();
    for line in [
        "apiserver_admission_webhook_request_total{code=\"200\",name=\"warns.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"validating\"} 1",
        "apiserver_admission_webhook_request_total{code=\"403\",name=\"denies.example.com\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"} 1",
        "apiserver_admission_webhook_rejection_count{error_type=\"no_error\",name=\"denies.example.com\",operation=\"CREATE\",rejection_code=\"403\",type=\"validating\"} 1",
        "apiserver_admission_webhook_admission_duration_seconds_count{name=\"warns.example.com\",operation=\"CREATE\",rejected=\"false\",type=\"validating\"} 1",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

#[tokio::test]
async fn a_custom_object_is_patched_pruned_and_keeps_what_it_had() {
    let (_cluster, admin) = start().await;
    establish(&admin, &widgets()).await;
    let server = HookServer::start(|_, asked| {
        let operations = api::document!([
            {"op": "add", "path": "/spec/replicas", "value": 4},
            {"op": "add", "path": "/spec/unheard", "value": "of"},
        ]);
        patched(asked, &operations)
    })
    .await;
    let hook = server.hook("h", &["CREATE"], &["widgets"]);
    configure(&admin, MUTATING, "c", vec![hook]).await;
    let sent = widget("a", api::document!({"replicas": 2}));
    let made = admin.post(WIDGETS, &sent).await.expect(201);
    assert_eq!(made.i64_at(&["spec", "replicas"]), Some(4));
    assert_eq!(made.str_at(&["spec", "color"]), "red");
    assert_eq!(made.at(&["spec", "unheard"]), None);
    let request = server.requests().pop().unwrap();
    assert_eq!(request.str_at(&["kind", "kind"]), "Widget");
    assert_eq!(request.i64_at(&["object", "spec", "replicas"]), Some(2));
}

#[tokio::test]
async fn many_long_warnings_are_cut() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|_, asked| {
        let warnings = (0..30).map(|number| Value::from(format!("{number:03}{}", "x".repeat(400))));
        let mut response = api::document!({"allowed": true});
        response.set(&["warnings"], warnings.collect::<Vec<Value>>());
        Reply::Json(review(asked, response))
    })
    .await;
    let hook = server.hook("h", &["CREATE"], &["configmaps"]);
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let answer = admin.post(MAPS, &config_map("a")).await;
    let told: Vec<usize> = answer
        .headers
        .get_all("warning")
        .iter()
        .map(|it| it.len())
        .collect();
    assert_eq!(told, vec![256 + "299 - \"\"".len(); 16]);
}

#[tokio::test]
async fn a_service_is_resolved_to_an_endpoint_of_its_own() {
    // An EndpointSlice cannot name a loopback address: this machine's own is used.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    let Ok(own) = own else {
        environment::skip_test("this machine has no address but the loopback one");
        return;
    };
    let (_cluster, admin) = start().await;
    let identity = Identity {
        names: vec!["hook.default.svc".to_string()],
        address: "0.0.0.0:0",
        ..Identity::default()
    };
    let server = HookServer::with(identity, |_, asked| allowed(asked)).await;
    let mut hook = server.hook("h", &["CREATE"], &["configmaps"]);
    let bundle = hook.str_at(&["clientConfig", "caBundle"]).to_string();
    hook.set(
        &["clientConfig"],
        api::document!({
            "caBundle": bundle,
            "service": {"name": "hook", "namespace": "default", "path": "/in/service"},
        }),
    );
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let refused = async |name: &str| {
        let answer = admin.post(MAPS, &config_map(name)).await;
        answer.failure(500, "InternalError")
    };
    let prefix = "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post \"https://hook.default.svc:443/in/service?timeout=5s\": ";
    let message = refused("a").await;
    assert_eq!(message, format!("{prefix}service \"hook\" not found"));
    let service = api::document!({
        "metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443}]},
    });
    let path = "/api/v1/namespaces/default/services";
    admin.post(path, &service).await.expect(201);
    let message = refused("a").await;
    assert_eq!(
        message,
        format!("{prefix}no endpoints available for service \"hook\"")
    );
    let slice = api::document!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": i64::from(server.address.port())}],
        "endpoints": [{"addresses": [own.ip().to_string()], "conditions": {"ready": true}}],
    });
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    admin.post(path, &slice).await.expect(201);
    admin.get(&format!("{path}/hook-1")).await.expect(200);
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let asked = server.take();
    assert_eq!(asked[0].0, "/in/service");
}
