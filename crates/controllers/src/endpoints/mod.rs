//! Endpoints: the legacy form of what EndpointSlices say, one object per Service with a selector.

mod plan;

use client::controller::Reconciled;
use client::events::Recorder;
use client::{Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio_util::sync::CancellationToken;

use crate::lookup::{Labelled, Selecting, service_selector};
use crate::service_pods::services_selecting;
use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::{Config, Error};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let services = config.informers.of::<Service>();
    let pods = config.informers.of::<Pod>();
    let endpoints = config.informers.of::<Endpoints>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join3(
        enqueue(&services, &queue, own_key),
        enqueue(&pods, &queue, {
            let services = Selecting::of(&services);
            move |pod: &Pod| services_selecting(&services, pod)
        }),
        enqueue(&endpoints, &queue, own_key),
    );
    let controller = Controller {
        events: config.events(plan::MANAGED_BY),
        config,
        services,
        labelled_pods: Labelled::of(&pods),
        pods,
        endpoints,
    };
    watching::run("endpoints", 4, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    events: Recorder,
    services: Informer<Service>,
    pods: Informer<Pod>,
    labelled_pods: Labelled<Pod>,
    endpoints: Informer<Endpoints>,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.services.synced().await;
        self.pods.synced().await;
        self.endpoints.synced().await;
        let api: Api<Endpoints> = Api::namespaced(self.config.client.clone(), &key.namespace);
        let current = self.endpoints.get(&key.namespace, &key.name);
        let Some(service) = self.services.get(&key.namespace, &key.name) else {
            // Endpoints that we did not make belong to somebody else, e.g. an elected leader.
            if current.is_some_and(|endpoints| is_ours(&endpoints)) {
                match api.delete(&key.name, &DeleteParams::default()).await {
                    Err(error) if !retry::is_not_found(&error) => return Err(error.into()),
                    _ => {}
                }
            }
            return Ok(Reconciled::Done);
        };
        let Some(selector) = service_selector(&service) else {
            return Ok(Reconciled::Done);
        };
        let pods = self.labelled_pods.having(&key.namespace, selector);
        let Some(wanted) = plan::plan(&service, &pods, current.as_deref()) else {
            return Ok(Reconciled::Done);
        };
        let (namespace, name) = (&key.namespace, &key.name);
        let result = match current {
            None => api.create(&PostParams::default(), &wanted).await,
            Some(_) => api.replace(name, &PostParams::default(), &wanted).await,
        };
        match result {
            Ok(_) => Ok(Reconciled::Done),
            Err(error) if retry::is_namespace_terminating(&error) => Ok(Reconciled::Done),
            // Our cache was behind.
            Err(error) if retry::is_already_exists(&error) => {
                Ok(Reconciled::After(crate::written::CATCH_UP))
            }
            Err(error) => {
                if !retry::is_conflict(&error) {
                    let (reason, message) = match wanted.metadata.resource_version {
                        None => (
                            "FailedToCreateEndpoint",
                            format!(
                                "Failed to create endpoint for service {namespace}/{name}: {error}"
                            ),
                        ),
                        Some(_) => (
                            "FailedToUpdateEndpoint",
                            format!("Failed to update endpoint {namespace}/{name}: {error}"),
                        ),
                    };
                    self.events.warning(&wanted, reason, message);
                }
                Err(error.into())
            }
        }
    }
}

fn is_ours(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    labels.is_some_and(|labels| {
        labels.get(plan::MANAGED_BY_LABEL).map(String::as_str) == Some(plan::MANAGED_BY)
    })
}
