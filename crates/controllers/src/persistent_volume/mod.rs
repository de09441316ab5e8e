//! Persistent volumes: binds claims to volumes, asks provisioners for missing ones, and reclaims
//! volumes whose claims are gone. It makes no volumes itself.
//!
//! One queue holds claims (with a namespace) and volumes (without).

pub mod matching;
pub mod plan;

use client::controller::Reconciled;
use client::events::Recorder;
use client::{Index, Informer, ObjectKey, Terms, WorkQueue, retry};
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::PostParams;
use semantics::pod_claim::pod_claims;
use tokio_util::sync::CancellationToken;

use crate::lookup::{self, in_namespace};
use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::{Config, Error, meta};
use plan::{ClaimStep, Notice, Reclaim, VolumeStep};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let volumes = config.informers.of::<PersistentVolume>();
    let claims = config.informers.of::<PersistentVolumeClaim>();
    let classes = config.informers.of::<StorageClass>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let waiting = {
        let unbound = claims.index("unbound", Terms::All(waiting_for));
        move |classes: &[String]| -> Vec<ObjectKey> {
            let unbound = unbound.get_any(classes);
            unbound
                .iter()
                .map(|claim| ObjectKey::of(&**claim))
                .collect()
        }
    };
    let feeds = futures::future::join4(
        enqueue(&claims, &queue, |claim: &PersistentVolumeClaim| {
            let volume = claim
                .spec
                .as_ref()
                .and_then(|spec| spec.volume_name.clone());
            let volume = volume.filter(|name| !name.is_empty());
            let volume = volume.map(|name| ObjectKey::new("", name));
            std::iter::once(ObjectKey::of(claim))
                .chain(volume)
                .collect()
        }),
        enqueue(&volumes, &queue, {
            let waiting = waiting.clone();
            move |volume: &PersistentVolume| {
                let mut keys = own_key(volume);
                match claim_key(volume) {
                    Some(claim) => keys.push(claim),
                    // It may be what a claim of its class waits for.
                    None => {
                        let class = semantics::volume::volume_class(volume).to_owned();
                        keys.extend(waiting(&[class]));
                    }
                }
                keys
            }
        }),
        // Claims without a class wait for a default one.
        enqueue(&classes, &queue, move |class: &StorageClass| {
            let name = class.metadata.name.clone().unwrap_or_default();
            waiting(&[name, String::new()])
        }),
        enqueue(&pods, &queue, {
            let claims = claims.clone();
            move |pod: &Pod| {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                pod_claims(pod)
                    .filter_map(|used| claims.get(namespace, &used.name))
                    .filter(|claim| !is_bound(claim))
                    .map(|claim| ObjectKey::of(&*claim))
                    .collect()
            }
        }),
    );
    let controller = Controller {
        events: config.events("persistentvolume-controller"),
        config,
        usable_volumes: volumes.index("usable", Terms::All(usable_by)),
        pods_using: lookup::by_claim(&pods),
        volumes,
        claims,
        classes,
        pods,
        queue: queue.clone(),
    };
    // One worker: two claims must not choose the same volume.
    watching::run("persistent-volume", 1, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    events: Recorder,
    volumes: Informer<PersistentVolume>,
    claims: Informer<PersistentVolumeClaim>,
    classes: Informer<StorageClass>,
    pods: Informer<Pod>,
    usable_volumes: Index<PersistentVolume>,
    pods_using: Index<Pod>,
    queue: WorkQueue<ObjectKey>,
}

/// The class of which an unbound claim waits for a volume.
fn waiting_for(claim: &PersistentVolumeClaim) -> Vec<String> {
    let class = semantics::volume::claim_class(claim).to_owned();
    Vec::from_iter((!is_bound(claim)).then_some(class))
}

/// A volume is found by the claim it is meant for, otherwise by its class.
fn usable_by(volume: &PersistentVolume) -> Vec<String> {
    vec![match claim_key(volume) {
        Some(claim) => format!("claim\n{claim}"),
        None => format!("class\n{}", semantics::volume::volume_class(volume)),
    }]
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.volumes.synced().await;
        self.claims.synced().await;
        self.classes.synced().await;
        self.pods.synced().await;
        match key.namespace.is_empty() {
            true => self.reconcile_volume(&key.name).await?,
            false => self.reconcile_claim(key).await?,
        }
        Ok(Reconciled::Done)
    }
}

impl Controller {
    async fn reconcile_claim(&self, key: &ObjectKey) -> Result<(), Error> {
        let Some(claim) = self.claims.get(&key.namespace, &key.name) else {
            return Ok(());
        };
        let waiting_pods: Vec<String> = self
            .pods_using
            .get(&in_namespace(&key.namespace, &key.name))
            .into_iter()
            .filter(|pod| meta::node_name(pod).is_empty())
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        let named = claim.spec.as_ref();
        let named = named.and_then(|spec| spec.volume_name.as_deref());
        let volumes = match named.filter(|name| !name.is_empty()) {
            Some(name) => Vec::from_iter(self.volumes.get("", name)),
            None => self.usable_volumes.get_any(&[
                format!("claim\n{key}"),
                format!("class\n{}", semantics::volume::claim_class(&claim)),
            ]),
        };
        let classes = self.classes.list();
        match plan::plan_claim(&claim, &volumes, &classes, &waiting_pods) {
            ClaimStep::Wait(notice) => {
                if let Some(notice) = notice {
                    self.tell_claim(&claim, &notice);
                }
                self.set_claim_phase(&claim, "Pending", None).await?;
            }
            ClaimStep::Lost(notice) => {
                if claim_phase(&claim) != "Lost" {
                    self.set_claim_phase(&claim, "Lost", None).await?;
                    self.tell_claim(&claim, &notice);
                }
            }
            ClaimStep::Bind(volume) => {
                self.bind(&claim, &volume).await?;
                if let Some(notice) = plan::expansion(&claim) {
                    self.tell_claim(&claim, &notice);
                }
            }
            ClaimStep::UseClass(class) => {
                let mut updated = (*claim).clone();
                updated.spec.get_or_insert_default().storage_class_name = Some(class);
                self.replace_claim(&updated).await?;
            }
            ClaimStep::Provision { provisioner } => self.ask(&claim, &provisioner).await?,
        }
        Ok(())
    }

    /// 1. The volume points to the claim. 2. It is Bound. 3. The claim points to the volume.
    /// 4. The claim is Bound. Each step is skipped if done, so any crash in between is mended.
    async fn bind(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), Error> {
        let mut volume = volume.clone();
        let reserved = semantics::volume::is_bound_to(&volume, claim);
        let spec = volume.spec.get_or_insert_default();
        let known = spec
            .claim_ref
            .as_ref()
            .is_some_and(|reference| reference.uid == claim.metadata.uid);
        if !known {
            spec.claim_ref = Some(ObjectReference {
                kind: Some("PersistentVolumeClaim".to_string()),
                api_version: Some("v1".to_string()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
                resource_version: claim.metadata.resource_version.clone(),
                ..ObjectReference::default()
            });
            if !reserved {
                mark(&mut volume.metadata, plan::BOUND_BY_CONTROLLER);
            }
            volume = self.replace_volume(&volume).await?;
        }
        let volume = self.set_volume_phase(&volume, "Bound").await?;
        let mut claim = claim.clone();
        let spec = claim.spec.get_or_insert_default();
        let complete = meta::annotation(&claim.metadata, plan::BIND_COMPLETED).is_some();
        if spec.volume_name != volume.metadata.name {
            spec.volume_name = volume.metadata.name.clone();
            mark(&mut claim.metadata, plan::BOUND_BY_CONTROLLER);
            mark(&mut claim.metadata, plan::BIND_COMPLETED);
            claim = self.replace_claim(&claim).await?;
        } else if !complete {
            mark(&mut claim.metadata, plan::BIND_COMPLETED);
            claim = self.replace_claim(&claim).await?;
        }
        self.set_claim_phase(&claim, "Bound", Some(&volume)).await
    }

    async fn ask(&self, claim: &PersistentVolumeClaim, provisioner: &str) -> Result<(), Error> {
        let asked = meta::annotation(&claim.metadata, plan::PROVISIONER);
        let mut claim = claim.clone();
        if asked != Some(provisioner) {
            let annotations = claim.metadata.annotations.get_or_insert_default();
            for name in [plan::PROVISIONER, plan::BETA_PROVISIONER] {
                annotations.insert(name.to_string(), provisioner.to_string());
            }
            claim = self.replace_claim(&claim).await?;
        }
        let notice = Notice {
            warning: false,
            reason: "ExternalProvisioning",
            message: format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            ),
        };
        self.tell_claim(&claim, &notice);
        Ok(())
    }

    async fn reconcile_volume(&self, name: &str) -> Result<(), Error> {
        let Some(volume) = self.volumes.get("", name) else {
            return Ok(());
        };
        let key = claim_key(&volume);
        let mut claim = key
            .as_ref()
            .and_then(|key| self.claims.get(&key.namespace, &key.name))
            .map(|claim| (*claim).clone());
        let step = plan::plan_volume(&volume, claim.as_ref());
        let step = match (step, &key) {
            // Data may hang on it: the API has the last word on whether the claim is gone.
            (VolumeStep::Release(_), Some(key)) => {
                let claims: Api<PersistentVolumeClaim> =
                    Api::namespaced(self.config.client.clone(), &key.namespace);
                claim = claims.get_opt(&key.name).await?;
                plan::plan_volume(&volume, claim.as_ref())
            }
            (step, _) => step,
        };
        match step {
            VolumeStep::Phase(phase) => {
                self.set_volume_phase(&volume, phase).await?;
            }
            VolumeStep::PokeClaim => self.queue.add(key.unwrap_or_default()),
            VolumeStep::Mismatch { claim: named } => {
                let message = format!(
                    "Cannot bind PersistentVolume to requested PersistentVolumeClaim {named:?} due to incompatible volumeMode."
                );
                self.events.warning(&*volume, "VolumeMismatch", message);
                if let Some(claim) = &claim {
                    let message = format!(
                        "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
                    );
                    self.events.warning(claim, "VolumeMismatch", message);
                }
            }
            VolumeStep::Release(reclaim) => self.release(&volume, reclaim).await?,
            VolumeStep::Unbind => self.unbind(&volume).await?,
        }
        Ok(())
    }

    async fn release(&self, volume: &PersistentVolume, reclaim: Reclaim) -> Result<(), Error> {
        if volume_phase(volume) == "Failed" {
            return Ok(());
        }
        match reclaim {
            Reclaim::Retain | Reclaim::ByProvisioner => {
                self.set_volume_phase(volume, "Released").await?;
            }
            Reclaim::Fail { reason, message } => {
                let mut failed = volume.clone();
                failed.status.get_or_insert_default().message = Some(message.clone());
                self.set_volume_phase(&failed, "Failed").await?;
                self.events.warning(volume, reason, message);
            }
        }
        Ok(())
    }

    /// The volume is free again; a claim it was reserved for by a user stays reserved.
    async fn unbind(&self, volume: &PersistentVolume) -> Result<(), Error> {
        let mut updated = volume.clone();
        let spec = updated.spec.get_or_insert_default();
        match meta::annotation(&volume.metadata, plan::BOUND_BY_CONTROLLER) {
            Some(_) => {
                spec.claim_ref = None;
                if let Some(annotations) = &mut updated.metadata.annotations {
                    annotations.remove(plan::BOUND_BY_CONTROLLER);
                }
            }
            None => {
                if let Some(reference) = &mut spec.claim_ref {
                    reference.uid = None;
                }
            }
        }
        let updated = self.replace_volume(&updated).await?;
        self.set_volume_phase(&updated, "Available").await?;
        Ok(())
    }

    fn tell_claim(&self, claim: &PersistentVolumeClaim, notice: &Notice) {
        let message = notice.message.clone();
        match notice.warning {
            true => self.events.warning(claim, notice.reason, message),
            false => self.events.normal(claim, notice.reason, message),
        }
    }

    async fn set_claim_phase(
        &self,
        claim: &PersistentVolumeClaim,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<(), Error> {
        let before = claim.status.clone().unwrap_or_default();
        let mut status = PersistentVolumeClaimStatus {
            phase: Some(phase.to_string()),
            ..before.clone()
        };
        match volume.and_then(|volume| volume.spec.as_ref()) {
            None => {
                status.access_modes = None;
                status.capacity = None;
                status.current_volume_attributes_class_name = None;
            }
            Some(spec) => {
                status.access_modes = spec.access_modes.clone();
                if before.phase.as_deref() != Some(phase) {
                    status.capacity = spec.capacity.clone();
                    status.current_volume_attributes_class_name =
                        spec.volume_attributes_class_name.clone();
                }
            }
        }
        if status == before {
            return Ok(());
        }
        let mut updated = claim.clone();
        updated.status = Some(status);
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.config.client.clone(), namespace);
        match claims
            .replace_status(name, &PostParams::default(), &updated)
            .await
        {
            Err(error) if !retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn set_volume_phase(
        &self,
        volume: &PersistentVolume,
        phase: &str,
    ) -> Result<PersistentVolume, Error> {
        if volume_phase(volume) == phase {
            return Ok(volume.clone());
        }
        let mut updated = volume.clone();
        let status = updated.status.get_or_insert_default();
        status.phase = Some(phase.to_string());
        if phase != "Failed" {
            status.message = None;
        }
        let volumes: Api<PersistentVolume> = Api::all(self.config.client.clone());
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let written = volumes
            .replace_status(name, &PostParams::default(), &updated)
            .await?;
        Ok(written)
    }

    async fn replace_volume(&self, volume: &PersistentVolume) -> Result<PersistentVolume, Error> {
        let volumes: Api<PersistentVolume> = Api::all(self.config.client.clone());
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        Ok(volumes
            .replace(name, &PostParams::default(), volume)
            .await?)
    }

    async fn replace_claim(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<PersistentVolumeClaim, Error> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.config.client.clone(), namespace);
        Ok(claims.replace(name, &PostParams::default(), claim).await?)
    }
}

fn mark(
    metadata: &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    annotation: &str,
) {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(annotation.to_string(), "yes".to_string());
}

fn claim_key(volume: &PersistentVolume) -> Option<ObjectKey> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ObjectKey::new(
        reference.namespace.clone()?,
        reference.name.clone()?,
    ))
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim_phase(claim) == "Bound"
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    let status = claim.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn volume_phase(volume: &PersistentVolume) -> &str {
    let status = volume.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}
