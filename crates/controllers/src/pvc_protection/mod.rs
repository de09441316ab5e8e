//! PVC protection: a claim that a pod uses is not removed under it.

use client::controller::Outcome;
use client::{Index, Informer, ObjectKey, WorkQueue};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::ListParams;
use tokio_util::sync::CancellationToken;

use crate::finalizers::Step;
use crate::lookup::{self, in_namespace};
use crate::persistent_volume::plan::claims_of;
use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error, finalizers, meta};

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
) -> Result<Outcome, Error> {
    let Some(claim) = claims.get(&key.namespace, &key.name) else {
        return Ok(Outcome::Done);
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
    Ok(Outcome::Done)
}

/// Pods without a node do not count: no kubelet will start one whose claim is being deleted. Nor do
/// pods that are over count for the claims that go with them: deleted in the foreground, such a pod
/// waits for its claim.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if meta::node_name(pod).is_empty() || !claims_of(pod).iter().any(|one| one == name) {
        return false;
    }
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let sources = volumes.into_iter().flatten();
    let mut sources = sources.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    if sources.any(|source| source.claim_name == name) {
        return true;
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let is_over = pod.metadata.deletion_timestamp.is_some()
        && pod.metadata.deletion_grace_period_seconds == Some(0);
    !is_over && meta::is_controlled_by(&claim.metadata, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, owner: &str) -> PersistentVolumeClaim {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": true}]}}))
        .unwrap()
    }

    #[test]
    fn only_placed_pods_use_a_claim_named_or_ephemeral() {
        let pod = |node: &str, grace: Option<i64>| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "web", "uid": "u", "deletionGracePeriodSeconds": grace,
                    "deletionTimestamp": grace.map(|_| "2026-01-01T00:00:00Z")},
                "spec": {"nodeName": node, "containers": [], "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
            }))
            .unwrap()
        };
        let (data, scratch) = (claim("data", "other"), claim("web-scratch", "u"));
        assert!(uses(&pod("n", None), &data));
        assert!(uses(&pod("n", None), &scratch));
        assert!(!uses(&pod("n", None), &claim("web-scratch", "other")));
        assert!(!uses(&pod("n", None), &claim("other", "u")));
        assert!(!uses(&pod("", None), &data));
        assert!(uses(&pod("n", Some(30)), &scratch));
        assert!(!uses(&pod("n", Some(0)), &scratch));
        assert!(uses(&pod("n", Some(0)), &data));
    }
}
