//! A second user of a simulation: applies, changes and deletes StatefulSets, DaemonSets and indexed
//! Jobs in a namespace of its own, and knows which state they must have in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use client::retry;
use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use rand::{RngExt, rngs::StdRng};
use serde_json::json;

use super::user::{ATTEMPTS, wait_out};
use crate::simulation::violation::Violation;

const STEPS: u32 = 20;
const NAMESPACE: &str = "work";
const SETS: [&str; 2] = ["db", "log"];
const DAEMON: &str = "agent";

/// The state that must be true in the end.
#[derive(Default)]
pub struct Wanted {
    /// Replicas and image.
    stateful_sets: BTreeMap<&'static str, (i32, String)>,
    daemon_image: Option<String>,
    /// Completions.
    jobs: BTreeMap<String, i32>,
}

pub async fn work(
    client: kube::Client,
    mut random: StdRng,
    wanted: Arc<Mutex<Wanted>>,
) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": NAMESPACE}})).await?;
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), NAMESPACE);
    let daemons: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    for step in 0..STEPS {
        let pause = random.random_range(0..4_000);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let image = format!("registry.test/work:v{}", random.random_range(0..3));
        match random.random_range(0..8) {
            0..4 => {
                let name = SETS[random.random_range(0..SETS.len())];
                let replicas = random.random_range(0..4);
                let exists = wanted.lock().stateful_sets.contains_key(name);
                if exists && random.random_ratio(1, 6) {
                    delete(&sets, name).await?;
                    wanted.lock().stateful_sets.remove(name);
                    continue;
                }
                if exists {
                    change(&sets, name, &image, Some(replicas)).await?;
                } else {
                    let policy = ["OrderedReady", "Parallel"][random.random_range(0..2)];
                    create(&sets, stateful_set(name, replicas, &image, policy)).await?;
                }
                let mut wanted = wanted.lock();
                wanted.stateful_sets.insert(name, (replicas, image));
            }
            4..6 => {
                let exists = wanted.lock().daemon_image.is_some();
                if exists {
                    change(&daemons, DAEMON, &image, None).await?;
                } else {
                    let surge = random.random_range(0..2);
                    create(&daemons, daemon_set(&image, surge)).await?;
                }
                wanted.lock().daemon_image = Some(image);
            }
            6 if !wanted.lock().jobs.is_empty() => {
                let names: Vec<String> = wanted.lock().jobs.keys().cloned().collect();
                let name = &names[random.random_range(0..names.len())];
                let spec = match random.random_range(0..3) {
                    0 => json!({"suspend": true}),
                    1 => json!({"suspend": false}),
                    _ => json!({"parallelism": random.random_range(0..4)}),
                };
                patch(&jobs, name, &json!({"spec": spec})).await?;
            }
            _ => {
                let name = format!("job-{step}");
                let completions = random.random_range(1..6);
                create(&jobs, job(&name, completions)).await?;
                wanted.lock().jobs.insert(name, completions);
            }
        }
    }
    // A suspended Job would never complete.
    let names: Vec<String> = wanted.lock().jobs.keys().cloned().collect();
    for name in names {
        let free = json!({"spec": {"suspend": false, "parallelism": 2}});
        patch(&jobs, &name, &free).await?;
    }
    Ok(())
}

/// Waits until the cluster has converged.
pub async fn wait(
    client: &kube::Client,
    wanted: &Arc<Mutex<Wanted>>,
    nodes: usize,
    patience: Duration,
) -> Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        let Err(problem) = check(client, wanted, nodes).await? else {
            return Ok(());
        };
        if tokio::time::Instant::now() > deadline {
            bail!("after {patience:?} without faults: {problem}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Checks the cluster. Returns the first violation.
pub async fn check(
    client: &kube::Client,
    wanted: &Arc<Mutex<Wanted>>,
    nodes: usize,
) -> Result<Result<(), Violation>> {
    let all = ListParams::default();
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), NAMESPACE);
    let daemons: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let sets = sets.list(&all).await?.items;
    let daemons = daemons.list(&all).await?.items;
    let jobs = jobs.list(&all).await?.items;
    let mut pods = pods.list(&all).await?.items;
    let wanted = wanted.lock();
    Ok(check_sets(&wanted, &sets, &mut pods)
        .and_then(|()| check_daemons(&wanted, &daemons, &mut pods, nodes))
        .and_then(|()| check_jobs(&wanted, &jobs, &mut pods))
        .and_then(|()| match pods.first() {
            Some(pod) => Err(Violation::new(format!(
                "pod {:?} belongs to nothing",
                pod.metadata.name
            ))),
            None => Ok(()),
        }))
}

fn check_sets(wanted: &Wanted, sets: &[StatefulSet], pods: &mut Vec<Pod>) -> Result<(), Violation> {
    let names: BTreeSet<&str> = sets
        .iter()
        .filter_map(|set| set.metadata.name.as_deref())
        .collect();
    let expected: BTreeSet<&str> = wanted.stateful_sets.keys().copied().collect();
    if names != expected {
        return Err(Violation::new(format!(
            "StatefulSets {names:?}, wanted {expected:?}"
        )));
    }
    for set in sets {
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let (replicas, image) = &wanted.stateful_sets[name];
        let own = remove_pods_of(pods, set.metadata.uid.as_deref());
        let names: BTreeSet<String> = own
            .iter()
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        let expected = (0..*replicas)
            .map(|ordinal| format!("{name}-{ordinal}"))
            .collect();
        if names != expected {
            return Err(Violation::new(format!(
                "StatefulSet {name} has {names:?}, wants {replicas}"
            )));
        }
        own.iter().try_for_each(|pod| check_running(pod, image))?;
        let status = set.status.clone().unwrap_or_default();
        let counts = [
            Some(status.replicas),
            status.ready_replicas,
            status.updated_replicas,
            status.current_replicas,
        ];
        let complete = counts.iter().all(|count| count.unwrap_or(0) == *replicas)
            && status.current_revision == status.update_revision
            && status.observed_generation == set.metadata.generation;
        if !complete {
            return Err(Violation::new(format!(
                "StatefulSet {name} wants {replicas}: {status:?}"
            )));
        }
    }
    Ok(())
}

fn check_daemons(
    wanted: &Wanted,
    daemons: &[DaemonSet],
    pods: &mut Vec<Pod>,
    nodes: usize,
) -> Result<(), Violation> {
    let Some(image) = &wanted.daemon_image else {
        return Ok(());
    };
    let [daemon] = daemons else {
        return Err(Violation::new(format!("{} DaemonSets", daemons.len())));
    };
    let own = remove_pods_of(pods, daemon.metadata.uid.as_deref());
    let hosts: BTreeSet<&str> = own
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
        .collect();
    if own.len() != nodes || hosts.len() != nodes {
        return Err(Violation::new(format!(
            "the DaemonSet has {} pods on {hosts:?}",
            own.len()
        )));
    }
    own.iter().try_for_each(|pod| check_running(pod, image))?;
    let status = daemon.status.clone().unwrap_or_default();
    let count = nodes as i32;
    let complete = status.desired_number_scheduled == count
        && status.number_ready == count
        && status.updated_number_scheduled == Some(count)
        && status.observed_generation == daemon.metadata.generation;
    match complete {
        true => Ok(()),
        false => Err(Violation::new(format!(
            "the DaemonSet's status is {status:?}"
        ))),
    }
}

/// Every index has completed, and none was counted twice.
fn check_jobs(wanted: &Wanted, jobs: &[Job], pods: &mut Vec<Pod>) -> Result<(), Violation> {
    let names: BTreeSet<&str> = jobs
        .iter()
        .filter_map(|job| job.metadata.name.as_deref())
        .collect();
    let expected: BTreeSet<&str> = wanted.jobs.keys().map(String::as_str).collect();
    if names != expected {
        return Err(Violation::new(format!(
            "Jobs {names:?}, wanted {expected:?}"
        )));
    }
    for job in jobs {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let completions = wanted.jobs[name];
        let status = job.status.clone().unwrap_or_default();
        let complete = status
            .conditions
            .iter()
            .flatten()
            .any(|one| one.type_ == "Complete");
        let indexes = match completions {
            1 => "0".to_owned(),
            2 => "0,1".to_owned(),
            more => format!("0-{}", more - 1),
        };
        if !complete
            || status.succeeded != Some(completions)
            || status.completed_indexes.as_deref() != Some(&indexes)
        {
            return Err(Violation::new(format!(
                "Job {name} wants {completions}: {status:?}"
            )));
        }
        for pod in remove_pods_of(pods, job.metadata.uid.as_deref()) {
            let held = pod.metadata.finalizers.iter().flatten().next();
            if let Some(finalizer) = held {
                return Err(Violation::new(format!(
                    "Job {name} is over, but a pod has {finalizer}"
                )));
            }
        }
    }
    Ok(())
}

/// Removes the pods of an owner from `pods` and returns them.
fn remove_pods_of(pods: &mut Vec<Pod>, owner: Option<&str>) -> Vec<Pod> {
    let is_own = |pod: &Pod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        owners
            .into_iter()
            .any(|one| Some(one.uid.as_str()) == owner)
    };
    let (own, others) = std::mem::take(pods).into_iter().partition(is_own);
    *pods = others;
    own
}

fn check_running(pod: &Pod, image: &str) -> Result<(), Violation> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let same = containers
        .into_iter()
        .all(|one| one.image.as_deref() == Some(image));
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .into_iter()
        .any(|one| one.type_ == "Ready" && one.status == "True");
    match (same, ready && pod.metadata.deletion_timestamp.is_none()) {
        (true, true) => Ok(()),
        (false, _) => Err(Violation::new(format!(
            "pod {name} has another image than {image}"
        ))),
        (_, false) => Err(Violation::new(format!("pod {name} is not ready"))),
    }
}

fn template(image: &str) -> serde_json::Value {
    json!({
        "metadata": {"labels": {"app": "work"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": image}],
        },
    })
}

fn stateful_set(name: &str, replicas: i32, image: &str, policy: &str) -> serde_json::Value {
    let mut template = template(image);
    template["metadata"]["labels"] = json!({"app": name});
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": policy,
            "selector": {"matchLabels": {"app": name}}, "template": template,
        },
    })
}

fn daemon_set(image: &str, surge: i32) -> serde_json::Value {
    let mut template = template(image);
    template["metadata"]["labels"] = json!({"app": DAEMON});
    json!({
        "metadata": {"name": DAEMON},
        "spec": {
            "selector": {"matchLabels": {"app": DAEMON}}, "template": template,
            "updateStrategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 1 - surge}},
        },
    })
}

fn job(name: &str, completions: i32) -> serde_json::Value {
    let mut template = template("registry.test/work:once");
    template["spec"]["restartPolicy"] = "Never".into();
    template["metadata"]["labels"] = json!({"job": name});
    json!({
        "metadata": {"name": name},
        "spec": {
            "completions": completions, "parallelism": 2, "completionMode": "Indexed",
            "backoffLimit": 100_000, "template": template,
            "manualSelector": true, "selector": {"matchLabels": {"job": name}},
        },
    })
}

async fn create<K>(api: &Api<K>, object: serde_json::Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    for attempt in 0..ATTEMPTS {
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => return Ok(()),
            // An earlier attempt whose response was lost took effect.
            Err(error) if attempt > 0 && retry::is_already_exists(&error) => return Ok(()),
            Err(error) => wait_out(error, "creating a workload").await?,
        }
    }
    bail!("creating a workload never succeeded")
}

async fn change<K>(api: &Api<K>, name: &str, image: &str, replicas: Option<i32>) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut spec =
        json!({"template": {"spec": {"containers": [{"name": "main", "image": image}]}}});
    if let Some(replicas) = replicas {
        spec["replicas"] = replicas.into();
    }
    patch(api, name, &json!({"spec": spec})).await
}

async fn patch<K>(api: &Api<K>, name: &str, patch: &serde_json::Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = Patch::Strategic(patch);
    for _ in 0..ATTEMPTS {
        match api.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => return Ok(()),
            Err(error) => wait_out(error, "changing a workload").await?,
        }
    }
    bail!("changing {name} never succeeded")
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    for attempt in 0..ATTEMPTS {
        match api.delete(name, &DeleteParams::background()).await {
            Ok(_) => return Ok(()),
            Err(error) if attempt > 0 && retry::is_not_found(&error) => return Ok(()),
            Err(error) => wait_out(error, "deleting a workload").await?,
        }
    }
    bail!("deleting {name} never succeeded")
}
