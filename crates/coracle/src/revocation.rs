//! `coracle invite NAME --revoke`: takes a node out of the cluster at once.
//!
//! 1. The moment is written down where the API server looks at every request: certificates that the
//!    node was given before are refused from then on.
//! 2. What it asked for and did not fetch yet is deleted, so that nothing is issued to it any more.
//! 3. The Node goes, and with it its pods.

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

/// As the API server's authentication knows it.
const RECORD: &str = "coracle-revoked-nodes";

pub async fn revoke(layout: &Layout, node: &str) -> Result<ExitCode> {
    let environment = Environment::system();
    let client = client::connect::from_kubeconfig(&layout.kubeconfig()).await?;
    let since = environment.now().as_second();
    write_down(&client, node, since).await?;

    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let user = format!("system:node:{node}");
    let all = requests.list(&ListParams::default()).await.map_err(told)?;
    for request in all {
        if request.spec.username.as_deref() == Some(&user)
            && let Some(name) = &request.metadata.name
        {
            ignore_absence(requests.delete(name, &DeleteParams::default()).await)?;
        }
    }
    let nodes: Api<Node> = Api::all(client);
    ignore_absence(nodes.delete(node, &DeleteParams::default()).await)?;
    // A certificate of a new invitation must not be of the same second.
    while environment.now().as_second() <= since {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tell!("Node {node} was removed, and every certificate that it had is refused.");
    Ok(ExitCode::SUCCESS)
}

async fn write_down(client: &kube::Client, node: &str, second: i64) -> Result<()> {
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
                .map_err(told)?;
        }
        result => {
            result.map_err(told)?;
        }
    }
    Ok(())
}

fn ignore_absence<T>(result: kube::Result<T>) -> Result<()> {
    match result {
        Err(error) if !retry::is_not_found(&error) => Err(told(error)),
        _ => Ok(()),
    }
}

fn told(error: kube::Error) -> anyhow::Error {
    anyhow!("{}", retry::sentence(&error))
}
