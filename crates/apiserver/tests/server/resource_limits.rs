//! LimitRanger and ResourceQuota through the API, also when many ask at once.

use api::Value;

use crate::harness::{Client, Cluster, config_map, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A quota whose status is as its controller would first write it.
async fn quota(admin: &Client, name: &str, hard: Value) {
    let quota = api::document!({"metadata": {"name": name}, "spec": {"hard": hard}});
    let mut made = admin.post(QUOTAS, &quota).await.expect(201);
    made.set(&["status", "hard"], hard.clone());
    let used: Vec<String> = hard
        .fields_at(&[])
        .map(|(name, _)| name.to_string())
        .collect();
    for name in used {
        made.set(&["status", "used", &name], "0");
    }
    let path = format!("{QUOTAS}/{name}/status");
    admin.put(&path, &made).await.expect(200);
    // The cache that admission reads has it when a read does.
    admin.get(&format!("{QUOTAS}/{name}")).await.expect(200);
}

async fn used(admin: &Client, name: &str, resource: &str) -> String {
    let quota = admin.get(&format!("{QUOTAS}/{name}")).await.expect(200);
    quota.str_at(&["status", "used", resource]).to_string()
}

fn asking(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name);
    let container = api::document!({
        "name": "main", "image": "busybox",
        "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}},
    });
    pod.set(&["spec", "containers"], vec![container]);
    pod
}

#[tokio::test(start_paused = true)]
async fn a_namespace_gives_defaults_and_keeps_to_its_limits() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let range = api::document!({"metadata": {"name": "range"}, "spec": {"limits": [{
        "type": "Container", "max": {"cpu": "500m"}, "default": {"cpu": "200m"},
        "defaultRequest": {"cpu": "100m"},
    }]}});
    let ranges = "/api/v1/namespaces/default/limitranges";
    admin.post(ranges, &range).await.expect(201);
    admin.get(ranges).await.expect(200);
    let made = admin.post(PODS, &pod("plain")).await.expect(201);
    let container = &made.list_at(&["spec", "containers"])[0];
    assert_eq!(container.str_at(&["resources", "requests", "cpu"]), "100m");
    assert_eq!(container.str_at(&["resources", "limits", "cpu"]), "200m");
    assert_eq!(made.str_at(&["status", "qosClass"]), "Burstable");
    let message = admin
        .post(PODS, &asking("greedy", "2"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"greedy\" is forbidden: maximum cpu usage per Container is 500m, but limit is 2"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_charged_and_what_fails_is_given_back() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    quota(
        &admin,
        "compute",
        api::document!({"pods": "2", "requests.cpu": "1"}),
    )
    .await;
    let message = admin
        .post(PODS, &pod("vague"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"vague\" is forbidden: failed quota: compute: must specify requests.cpu for: main"
    );
    admin.post(PODS, &asking("a", "600m")).await.expect(201);
    assert_eq!(used(&admin, "compute", "requests.cpu").await, "600m");
    let message = admin
        .post(PODS, &asking("b", "500m"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"b\" is forbidden: exceeded quota: compute, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
    );
    // A name that is taken costs nothing, nor does a dry run.
    let again = admin.post(PODS, &asking("a", "100m")).await;
    again.failure(409, "AlreadyExists");
    let dry = format!("{PODS}?dryRun=All");
    admin.post(&dry, &asking("c", "100m")).await.expect(201);
    assert_eq!(used(&admin, "compute", "pods").await, "1");
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_never_exceed_a_quota() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    quota(&admin, "maps", api::document!({"configmaps": "5"})).await;
    quota(&admin, "counted", api::document!({"count/configmaps": "7"})).await;
    let asked = (0..20).map(|number| {
        let admin = admin.clone();
        async move {
            let name = format!("m{number}");
            admin.post(MAPS, &config_map(&name)).await.code
        }
    });
    let codes = futures::future::join_all(asked).await;
    assert_eq!(
        codes.iter().filter(|code| **code == 201).count(),
        5,
        "{codes:?}"
    );
    assert_eq!(used(&admin, "maps", "configmaps").await, "5");
    // Who was refused by one quota was not charged by the other.
    assert_eq!(used(&admin, "counted", "count/configmaps").await, "5");
}
