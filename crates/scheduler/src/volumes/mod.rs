//! Claims, volumes and storage classes as the scheduler knows them, and what it has reserved of
//! them for pods on their way to a node. Pure; the rules of matching are in [`matching`].

pub mod matching;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use client::ObjectKey;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass},
};
use semantics::volume;

/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Names the node for which a claim's volume is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

#[derive(Default)]
pub struct Volumes {
    claims: BTreeMap<ObjectKey, Arc<PersistentVolumeClaim>>,
    volumes: BTreeMap<String, Arc<PersistentVolume>>,
    classes: BTreeMap<String, Arc<StorageClass>>,
    csi_nodes: BTreeMap<String, Arc<CSINode>>,
    /// The drivers that say how much room they have.
    limited_drivers: BTreeSet<String>,
    capacities: BTreeMap<ObjectKey, Arc<CSIStorageCapacity>>,
    /// By the uid of the pod for which it is.
    reserved: BTreeMap<String, Reservation>,
}

/// The volumes that a pod's unbound claims get on the node chosen for it.
#[derive(Clone, Debug, Default)]
pub struct Reservation {
    pub node: String,
    /// Claims that get a volume which exists.
    pub bindings: Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    /// Claims for which one is to be made.
    pub provisions: Vec<Arc<PersistentVolumeClaim>>,
}

impl Volumes {
    pub fn set_claim(&mut self, claim: Arc<PersistentVolumeClaim>) {
        self.claims.insert(ObjectKey::of(claim.as_ref()), claim);
    }

    pub fn remove_claim(&mut self, claim: &PersistentVolumeClaim) {
        self.claims.remove(&ObjectKey::of(claim));
    }

    pub fn set_volume(&mut self, volume: Arc<PersistentVolume>) {
        let name = volume.metadata.name.clone().unwrap_or_default();
        self.volumes.insert(name, volume);
    }

    pub fn remove_volume(&mut self, volume: &PersistentVolume) {
        self.volumes
            .remove(volume.metadata.name.as_deref().unwrap_or_default());
    }

    pub fn set_class(&mut self, class: Arc<StorageClass>) {
        let name = class.metadata.name.clone().unwrap_or_default();
        self.classes.insert(name, class);
    }

    pub fn remove_class(&mut self, class: &StorageClass) {
        self.classes
            .remove(class.metadata.name.as_deref().unwrap_or_default());
    }

    pub fn set_csi_node(&mut self, node: Arc<CSINode>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        self.csi_nodes.insert(name, node);
    }

    pub fn remove_csi_node(&mut self, node: &CSINode) {
        self.csi_nodes
            .remove(node.metadata.name.as_deref().unwrap_or_default());
    }

    pub fn set_driver(&mut self, driver: &CSIDriver) {
        let name = driver.metadata.name.clone().unwrap_or_default();
        match driver.spec.storage_capacity {
            Some(true) => self.limited_drivers.insert(name),
            _ => self.limited_drivers.remove(&name),
        };
    }

    pub fn remove_driver(&mut self, driver: &CSIDriver) {
        let name = driver.metadata.name.as_deref().unwrap_or_default();
        self.limited_drivers.remove(name);
    }

    pub fn set_capacity(&mut self, capacity: Arc<CSIStorageCapacity>) {
        let key = ObjectKey::of(capacity.as_ref());
        self.capacities.insert(key, capacity);
    }

    pub fn remove_capacity(&mut self, capacity: &CSIStorageCapacity) {
        self.capacities.remove(&ObjectKey::of(capacity));
    }

    /// The storage capacity that the class's driver reports; `None` if it reports none and has
    /// enough.
    pub fn room(&self, class: &StorageClass) -> Option<Vec<Arc<CSIStorageCapacity>>> {
        if !self.limited_drivers.contains(&class.provisioner) {
            return None;
        }
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let capacities = self.capacities.values();
        let of_class = capacities.filter(|capacity| capacity.storage_class_name == name);
        Some(of_class.cloned().collect())
    }

    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        self.claims.get(&ObjectKey::new(namespace, name))
    }

    pub fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.get(name)
    }

    pub fn volumes(&self) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.volumes.values()
    }

    pub fn class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.classes.get(name)
    }

    pub fn csi_node(&self, name: &str) -> Option<&Arc<CSINode>> {
        self.csi_nodes.get(name)
    }

    pub fn reserve(&mut self, uid: &str, reservation: Reservation) {
        self.reserved.insert(uid.to_owned(), reservation);
    }

    pub fn release(&mut self, uid: &str) {
        self.reserved.remove(uid);
    }

    pub fn reservation(&self, uid: &str) -> Option<&Reservation> {
        self.reserved.get(uid)
    }

    /// The node for which the claim's volume is made, written already or about to be.
    pub fn selected_node(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let annotations = claim.metadata.annotations.as_ref();
        if let Some(node) = annotations.and_then(|all| all.get(SELECTED_NODE)) {
            return Some(node.clone());
        }
        let about_to_be = self.reserved.values().find(|reservation| {
            let mut provisions = reservation.provisions.iter();
            provisions.any(|other| is_same(other, claim))
        });
        about_to_be.map(|reservation| reservation.node.clone())
    }

    /// The volumes that the claim may get, wherever they can be used: the one that is meant for it
    /// alone, otherwise all that are free, the smallest first.
    pub fn candidates(&self, claim: &PersistentVolumeClaim) -> Vec<Arc<PersistentVolume>> {
        let mut about_to_be = BTreeMap::new();
        for reservation in self.reserved.values() {
            for (other, volume) in &reservation.bindings {
                let name = volume.metadata.name.as_deref().unwrap_or_default();
                about_to_be.insert(name, other);
            }
        }
        let suitable = self.volumes.values().filter(|volume| {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let taken = about_to_be
                .get(name)
                .is_some_and(|other| !is_same(other, claim));
            !taken && matching::suits(volume, claim)
        });
        let mut free = Vec::new();
        for volume in suitable {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            if about_to_be.contains_key(name) || volume::is_bound_to(volume, claim) {
                return vec![volume.clone()];
            }
            if matching::is_free_for(volume, claim) {
                free.push(volume.clone());
            }
        }
        free.sort_by_key(|volume| volume::capacity(volume));
        free
    }
}

pub fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    volume_name(claim).is_some() && annotations.is_some_and(|all| all.contains_key(BIND_COMPLETED))
}

/// The volume to which a claim is bound or wants to be.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

/// Whether claims of the class get their volume only when a pod uses them.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Whether volumes of the class are made on demand.
pub fn provisions(class: &StorageClass) -> bool {
    !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER
}

fn is_same(one: &PersistentVolumeClaim, other: &PersistentVolumeClaim) -> bool {
    one.metadata.name == other.metadata.name
        && one.metadata.namespace == other.metadata.namespace
        && one.metadata.uid == other.metadata.uid
}
