//! PV protection: a volume that a claim is bound to is not removed under it.

mod plan;

use client::controller::Reconciled;
use client::{ObjectKey, WorkQueue};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue, own_key};
use crate::{Config, finalizers};

const FINALIZER: &str = "kubernetes.io/pv-protection";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let volumes = config.informers.of::<PersistentVolume>();
    let queue = WorkQueue::new();
    let feed = enqueue(&volumes, &queue, own_key);
    let reconcile = move |key: ObjectKey| {
        let volume = volumes.get("", &key.name);
        let api: Api<PersistentVolume> = Api::all(config.client.clone());
        async move {
            if let Some(volume) = volume {
                let step = finalizers::step(&*volume, FINALIZER, plan::is_in_use(&volume));
                finalizers::carry_out(&api, &*volume, FINALIZER, step).await?;
            }
            Ok(Reconciled::Done)
        }
    };
    watching::run("pv-protection", 1, queue, feed, reconcile, shutdown).await;
}
