//! A node with the account of what its pods take.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Taint};
use semantics::host_port::HostPort;

use crate::{pod_info::PodInfo, resources::Resources};

#[derive(Clone, Default)]
pub struct NodeInfo {
    pub name: String,
    /// None while only pods of the node are known.
    pub node: Option<Arc<Node>>,
    pub allocatable: Resources,
    pub allowed_pods: i64,
    pub requested: Resources,
    pub requested_for_score: Resources,
    /// By uid.
    pub pods: BTreeMap<String, Arc<PodInfo>>,
    /// Size in bytes by each of an image's names.
    pub images: BTreeMap<String, i64>,
}

impl NodeInfo {
    pub fn new(name: &str) -> NodeInfo {
        NodeInfo {
            name: name.to_owned(),
            ..NodeInfo::default()
        }
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        self.allocatable = Resources::of(allocatable);
        self.allowed_pods = allocatable
            .and_then(|list| list.get("pods"))
            .and_then(|quantity| api::quantity::Quantity::parse(&quantity.0).ok())
            .map_or(0, |quantity| quantity.value());
        self.images = status
            .and_then(|status| status.images.as_ref())
            .into_iter()
            .flatten()
            .flat_map(|image| {
                let size = image.size_bytes.unwrap_or(0);
                let names = image.names.iter().flatten();
                names.map(move |name| (name.clone(), size))
            })
            .collect();
        self.node = Some(node);
    }

    pub fn unset_node(&mut self) {
        self.node = None;
        self.allocatable = Resources::default();
        self.allowed_pods = 0;
        self.images.clear();
    }

    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.requested_for_score.add(&pod.requests_for_score);
        if let Some(old) = self.pods.insert(pod.uid.clone(), pod) {
            self.subtract(&old);
        }
    }

    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.subtract(&pod);
        Some(pod)
    }

    fn subtract(&mut self, pod: &PodInfo) {
        self.requested.subtract(&pod.requests);
        self.requested_for_score.subtract(&pod.requests_for_score);
    }

    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.node.as_ref()?.metadata.labels.as_ref()
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels()?.get(key).map(String::as_str)
    }

    pub fn taints(&self) -> &[Taint] {
        let spec = self.node.as_ref().and_then(|node| node.spec.as_ref());
        let taints = spec.and_then(|spec| spec.taints.as_deref());
        taints.unwrap_or_default()
    }

    pub fn is_unschedulable(&self) -> bool {
        let spec = self.node.as_ref().and_then(|node| node.spec.as_ref());
        spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
    }

    /// Whether a pod of the node uses one of the `wanted` ports.
    pub fn has_conflicting_port(&self, wanted: &[HostPort]) -> bool {
        self.pods
            .values()
            .flat_map(|pod| &pod.host_ports)
            .any(|used| wanted.iter().any(|wanted| wanted.conflicts_with(used)))
    }
}
