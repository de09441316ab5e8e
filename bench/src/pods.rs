//! Pods as a load: created through the API, observed to be Ready by a watch.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use environment::Environment;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};

fn pod(name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(serde_json::json!({
        "metadata": {"name": name, "labels": {"bench": "yes"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "coracle-bench:1", "command": ["sleep", "100000"]}],
        },
    }))?)
}

pub async fn run_one(client: &kube::Client, name: &str) -> Result<()> {
    create_to_ready(client, name, &Environment::system()).await?;
    Ok(())
}

/// Milliseconds from sending the POST until a watcher sees Ready.
pub async fn create_to_ready(
    client: &kube::Client,
    name: &str,
    environment: &Environment,
) -> Result<f64> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let version = list_version(&pods).await?;
    let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut watch = Box::pin(pods.watch(&parameters, &version).await?);
    let began = environment.now_micros();
    pods.create(&PostParams::default(), &pod(name)?).await?;
    while let Some(event) = watch.try_next().await? {
        if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event
            && is_ready(&pod)
        {
            return Ok((environment.now_micros() - began) as f64 / 1000.0);
        }
    }
    bail!("the watch ended")
}

/// Seconds from the first POST until all are Ready.
pub async fn create_at_once(
    client: &kube::Client,
    count: usize,
    environment: &Environment,
) -> Result<f64> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let version = list_version(&pods).await?;
    let mut watch = Box::pin(pods.watch(&WatchParams::default(), &version).await?);
    let began = environment.now_micros();
    let mut creations = Vec::new();
    for number in 0..count {
        let (pods, pod) = (pods.clone(), pod(&format!("burst-{number}"))?);
        creations.push(async move { pods.create(&PostParams::default(), &pod).await });
    }
    let watching = async {
        let mut ready = BTreeSet::new();
        while ready.len() < count {
            let event = watch.try_next().await?.context("the watch ended")?;
            if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event
                && is_ready(&pod)
            {
                let name = pod.metadata.name.unwrap_or_default();
                if name.starts_with("burst-") {
                    ready.insert(name);
                }
            }
        }
        anyhow::Ok(())
    };
    let (created, watched) =
        futures::future::join(futures::future::try_join_all(creations), watching).await;
    created?;
    watched?;
    Ok((environment.now_micros() - began) as f64 / 1e6)
}

pub async fn delete_all(client: &kube::Client) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let labelled = ListParams::default().labels("bench=yes");
    let version = list_version(&pods).await?;
    let mut watch = Box::pin(pods.watch(&WatchParams::default(), &version).await?);
    let mut left: BTreeSet<String> = BTreeSet::new();
    for pod in pods.list(&labelled).await?.items {
        let name = pod.metadata.name.unwrap_or_default();
        pods.delete(&name, &DeleteParams::default()).await?;
        left.insert(name);
    }
    while !left.is_empty() {
        if let WatchEvent::Deleted(pod) = watch.try_next().await?.context("the watch ended")? {
            left.remove(pod.metadata.name.as_deref().unwrap_or_default());
        }
    }
    Ok(())
}

/// The median queue and work time of every step, over the sequential pods' timelines.
pub async fn print_steps(client: &kube::Client, count: usize) -> Result<()> {
    let mut steps: BTreeMap<(u64, String), Vec<(u64, u64)>> = BTreeMap::new();
    for number in 0..count {
        let path = format!("/coracle/v1/trace/namespaces/default/pods/seq-{number}");
        let request = http::Request::get(path).body(Vec::new())?;
        let timeline: serde_json::Value = client.request(request).await?;
        for span in timeline["hops"].as_array().into_iter().flatten() {
            let key = (
                span["hop"].as_u64().unwrap_or(0),
                span["name"].as_str().unwrap_or_default().to_string(),
            );
            let queue = span["queue_us"].as_u64().unwrap_or(0);
            let work = span["work_us"].as_u64().unwrap_or(0);
            steps.entry(key).or_default().push((queue, work));
        }
    }
    println!("  hop  step                                queue µs    work µs   (medians)");
    for ((hop, name), mut times) in steps {
        let middle = times.len() / 2;
        times.sort_by_key(|(queue, _)| *queue);
        let queue = times[middle].0;
        times.sort_by_key(|(_, work)| *work);
        println!("  {hop:>3}  {name:<34} {queue:>9}  {:>9}", times[middle].1);
    }
    Ok(())
}

async fn list_version(pods: &Api<Pod>) -> Result<String> {
    let list = pods.list(&ListParams::default().limit(1)).await?;
    list.metadata
        .resource_version
        .context("a list has a version")
}

fn is_ready(pod: &Pod) -> bool {
    pod.status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
