//! Controllers in a process of their own: with one kubeconfig, over HTTPS, each as its own
//! ServiceAccount, by tokens that it asks for.

use std::time::Duration;

use client::service_account::ServiceAccounts;
use client::{Informers, connect};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testkit::Cluster;
use tokio_util::sync::CancellationToken;

const ACCOUNTS: [&str; 2] = ["deployment-controller", "replicaset-controller"];

#[tokio::test]
async fn controllers_with_one_kubeconfig_act_as_their_own_service_accounts() {
    let cluster = Cluster::builder()
        .https()
        .scheduler()
        .nodes(1)
        .start()
        .await
        .expect("start");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kubeconfig");
    let kubeconfig = cluster
        .kubeconfig("system:kube-controller-manager", &[])
        .expect("a kubeconfig");
    std::fs::write(&file, kubeconfig).expect("write");
    let connection = connect::configuration(&file, "kube-controller-manager")
        .await
        .expect("a configuration");
    let accounts = ServiceAccounts::new(connection.clone(), "kube-system").expect("accounts");
    let client = connect::from_config(connection).expect("a client");
    let environment = cluster.environment().clone();
    let config = controllers::Config {
        informers: Informers::new(client.clone(), environment.clone()),
        client,
        accounts: controllers::Accounts::new(move |name| accounts.client(name)),
        environment,
        recorder: trace::Recorder::off(),
        root_ca_pem: "an authority".to_owned(),
        candidate: Some("alone".to_owned()),
        authority: None,
        token_signer: None,
        namespace_grace: controllers::NAMESPACE_GRACE,
        pod_range: None,
        reserved_pod_ranges: None,
        feature_gates: Default::default(),
        without: vec!["local-path".to_owned()],
    };
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(controllers::run(config, shutdown.clone()));

    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client());
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "registry.test/web"}]},
            },
        },
    });
    let deployment = serde_json::from_value(deployment).expect("a Deployment");
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .expect("create");
    until_available(&deployments, 1).await;

    // An account that is made anew has other tokens: they are asked for.
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "kube-system");
    for name in ACCOUNTS {
        accounts.get(name).await.expect("the account was made");
        let parameters = DeleteParams::default();
        accounts.delete(name, &parameters).await.expect("delete");
    }
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    deployments
        .patch("web", &PatchParams::default(), &patch)
        .await
        .expect("scale");
    until_available(&deployments, 2).await;
    shutdown.cancel();
    running.await.expect("an orderly end");
    cluster.shut_down().await.expect("shut down");
}

async fn until_available(deployments: &Api<Deployment>, wanted: i32) {
    let looking = async {
        loop {
            let deployment = deployments.get("web").await.expect("get");
            let status = deployment.status.unwrap_or_default();
            if status.available_replicas == Some(wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(180), looking)
        .await
        .unwrap_or_else(|_| panic!("never {wanted} available"));
}
