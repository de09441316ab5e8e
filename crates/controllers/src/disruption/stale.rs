//! Pods that say they are about to be disrupted (`DisruptionTarget`) although nothing came of it:
//! after a while the condition is taken back.

use std::time::Duration;

use client::controller::Reconciled;
use client::{ObjectKey, WorkQueue, retry};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue};
use crate::{Config, Error};

const PATIENCE: Duration = Duration::from_secs(120);

pub async fn run(config: Config, shutdown: CancellationToken) {
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = enqueue(&pods, &queue, |pod: &Pod| match announced(pod) {
        Some(_) => vec![ObjectKey::of(pod)],
        None => Vec::new(),
    });
    let reconcile = move |key: ObjectKey| {
        let (config, pods) = (config.clone(), pods.clone());
        async move {
            pods.synced().await;
            match pods.get(&key.namespace, &key.name) {
                Some(pod) => take_back(&config, &pod).await,
                None => Ok(Reconciled::Done),
            }
        }
    };
    watching::run("stale-disruptions", 1, queue, feeds, reconcile, shutdown).await;
}

async fn take_back(config: &Config, pod: &Pod) -> Result<Reconciled, Error> {
    let Some(since) = announced(pod) else {
        return Ok(Reconciled::Done);
    };
    let now = config.environment.now();
    let elapsed = Duration::try_from(since.duration_until(now)).unwrap_or_default();
    if let Some(left) = PATIENCE.checked_sub(elapsed).filter(|left| !left.is_zero()) {
        return Ok(Reconciled::After(left));
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(config.client.clone(), namespace);
    let patch = serde_json::json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "False", "reason": null, "message": null,
            "lastTransitionTime": now.to_string(),
        }]},
    });
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    match api
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))
        .await
    {
        Ok(_) => Ok(Reconciled::Done),
        Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => {
            Ok(Reconciled::Done)
        }
        Err(error) => Err(error.into()),
    }
}

/// Since when a pod that still runs says so. What the kubelet announced it carries out itself.
fn announced(pod: &Pod) -> Option<Timestamp> {
    if pod.metadata.deletion_timestamp.is_some() || semantics::pod::is_terminal(pod) {
        return None;
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|one| one.type_ == "DisruptionTarget")?;
    let by_kubelet = condition.reason.as_deref() == Some("TerminationByKubelet");
    if condition.status != "True" || by_kubelet {
        return None;
    }
    condition.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_announcements_about_running_pods_count() {
        let pod = |phase: &str, status: &str, reason: &str| -> Pod {
            serde_json::from_value(
                serde_json::json!({"status": {"phase": phase, "conditions": [{
                    "type": "DisruptionTarget", "status": status, "reason": reason,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]}}),
            )
            .unwrap()
        };
        assert!(announced(&pod("Running", "True", "EvictionByEvictionAPI")).is_some());
        assert!(announced(&pod("Running", "False", "EvictionByEvictionAPI")).is_none());
        assert!(announced(&pod("Failed", "True", "EvictionByEvictionAPI")).is_none());
        assert!(announced(&pod("Running", "True", "TerminationByKubelet")).is_none());
    }
}
