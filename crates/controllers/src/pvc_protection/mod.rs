//! PVC protection: a claim that a pod uses is not removed under it.

mod plan;

use client::controller::Reconciled;
use client::{Index, Informer, ObjectKey, WorkQueue};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::ListParams;
use semantics::pod_claim::pod_claims;
use tokio_util::sync::CancellationToken;

use crate::finalizers::Step;
use crate::lookup::{self, in_namespace};
use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error, finalizers};
use plan::uses;

const FINALIZER: &str = "kubernetes.io/pvc-protection";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let claims = config.informers.of::<PersistentVolumeClaim>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&claims, &queue, own_key),
        enqueue(&pods, &queue, |pod: &Pod| {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            pod_claims(pod)
                .map(|claim| ObjectKey::new(namespace.clone(), claim.name))
                .collect()
        }),
    );
    let users = lookup::by_claim(&pods);
    let reconcile = move |key: ObjectKey| {
        let (config, claims) = (config.clone(), claims.clone());
        let (pods, users) = (pods.clone(), users.clone());
        async move {
            pods.synced().await;
            reconcile(&config, &claims, &users, &key).await
        }
    };
    watching::run("pvc-protection", 2, queue, feeds, reconcile, shutdown).await;
}

async fn reconcile(
    config: &Config,
    claims: &Informer<PersistentVolumeClaim>,
    users: &Index<Pod>,
    key: &ObjectKey,
) -> Result<Reconciled, Error> {
    let Some(claim) = claims.get(&key.namespace, &key.name) else {
        return Ok(Reconciled::Done);
    };
    let cached = users.get(&in_namespace(&key.namespace, &key.name));
    let in_use = cached.iter().any(|pod| uses(pod, &claim));
    let mut step = finalizers::step(&*claim, FINALIZER, in_use);
    if step == Step::Remove {
        // A pod that our cache does not show yet may use it: ask.
        let pods: Api<Pod> = Api::namespaced(config.client.clone(), &key.namespace);
        let live = pods.list(&ListParams::default()).await?;
        if live.items.iter().any(|pod| uses(pod, &claim)) {
            step = Step::Keep;
        }
    }
    let api: Api<PersistentVolumeClaim> = Api::namespaced(config.client.clone(), &key.namespace);
    finalizers::carry_out(&api, &*claim, FINALIZER, step).await?;
    Ok(Reconciled::Done)
}
