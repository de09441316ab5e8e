//! The simulated nodes: they register, renew their leases, and write the status of their pods. One
//! task serves all of them, and keeps only the resource version of each node's lease.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use environment::Environment;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::names::{SIMULATED, ZONES, node_name, pods_path};
use super::requests::{JSON, Requests, collect, for_each};
use super::workload;

/// How often a node renews its lease, and for how long the lease is valid, as with a kubelet.
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

/// Whether the cluster has any nodes.
pub async fn has_nodes(requests: &Requests) -> Result<bool> {
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
            names: (0..count)
                .map(|number| (node_name(number), number))
                .collect(),
            renewing,
        })
    }

    /// The numbers of the nodes, by name.
    pub fn names(&self) -> BTreeMap<String, usize> {
        self.names.clone()
    }
}

/// Creates a node and its lease. Returns the resource version of the lease.
async fn register_one(
    requests: &Requests,
    number: usize,
    environment: &Environment,
) -> Result<String> {
    let node = node(number, environment);
    requests.create(NODES, &node).await?;
    // A new node has the taint not-ready, which a cluster without controllers would never remove.
    let path = format!("{NODES}/{}", node_name(number));
    let patch = br#"{"spec":{"taints":null}}"#;
    requests
        .send(http::Method::PATCH, &path, MERGE, patch)
        .await
        .with_context(|| path.clone())?;
    let body = serde_json::to_vec(&lease(number, None, environment))?;
    let made = requests.send(http::Method::POST, LEASES, JSON, &body).await;
    version(&made.context(LEASES)?)
}

/// Renews every lease periodically, evenly spread over the time.
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
            let path = format!("{LEASES}/{}", node_name(number));
            match requests.send(http::Method::PUT, &path, JSON, &body).await {
                Ok(text) => Some((number, version(&text).ok()?)),
                Err(error) => {
                    tracing::debug!(%error, "cannot renew a lease");
                    let text = requests.send(http::Method::GET, &path, JSON, b"").await;
                    Some((number, version(&text.ok()?).ok()?))
                }
            }
        });
    }
}

/// Writes a status that says that the pod is running and ready.
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

/// Completes the deletion of a terminating pod.
pub async fn terminate(requests: &Requests, pod: &str, uid: &str) -> Result<(), kube::Error> {
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

/// Deletes everything that a simulation created in a cluster that is not its own.
pub async fn remove_all(requests: &Requests, count: usize) -> Result<()> {
    requests.delete(&pods_path()).await?;
    for_each(count, |number| async move {
        requests
            .delete(&format!("{NODES}/{}", node_name(number)))
            .await?;
        requests
            .delete(&format!("{LEASES}/{}", node_name(number)))
            .await
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
            "name": node_name(number),
            "labels": {
                "kubernetes.io/hostname": node_name(number),
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "simulation",
                "topology.kubernetes.io/zone": format!("zone-{}", number % ZONES),
                SIMULATED: "true",
            },
        },
        // The pod range of a cluster may be too small for so many nodes.
        "spec": {"podCIDR": pod_range(number), "podCIDRs": [pod_range(number)]},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": host_address(number)},
                {"type": "Hostname", "address": node_name(number)},
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
        "metadata": {"name": node_name(number), "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": node_name(number),
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{now:.6}"),
        },
    });
    if let Some(version) = version {
        lease["metadata"]["resourceVersion"] = version.into();
    }
    lease
}

/// An address of 198.18.0.0/15, which is reserved for benchmarks; nothing is ever sent to it.
fn host_address(node: usize) -> String {
    let number = node as u32 & 0x1_ffff;
    let address = u32::from(std::net::Ipv4Addr::new(198, 18, 0, 0)) | number;
    std::net::Ipv4Addr::from(address).to_string()
}

/// Sixteen addresses of 100.64.0.0/10, which networks of providers share.
fn pod_range(node: usize) -> String {
    let network = u32::from(std::net::Ipv4Addr::new(100, 64, 0, 0)) | (node as u32 & 0x3_ffff) << 4;
    format!("{}/28", std::net::Ipv4Addr::from(network))
}

/// An address of the node's pod CIDR. Several pods may have the same, since nothing is sent to it.
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
