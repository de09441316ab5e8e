//! The settings of this node: its name and addresses, the places of its files, its capacity and
//! configuration. Nothing in it changes while the kubelet runs.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;

use crate::{
    capacity::Capacity,
    configuration::Configuration,
    container::{config::Machine, fields::NodeFacts},
};

pub struct NodeSettings {
    pub node_name: String,
    pub host_ip: String,
    /// The runtime's name as `containerID`s carry it.
    pub runtime_name: String,
    /// Logs are `<log_dir>/<namespace>_<name>_<uid>/<container>/<n>.log`.
    pub log_dir: PathBuf,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    pub capacity: Capacity,
    pub configuration: Configuration,
}

impl NodeSettings {
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

    /// The properties of the machine that limits of containers depend on.
    pub fn machine(&self, limits_swap: bool) -> Machine<'_> {
        Machine {
            memory: self.capacity.memory,
            huge_pages: &self.capacity.huge_pages,
            limits_swap,
        }
    }

    /// The facts about the node that the downward API shows.
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
