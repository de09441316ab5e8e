//! `coracle invite NAME --revoke`: removes a node from the cluster at once.
//!
//! 1. The time of the revocation is written to a ConfigMap that the API server checks with every
//!    request: from now on it rejects certificates that the node got before.
//! 2. The node's pending CertificateSigningRequests are deleted, so that it gets no new certificates.
//! 3. The Node is deleted, and its pods with it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use client::retry;
use environment::Environment;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};

use crate::layout::Layout;

/// The name of the ConfigMap that the API server's authentication reads.
const RECORD: &str = "coracle-revoked-nodes";

pub async fn revoke(layout: &Layout, node: &str) -> Result<ExitCode> {
    let environment = Environment::system();
    let client = client::connect::from_kubeconfig(&layout.kubeconfig()).await?;
    let since = environment.now().as_second();
    record_revocation(&client, node, since).await?;

    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let user = format!("system:node:{node}");
    let all = requests
        .list(&ListParams::default())
        .await
        .map_err(explained)?;
    for request in all {
        if request.spec.username.as_deref() == Some(&user)
            && let Some(name) = &request.metadata.name
        {
            ignore_absence(requests.delete(name, &DeleteParams::default()).await)?;
        }
    }
    let nodes: Api<Node> = Api::all(client);
    ignore_absence(nodes.delete(node, &DeleteParams::default()).await)?;
    // A certificate of a later invitation must not be from the same second.
    while environment.now().as_second() <= since {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    print_line!("Node {node} was removed from the cluster, and all its certificates are revoked.");
    Ok(ExitCode::SUCCESS)
}

async fn record_revocation(client: &kube::Client, node: &str, second: i64) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let since = jiff::Timestamp::from_second(second)?.to_string();
    let record = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": RECORD}, "data": {node: since},
    });
    let patch = Patch::Merge(&record);
    match maps.patch(RECORD, &PatchParams::default(), &patch).await {
        Err(error) if retry::is_not_found(&error) => {
            let map = serde_json::from_value(record)?;
            maps.create(&PostParams::default(), &map)
                .await
                .map_err(explained)?;
        }
        result => {
            result.map_err(explained)?;
        }
    }
    Ok(())
}

fn ignore_absence<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(error) if !retry::is_not_found(&error) => Err(explained(error)),
        _ => Ok(()),
    }
}

fn explained(error: kube::Error) -> anyhow::Error {
    anyhow!("{}", retry::sentence(&error))
}
