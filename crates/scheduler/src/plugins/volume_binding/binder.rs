//! Writes what was decided about a pod's claims and waits until they are bound.

use std::{pin::pin, sync::Arc, time::Duration};

use client::Informer;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use semantics::volume::{is_bound_to, is_usable_on};
use serde_json::json;
use tokio::{sync::Notify, time::timeout};

use super::NAME;
use crate::{
    PodInfo, Snapshot,
    framework::{Plugin, Points, PreBind, PreBindError, Preparation},
    volumes::{Reservation, SELECTED_NODE, is_fully_bound, volume_name},
};

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const ATTEMPTS: usize = 5;

#[derive(Clone)]
pub struct VolumeBinder {
    pub client: kube::Client,
    pub pods: Informer<Pod>,
    pub nodes: Informer<Node>,
    pub claims: Informer<PersistentVolumeClaim>,
    pub volumes: Informer<PersistentVolume>,
    /// Fires when one of the above has changed.
    pub changed: Arc<Notify>,
    /// How long volumes are waited for.
    pub patience: Duration,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{}", client::retry::sentence(.0))]
    Api(kube::Error),
    #[error("binding volumes: {0}")]
    Lost(String),
    #[error("binding volumes: context deadline exceeded")]
    TimedOut,
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Error {
        Error::Api(error)
    }
}

impl Plugin for VolumeBinder {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(self: Arc<Self>) -> Points {
        Points::default()
    }
}

impl PreBind for VolumeBinder {
    fn pre_bind(&self, pod: &Arc<PodInfo>, _: &str, snapshot: &Snapshot) -> Option<Preparation> {
        let reservation = snapshot.volumes.reservation(&pod.uid)?.clone();
        let (binder, pod) = (self.clone(), pod.clone());
        Some(Box::pin(async move {
            let bound = binder.bind(&pod, reservation).await;
            bound.map_err(|error| PreBindError {
                plugin: NAME,
                message: error.to_string(),
            })
        }))
    }
}

impl VolumeBinder {
    pub fn with_patience(self, patience: Duration) -> VolumeBinder {
        VolumeBinder { patience, ..self }
    }

    async fn bind(&self, pod: &PodInfo, mut reservation: Reservation) -> Result<(), Error> {
        let node = reservation.node.clone();
        for (claim, volume) in &mut reservation.bindings {
            *volume = Arc::new(self.give(volume, claim).await?);
        }
        for claim in &mut reservation.provisions {
            *claim = Arc::new(self.select_node(claim, &node).await?);
        }
        match timeout(self.patience, self.all_bound(pod, &reservation)).await {
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut),
        }
    }

    /// Writes into the volume that it is for the claim.
    async fn give(
        &self,
        volume: &PersistentVolume,
        claim: &PersistentVolumeClaim,
    ) -> Result<PersistentVolume, Error> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        let mut current = volume.clone();
        for attempt in 0.. {
            let spec = current.spec.as_ref();
            let reference = spec.and_then(|spec| spec.claim_ref.as_ref());
            if reference.is_some_and(|reference| reference.uid == claim.metadata.uid) {
                break;
            }
            if reference.is_some() && !is_bound_to(&current, claim) {
                let name = volume.name_any();
                let message = format!("volume {name:?} was given to another claim");
                return Err(Error::Lost(message));
            }
            let annotations = match reference {
                Some(_) => json!({}),
                None => json!({ BOUND_BY_CONTROLLER: "yes" }),
            };
            let patch = json!({
                "metadata": {
                    "uid": current.metadata.uid,
                    "resourceVersion": current.metadata.resource_version,
                    "annotations": annotations,
                },
                "spec": { "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": claim.metadata.namespace,
                    "name": claim.metadata.name,
                    "uid": claim.metadata.uid,
                    "resourceVersion": claim.metadata.resource_version,
                } },
            });
            let (name, parameters) = (volume.name_any(), PatchParams::default());
            match api.patch(&name, &parameters, &Patch::Merge(patch)).await {
                Ok(written) => return Ok(written),
                Err(error) if attempt + 1 < ATTEMPTS && client::retry::is_conflict(&error) => {
                    current = api.get(&name).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(current)
    }

    /// Writes into the claim for which node its volume is to be made.
    async fn select_node(
        &self,
        claim: &PersistentVolumeClaim,
        node: &str,
    ) -> Result<PersistentVolumeClaim, Error> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let name = claim.name_any();
        let mut current = claim.clone();
        for attempt in 0.. {
            match selected_node(&current) {
                Some(selected) if selected == node => break,
                Some(selected) => {
                    let message = format!("PVC {name:?} was given to node {selected:?}");
                    return Err(Error::Lost(message));
                }
                None => {}
            }
            let patch = json!({ "metadata": {
                "uid": current.metadata.uid,
                "resourceVersion": current.metadata.resource_version,
                "annotations": { SELECTED_NODE: node },
            } });
            let parameters = PatchParams::default();
            match api.patch(&name, &parameters, &Patch::Merge(patch)).await {
                Ok(written) => return Ok(written),
                Err(error) if attempt + 1 < ATTEMPTS && client::retry::is_conflict(&error) => {
                    current = api.get(&name).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(current)
    }

    async fn all_bound(&self, pod: &PodInfo, reservation: &Reservation) -> Result<(), Error> {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Enabled before looking, so that a change in between wakes us.
            changed.as_mut().enable();
            if self.are_bound(pod, reservation).map_err(Error::Lost)? {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Whether the claims are bound by now, or why they will not be.
    fn are_bound(&self, pod: &PodInfo, reservation: &Reservation) -> Result<bool, String> {
        let node = &reservation.node;
        let Some(node) = self.nodes.get("", node) else {
            return Err(format!(
                "failed to get node {node:?}: node {node:?} not found"
            ));
        };
        let (namespace, name) = (&pod.key.namespace, &pod.key.name);
        let alive = self
            .pods
            .get(namespace, name)
            .is_some_and(|current| current.metadata.uid.as_deref() == Some(&pod.uid));
        if !alive {
            return Err(format!(
                "pod does not exist any more: pod {name:?} not found"
            ));
        }
        let fits = |volume: &PersistentVolume| match is_usable_on(volume, &node) {
            true => Ok(()),
            false => Err(format!(
                "pv {:?} node affinity doesn't match node {:?}: no matching NodeSelectorTerms",
                volume.name_any(),
                node.name_any()
            )),
        };
        let current_of = |claim: &PersistentVolumeClaim| {
            let name = claim.name_any();
            let current = self.claims.get(namespace, &name);
            current.ok_or_else(|| {
                format!("failed to check binding: persistentvolumeclaim {name:?} not found")
            })
        };
        for (claim, written) in &reservation.bindings {
            let name = written.name_any();
            let Some(volume) = self.volumes.get("", &name) else {
                return Err(format!(
                    "failed to check binding: persistentvolume {name:?} not found"
                ));
            };
            let claim = current_of(claim)?;
            if version(&volume.metadata) < version(&written.metadata) {
                return Ok(false);
            }
            fits(&volume)?;
            let reference = volume
                .spec
                .as_ref()
                .and_then(|spec| spec.claim_ref.as_ref());
            if reference
                .and_then(|r| r.uid.as_deref())
                .is_none_or(str::is_empty)
            {
                return Err(format!("ClaimRef got reset for pv {name:?}"));
            }
            if !is_fully_bound(&claim) {
                return Ok(false);
            }
        }
        for written in &reservation.provisions {
            let claim = current_of(written)?;
            if version(&claim.metadata) < version(&written.metadata) {
                return Ok(false);
            }
            let name = claim.name_any();
            match selected_node(&claim) {
                None => return Err(format!("selectedNode annotation reset for PVC {name:?}")),
                Some(selected) if selected != reservation.node => {
                    return Err(format!("provisioning failed for PVC {name:?}"));
                }
                Some(_) => {}
            }
            if let Some(name) = volume_name(&claim) {
                match self.volumes.get("", name) {
                    Some(volume) => fits(&volume)?,
                    None => return Ok(false),
                }
            }
            if !is_fully_bound(&claim) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    annotations.get(SELECTED_NODE).map(String::as_str)
}

fn version(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_deref().unwrap_or_default();
    version.parse().unwrap_or(0)
}
