//! Small things clients notice: health by name, methods in the wrong place, disruption budgets,
//! warnings, reviews.

use api::Value;
use apiserver::Identity;
use environment::Environment;
use store::disk::SimulatedDisk;
use store::embedded::Embedded;

use crate::harness::{Authority, Cluster, config_map, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn health_lists_its_checks() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let text = |path: &'static str| {
        let admin = admin.clone();
        async move {
            let answer = admin.get(path).await;
            let text = String::from_utf8(answer.bytes.to_vec()).unwrap();
            (answer.code, text)
        }
    };
    assert_eq!(text("/healthz").await, (200, "ok".to_string()));
    assert_eq!(text("/livez/ping").await, (200, "ok".to_string()));
    assert_eq!(text("/healthz/nonsense").await.0, 404);
    let (code, told) = text("/readyz?verbose&exclude=etcd&exclude=nonsense").await;
    assert_eq!(code, 200);
    assert!(
        told.starts_with("[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n"),
        "{told}"
    );
    assert!(
        told.ends_with("warn: some health checks cannot be excluded: no matches for \"nonsense\"\nreadyz check passed\n"),
        "{told}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_is_not_healthy() {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(1).mount();
    let options = store::embedded::Options::default();
    let store = Embedded::open(disk, environment.clone(), options)
        .await
        .unwrap();
    let cluster = Cluster::over(store.clone(), Authority::new(), environment).await;
    let admin = cluster.admin();
    store.close().await.unwrap();
    let following = "poststarthook/generic-apiserver-start-informers";
    // The cache is told in a moment.
    while admin.get(&format!("/livez/{following}")).await.code == 200 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for endpoint in ["healthz", "livez", "readyz"] {
        let answer = admin.get(&format!("/{endpoint}")).await;
        assert_eq!(answer.code, 500);
        let told = String::from_utf8(answer.bytes.to_vec()).unwrap();
        for failed in ["etcd", following] {
            let line = format!("[-]{failed} failed: reason withheld\n");
            assert!(told.contains(&line), "{told}");
        }
        assert_eq!(
            told.contains("[-]etcd-readiness failed"),
            endpoint == "readyz"
        );
        let end = format!("{endpoint} check failed\n");
        assert!(told.ends_with(&end), "{told}");
    }
    let excluded = format!("/livez?exclude=etcd&exclude={following}");
    assert_eq!(admin.get(&excluded).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn methods_have_their_places() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    for (method, path) in [
        ("PUT", MAPS.to_string()),
        ("PATCH", MAPS.to_string()),
        ("POST", format!("{MAPS}/a")),
        ("DELETE", "/api/v1/namespaces".to_string()),
    ] {
        let body = config_map("a").to_json();
        let media_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let answer = admin.send(method, &path, media_type, &body).await;
        answer.failure(405, "MethodNotAllowed");
    }
    let message = admin
        .get(&format!("{MAPS}/%2e%2e"))
        .await
        .failure(400, "BadRequest");
    assert_eq!(message, "Name parameter invalid: \"..\": may not be '..'");
    admin.get("/api/v1/nonsense").await.failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn anonymous_users_may_see_health_and_little_else() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let nobody = admin
        .clone()
        .with_header("impersonate-user", "system:anonymous");
    assert_eq!(nobody.get("/healthz").await.code, 200);
    assert_eq!(nobody.get("/version").await.code, 200);
    let message = nobody.get("/api").await.failure(403, "Forbidden");
    assert_eq!(
        message,
        "forbidden: User \"system:anonymous\" cannot get path \"/api\""
    );
    let group = admin.with_header("impersonate-group", "g");
    let message = group.get("/api").await.failure(400, "BadRequest");
    assert_eq!(
        message,
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, Extra:map[string][]string(nil)} without impersonating a user name"
    );
}

#[tokio::test(start_paused = true)]
async fn a_disruption_budget_holds_pods_back() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let pods = "/api/v1/namespaces/default/pods";
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = api::document!({
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"set": "s"}}},
    });
    let mut budget = admin.post(budgets, &budget).await.expect(201);
    let generation = budget.i64_at(&["metadata", "generation"]).unwrap_or(0);
    for (field, value) in [
        ("observedGeneration", generation),
        ("disruptionsAllowed", 1),
        ("currentHealthy", 2),
        ("desiredHealthy", 1),
        ("expectedPods", 2),
    ] {
        budget.set(&["status", field], value);
    }
    admin
        .put(&format!("{budgets}/b/status"), &budget)
        .await
        .expect(200);
    for name in ["one", "two"] {
        let mut running = pod(name);
        running.set(&["metadata", "labels", "set"], "s");
        running.set(&["spec", "nodeName"], "n");
        admin.post(pods, &running).await.expect(201);
        let ready = api::document!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        }});
        admin
            .merge(&format!("{pods}/{name}/status"), &ready)
            .await
            .expect(200);
    }
    let eviction = |name: &str| {
        api::document!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
        })
    };
    admin
        .post(&format!("{pods}/one/eviction"), &eviction("one"))
        .await
        .expect(201);
    let going = admin.get(&format!("{pods}/one")).await.expect(200);
    assert!(going.has(&["metadata", "deletionTimestamp"]));
    let conditions = going.list_at(&["status", "conditions"]);
    assert!(
        conditions
            .iter()
            .any(|one| one.str_at(&["type"]) == "DisruptionTarget")
    );
    let refused = admin
        .post(&format!("{pods}/two/eviction"), &eviction("two"))
        .await;
    let message = refused.failure(429, "TooManyRequests");
    assert_eq!(
        message,
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    admin.get(&format!("{pods}/two")).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn reviews_are_no_tables_and_know_nodes() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let question =
        api::document!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}}});
    let table = admin
        .clone()
        .with_header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    table
        .post(path, &question)
        .await
        .failure(406, "NotAcceptable");
    let message = admin
        .post(path, &api::document!({"spec": {}}))
        .await
        .failure(422, "Invalid");
    assert_eq!(
        message,
        ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
    );
    let node = cluster.client(Identity::node("n"));
    let listing = |selector: Value| {
        let mut question = api::document!({"spec": {"resourceAttributes": {
            "verb": "list", "resource": "pods",
        }}});
        if !selector.is_null() {
            question.set(&["spec", "resourceAttributes", "fieldSelector"], selector);
        }
        question
    };
    let answer = node.post(path, &listing(Value::Null)).await.expect(201);
    assert!(!answer.bool_at(&["status", "allowed"]));
    assert_eq!(
        answer.str_at(&["status", "reason"]),
        "can only list/watch pods with spec.nodeName field selector"
    );
    let own = api::document!({"rawSelector": "spec.nodeName=n"});
    let answer = node.post(path, &listing(own)).await.expect(201);
    assert!(answer.bool_at(&["status", "allowed"]));
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let question = api::document!({"spec": {"namespace": "default"}});
    let answer = node.post(rules, &question).await.expect(201);
    assert!(answer.bool_at(&["status", "incomplete"]));
}

#[tokio::test(start_paused = true)]
async fn odd_objects_are_warned_about() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let owner = api::document!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    let mut owned = config_map("owned");
    owned.set(&["metadata", "ownerReferences"], vec![owner.clone(), owner]);
    let made = admin.post(MAPS, &owned).await;
    let told = made
        .headers
        .get("warning")
        .unwrap()
        .to_str()
        .unwrap()
        .to_string();
    assert!(told.contains("duplicate UID(s) observed: u"), "{told}");
    let made = made.expect(201);
    assert_eq!(made.list_at(&["metadata", "ownerReferences"]).len(), 1);
    let endpoints = admin.get("/api/v1/namespaces/default/endpoints/none").await;
    assert_eq!(
        endpoints.headers.get("warning").unwrap(),
        "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\""
    );
    endpoints.failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_timeout_is_refused_and_a_short_one_taken() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let told = "invalid timeout specified in the request URL - time: ";
    for (path, problem) in [
        (
            "/api/v1/pods?timeout=invalid",
            "invalid duration \"invalid\"",
        ),
        ("/version?timeout=5", "missing unit in duration \"5\""),
        (
            "/api/v1/namespaces/default?timeout=5q",
            "unknown unit \"q\" in duration \"5q\"",
        ),
    ] {
        let message = admin.get(path).await.failure(400, "BadRequest");
        assert_eq!(message, format!("{told}{problem}"));
    }
    admin.get("/api/v1/pods?timeout=5s").await.expect(200);
    admin.get("/api/v1/pods?timeout=").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn tables_come_in_the_version_before_v1_too() {
    let cluster = Cluster::start().await;
    let accept = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let client = cluster.admin().with_header("accept", accept);
    for path in ["/api/v1/namespaces", "/api/v1/namespaces/default"] {
        let table = client.get(path).await.expect(200);
        assert_eq!(table.str_at(&["kind"]), "Table");
        assert_eq!(table.str_at(&["apiVersion"]), "meta.k8s.io/v1beta1");
        let row = &table.list_at(&["rows"])[0];
        assert_eq!(row.str_at(&["object", "kind"]), "PartialObjectMetadata");
        assert_eq!(row.str_at(&["object", "apiVersion"]), "meta.k8s.io/v1beta1");
    }
    let mut events = client
        .watch("/api/v1/namespaces?watch=1&timeoutSeconds=1")
        .await;
    let (_, table) = events.next().await.unwrap();
    assert_eq!(table.str_at(&["apiVersion"]), "meta.k8s.io/v1beta1");
}

#[tokio::test(start_paused = true)]
async fn writes_of_kinds_that_nothing_acts_on_get_a_warning() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let policy = api::document!({"metadata": {"name": "p"}, "spec": {"podSelector": {}}});
    let warned = |answer: &crate::harness::Answer| {
        let warning = answer.headers.get("warning");
        warning.is_some_and(|warning| warning.to_str().unwrap().contains("coracle: "))
    };
    let made = admin.post(policies, &policy).await;
    assert!(warned(&made));
    made.expect(201);
    let label = api::document!({"metadata": {"labels": {"a": "b"}}});
    let path = format!("{policies}/p");
    assert!(!warned(&admin.merge(&path, &label).await));
    let change = api::document!({"spec": {"policyTypes": ["Egress"]}});
    assert!(warned(&admin.merge(&path, &change).await));
}
