//! `--runtime-config` and `--feature-gates`.

use api::catalogue::RuntimeConfig;
use api::features::FeatureGates;

use crate::harness::{Cluster, Decisions};

#[tokio::test(start_paused = true)]
async fn a_version_that_is_switched_off_is_neither_served_nor_discovered() {
    let cluster = Cluster::decided(Decisions {
        runtime_config: RuntimeConfig::parse("batch/v1/cronjobs=false,autoscaling/v2=false")
            .unwrap(),
        ..Decisions::default()
    })
    .await;
    let admin = cluster.admin();
    assert_eq!(admin.get("/apis/batch/v1/cronjobs").await.code, 404);
    assert_eq!(admin.get("/apis/batch/v1/jobs").await.code, 200);
    let discovered = admin.get("/apis/batch/v1").await.expect(200).to_string();
    assert!(!discovered.contains("cronjobs"), "{discovered}");
    // The version that the objects are stored in is switched off; the other one still works.
    let scalers = "/namespaces/default/horizontalpodautoscalers";
    let old = format!("/apis/autoscaling/v1{scalers}");
    assert_eq!(
        admin
            .get(&format!("/apis/autoscaling/v2{scalers}"))
            .await
            .code,
        404
    );
    cluster.namespace("default").await;
    let scaler = api::document!({
        "metadata": {"name": "a"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
    });
    admin.post(&old, &scaler).await.expect(201);
    assert_eq!(
        admin.get(&old).await.expect(200).list_at(&["items"]).len(),
        1
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn feature_gates_switch_streaming_lists_and_compression_off() {
    let cluster = Cluster::decided(Decisions {
        feature_gates: FeatureGates::parse("WatchList=false,APIResponseCompression=false").unwrap(),
        ..Decisions::default()
    })
    .await;
    let admin = cluster.admin();
    let path = "/api/v1/nodes?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let message = admin.get(path).await.failure(422, "Invalid");
    let words =
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    assert!(message.contains(words), "{message}");
    let gzip = cluster.admin().with_header("accept-encoding", "gzip");
    let answer = gzip.get("/openapi/v2").await;
    assert_eq!(answer.code, 200);
    assert!(answer.headers.get("content-encoding").is_none());
    cluster.stop().await;
}
