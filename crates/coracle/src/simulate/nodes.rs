//! The simulated nodes: they register, keep their leases, and say what the pods given to them do.
//! One task serves all of them; nothing is kept per node but the version of its lease.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use environment::Environment;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::requests::{JSON, Requests, collect, for_each};
use super::workload::{self, SIMULATED, ZONES, pods_path};

/// How often a node says that it is there, and for how long that holds, as with a kubelet.
const RENEWAL: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 40;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const NODES: &str = "/api/v1/nodes";

pub struct Nodes {
    names: BTreeMap<String, usize>,
    renewing: JoinHandle<()>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

pub fn name(number: usize) -> String {
    format!("simulated-{number:05}")
}

/// Whether the cluster has nodes.
pub async fn are_there(requests: &Requests) -> Result<bool> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<serde::de::IgnoredAny>,
    }
    let path = format!("{NODES}?limit=1");
    let text = requests.send(http::Method::GET, &path, JSON, b"").await;
    let list: List = serde_json::from_str(&text.context(path)?)?;
    Ok(!list.items.is_empty())
}

impl Nodes {
    pub async fn register(
        requests: &Requests,
        count: usize,
        environment: &Environment,
    ) -> Result<Nodes> {
        let leases = collect(count, |number| async move {
            register_one(requests, number, environment).await
        })
        .await?;
        let renewing = tokio::spawn(renew(requests.clone(), leases, environment.clone()));
        Ok(Nodes {
            names: (0..count).map(|number| (name(number), number)).collect(),
            renewing,
        })
    }

    /// The nodes' names with their numbers.
    pub fn names(&self) -> BTreeMap<String, usize> {
        self.names.clone()
    }
}

/// Makes the node and its lease; the lease's version.
async fn register_one(
    requests: &Requests,
    number: usize,
    environment: &Environment,
) -> Result<String> {
    let node = node(number, environment);
    requests.create(NODES, &node).await?;
    // Every new node is tainted until somebody has seen that it is ready. Where no controller looks
    // after nodes nobody would.
    let path = format!("{NODES}/{}", name(number));
    let patch = br#"{"spec":{"taints":null}}"#;
    requests
        .send(http::Method::PATCH, &path, MERGE, patch)
        .await
        .with_context(|| path.clone())?;
    let body = serde_json::to_vec(&lease(number, None, environment))?;
    let made = requests.send(http::Method::POST, LEASES, JSON, &body).await;
    version(&made.context(LEASES)?)
}

/// Renews every lease once in a while, evenly spread over the time.
async fn renew(requests: Requests, mut leases: Vec<String>, environment: Environment) {
    let between = RENEWAL / u32::try_from(leases.len()).unwrap_or(u32::MAX).max(1);
    let mut ticks = tokio::time::interval(between.max(Duration::from_micros(100)));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut writing = tokio::task::JoinSet::new();
    for number in (0..leases.len()).cycle() {
        ticks.tick().await;
        while writing.len() >= 32
            && let Some(written) = writing.join_next().await
        {
            if let Ok(Some((number, version))) = written
                && let Some(slot) = leases.get_mut(number)
            {
                *slot = version;
            }
        }
        while let Some(written) = writing.try_join_next() {
            if let Ok(Some((number, version))) = written
                && let Some(slot) = leases.get_mut(number)
            {
                *slot = version;
            }
        }
        let lease = lease(number, leases.get(number).map(String::as_str), &environment);
        let requests = requests.clone();
        writing.spawn(async move {
            let body = serde_json::to_vec(&lease).ok()?;
            let path = format!("{LEASES}/{}", name(number));
            match requests.send(http::Method::PUT, &path, JSON, &body).await {
                Ok(text) => Some((number, version(&text).ok()?)),
                Err(error) => {
                    tracing::debug!(%error, "a lease was not renewed");
                    let text = requests.send(http::Method::GET, &path, JSON, b"").await;
                    Some((number, version(&text.ok()?).ok()?))
                }
            }
        });
    }
}

/// Says in the pod's status that it runs and is ready.
pub async fn report_running(
    requests: &Requests,
    node: usize,
    pod: &str,
    uid: &str,
    now: &str,
) -> Result<(), kube::Error> {
    let conditions: Vec<Value> = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
    ]
    .iter()
    .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}))
    .collect();
    let (host, address) = (host_address(node), pod_address(node, uid));
    let patch = json!({
        "metadata": {"uid": uid},
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "hostIP": host,
            "hostIPs": [{"ip": host}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "containerStatuses": [{
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10.2",
                "imageID": "",
                "containerID": format!("simulated://{uid}"),
                "ready": true,
                "started": true,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }],
        },
    });
    let path = format!("{}/{pod}/status", pods_path());
    let body = serde_json::to_vec(&patch).map_err(kube::Error::SerdeError)?;
    requests
        .send(http::Method::PATCH, &path, STRATEGIC, &body)
        .await
        .map(|_| ())
}

/// Ends a pod that is to go.
pub async fn finish(requests: &Requests, pod: &str, uid: &str) -> Result<(), kube::Error> {
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    let body = serde_json::to_vec(&options).map_err(kube::Error::SerdeError)?;
    let path = format!("{}/{pod}", pods_path());
    let ended = requests
        .send(http::Method::DELETE, &path, JSON, &body)
        .await;
    match ended {
        Err(error) if client::retry::is_not_found(&error) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Removes everything that a simulation made on a cluster that is not its own.
pub async fn remove_all(requests: &Requests, count: usize) -> Result<()> {
    requests.delete(&pods_path()).await?;
    for_each(count, |number| async move {
        requests
            .delete(&format!("{NODES}/{}", name(number)))
            .await?;
        requests.delete(&format!("{LEASES}/{}", name(number))).await
    })
    .await?;
    workload::remove(requests).await
}

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn node(number: usize, environment: &Environment) -> Value {
    let now = environment.now().to_string();
    let amounts = json!({
        "cpu": "4", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110",
    });
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    json!({
        "metadata": {
            "name": name(number),
            "labels": {
                "kubernetes.io/hostname": name(number),
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "simulation",
                "topology.kubernetes.io/zone": format!("zone-{}", number % ZONES),
                SIMULATED: "true",
            },
        },
        // A cluster's own range may be too small for so many nodes.
        "spec": {"podCIDR": pod_range(number), "podCIDRs": [pod_range(number)]},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": host_address(number)},
                {"type": "Hostname", "address": name(number)},
            ],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux",
                "kubeletVersion": "v1.36.4", "kubeProxyVersion": "",
                "containerRuntimeVersion": "simulated://1", "osImage": "simulated",
                "kernelVersion": "0", "machineID": "", "systemUUID": "", "bootID": "",
            },
        },
    })
}

fn lease(number: usize, version: Option<&str>, environment: &Environment) -> Value {
    let now = environment.now();
    let mut lease = json!({
        "metadata": {"name": name(number), "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": name(number),
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{now:.6}"),
        },
    });
    if let Some(version) = version {
        lease["metadata"]["resourceVersion"] = version.into();
    }
    lease
}

/// Addresses of the range for benchmarks; nothing is ever sent to them.
fn host_address(node: usize) -> String {
    let number = node as u32 & 0x1_ffff;
    let address = u32::from(std::net::Ipv4Addr::new(198, 18, 0, 0)) | number;
    std::net::Ipv4Addr::from(address).to_string()
}

/// Sixteen addresses of the range that providers share.
fn pod_range(node: usize) -> String {
    let network = u32::from(std::net::Ipv4Addr::new(100, 64, 0, 0)) | (node as u32 & 0x3_ffff) << 4;
    format!("{}/28", std::net::Ipv4Addr::from(network))
}

/// Some address of the node's range; several pods may have the same, since none is ever used.
fn pod_address(node: usize, uid: &str) -> String {
    let sum = uid.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let network = u32::from(std::net::Ipv4Addr::new(100, 64, 0, 0)) | (node as u32 & 0x3_ffff) << 4;
    std::net::Ipv4Addr::from(network | (sum & 0xf)).to_string()
}

fn version(text: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let object: Object = serde_json::from_str(text)?;
    Ok(object.metadata.resource_version)
}
