//! VolumeAttributesClass protection: a class that claims or volumes have is not removed.

mod plan;

use client::controller::Reconciled;
use client::{ObjectKey, Terms, WorkQueue};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::Api;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue, own_key};
use crate::{Config, finalizers};
use plan::{of_claim, of_volume};

const FINALIZER: &str = "kubernetes.io/vac-protection";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let classes = config.informers.of::<VolumeAttributesClass>();
    let claims = config.informers.of::<PersistentVolumeClaim>();
    let volumes = config.informers.of::<PersistentVolume>();
    let queue = WorkQueue::new();
    let keys = |names: Vec<String>| -> Vec<ObjectKey> {
        names
            .into_iter()
            .map(|name| ObjectKey::new("", name))
            .collect()
    };
    let feeds = futures::future::join3(
        enqueue(&classes, &queue, own_key),
        enqueue(&claims, &queue, move |claim: &PersistentVolumeClaim| {
            keys(of_claim(claim))
        }),
        enqueue(&volumes, &queue, move |volume: &PersistentVolume| {
            keys(of_volume(volume))
        }),
    );
    let claims_of = claims.index("attributes-class", Terms::All(of_claim));
    let volumes_of = volumes.index("attributes-class", Terms::All(of_volume));
    let reconcile = move |key: ObjectKey| {
        let (classes, claims, volumes) = (classes.clone(), claims.clone(), volumes.clone());
        let (claims_of, volumes_of) = (claims_of.clone(), volumes_of.clone());
        let api: Api<VolumeAttributesClass> = Api::all(config.client.clone());
        async move {
            claims.synced().await;
            volumes.synced().await;
            let Some(class) = classes.get("", &key.name) else {
                return Ok(Reconciled::Done);
            };
            let in_use = claims_of.count(&key.name) > 0 || volumes_of.count(&key.name) > 0;
            let step = finalizers::step(&*class, FINALIZER, in_use);
            finalizers::carry_out(&api, &*class, FINALIZER, step).await?;
            Ok(Reconciled::Done)
        }
    };
    watching::run("vac-protection", 1, queue, feeds, reconcile, shutdown).await;
}
