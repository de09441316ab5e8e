//! A claim for one pod at a time is used by one pod; a disk that can be attached once is.

use std::sync::Arc;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Volume;

use crate::{
    NodeInfo, PodInfo, Snapshot,
    framework::{ClusterEvent, CycleFilter, Plugin, Points, PreFilter, PreFiltered, Rejection},
};

const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
const NO_DISK: &str = "node(s) had no available disk";

pub struct VolumeRestrictions;

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            pre_filter: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            ClusterEvent::PodRemoved { pod: other, .. } => {
                let mut claims = pod.claims.iter();
                other.key.namespace == pod.key.namespace
                    && claims.any(|claim| other.claims.contains(claim))
                    || disks_conflict(pod, other)
            }
            ClusterEvent::NodeAdded(_) => true,
            ClusterEvent::Claim(claim) => pod.uses_claim(claim),
            _ => false,
        }
    }
}

impl PreFilter for VolumeRestrictions {
    fn pre_filter(&self, pod: &PodInfo, snapshot: &Snapshot) -> PreFiltered {
        let mut exclusive = BTreeSet::new();
        let namespace = &pod.key.namespace;
        for wanted in pod.claims.iter().filter(|claim| !claim.is_ephemeral) {
            let name = &wanted.name;
            let Some(claim) = snapshot.volumes.claim(namespace, name) else {
                let reason = format!("persistentvolumeclaim {name:?} not found");
                return PreFiltered::Reject(reason);
            };
            let modes = claim
                .spec
                .as_ref()
                .and_then(|spec| spec.access_modes.as_ref());
            if modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod")) {
                exclusive.insert(name.clone());
            }
        }
        let users = exclusive
            .iter()
            .map(|name| snapshot.claim_users(namespace, name))
            .sum();
        let has_disks = volumes(pod).iter().any(is_exclusive_disk);
        match users == 0 && !has_disks {
            true => PreFiltered::Any,
            false => PreFiltered::By(Box::new(Restrictions { exclusive, users })),
        }
    }
}

#[derive(Clone)]
struct Restrictions {
    /// Claims for one pod at a time.
    exclusive: BTreeSet<String>,
    /// How often other pods use them, wherever they are.
    users: usize,
}

impl Restrictions {
    fn change(&mut self, pod: &PodInfo, other: &PodInfo, by: isize) {
        if other.key.namespace == pod.key.namespace {
            let used = other.claims.iter();
            let used = used.filter(|claim| self.exclusive.contains(&claim.name));
            for _ in used {
                self.users = self.users.saturating_add_signed(by);
            }
        }
    }
}

impl CycleFilter for Restrictions {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> Option<Rejection> {
        if volumes(pod).iter().any(is_exclusive_disk)
            && node.pods.values().any(|other| disks_conflict(pod, other))
        {
            return Some(Rejection::resolvable(NO_DISK));
        }
        (self.users > 0).then(|| Rejection::resolvable(IN_USE))
    }

    fn add_pod(&mut self, pod: &PodInfo, other: &PodInfo, _: &NodeInfo, _: &Snapshot) {
        self.change(pod, other, 1);
    }

    fn remove_pod(&mut self, pod: &PodInfo, other: &PodInfo, _: &NodeInfo, _: &Snapshot) {
        self.change(pod, other, -1);
    }

    fn boxed_clone(&self) -> Box<dyn CycleFilter> {
        Box::new(self.clone())
    }
}

fn volumes(pod: &PodInfo) -> &[Volume] {
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref());
    volumes.unwrap_or_default()
}

fn is_exclusive_disk(volume: &Volume) -> bool {
    volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.rbd.is_some()
        || volume.iscsi.is_some()
}

fn disks_conflict(pod: &PodInfo, other: &PodInfo) -> bool {
    volumes(pod).iter().any(|volume| {
        is_exclusive_disk(volume) && volumes(other).iter().any(|held| is_same_disk(volume, held))
    })
}

/// Whether both are the same disk, and not both only read it where that is possible.
fn is_same_disk(one: &Volume, other: &Volume) -> bool {
    let both_read =
        |one: Option<bool>, other: Option<bool>| one.unwrap_or(false) && other.unwrap_or(false);
    if let (Some(one), Some(other)) = (&one.gce_persistent_disk, &other.gce_persistent_disk)
        && one.pd_name == other.pd_name
        && !both_read(one.read_only, other.read_only)
    {
        return true;
    }
    if let (Some(one), Some(other)) = (&one.aws_elastic_block_store, &other.aws_elastic_block_store)
        && one.volume_id == other.volume_id
    {
        return true;
    }
    if let (Some(one), Some(other)) = (&one.iscsi, &other.iscsi)
        && one.iqn == other.iqn
        && !both_read(one.read_only, other.read_only)
    {
        return true;
    }
    if let (Some(one), Some(other)) = (&one.rbd, &other.rbd)
        && one
            .monitors
            .iter()
            .any(|monitor| other.monitors.contains(monitor))
        && one.pool == other.pool
        && one.image == other.image
        && !both_read(one.read_only, other.read_only)
    {
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        cycle::Cycle,
        fixtures::{framework as default_framework, node_with, pod},
        framework::Trials,
    };

    fn using(name: &str, volume: &str) -> Arc<PodInfo> {
        pod(
            name,
            &format!(r#"{{"containers":[],"volumes":[{volume}]}}"#),
        )
    }

    fn reasons(snapshot: &Snapshot, pod: &PodInfo) -> Vec<String> {
        let filter = match VolumeRestrictions.pre_filter(pod, snapshot) {
            PreFiltered::By(filter) => filter,
            PreFiltered::Reject(reason) => return vec![reason],
            _ => return Vec::new(),
        };
        let nodes = snapshot.nodes();
        let rejections = nodes.filter_map(|node| filter.filter(pod, node, snapshot));
        rejections.flat_map(|rejection| rejection.reasons).collect()
    }

    #[test]
    fn a_claim_for_one_pod_is_used_by_one() {
        let mut snapshot = Snapshot::default();
        snapshot.set_node(node_with("a", "4"));
        snapshot.set_node(node_with("b", "4"));
        let claim = r#"{"name":"data","persistentVolumeClaim":{"claimName":"data"}}"#;
        let web = using("web", claim);
        assert_eq!(
            reasons(&snapshot, &web),
            ["persistentvolumeclaim \"data\" not found"]
        );
        let text = r#"{"metadata":{"namespace":"default","name":"data","annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"v","accessModes":["ReadWriteOncePod"]}}"#;
        let data = serde_json::from_str(text).expect("a claim");
        snapshot.volumes.set_claim(Arc::new(data));
        let volume = serde_json::from_str(r#"{"metadata":{"name":"v"}}"#).expect("a volume");
        snapshot.volumes.set_volume(Arc::new(volume));
        assert!(reasons(&snapshot, &web).is_empty());
        snapshot.confirm(using("other", claim), "a");
        assert_eq!(reasons(&snapshot, &web), [IN_USE, IN_USE]);
        // Without the other pod the node is feasible, on its node as elsewhere.
        let framework = default_framework(None);
        let cycle = Cycle::begin(&framework, &web, &snapshot).expect("a cycle");
        let mut trial = cycle.try_out(snapshot.node("a").expect("a"));
        assert!(trial.reject().is_some());
        trial.remove_pod(&using("other", claim));
        assert!(trial.reject().is_none());
        drop(trial);
        snapshot.remove_pod("uid-other");
        assert!(reasons(&snapshot, &web).is_empty());
    }

    #[test]
    fn a_disk_is_attached_once_unless_it_is_only_read() {
        let check = |held: &str, wanted: &str, expected: bool| {
            let mut snapshot = Snapshot::default();
            snapshot.set_node(node_with("a", "4"));
            snapshot.confirm(using("held", held), "a");
            let rejected = reasons(&snapshot, &using("web", wanted));
            assert_eq!(rejected.is_empty(), expected, "{held} against {wanted}");
        };
        let disk = r#"{"name":"d","gcePersistentDisk":{"pdName":"x"}}"#;
        let read = r#"{"name":"d","gcePersistentDisk":{"pdName":"x","readOnly":true}}"#;
        check(disk, disk, false);
        check(read, disk, false);
        check(read, read, true);
        check(&disk.replace('x', "y"), disk, true);
        let aws = r#"{"name":"d","awsElasticBlockStore":{"volumeID":"x","readOnly":true}}"#;
        check(aws, aws, false);
    }
}
