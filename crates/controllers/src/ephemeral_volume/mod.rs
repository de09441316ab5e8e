//! Ephemeral volumes: makes the claim behind each `ephemeral` volume of a pod. The claim goes with
//! the pod, by its owner reference.

mod plan;

use client::controller::Reconciled;
use client::events::Recorder;
use client::{Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, Reconciler, enqueue, owner_key};
use crate::{Config, Error};
use plan::{claim, ephemeral, is_owned};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let pods = config.informers.of::<Pod>();
    let claims = config.informers.of::<PersistentVolumeClaim>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&pods, &queue, |pod: &Pod| {
            let needed = ephemeral(pod).next().is_some();
            needed.then(|| ObjectKey::of(pod)).into_iter().collect()
        }),
        // A claim that is removed too early is made again.
        enqueue(&claims, &queue, owner_key("Pod")),
    );
    let controller = Controller {
        events: config.events("ephemeral_volume"),
        config,
        pods,
        claims,
    };
    watching::run("ephemeral-volume", 2, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    events: Recorder,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.claims.synced().await;
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else {
            return Ok(Reconciled::Done);
        };
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(Reconciled::Done);
        }
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.config.client.clone(), &key.namespace);
        for volume in ephemeral(&pod) {
            let claim = claim(&pod, volume);
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            if let Some(existing) = self.claims.get(&key.namespace, name) {
                if !is_owned(&existing, &pod) {
                    let cause = format!(
                        "PVC {}/{name} was not created for pod {}/{} (pod is not owner)",
                        key.namespace, key.namespace, key.name
                    );
                    return Err(self.fails(&pod, volume, &cause));
                }
                continue;
            }
            match api.create(&PostParams::default(), &claim).await {
                Ok(_) => {}
                Err(error) if retry::is_namespace_terminating(&error) => {}
                // The cache will show whether it is the pod's own.
                Err(error) if retry::is_already_exists(&error) => return Err(error.into()),
                Err(error) => {
                    let cause = format!("create PVC {name}: {}", client::retry::sentence(&error));
                    return Err(self.fails(&pod, volume, &cause));
                }
            }
        }
        Ok(Reconciled::Done)
    }
}

impl Controller {
    fn fails(&self, pod: &Pod, volume: &Volume, cause: &str) -> Error {
        let message = format!("ephemeral volume {}: {cause}", volume.name);
        self.events.warning(pod, "FailedBinding", &message);
        Error::Object(message)
    }
}
