//! PVC protection: a claim that a pod uses is not removed under it.

use client::controller::Outcome;
use client::{Informer, ObjectKey, WorkQueue};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::ListParams;
use tokio_util::sync::CancellationToken;

use crate::finalizers::Step;
use crate::persistent_volume::plan::claims_of;
use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error, finalizers};

const FINALIZER: &str = "kubernetes.io/pvc-protection";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let claims = config.informers.of::<PersistentVolumeClaim>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&claims, &queue, own_key),
        enqueue(&pods, &queue, |pod: &Pod| {
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            let names = claims_of(pod).into_iter();
            names
                .map(|name| ObjectKey::new(namespace.clone(), name))
                .collect()
        }),
    );
    let reconcile = move |key: ObjectKey| {
        let (config, claims, pods) = (config.clone(), claims.clone(), pods.clone());
        async move { reconcile(&config, &claims, &pods, &key).await }
    };
    watching::run("pvc-protection", 2, queue, feeds, reconcile, shutdown).await;
}

async fn reconcile(
    config: &Config,
    claims: &Informer<PersistentVolumeClaim>,
    pods: &Informer<Pod>,
    key: &ObjectKey,
) -> Result<Outcome, Error> {
    pods.synced().await;
    let Some(claim) = claims.get(&key.namespace, &key.name) else {
        return Ok(Outcome::Done);
    };
    let cached = pods.list_in(&key.namespace);
    let in_use = cached.iter().any(|pod| uses(pod, &key.name));
    let mut step = finalizers::step(&*claim, FINALIZER, in_use);
    if step == Step::Remove {
        // A pod that our cache does not show yet may use it: ask.
        let pods: Api<Pod> = Api::namespaced(config.client.clone(), &key.namespace);
        let live = pods.list(&ListParams::default()).await?;
        if live.items.iter().any(|pod| uses(pod, &key.name)) {
            step = Step::Keep;
        }
    }
    let api: Api<PersistentVolumeClaim> = Api::namespaced(config.client.clone(), &key.namespace);
    finalizers::carry_out(&api, &*claim, FINALIZER, step).await?;
    Ok(Outcome::Done)
}

/// Pods without a node do not count: no kubelet will start one whose claim is being deleted.
fn uses(pod: &Pod, claim: &str) -> bool {
    let placed = pod
        .spec
        .as_ref()
        .is_some_and(|spec| !spec.node_name.as_deref().unwrap_or_default().is_empty());
    placed && claims_of(pod).iter().any(|name| name == claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_placed_pods_use_a_claim_named_or_ephemeral() {
        let pod = |node: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "web"},
                "spec": {"nodeName": node, "containers": [], "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
            }))
            .unwrap()
        };
        assert!(uses(&pod("n"), "data"));
        assert!(uses(&pod("n"), "web-scratch"));
        assert!(!uses(&pod("n"), "other"));
        assert!(!uses(&pod(""), "data"));
    }
}
