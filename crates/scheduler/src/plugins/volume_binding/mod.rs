//! A pod goes where its volumes are or can be made. Claims that wait for their first consumer get
//! their volume, or the node for which it is to be made, with the decision; [`binder`] writes it.

pub mod binder;

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIStorageCapacity, StorageClass},
};
use semantics::{
    owner::is_controlled_by,
    pod_claim::PodClaim,
    volume::{claim_class, is_usable_on, request},
};

use crate::{
    NodeInfo, PodInfo, Snapshot,
    framework::{
        ClusterEvent, CycleFilter, Plugin, Points, PreBind, PreFilter, PreFiltered, Rejection,
        Reserve,
    },
    volumes::{
        Reservation, Volumes, is_fully_bound,
        matching::{has_room, is_allowed_on},
        provisions, volume_name, waits_for_consumer,
    },
};

pub const NAME: &str = "VolumeBinding";
const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";
const WRONG_NODE: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";
const NO_ROOM: &str = "node(s) did not have enough free storage";
const VOLUME_MISSING: &str =
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// Without a binder, decisions are not carried out.
#[derive(Default)]
pub struct VolumeBinding {
    pub binder: Option<binder::VolumeBinder>,
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(self: Arc<Self>) -> Points {
        let binder = self.binder.clone();
        Points {
            pre_filter: Some(self.clone()),
            reserve: Some(self),
            pre_bind: binder.map(|binder| Arc::new(binder) as Arc<dyn PreBind>),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            ClusterEvent::Claim(claim) => pod.uses_claim(claim),
            ClusterEvent::Volume(_) | ClusterEvent::NodeAdded(_) | ClusterEvent::StorageRoom => {
                true
            }
            ClusterEvent::NodeChanged { old, new } => {
                let new = new
                    .node
                    .as_ref()
                    .and_then(|new| new.metadata.labels.as_ref());
                old.metadata.labels.as_ref() != new
            }
            ClusterEvent::StorageClass { old, new } => {
                old.is_none_or(|old| old.allowed_topologies != new.allowed_topologies)
            }
            _ => false,
        }
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(&self, pod: &PodInfo, snapshot: &Snapshot) -> PreFiltered {
        if pod.claims.is_empty() {
            return PreFiltered::Any;
        }
        match PodVolumes::of(pod, &snapshot.volumes) {
            Ok(volumes) => PreFiltered::By(Box::new(volumes)),
            Err(reason) => PreFiltered::Reject(reason),
        }
    }
}

impl Reserve for VolumeBinding {
    fn reserve(&self, pod: &Arc<PodInfo>, node: &str, snapshot: &mut Snapshot) {
        if pod.claims.is_empty() {
            return;
        }
        let found = PodVolumes::of(pod, &snapshot.volumes).ok();
        let node = snapshot.node(node).and_then(|info| info.node.clone());
        let found = found
            .zip(node)
            .and_then(|(volumes, node)| volumes.on(&node).ok());
        if let Some(reservation) = found
            && !(reservation.bindings.is_empty() && reservation.provisions.is_empty())
        {
            snapshot.volumes.reserve(&pod.uid, reservation);
        }
    }

    fn unreserve(&self, pod: &PodInfo, snapshot: &mut Snapshot) {
        snapshot.volumes.release(&pod.uid);
    }
}

/// The claims of a pod, read before nodes are looked at.
#[derive(Clone)]
struct PodVolumes {
    /// `None` if the volume does not exist any more.
    bound: Vec<Option<Arc<PersistentVolume>>>,
    /// The smallest first, so that large volumes stay for large claims.
    unbound: Vec<Unbound>,
}

#[derive(Clone)]
struct Unbound {
    claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
    selected_node: Option<String>,
    /// Where a volume can be made; none if that is everywhere.
    room: Option<Vec<Arc<CSIStorageCapacity>>>,
    candidates: Vec<Arc<PersistentVolume>>,
}

impl PodVolumes {
    fn of(pod: &PodInfo, volumes: &Volumes) -> Result<PodVolumes, String> {
        let claims = pod
            .claims
            .iter()
            .map(|wanted| claim_of(pod, wanted, volumes));
        let claims = claims.collect::<Result<Vec<_>, _>>()?;
        let mut found = PodVolumes {
            bound: Vec::new(),
            unbound: Vec::new(),
        };
        for claim in claims {
            let named = volume_name(claim);
            if is_fully_bound(claim) {
                let volume = named.and_then(|name| volumes.volume(name));
                found.bound.push(volume.cloned());
                continue;
            }
            let class = volumes.class(claim_class(claim));
            let class = class.filter(|class| waits_for_consumer(class) && named.is_none());
            let Some(class) = class else {
                return Err(UNBOUND.to_owned());
            };
            let selected_node = volumes.selected_node(claim);
            let candidates = match &selected_node {
                Some(_) => Vec::new(),
                None => volumes.candidates(claim),
            };
            found.unbound.push(Unbound {
                room: volumes.room(class),
                claim: claim.clone(),
                class: class.clone(),
                selected_node,
                candidates,
            });
        }
        found.unbound.sort_by_key(|unbound| request(&unbound.claim));
        Ok(found)
    }

    /// The volumes that the claims would get on the node, or why the node is rejected.
    fn on(&self, node: &Node) -> Result<Reservation, Vec<String>> {
        let mut reasons = Vec::new();
        let usable = |volume: &Arc<PersistentVolume>| is_usable_on(volume, node);
        if !self.bound.iter().flatten().all(usable) {
            reasons.push(WRONG_NODE.to_owned());
        }
        let reservation = self.place_unbound(node).map_err(|reason| {
            reasons.push(reason.to_owned());
        });
        if self.bound.iter().any(Option::is_none) {
            reasons.push(VOLUME_MISSING.to_owned());
        }
        match reservation {
            Ok(reservation) if reasons.is_empty() => Ok(reservation),
            _ => Err(reasons),
        }
    }

    fn place_unbound(&self, node: &Node) -> Result<Reservation, &'static str> {
        let name = node.metadata.name.clone().unwrap_or_default();
        let mut reservation = Reservation {
            node: name.clone(),
            ..Reservation::default()
        };
        for unbound in &self.unbound {
            let elsewhere = unbound.selected_node.as_ref();
            if elsewhere.is_some_and(|selected| *selected != name) {
                return Err(NONE_TO_BIND);
            }
            let mut candidates = unbound.candidates.iter();
            let volume = candidates.find(|volume| {
                let chosen = |(_, chosen): &(_, Arc<PersistentVolume>)| {
                    chosen.metadata.name == volume.metadata.name
                };
                is_usable_on(volume, node) && !reservation.bindings.iter().any(chosen)
            });
            match volume {
                Some(volume) => reservation
                    .bindings
                    .push((unbound.claim.clone(), volume.clone())),
                None if !provisions(&unbound.class) || !is_allowed_on(&unbound.class, node) => {
                    return Err(NONE_TO_BIND);
                }
                None => {
                    let has_room = |capacity: &Arc<CSIStorageCapacity>| {
                        has_room(capacity, &unbound.claim, node)
                    };
                    let room = unbound.room.as_ref();
                    if room.is_some_and(|room| !room.iter().any(has_room)) {
                        return Err(NO_ROOM);
                    }
                    reservation.provisions.push(unbound.claim.clone());
                }
            }
        }
        Ok(reservation)
    }
}

impl CycleFilter for PodVolumes {
    fn filter(&self, _: &PodInfo, node: &NodeInfo, _: &Snapshot) -> Option<Rejection> {
        let reasons = self.on(node.node.as_ref()?).err()?;
        Some(Rejection {
            reasons,
            resolvable: false,
        })
    }

    fn boxed_clone(&self) -> Box<dyn CycleFilter> {
        Box::new(self.clone())
    }
}

/// The claim behind a pod's volume, if pods may use it.
fn claim_of<'a>(
    pod: &PodInfo,
    wanted: &PodClaim,
    volumes: &'a Volumes,
) -> Result<&'a Arc<PersistentVolumeClaim>, String> {
    let name = &wanted.name;
    let namespace = &pod.key.namespace;
    let Some(claim) = volumes.claim(namespace, name) else {
        return Err(match wanted.is_ephemeral {
            true => format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
            ),
            false => format!("persistentvolumeclaim {name:?} not found"),
        });
    };
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if phase == Some("Lost") {
        let volume = volume_name(claim).unwrap_or_default();
        return Err(format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
        ));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    if wanted.is_ephemeral && !is_controlled_by(&claim.metadata, &pod.uid) {
        return Err(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
            pod.key.name
        ));
    }
    Ok(claim)
}

#[cfg(test)]
mod tests;
