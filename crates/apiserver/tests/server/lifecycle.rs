//! Creation, update and deletion of objects.

use api::Value;

use crate::harness::{Cluster, config_map, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn created_objects_have_system_metadata() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let created = admin.post(MAPS, &config_map("a")).await.expect(201);
    assert_eq!(created.str_at(&["metadata", "namespace"]), "default");
    assert_eq!(created.str_at(&["metadata", "uid"]).len(), 36);
    assert!(
        created
            .str_at(&["metadata", "creationTimestamp"])
            .ends_with('Z')
    );
    let version: u64 = created
        .str_at(&["metadata", "resourceVersion"])
        .parse()
        .unwrap();
    assert!(version > 0);
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.expect(200), created);
    let yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-yaml\ndata:\n  k: v\n";
    let created = admin
        .send("POST", MAPS, "application/yaml", yaml)
        .await
        .expect(201);
    assert_eq!(created.str_at(&["data", "k"]), "v");
}

#[tokio::test(start_paused = true)]
async fn names_are_generated() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let map = api::document!({"metadata": {"generateName": "web-"}});
    let names: Vec<String> = [admin.post(MAPS, &map).await, admin.post(MAPS, &map).await]
        .into_iter()
        .map(|answer| answer.expect(201).str_at(&["metadata", "name"]).to_string())
        .collect();
    assert!(names[0].starts_with("web-") && names[0].len() == 9);
    assert_ne!(names[0], names[1]);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_changes_nothing_writes_nothing() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let created = admin.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let same = admin.put(&path, &created).await.expect(200);
    assert_eq!(same, created);
    let without_version = admin.put(&path, &config_map("a")).await.expect(200);
    assert_eq!(without_version, created);
}

#[tokio::test(start_paused = true)]
async fn dry_runs_change_nothing() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin
        .post(&format!("{MAPS}?dryRun=All"), &config_map("a"))
        .await
        .expect(201);
    admin
        .get(&format!("{MAPS}/a"))
        .await
        .failure(404, "NotFound");
    admin.post(MAPS, &config_map("a")).await.expect(201);
    admin
        .delete(&format!("{MAPS}/a?dryRun=All"))
        .await
        .expect(200);
    admin.get(&format!("{MAPS}/a")).await.expect(200);
    admin
        .post(&format!("{MAPS}?dryRun=Some"), &config_map("b"))
        .await
        .failure(422, "Invalid");
}

#[tokio::test(start_paused = true)]
async fn deletion_answers_and_removes() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let created = admin.post(MAPS, &config_map("a")).await.expect(201);
    let answer = admin.delete(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(answer.str_at(&["status"]), "Success");
    assert_eq!(
        answer.str_at(&["details", "uid"]),
        created.str_at(&["metadata", "uid"])
    );
    let message = admin
        .get(&format!("{MAPS}/a"))
        .await
        .failure(404, "NotFound");
    assert_eq!(message, "configmaps \"a\" not found");
    admin
        .delete(&format!("{MAPS}/a"))
        .await
        .failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn preconditions_guard_deletion() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let options = api::document!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
    let path = format!("{MAPS}/a");
    let answer = admin
        .send("DELETE", &path, "application/json", &options.to_json())
        .await;
    let message = answer.failure(409, "Conflict");
    assert!(
        message.contains("the UID in the precondition (other) does not match the UID in record")
    );
    admin.get(&path).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut map = config_map("a");
    map.set(
        &["metadata", "finalizers"],
        vec![Value::from("example.com/hold")],
    );
    admin.post(MAPS, &map).await.expect(201);
    let path = format!("{MAPS}/a");
    let marked = admin.delete(&path).await.expect(200);
    assert_eq!(marked.str_at(&["kind"]), "ConfigMap");
    assert!(marked.at(&["metadata", "deletionTimestamp"]).is_some());
    // Marked again, it stays as it is.
    assert_eq!(admin.delete(&path).await.expect(200), marked);
    let patch = api::document!({"metadata": {"finalizers": null}});
    admin.merge(&path, &patch).await.expect(200);
    admin.get(&path).await.failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn propagation_policies_become_finalizers() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        let name = policy.to_lowercase();
        admin.post(MAPS, &config_map(&name)).await.expect(201);
        let path = format!("{MAPS}/{name}?propagationPolicy={policy}");
        let marked = admin.delete(&path).await.expect(200);
        let finalizers = marked.at(&["metadata", "finalizers"]).unwrap();
        assert_eq!(finalizers, &Value::from(vec![Value::from(finalizer)]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_ends_gracefully() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let mut running = pod("a");
    running.set(&["spec", "nodeName"], "n1");
    admin.post(PODS, &running).await.expect(201);
    let path = format!("{PODS}/a");
    let marked = admin.delete(&path).await.expect(200);
    let grace = |pod: &Value| {
        pod.at(&["metadata", "deletionGracePeriodSeconds"])
            .and_then(Value::as_i64)
    };
    assert_eq!(grace(&marked), Some(30));
    // Only shorter.
    let options = api::document!({"gracePeriodSeconds": 60});
    let again = admin
        .send("DELETE", &path, "application/json", &options.to_json())
        .await;
    assert_eq!(grace(&again.expect(200)), Some(30));
    let shorter = admin
        .delete(&format!("{path}?gracePeriodSeconds=5"))
        .await
        .expect(200);
    assert_eq!(grace(&shorter), Some(5));
    // A status update does not remove it; grace 0 does.
    let status = api::document!({"status": {"phase": "Running"}});
    admin
        .merge(&format!("{path}/status"), &status)
        .await
        .expect(200);
    admin.get(&path).await.expect(200);
    admin
        .delete(&format!("{path}?gracePeriodSeconds=0"))
        .await
        .expect(200);
    admin.get(&path).await.failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn an_unscheduled_pod_goes_at_once() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    admin.post(PODS, &pod("a")).await.expect(201);
    let gone = admin.delete(&format!("{PODS}/a")).await.expect(200);
    assert_eq!(gone.str_at(&["kind"]), "Pod");
    admin
        .get(&format!("{PODS}/a"))
        .await
        .failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn collections_are_deleted_by_selector() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut map = config_map(name);
        map.set(&["metadata", "labels", "set"], label);
        admin.post(MAPS, &map).await.expect(201);
    }
    let deleted = admin
        .delete(&format!("{MAPS}?labelSelector=set%3Dx"))
        .await
        .expect(200);
    assert_eq!(
        deleted
            .get("items")
            .and_then(Value::as_array)
            .unwrap()
            .len(),
        2
    );
    let left = admin.get(MAPS).await.expect(200);
    assert_eq!(
        left.get("items").and_then(Value::as_array).unwrap().len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn put_creates_where_the_kind_allows() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = api::document!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10},
    });
    admin.put(&format!("{leases}/l"), &lease).await.expect(201);
    let message = admin
        .put(&format!("{leases}/l"), &lease)
        .await
        .failure(422, "Invalid");
    assert_eq!(
        message,
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    let patch = api::document!({"spec": {"holderIdentity": "you"}});
    let patched = admin
        .merge(&format!("{leases}/l"), &patch)
        .await
        .expect(200);
    admin
        .put(&format!("{leases}/l"), &patched)
        .await
        .expect(200);
    admin
        .put(&format!("{MAPS}/m"), &config_map("m"))
        .await
        .failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn everything_survives_a_restart() {
    use crate::harness::Authority;
    use environment::Environment;
    use store::disk::SimulatedDisk;
    use store::embedded::{Embedded, Options};
    let environment = Environment::simulated(3, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(3);
    let store = Embedded::open(disk.mount(), environment.clone(), Options::default())
        .await
        .unwrap();
    let cluster = Cluster::over(store.clone(), Authority::new(), environment.clone()).await;
    let created = cluster
        .admin()
        .post(MAPS, &config_map("a"))
        .await
        .expect(201);
    drop(cluster);
    store.close().await.unwrap();
    drop(store);
    let store = Embedded::open(disk.mount(), environment.clone(), Options::default())
        .await
        .unwrap();
    let cluster = Cluster::over(store, Authority::new(), environment).await;
    let found = cluster.admin().get(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(found, created);
}

#[tokio::test(start_paused = true)]
async fn events_vanish_after_an_hour() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let events = "/api/v1/namespaces/default/events";
    let event = api::document!({
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
        "reason": "Tested", "message": "it", "type": "Normal",
    });
    admin.post(events, &event).await.expect(201);
    tokio::time::sleep(std::time::Duration::from_secs(3590)).await;
    admin.get(&format!("{events}/e")).await.expect(200);
    tokio::time::sleep(std::time::Duration::from_secs(200)).await;
    admin
        .get(&format!("{events}/e"))
        .await
        .failure(404, "NotFound");
}

#[tokio::test(start_paused = true)]
async fn grace_follows_the_pod_and_the_request() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let grace = |object: &Value| {
        let seconds = object.at(&["metadata", "deletionGracePeriodSeconds"]);
        seconds.and_then(Value::as_i64)
    };
    for name in ["waiting", "running", "finished", "negative"] {
        admin.post(PODS, &pod(name)).await.expect(201);
        if name == "waiting" {
            continue;
        }
        let binding = api::document!({
            "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"},
        });
        let path = format!("{PODS}/{name}/binding");
        admin.post(&path, &binding).await.expect(201);
    }
    let finished = api::document!({"status": {"phase": "Succeeded"}});
    let path = format!("{PODS}/finished/status");
    admin.merge(&path, &finished).await.expect(200);

    // Nothing runs, so nothing is waited for, whatever was asked.
    for name in ["waiting", "finished"] {
        let path = format!("{PODS}/{name}");
        let asked = format!("{path}?gracePeriodSeconds=20");
        let deleted = admin.delete(&asked).await.expect(200);
        assert_eq!(grace(&deleted), Some(0), "{name}");
        admin.get(&path).await.failure(404, "NotFound");
    }
    let path = format!("{PODS}/running");
    let deleted = admin.delete(&path).await.expect(200);
    assert_eq!(grace(&deleted), Some(30));
    let path = format!("{PODS}/negative?gracePeriodSeconds=-5");
    let deleted = admin.delete(&path).await.expect(200);
    assert_eq!(grace(&deleted), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_has_no_version_and_a_future_one_is_refused() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let path = format!("{MAPS}?dryRun=All");
    let made = admin.post(&path, &config_map("a")).await.expect(201);
    assert!(made.at(&["metadata", "resourceVersion"]).is_none());
    let created = admin.post(MAPS, &config_map("a")).await.expect(201);
    let version = created.str_at(&["metadata", "resourceVersion"]);
    let at = |version: &str| format!("{MAPS}/a?resourceVersion={version}");
    assert_eq!(admin.get(&at(version)).await.expect(200), created);
    assert_eq!(admin.get(&at("0")).await.expect(200), created);
    let message = admin.get(&at("999999")).await.failure(504, "Timeout");
    assert!(
        message.starts_with("Timeout: Too large resource version: 999999"),
        "{message}"
    );
    let answer = admin.get(&at("x")).await.expect(500);
    assert_eq!(
        answer.str_at(&["message"]),
        "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax"
    );
}
