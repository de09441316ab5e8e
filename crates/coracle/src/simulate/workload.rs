//! The shapes of pods that a simulation schedules; they are those of upstream's scheduler_perf.

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::requests::{Requests, for_each};

pub const NAMESPACE: &str = "simulation";
/// Nodes are dealt out to so many zones.
pub const ZONES: usize = 3;
/// So many pods of low priority fill a node.
const FILLERS_PER_NODE: usize = 4;
const URGENT: &str = "simulation-urgent";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Pods that ask for some cpu and memory
    Plain,
    /// Pods of which no two may share a node
    AntiAffinity,
    /// Pods that must be spread evenly over three zones
    TopologySpread,
    /// Pods of high priority on nodes full of pods of low priority
    Preemption,
}

/// What must be there before nodes and pods.
pub async fn prepare(requests: &Requests) -> Result<()> {
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    requests.ensure("/api/v1/namespaces", &namespace).await?;
    let account = json!({"metadata": {"name": "default"}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    requests.ensure(&path, &account).await?;
    let class = json!({"metadata": {"name": URGENT}, "value": 10});
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    requests.ensure(path, &class).await
}

/// Removes what [`prepare`] made.
pub async fn remove(requests: &Requests) -> Result<()> {
    let path = format!("/apis/scheduling.k8s.io/v1/priorityclasses/{URGENT}");
    requests.delete(&path).await?;
    requests
        .delete(&format!("/api/v1/namespaces/{NAMESPACE}"))
        .await
}

pub fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

impl Workload {
    /// Refuses what could never be scheduled.
    pub fn check(self, nodes: usize, pods: usize) -> Result<()> {
        let most = match self {
            Workload::Plain | Workload::TopologySpread => nodes * 40,
            Workload::AntiAffinity => nodes * 40,
            Workload::Preemption => nodes,
        };
        if pods > most {
            bail!("{nodes} nodes have room for {most} such pods, not for {pods}");
        }
        Ok(())
    }

    /// Fills the nodes where pods are to be sent away; how many pods that took.
    pub async fn create_fillers(self, requests: &Requests, nodes: usize) -> Result<usize> {
        if self != Workload::Preemption {
            return Ok(0);
        }
        let (path, count) = (pods_path(), nodes * FILLERS_PER_NODE);
        for_each(count, |number| {
            let mut pod = pod(&format!("filler-{number:06}"), "900m");
            pod["spec"]["nodeName"] = super::nodes::name(number / FILLERS_PER_NODE).into();
            pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
            let path = &path;
            async move { requests.create(path, &pod).await }
        })
        .await?;
        Ok(count)
    }

    pub async fn create(self, requests: &Requests, nodes: usize, pods: usize) -> Result<()> {
        let path = pods_path();
        for_each(pods, |number| {
            let pod = self.pod(number, nodes);
            let path = &path;
            async move { requests.create(path, &pod).await }
        })
        .await
    }

    fn pod(self, number: usize, nodes: usize) -> Value {
        let name = format!("pod-{number:06}");
        match self {
            Workload::Plain => pod(&name, "100m"),
            Workload::AntiAffinity => {
                // As many as there are nodes keep away from each other.
                let color = format!("green-{}", number / nodes);
                let mut pod = pod(&name, "100m");
                pod["metadata"]["labels"] = json!({"color": color});
                pod["spec"]["affinity"] = json!({"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{
                        "labelSelector": {"matchLabels": {"color": color}},
                        "topologyKey": "kubernetes.io/hostname",
                    }],
                }});
                pod
            }
            Workload::TopologySpread => {
                let mut pod = pod(&name, "100m");
                pod["metadata"]["labels"] = json!({"color": "blue"});
                pod["spec"]["topologySpreadConstraints"] = json!([{
                    "maxSkew": 5,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"color": "blue"}},
                }]);
                pod
            }
            Workload::Preemption => {
                let mut pod = pod(&name, "3");
                pod["spec"]["priorityClassName"] = URGENT.into();
                pod
            }
        }
    }
}

fn pod(name: &str, cpu: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": "500Mi"});
    json!({
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10.2",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": amounts, "requests": amounts},
            }],
        },
    })
}
