//! The pods that a simulation schedules; they are those of upstream's scheduler_perf.

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::names::{NAMESPACE, SIMULATED, node_name, pods_path};
use super::requests::{Requests, for_each};

/// The number of pods of low priority that fill a node.
const FILLERS_PER_NODE: usize = 4;
const URGENT: &str = "simulation-urgent";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Pods that request some CPU and memory
    Plain,
    /// Pods with anti-affinity: no two of them may run on one node
    AntiAffinity,
    /// Pods with a topology spread constraint over three zones
    TopologySpread,
    /// Pods of high priority that preempt the pods of low priority which fill the nodes
    Preemption,
}

/// Creates the namespace, ServiceAccount and PriorityClass of the pods.
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

/// Deletes what [`prepare`] created.
pub async fn remove(requests: &Requests) -> Result<()> {
    let path = format!("/apis/scheduling.k8s.io/v1/priorityclasses/{URGENT}");
    requests.delete(&path).await?;
    requests
        .delete(&format!("/api/v1/namespaces/{NAMESPACE}"))
        .await
}

impl Workload {
    /// Rejects more pods than the nodes have room for.
    pub fn check(self, nodes: usize, pods: usize) -> Result<()> {
        let most = match self {
            Workload::Plain | Workload::TopologySpread => nodes * 40,
            Workload::AntiAffinity => nodes * 40,
            Workload::Preemption => nodes,
        };
        if pods > most {
            bail!(
                "{nodes} nodes have room for {most} pods of this workload, not for {pods}: choose \
                 more --nodes or fewer --pods"
            );
        }
        Ok(())
    }

    /// Fills the nodes with pods that will be preempted. Returns the number of these pods.
    pub async fn create_fillers(self, requests: &Requests, nodes: usize) -> Result<usize> {
        if self != Workload::Preemption {
            return Ok(0);
        }
        let (path, count) = (pods_path(), nodes * FILLERS_PER_NODE);
        for_each(count, |number| {
            let mut pod = pod(&format!("filler-{number:06}"), "900m");
            pod["spec"]["nodeName"] = node_name(number / FILLERS_PER_NODE).into();
            pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
            let path = &path;
            async move { requests.create(path, &pod).await }
        })
        .await?;
        Ok(count)
    }

    /// Creates the pods. `has_others` keeps them off nodes that are not simulated.
    pub async fn create(
        self,
        requests: &Requests,
        nodes: usize,
        pods: usize,
        has_others: bool,
    ) -> Result<()> {
        let path = pods_path();
        for_each(pods, |number| {
            let mut pod = self.pod(number, nodes);
            if has_others {
                pod["spec"]["nodeSelector"] = json!({SIMULATED: "true"});
            }
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
                // As many pods as there are nodes have anti-affinity to each other.
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
