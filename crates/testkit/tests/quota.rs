//! A quota holds, whatever comes between admission, the quota's recount and a controller that asks
//! again and again: under many seeds there is never a pod too many, and the failure stays told.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ReplicationController, ResourceQuota};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use testkit::Cluster;

const SEEDS: u64 = 12;
/// What the quota allows, and what is wanted.
const ALLOWED: usize = 4;
const WANTED: usize = 9;

#[test]
fn a_quota_is_never_exceeded_and_the_failure_stays_in_the_conditions() {
    for seed in 0..SEEDS {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("runtime");
        runtime.block_on(hold(seed));
    }
}

async fn hold(seed: u64) {
    let cluster = Cluster::builder()
        .simulated(seed)
        .scheduler()
        .controllers()
        .nodes(1)
        .start()
        .await
        .expect("start");
    let quotas: Api<ResourceQuota> = Api::default_namespaced(cluster.client());
    let quota =
        json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": ALLOWED.to_string()}}});
    let quota = serde_json::from_value(quota).expect("a quota");
    quotas
        .create(&PostParams::default(), &quota)
        .await
        .expect("create");
    for attempt in 0.. {
        assert!(attempt < 600, "seed {seed}: the quota is never counted");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let quota = quotas.get("small").await.expect("get");
        if quota.status.is_some_and(|status| status.used.is_some()) {
            break;
        }
    }
    let controllers: Api<ReplicationController> = Api::default_namespaced(cluster.client());
    let controller = json!({
        "metadata": {"name": "many"},
        "spec": {
            "replicas": WANTED, "selector": {"app": "many"},
            "template": {
                "metadata": {"labels": {"app": "many"}},
                "spec": {"containers": [{"name": "main", "image": "registry.test/many"}]},
            },
        },
    });
    let controller = serde_json::from_value(controller).expect("a controller");
    controllers
        .create(&PostParams::default(), &controller)
        .await
        .expect("create");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let count = pods
            .list(&ListParams::default())
            .await
            .expect("list")
            .items
            .len();
        assert!(count <= ALLOWED, "seed {seed}: {count} pods");
    }
    let controller = controllers.get("many").await.expect("get");
    let status = controller.status.unwrap_or_default();
    assert_eq!(status.replicas as usize, ALLOWED, "seed {seed}");
    let failures = status.conditions.into_iter().flatten();
    let failure = failures
        .into_iter()
        .find(|one| one.type_ == "ReplicaFailure");
    let failure = failure.unwrap_or_else(|| panic!("seed {seed}: the failure is not told"));
    assert_eq!(failure.reason.as_deref(), Some("FailedCreate"));
    cluster.shut_down().await.expect("shut down");
}
