//! What every pod worker on this node shares. Built once in `run`.

use std::{path::PathBuf, sync::Arc};

use client::Informer;
use environment::Environment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service};
use parking_lot::Mutex;

use crate::{
    admission::Admission,
    cgroups::Cgroups,
    configuration::Configuration,
    container::{config::Machine, fields::NodeFacts},
    events::Events,
    eviction::Pressure,
    image_gc,
    images::Pulls,
    measures::Measures,
    node::Capacity,
    probes::ProbeCounts,
    referenced::Referenced,
    shutdown::ShuttingDown,
    spans::Spans,
    stats::{Rates, RuntimePlaces},
    volumes::Volumes,
};

pub struct NodeContext {
    pub node_name: String,
    pub host_ip: String,
    pub log_dir: PathBuf,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    pub capacity: Capacity,
    pub configuration: Configuration,
    pub admission: Admission,
    pub pressure: Pressure,
    pub shutting_down: ShuttingDown,
    pub rates: Rates,
    /// Where the runtime keeps images and layers.
    pub runtime_places: RuntimePlaces,
    /// What image collection has seen of images.
    pub images_seen: image_gc::Seen,
    pub probe_counts: Arc<ProbeCounts>,
    pub measures: Arc<Measures>,
    /// The pods the API has for this node.
    pub api_pods: Informer<Pod>,
    /// The Node object of this node.
    pub nodes: Informer<Node>,
    /// As last seen, or as it will register.
    pub last_node: Mutex<Option<Arc<Node>>>,
    /// The runtime's name as `containerID`s carry it.
    pub runtime_name: String,
    pub client: kube::Client,
    pub cri: cri::Client,
    pub events: Events,
    pub spans: Spans,
    pub environment: Environment,
    pub volumes: Volumes,
    pub pulls: Pulls,
    pub cgroups: Cgroups,
    pub config_maps: Referenced<ConfigMap>,
    pub secrets: Referenced<Secret>,
    pub services: Informer<Service>,
}

impl NodeContext {
    pub fn pod_log_dir(&self, pod: &Pod) -> PathBuf {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let metadata = &pod.metadata;
        self.log_dir.join(format!(
            "{}_{}_{}",
            text(&metadata.namespace),
            text(&metadata.name),
            text(&metadata.uid)
        ))
    }

    /// The Node object, as it was last seen if it is gone, or as it will register if it was never
    /// there.
    pub fn node_object(&self) -> Option<Arc<Node>> {
        let found = self.nodes.get("", &self.node_name);
        let mut last = self.last_node.lock();
        if found.is_some() {
            *last = found;
        }
        last.clone()
    }

    /// Whether the API still has this pod, and not another one of its name.
    pub fn has_pod(&self, pod: &Pod) -> bool {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let metadata = &pod.metadata;
        let found = self
            .api_pods
            .get(&text(&metadata.namespace), &text(&metadata.name));
        found.is_some_and(|found| found.metadata.uid == metadata.uid)
    }

    pub fn remember_node(&self, node: Node) {
        *self.last_node.lock() = Some(Arc::new(node));
    }

    /// The pressures the node is under, as its conditions name them.
    pub fn pressures(&self) -> Vec<&'static str> {
        let now = self.pressure.now();
        ["MemoryPressure", "DiskPressure", "PIDPressure"]
            .into_iter()
            .filter(|condition| now.contains(condition))
            .collect()
    }

    /// What the limits of containers depend on.
    pub fn machine(&self) -> Machine<'_> {
        Machine {
            memory: self.capacity.memory,
            huge_pages: &self.capacity.huge_pages,
            limits_swap: self.cgroups.limits_swap_of_containers(),
        }
    }

    pub fn facts(&self, pod_ips: Vec<String>) -> NodeFacts {
        NodeFacts {
            node_name: self.node_name.clone(),
            host_ip: self.host_ip.clone(),
            pod_ips,
            allocatable_milli_cpu: self.capacity.allocatable_milli_cpu(),
            allocatable_memory: self.capacity.allocatable_memory(),
            allocatable_ephemeral_storage: self.capacity.allocatable_storage(),
        }
    }
}
