//! EndpointSlice: the addresses behind each Service, as pods become ready and go away. The legacy
//! Endpoints object is not made here.

mod plan;

use std::sync::Arc;

use client::controller::Outcome;
use client::{Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio_util::sync::CancellationToken;
use trace::{Hop, Span};

use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error, meta};
use plan::Action;

pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";
pub const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
pub const MANAGED_BY: &str = "endpointslice-controller.k8s.io";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let services = config.informers.of::<Service>();
    let pods = config.informers.of::<Pod>();
    let slices = config.informers.of::<EndpointSlice>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join3(
        enqueue(&services, &queue, own_key),
        enqueue(&pods, &queue, {
            let services = services.clone();
            move |pod: &Pod| services_selecting(&services, pod)
        }),
        enqueue(&slices, &queue, service_of_slice),
    );
    let controller = Arc::new(Controller {
        config,
        services,
        pods,
        slices,
    });
    let reconcile = move |key: ObjectKey| {
        let controller = controller.clone();
        async move { controller.reconcile(&key).await }
    };
    watching::run("endpointslice", 4, queue, feeds, reconcile, shutdown).await;
}

struct Controller {
    config: Config,
    services: Informer<Service>,
    pods: Informer<Pod>,
    slices: Informer<EndpointSlice>,
}

impl Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Outcome, Error> {
        self.services.synced().await;
        self.pods.synced().await;
        self.slices.synced().await;
        // The slices of a deleted Service go with it, by their owner reference.
        let Some(service) = self.services.get(&key.namespace, &key.name) else {
            return Ok(Outcome::Done);
        };
        let Some(selector) = service
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.as_ref())
            .filter(|selector| !selector.is_empty())
        else {
            return Ok(Outcome::Done);
        };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Done);
        }
        let pods: Vec<Arc<Pod>> = self
            .pods
            .list_in(&key.namespace)
            .into_iter()
            .filter(|pod| plan::labels_match(selector, pod))
            .collect();
        let slices: Vec<Arc<EndpointSlice>> = self
            .slices
            .list_in(&key.namespace)
            .into_iter()
            .filter(|slice| {
                let labels = slice.metadata.labels.as_ref();
                labels.is_some_and(|labels| {
                    labels.get(SERVICE_LABEL) == Some(&key.name)
                        && labels.get(MANAGED_BY_LABEL).map(String::as_str) == Some(MANAGED_BY)
                })
            })
            .collect();
        let started = self.config.environment.now_micros();
        let actions = plan::plan(&service, &pods, &slices);
        let api: Api<EndpointSlice> = Api::namespaced(self.config.client.clone(), &key.namespace);
        for action in actions {
            match action {
                Action::Create(slice) => match api.create(&PostParams::default(), &slice).await {
                    Ok(_) => self.record_ready(&slice, &slices, started),
                    Err(error) if retry::is_namespace_terminating(&error) => {}
                    Err(error) => return Err(error.into()),
                },
                Action::Replace(slice) => {
                    let name = slice.metadata.name.clone().unwrap_or_default();
                    api.replace(&name, &PostParams::default(), &slice).await?;
                    self.record_ready(&slice, &slices, started);
                }
                Action::Delete { name } => {
                    match api.delete(&name, &DeleteParams::default()).await {
                        Err(error) if !retry::is_not_found(&error) => return Err(error.into()),
                        _ => {}
                    }
                }
            }
        }
        Ok(Outcome::Done)
    }

    /// A span for each pod whose endpoint became ready by this write.
    fn record_ready(&self, slice: &EndpointSlice, before: &[Arc<EndpointSlice>], started: i64) {
        let now = self.config.environment.now_micros();
        for uid in plan::newly_ready(slice, before) {
            self.config.recorder.record(
                uid,
                Span {
                    hop: Hop::After,
                    name: "EndpointSlice ready".to_string(),
                    component: "controllers".to_string(),
                    start: started,
                    queue_us: 0,
                    work_us: (now - started).max(0) as u64,
                    bytes: 0,
                },
            );
        }
    }
}

fn services_selecting(services: &Informer<Service>, pod: &Pod) -> Vec<ObjectKey> {
    services
        .list_in(pod.metadata.namespace.as_deref().unwrap_or_default())
        .into_iter()
        .filter(|service| {
            service
                .spec
                .as_ref()
                .and_then(|spec| spec.selector.as_ref())
                .is_some_and(|selector| !selector.is_empty() && plan::labels_match(selector, pod))
        })
        .map(|service| ObjectKey::of(&*service))
        .collect()
}

fn service_of_slice(slice: &EndpointSlice) -> Vec<ObjectKey> {
    let namespace = slice.metadata.namespace.clone().unwrap_or_default();
    slice
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(SERVICE_LABEL))
        .map(|service| ObjectKey::new(namespace, service.clone()))
        .into_iter()
        .collect()
}

/// A pod that can be an endpoint: it has an address and has not ended.
fn is_endpoint(pod: &Pod) -> bool {
    let has_address = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.as_deref())
        .is_some_and(|address| !address.is_empty());
    has_address && !matches!(meta::phase(pod), "Succeeded" | "Failed")
}
