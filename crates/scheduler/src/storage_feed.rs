//! The objects that the scheduler watches besides pods and nodes: claims, volumes, storage classes,
//! CSI nodes, CSI drivers with the room they have, and the labels of namespaces, as one stream.

use std::sync::Arc;

use client::{Change, Informers, Metadata, Subscription};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass},
};

pub(crate) struct StorageFeed {
    claims: Subscription<PersistentVolumeClaim>,
    volumes: Subscription<PersistentVolume>,
    classes: Subscription<StorageClass>,
    csi_nodes: Subscription<CSINode>,
    namespaces: Subscription<Metadata>,
    drivers: Subscription<CSIDriver>,
    capacities: Subscription<CSIStorageCapacity>,
    /// How many of these have been listed.
    listed: [bool; 7],
}

pub(crate) enum Followed {
    Claim(Change<PersistentVolumeClaim>),
    Volume(Change<PersistentVolume>),
    Class(Change<StorageClass>),
    CsiNode(Change<CSINode>),
    Namespace(Change<Metadata>),
    Driver(Change<CSIDriver>),
    Capacity(Change<CSIStorageCapacity>),
}

impl StorageFeed {
    pub(crate) fn new(informers: &Informers) -> StorageFeed {
        StorageFeed {
            claims: informers.of().subscribe(),
            volumes: informers.of().subscribe(),
            classes: informers.of().subscribe(),
            csi_nodes: informers.of().subscribe(),
            namespaces: informers.metadata_at("/api/v1/namespaces").subscribe(),
            drivers: informers.of().subscribe(),
            capacities: informers.of().subscribe(),
            listed: [false; 7],
        }
    }

    /// Whether every kind has been listed, so that what is missing does not exist.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    /// The next change; dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Followed {
        let followed = tokio::select! {
            biased;
            change = self.classes.next() => Followed::Class(change),
            change = self.claims.next() => Followed::Claim(change),
            change = self.volumes.next() => Followed::Volume(change),
            change = self.csi_nodes.next() => Followed::CsiNode(change),
            change = self.namespaces.next() => Followed::Namespace(change),
            change = self.drivers.next() => Followed::Driver(change),
            change = self.capacities.next() => Followed::Capacity(change),
        };
        let listed = match &followed {
            Followed::Claim(Change::Resynced) => Some(0),
            Followed::Volume(Change::Resynced) => Some(1),
            Followed::Class(Change::Resynced) => Some(2),
            Followed::CsiNode(Change::Resynced) => Some(3),
            Followed::Namespace(Change::Resynced) => Some(4),
            Followed::Driver(Change::Resynced) => Some(5),
            Followed::Capacity(Change::Resynced) => Some(6),
            _ => None,
        };
        if let Some(index) = listed {
            self.listed[index] = true;
        }
        followed
    }
}

/// An object before and after a change.
pub(crate) fn sides<K>(change: Change<K>) -> (Option<Arc<K>>, Option<Arc<K>>) {
    match change {
        Change::Added(new) => (None, Some(new)),
        Change::Modified { old, new } => (Some(old), Some(new)),
        Change::Deleted(old) => (Some(old), None),
        Change::Resynced => (None, None),
    }
}
