//! A node takes as many volumes of a CSI driver as its CSINode says. Volumes that are attached for
//! no pod of the node are not counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::storage::v1::CSINode;
use semantics::volume::claim_class;

use crate::{
    NodeInfo, PodInfo, Snapshot,
    framework::{ClusterEvent, CycleFilter, Plugin, Points, PreFilter, PreFiltered, Rejection},
    volumes::{Volumes, volume_name},
};

const REASON: &str = "node(s) exceed max volume count";

pub struct NodeVolumeLimits;

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            pre_filter: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            ClusterEvent::CsiNode { old, new } => {
                let before = old.map(limits).unwrap_or_default();
                limits(new)
                    .iter()
                    .any(|(driver, limit)| before.get(driver).is_none_or(|old| limit > old))
            }
            ClusterEvent::PodRemoved { pod: other, .. } => !other.claims.is_empty(),
            ClusterEvent::Claim(claim) => pod.uses_claim(claim),
            _ => false,
        }
    }
}

impl PreFilter for NodeVolumeLimits {
    fn pre_filter(&self, pod: &PodInfo, snapshot: &Snapshot) -> PreFiltered {
        let volumes = csi_volumes(pod, &snapshot.volumes);
        match volumes.is_empty() {
            true => PreFiltered::Any,
            false => PreFiltered::By(Box::new(Wanted { volumes })),
        }
    }
}

/// The volumes of the pod, by driver and handle.
#[derive(Clone)]
struct Wanted {
    volumes: BTreeSet<(String, String)>,
}

impl CycleFilter for Wanted {
    fn filter(&self, _: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> Option<Rejection> {
        let limits = limits(snapshot.volumes.csi_node(&node.name)?);
        let mut wanted = self.volumes.iter();
        if !wanted.any(|(driver, _)| limits.contains_key(driver)) {
            return None;
        }
        let mut all = self.volumes.clone();
        for other in node.pods.values() {
            all.extend(csi_volumes(other, &snapshot.volumes));
        }
        let exceeded = self.volumes.iter().any(|(driver, _)| {
            let of_driver = all.iter().filter(|(other, _)| other == driver).count();
            limits.get(driver).is_some_and(|limit| of_driver > *limit)
        });
        exceeded.then(|| Rejection::resolvable(REASON))
    }

    fn boxed_clone(&self) -> Box<dyn CycleFilter> {
        Box::new(self.clone())
    }
}

fn limits(node: &CSINode) -> BTreeMap<String, usize> {
    let limits = node.spec.drivers.iter().filter_map(|driver| {
        let limit = driver.allocatable.as_ref()?.count?;
        Some((driver.name.clone(), usize::try_from(limit).unwrap_or(0)))
    });
    limits.collect()
}

/// Claims without a volume count for the driver that will make it.
fn csi_volumes(pod: &PodInfo, volumes: &Volumes) -> BTreeSet<(String, String)> {
    let claims = pod.claims.iter();
    let found = claims.filter_map(|wanted| {
        let namespace = &pod.key.namespace;
        let claim = volumes.claim(namespace, &wanted.name)?;
        match volume_name(claim).and_then(|name| volumes.volume(name)) {
            Some(volume) => {
                let source = volume.spec.as_ref()?.csi.as_ref()?;
                Some((source.driver.clone(), source.volume_handle.clone()))
            }
            None => {
                let class = volumes.class(claim_class(claim))?;
                let handle = format!("claim {namespace}/{}", wanted.name);
                Some((class.provisioner.clone(), handle))
            }
        }
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::{node_with, pod};

    #[test]
    fn a_driver_attaches_only_so_many() {
        let mut snapshot = Snapshot::default();
        snapshot.set_node(node_with("a", "4"));
        for number in 1..=3 {
            let claim = format!(
                r#"{{"metadata":{{"namespace":"default","name":"c{number}"}},"spec":{{"volumeName":"v{number}"}}}}"#
            );
            let claim = serde_json::from_str(&claim).expect("a claim");
            snapshot.volumes.set_claim(Arc::new(claim));
            let volume = format!(
                r#"{{"metadata":{{"name":"v{number}"}},"spec":{{"csi":{{"driver":"d","volumeHandle":"h{number}"}}}}}}"#
            );
            let volume = serde_json::from_str(&volume).expect("a volume");
            snapshot.volumes.set_volume(Arc::new(volume));
        }
        let using = |name: &str, claim: &str| {
            let spec = r#"{"containers":[],"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"CLAIM"}}]}"#;
            pod(name, &spec.replace("CLAIM", claim))
        };
        let passes = |snapshot: &Snapshot, pod: &PodInfo| {
            let node = snapshot.node("a").expect("a");
            match NodeVolumeLimits.pre_filter(pod, snapshot) {
                PreFiltered::By(filter) => filter.filter(pod, node, snapshot).is_none(),
                _ => true,
            }
        };
        snapshot.confirm(using("one", "c1"), "a");
        snapshot.confirm(using("two", "c2"), "a");
        let three = using("three", "c3");
        assert!(passes(&snapshot, &three), "no limit is known");
        let csi_node = r#"{"metadata":{"name":"a"},"spec":{"drivers":[{"name":"d","nodeID":"a","allocatable":{"count":2}}]}}"#;
        let csi_node = serde_json::from_str(csi_node).expect("a CSI node");
        snapshot.volumes.set_csi_node(Arc::new(csi_node));
        assert!(!passes(&snapshot, &three));
        // A volume that is attached already costs nothing.
        assert!(passes(&snapshot, &using("again", "c2")));
        snapshot.remove_pod("uid-one");
        assert!(passes(&snapshot, &three));
    }
}
