//! The in-process cluster itself: it starts in milliseconds, runs a Deployment on a fake node, is
//! reached over real HTTPS, and keeps its objects over a restart of the server.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use testkit::Cluster;

#[tokio::test]
async fn a_deployment_runs_on_a_fake_node() {
    let cluster = Cluster::builder()
        .scheduler()
        .controllers()
        .nodes(1)
        .start()
        .await
        .expect("start");
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    let web = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "registry.test/web"}]},
            },
        },
    }))
    .expect("deployment");
    deployments
        .create(&PostParams::default(), &web)
        .await
        .expect("create");
    let ready = async {
        loop {
            let web = deployments.get("web").await.expect("get");
            if web.status.and_then(|status| status.ready_replicas) == Some(3) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), ready)
        .await
        .expect("ready in time");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let pods = pods.list(&ListParams::default()).await.expect("list").items;
    assert_eq!(pods.len(), 3);
    for pod in pods {
        let uid = pod.metadata.uid.expect("uid");
        let mut hops = Vec::new();
        // Who writes the last ones down does so beside what can be seen of the pod.
        for _ in 0..6000 {
            let timeline = cluster.timelines().get(&uid).expect("a timeline");
            hops = timeline.spans.iter().map(|span| span.hop as u8).collect();
            if (2..=8).all(|hop| hops.contains(&hop)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for hop in 2..=8 {
            assert!(hops.contains(&hop), "hop {hop} is missing in {hops:?}");
        }
    }
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn https_accepts_client_certificates_and_rejects_unknown_users() {
    let cluster = Cluster::builder().https().start().await.expect("start");
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = directory.path().join("kubeconfig");
    let connect = async |user: &str, groups: &[&str]| {
        let kubeconfig = cluster.kubeconfig(user, groups).expect("kubeconfig");
        std::fs::write(&file, kubeconfig).expect("write");
        client::connect::from_kubeconfig(&file)
            .await
            .expect("client")
    };
    let admin = connect("admin", &["system:masters"]).await;
    let namespaces: Api<Namespace> = Api::all(admin);
    let list = namespaces.list(&ListParams::default()).await.expect("list");
    assert!(list.items.len() >= 4);

    let stranger = connect("mallory", &[]).await;
    let namespaces: Api<Namespace> = Api::all(stranger);
    match namespaces.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 403),
        other => panic!("not forbidden: {other:?}"),
    }
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn objects_survive_a_restart_on_a_real_disk() {
    let mut cluster = Cluster::builder().on_disk().start().await.expect("start");
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let map = serde_json::from_value(json!({
        "metadata": {"name": "kept"}, "data": {"key": "value"},
    }))
    .expect("map");
    let created = maps
        .create(&PostParams::default(), &map)
        .await
        .expect("create");
    cluster.stop_server().await.expect("stop");
    assert!(maps.get("kept").await.is_err(), "the server is down");
    cluster.start_server().await.expect("start again");
    let kept = maps.get("kept").await.expect("get");
    assert_eq!(kept.metadata.uid, created.metadata.uid);
    assert_eq!(
        kept.metadata.resource_version,
        created.metadata.resource_version
    );
    cluster.shut_down().await.expect("shut down");
}
