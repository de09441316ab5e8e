//! A volume that carries the labels of its zone or region is used there only.

use std::{collections::BTreeSet, sync::Arc};

use semantics::volume::claim_class;

use crate::{
    NodeInfo, PodInfo, Snapshot,
    framework::{ClusterEvent, CycleFilter, Plugin, Points, PreFilter, PreFiltered, Rejection},
    volumes::{volume_name, waits_for_consumer},
};

const REASON: &str = "node(s) had no available volume zone";
/// The old name and today's.
const KEYS: [(&str, &str); 4] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
];

pub struct VolumeZone;

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            pre_filter: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            ClusterEvent::Claim(claim) => pod.uses_claim(claim),
            ClusterEvent::Volume(_) | ClusterEvent::NodeAdded(_) => true,
            ClusterEvent::StorageClass { old, .. } => old.is_none(),
            ClusterEvent::NodeChanged { old, new } => KEYS.iter().any(|(key, _)| {
                let labels = old.metadata.labels.as_ref();
                let before = labels.and_then(|labels| labels.get(*key));
                before.map(String::as_str) != new.label(key)
            }),
            _ => false,
        }
    }
}

impl PreFilter for VolumeZone {
    fn pre_filter(&self, pod: &PodInfo, snapshot: &Snapshot) -> PreFiltered {
        match zones(pod, snapshot) {
            Ok(zones) if zones.is_empty() => PreFiltered::Any,
            Ok(zones) => PreFiltered::By(Box::new(Zones { zones })),
            Err(reason) => PreFiltered::Reject(reason),
        }
    }
}

/// For each label of a volume, the values that a node may have.
#[derive(Clone)]
struct Zones {
    zones: Vec<(&'static str, &'static str, BTreeSet<String>)>,
}

fn zones(
    pod: &PodInfo,
    snapshot: &Snapshot,
) -> Result<Vec<(&'static str, &'static str, BTreeSet<String>)>, String> {
    let mut zones = Vec::new();
    for wanted in pod.claims.iter().filter(|claim| !claim.is_ephemeral) {
        let volumes = &snapshot.volumes;
        let name = &wanted.name;
        let Some(claim) = volumes.claim(&pod.key.namespace, name) else {
            return Err(format!("persistentvolumeclaim {name:?} not found"));
        };
        let Some(volume) = volume_name(claim) else {
            let class = claim_class(claim);
            if class.is_empty() {
                let reason = "PersistentVolumeClaim had no pv name and storageClass name";
                return Err(reason.to_owned());
            }
            match volumes.class(class) {
                None => {
                    return Err(format!("storageclass.storage.k8s.io {class:?} not found"));
                }
                Some(class) if waits_for_consumer(class) => continue,
                Some(_) => return Err("PersistentVolume had no name".to_owned()),
            }
        };
        let Some(volume) = volumes.volume(volume) else {
            return Err(format!("persistentvolume {volume:?} not found"));
        };
        let Some(labels) = volume.metadata.labels.as_ref() else {
            continue;
        };
        for (key, today) in KEYS {
            if let Some(value) = labels.get(key) {
                let values = value.split("__").map(str::to_owned).collect();
                zones.push((key, today, values));
            }
        }
    }
    Ok(zones)
}

impl CycleFilter for Zones {
    fn filter(&self, _: &PodInfo, node: &NodeInfo, _: &Snapshot) -> Option<Rejection> {
        // Nodes of a cluster without zones take every volume.
        if !KEYS.iter().any(|(key, _)| node.label(key).is_some()) {
            return None;
        }
        let fits = self.zones.iter().all(|(key, today, values)| {
            let value = node.label(key).or_else(|| node.label(today));
            value.is_some_and(|value| values.contains(value))
        });
        (!fits).then(|| Rejection::unresolvable(REASON))
    }

    fn boxed_clone(&self) -> Box<dyn CycleFilter> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::{labelled_node, pod};

    #[test]
    fn a_volume_of_a_zone_stays_there() {
        let passes = |volume_labels: &str, node_labels: &str| {
            let mut snapshot = Snapshot::default();
            let claim =
                r#"{"metadata":{"namespace":"default","name":"data"},"spec":{"volumeName":"v"}}"#;
            let claim = serde_json::from_str(claim).expect("a claim");
            snapshot.volumes.set_claim(Arc::new(claim));
            let volume = format!(r#"{{"metadata":{{"name":"v","labels":{volume_labels}}}}}"#);
            let volume = serde_json::from_str(&volume).expect("a volume");
            snapshot.volumes.set_volume(Arc::new(volume));
            snapshot.set_node(labelled_node("a", node_labels, "{}", "{}"));
            let spec = r#"{"containers":[],"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"data"}}]}"#;
            let web = pod("web", spec);
            let node = snapshot.node("a").expect("a");
            match VolumeZone.pre_filter(&web, &snapshot) {
                PreFiltered::By(filter) => filter.filter(&web, node, &snapshot).is_none(),
                PreFiltered::Any => true,
                _ => false,
            }
        };
        let zone = |value: &str| format!(r#"{{"topology.kubernetes.io/zone":"{value}"}}"#);
        let old = r#"{"failure-domain.beta.kubernetes.io/zone":"x__y"}"#;
        assert!(passes("{}", &zone("x")));
        assert!(passes(&zone("x"), "{}"));
        assert!(passes(&zone("x"), &zone("x")));
        assert!(!passes(&zone("x"), &zone("y")));
        assert!(passes(old, &zone("y")));
        assert!(!passes(old, &zone("z")));
        assert!(!passes(
            &zone("x"),
            r#"{"topology.kubernetes.io/region":"x"}"#
        ));
    }
}
