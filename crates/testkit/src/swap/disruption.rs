//! Disruptions of pods: evictions, taints, and a node that is lost and returns.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::objects::{deployment, rolling};
use super::scenario_client::ScenarioClient;
use super::workloads::{APPS, CORE, pod_of};
use super::{condition, fine_print, number};

/// One eviction that the budget allows, and one that it does not.
pub async fn evict(client: &ScenarioClient) -> Result<()> {
    let budgets = "/apis/policy/v1/namespaces/swap/poddisruptionbudgets";
    let web = format!("{budgets}/web");
    client
        .until_object(&web, "the budget of web allows one disruption", |one| {
            number(one, "/status/disruptionsAllowed") == 1
        })
        .await?;
    let db = format!("{budgets}/db");
    client
        .until_object(&db, "the budget of db is counted", |one| {
            number(one, "/status/currentHealthy") == 3
        })
        .await?;
    for (pod, expected) in [
        ("db-0".to_owned(), 429),
        (pod_of(client, "web").await?, 201),
    ] {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod}});
        let path = format!("{CORE}/pods/{pod}/eviction");
        let (code, answer) = client.send(Method::POST, &path, &eviction).await?;
        ensure!(code == expected, "evicting {pod}: {code}: {answer}");
    }
    client
        .until_object(&web, "the budget of web is whole again", |one| {
            number(one, "/status/disruptionsAllowed") == 1
                && number(one, "/status/currentHealthy") == 4
        })
        .await
}

/// Pods that do not tolerate a taint are evicted; `lonely` tolerates it and stays.
pub async fn taint(client: &ScenarioClient, node: &str) -> Result<()> {
    let taint =
        json!({"spec": {"taints": [{"key": "swap", "value": "out", "effect": "NoExecute"}]}});
    client
        .patch(&format!("/api/v1/nodes/{node}"), taint)
        .await?;
    client
        .until(&format!("nothing runs on {node} any more"), || async {
            Ok(client.list(&pods_on(node)).await?.is_empty())
        })
        .await?;
    let mut lonely = deployment("lonely", 2, rolling(1.into(), 0.into()));
    let pod = &mut lonely["spec"]["template"]["spec"];
    pod["nodeSelector"] = json!({"kubernetes.io/hostname": node});
    pod["tolerations"] = json!([{"key": "swap", "operator": "Exists"}]);
    client
        .create(&format!("{APPS}/deployments"), lonely)
        .await?;
    let service = json!({"metadata": {"name": "lonely"},
        "spec": {"selector": {"app": "lonely"}, "ports": [{"port": 80}]}});
    client.create(&format!("{CORE}/services"), service).await?;
    settled(client, 2).await?;
    lonely_has(client, 2).await
}

pub async fn untaint(client: &ScenarioClient, node: &str) -> Result<()> {
    let none = json!({"spec": {"taints": null}});
    client.patch(&format!("/api/v1/nodes/{node}"), none).await?;
    settled(client, 3).await
}

/// The node is not Ready, has its taints, and its pods are no longer Ready.
pub async fn lost(client: &ScenarioClient, node: &str) -> Result<()> {
    client
        .until_object(
            &format!("/api/v1/nodes/{node}"),
            &format!("{node} is unreachable"),
            |one| {
                condition(one, "Ready") == "Unknown"
                    && one["spec"]["taints"].as_array().map_or(0, Vec::len) == 3
            },
        )
        .await?;
    lonely_has(client, 0).await
}

pub async fn back(client: &ScenarioClient, node: &str) -> Result<()> {
    client
        .until_object(
            &format!("/api/v1/nodes/{node}"),
            &format!("{node} is ready again"),
            |one| {
                condition(one, "Ready") == "True"
                    && one["spec"]["taints"].as_array().map_or(0, Vec::len) == 1
            },
        )
        .await?;
    lonely_has(client, 2).await
}

async fn lonely_has(client: &ScenarioClient, available: i64) -> Result<()> {
    let lonely = format!("{APPS}/deployments/lonely");
    let what = format!("lonely has {available} available pods");
    client
        .until_object(&lonely, &what, |one| {
            number(one, "/status/availableReplicas") == available
        })
        .await
}

/// Waits until the pods that are not bound to a node run elsewhere, and DaemonSets on all other
/// nodes.
async fn settled(client: &ScenarioClient, nodes: i64) -> Result<()> {
    for name in fine_print::EVERYWHERE {
        let set = format!("{APPS}/daemonsets/{name}");
        let what = format!("DaemonSet {name} runs on {nodes} nodes");
        client
            .until_object(&set, &what, |one| {
                let counts = [
                    "desiredNumberScheduled",
                    "numberAvailable",
                    "currentNumberScheduled",
                ];
                counts
                    .iter()
                    .all(|count| number(one, &format!("/status/{count}")) == nodes)
            })
            .await?;
    }
    for (path, count) in [
        ("deployments/again", "availableReplicas"),
        ("deployments/web", "availableReplicas"),
        ("statefulsets/db", "availableReplicas"),
        ("statefulsets/late", "availableReplicas"),
        ("statefulsets/disk", "availableReplicas"),
        ("statefulsets/manual", "availableReplicas"),
        ("deployments/short", "availableReplicas"),
        ("deployments/grown", "availableReplicas"),
        ("deployments/capped", "availableReplicas"),
    ] {
        let whole =
            |one: &Value| number(one, "/spec/replicas") == number(one, &format!("/status/{count}"));
        client
            .until_object(
                &format!("{APPS}/{path}"),
                &format!("{path} is whole"),
                whole,
            )
            .await?;
    }
    Ok(())
}

/// The scenario's pods on a node, except those that have terminated.
fn pods_on(node: &str) -> String {
    format!(
        "{CORE}/pods?fieldSelector=spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    )
}
