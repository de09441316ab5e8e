//! The state to which a simulation must converge: every Deployment of the user exists with exactly
//! its replicas ready, nothing of a deleted one is left, and no acknowledged write is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;

use super::user::{COUNTER, Desired, Promises, Strategy, counter_value};
use crate::Machine;
use crate::simulation::violation::Violation;

/// Checks every second of simulated time until the cluster has converged.
pub async fn wait(
    client: &kube::Client,
    promises: &Arc<Mutex<Promises>>,
    patience: Duration,
) -> Result<()> {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        let Err(problem) = check(client, promises).await? else {
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
    promises: &Arc<Mutex<Promises>>,
) -> Result<Result<(), Violation>> {
    let all = ListParams::default();
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let deployments = deployments.list(&all).await?.items;
    let sets = sets.list(&all).await?.items;
    let pods = pods.list(&all).await?.items;
    let counter = maps.get_opt(COUNTER).await?;
    let promises = promises.lock();

    let value = counter.as_ref().map_or(0, counter_value);
    if value < promises.counted || value > promises.counted + promises.unknown {
        bail!(
            "the counter is {value}, after {} acknowledged and {} unknown increments",
            promises.counted,
            promises.unknown
        );
    }
    Ok(check_objects(
        &promises.deployments,
        &deployments,
        &sets,
        &pods,
    ))
}

fn check_objects(
    wanted: &BTreeMap<&'static str, Desired>,
    deployments: &[Deployment],
    sets: &[ReplicaSet],
    pods: &[Pod],
) -> Result<(), Violation> {
    let present: BTreeSet<&str> = deployments.iter().map(name).collect();
    let expected: BTreeSet<&str> = wanted.keys().copied().collect();
    if present != expected {
        return Err(Violation::new(format!(
            "Deployments {present:?}, wanted {expected:?}"
        )));
    }
    let mut addresses = BTreeSet::new();
    for deployment in deployments {
        let name = name(deployment);
        check_deployment(deployment, &wanted[name])?;
        let own: Vec<&Pod> = pods.iter().filter(|pod| app(pod) == Some(name)).collect();
        if own.len() != wanted[name].replicas as usize {
            let names: Vec<&str> = own.iter().map(|pod| self::name(*pod)).collect();
            return Err(Violation::new(format!("{name} has the pods {names:?}")));
        }
        for pod in own {
            let address = check_pod(pod, &wanted[name])?;
            if !addresses.insert(address) {
                return Err(Violation::new(format!(
                    "two pods have the address {address}"
                )));
            }
        }
    }
    if let Some(orphan) = pods
        .iter()
        .find(|pod| app(pod).is_none_or(|app| !wanted.contains_key(app)))
    {
        return Err(Violation::new(format!(
            "pod {} belongs to nothing",
            name(orphan)
        )));
    }
    let owners: BTreeSet<&str> = deployments
        .iter()
        .filter_map(|deployment| deployment.metadata.uid.as_deref())
        .collect();
    for set in sets {
        let owned = set
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owners.contains(owner.uid.as_str()));
        if !owned {
            return Err(Violation::new(format!(
                "ReplicaSet {} belongs to nothing",
                name(set)
            )));
        }
    }
    Ok(())
}

fn check_deployment(deployment: &Deployment, wanted: &Desired) -> Result<(), Violation> {
    let name = name(deployment);
    let spec = deployment
        .spec
        .as_ref()
        .ok_or_else(|| Violation::new("no spec"))?;
    let image = spec
        .template
        .spec
        .as_ref()
        .and_then(|pod| pod.containers.first()?.image.clone());
    let found = (
        spec.replicas.unwrap_or(1),
        image.unwrap_or_default(),
        strategy(deployment),
        spec.paused.unwrap_or(false),
    );
    let acknowledged = (
        wanted.replicas,
        wanted.image.clone(),
        Some(wanted.strategy),
        wanted.paused,
    );
    if found != acknowledged {
        return Err(Violation::new(format!(
            "{name} is {found:?}, acknowledged was {wanted:?}"
        )));
    }
    let status = deployment.status.clone().unwrap_or_default();
    let counts = [
        status.replicas,
        status.updated_replicas,
        status.ready_replicas,
        status.available_replicas,
    ];
    if counts
        .iter()
        .any(|count| count.unwrap_or(0) != wanted.replicas)
        || status.observed_generation != deployment.metadata.generation
    {
        return Err(Violation::new(format!(
            "{name} wants {wanted:?}, its status is {status:?}"
        )));
    }
    Ok(())
}

fn strategy(deployment: &Deployment) -> Option<Strategy> {
    let strategy = deployment.spec.as_ref()?.strategy.as_ref()?;
    let number = |amount: Option<&IntOrString>| match amount {
        Some(IntOrString::Int(number)) => *number,
        _ => 0,
    };
    Some(match &strategy.rolling_update {
        None => Strategy::Recreate,
        Some(rolling) => Strategy::Rolling {
            surge: number(rolling.max_surge.as_ref()),
            unavailable: number(rolling.max_unavailable.as_ref()),
        },
    })
}

/// Returns the pod's address.
fn check_pod<'a>(pod: &'a Pod, wanted: &Desired) -> Result<&'a str, Violation> {
    let name = name(pod);
    let spec = pod.spec.as_ref().ok_or_else(|| Violation::new("no spec"))?;
    let status = pod
        .status
        .as_ref()
        .ok_or_else(|| Violation::new("no status"))?;
    let ready = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if pod.metadata.deletion_timestamp.is_some() {
        return Err(Violation::new(format!("pod {name} is still terminating")));
    }
    if spec
        .containers
        .first()
        .and_then(|first| first.image.as_ref())
        != Some(&wanted.image)
    {
        return Err(Violation::new(format!(
            "pod {name} has another image than {}",
            wanted.image
        )));
    }
    if !ready || spec.node_name.is_none() {
        return Err(Violation::new(format!(
            "pod {name} on {:?} is not ready",
            spec.node_name
        )));
    }
    status
        .pod_ip
        .as_deref()
        .ok_or_else(|| Violation::new(format!("pod {name} has no address")))
}

/// Every pod runs on the machine it is bound to, and on no other.
pub async fn check_machines(client: &kube::Client, machines: &[Machine]) -> Result<()> {
    let pods: Api<Pod> = Api::all(client.clone());
    let pods = pods.list(&ListParams::default()).await?.items;
    for machine in machines {
        let bound: BTreeSet<String> = pods
            .iter()
            .filter(|pod| {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
                node == Some(machine.name())
            })
            .filter_map(|pod| pod.metadata.uid.clone())
            .collect();
        let running: BTreeSet<String> = machine.pods().into_iter().collect();
        if !bound.is_subset(&running) {
            bail!("{} runs {running:?}, bound are {bound:?}", machine.name());
        }
    }
    Ok(())
}

fn name<K: kube::Resource>(object: &K) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

fn app(pod: &Pod) -> Option<&str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get("app").map(String::as_str)
}
