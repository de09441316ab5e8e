//! A pod as the scheduler sees it: the object and what is computed from it once.

use std::sync::Arc;

use client::ObjectKey;
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaim, Pod, PodSpec, Toleration};
use semantics::{
    host_port::{HostPort, host_ports},
    pod_claim::{PodClaim, pod_claims},
};

use crate::{
    affinity_terms::AffinityTerms,
    resources::{PodRequests, Resources},
    spread_constraints::SpreadConstraint,
};

pub struct PodInfo {
    pub pod: Arc<Pod>,
    pub key: ObjectKey,
    pub uid: String,
    pub priority: i32,
    pub requests: Resources,
    /// As `requests`, with a little assumed where nothing was asked for.
    pub requests_for_score: Resources,
    pub host_ports: Vec<HostPort>,
    /// The claims behind its volumes.
    pub claims: Vec<PodClaim>,
    /// Its affinity and anti-affinity to other pods, if it has any.
    pub affinity: Option<Box<AffinityTerms>>,
    pub spread: Vec<SpreadConstraint>,
}

impl PodInfo {
    pub fn new(pod: Arc<Pod>) -> PodInfo {
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let requests = PodRequests::of(spec, pod.status.as_ref());
        PodInfo {
            key: ObjectKey::of(pod.as_ref()),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            requests: requests.stated,
            requests_for_score: requests.for_score,
            host_ports: host_ports(spec),
            claims: pod_claims(&pod).collect(),
            affinity: AffinityTerms::of(&pod, spec),
            spread: SpreadConstraint::all_of(&pod, spec),
            pod,
        }
    }

    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    pub fn tolerations(&self) -> &[Toleration] {
        let tolerations = self.spec().and_then(|spec| spec.tolerations.as_deref());
        tolerations.unwrap_or_default()
    }

    pub fn uses_claim(&self, claim: &PersistentVolumeClaim) -> bool {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        self.key.namespace == namespace && self.claims.iter().any(|used| used.name == name)
    }

    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        let spec = self.spec();
        let init = spec.and_then(|spec| spec.init_containers.as_deref());
        let main = spec.map(|spec| spec.containers.as_slice());
        init.into_iter().chain(main).flatten()
    }
}

/// The node a pod is bound to.
pub fn assigned_node(pod: &Pod) -> Option<&str> {
    let name = pod.spec.as_ref()?.node_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

pub fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|s| s.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}
