//! EndpointSlice mirroring: Endpoints that somebody writes for a Service without a selector are
//! copied into slices, which is what proxies read.

mod plan;

use std::sync::Arc;

use client::controller::Reconciled;
use client::events::Recorder;
use client::{Index, Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio_util::sync::CancellationToken;

use crate::endpointslice::packing::Action;
use crate::endpointslice::{MANAGED_BY_LABEL, SERVICE_LABEL};
use crate::lookup::{self, in_namespace};
use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::written::{CATCH_UP, Written};
use crate::{Config, Error};

const MANAGED_BY: &str = "endpointslicemirroring-controller.k8s.io";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let services = config.informers.of::<Service>();
    let endpoints = config.informers.of::<Endpoints>();
    let slices = config.informers.of::<EndpointSlice>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join3(
        enqueue(&services, &queue, own_key),
        enqueue(&endpoints, &queue, own_key),
        enqueue(&slices, &queue, mirrored),
    );
    let controller = Controller {
        events: config.events("endpoint-slice-mirroring-controller"),
        config,
        services,
        endpoints,
        slices_of: lookup::by_service(&slices),
        slices,
        written: Written::default(),
    };
    watching::run(
        "endpointslice-mirroring",
        2,
        queue,
        feeds,
        controller,
        shutdown,
    )
    .await;
}

struct Controller {
    config: Config,
    events: Recorder,
    services: Informer<Service>,
    endpoints: Informer<Endpoints>,
    slices: Informer<EndpointSlice>,
    slices_of: Index<EndpointSlice>,
    written: Written,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.services.synced().await;
        self.endpoints.synced().await;
        self.slices.synced().await;
        let existing: Vec<Arc<EndpointSlice>> = self
            .slices_of
            .get(&in_namespace(&key.namespace, &key.name))
            .into_iter()
            .filter(|slice| mirrored(slice).contains(key))
            .collect();
        let service = self.services.get(&key.namespace, &key.name);
        let endpoints = self
            .endpoints
            .get(&key.namespace, &key.name)
            .filter(|endpoints| plan::is_mirrored(endpoints, service.as_deref()));
        let Some(endpoints) = endpoints else {
            self.written.forget(key);
            for slice in existing {
                self.delete(key, slice.metadata.name.as_deref().unwrap_or_default())
                    .await?;
            }
            return Ok(Reconciled::Done);
        };
        if !self.written.is_shown(key, &self.slices) {
            return Ok(Reconciled::After(CATCH_UP));
        }
        let (actions, skipped) = plan::plan(&endpoints, &existing);
        if !actions.is_empty() {
            self.report(&endpoints, &skipped);
        }
        let api: Api<EndpointSlice> = Api::namespaced(self.config.client.clone(), &key.namespace);
        for action in actions {
            match action {
                Action::Create(slice) => match api.create(&PostParams::default(), &slice).await {
                    Ok(created) => self.written.note(key, &created),
                    Err(error) if retry::is_namespace_terminating(&error) => {}
                    Err(error) => return Err(error.into()),
                },
                Action::Replace(slice) => {
                    let name = slice.metadata.name.clone().unwrap_or_default();
                    let replaced = api.replace(&name, &PostParams::default(), &slice).await?;
                    self.written.note(key, &replaced);
                }
                Action::Delete { name } => self.delete(key, &name).await?,
            }
        }
        Ok(Reconciled::Done)
    }
}

impl Controller {
    async fn delete(&self, key: &ObjectKey, name: &str) -> Result<(), Error> {
        let api: Api<EndpointSlice> = Api::namespaced(self.config.client.clone(), &key.namespace);
        match api.delete(name, &DeleteParams::default()).await {
            Err(error) if !retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn report(&self, endpoints: &Endpoints, skipped: &plan::Skipped) {
        if skipped.invalid > 0 {
            let message = format!(
                "Skipped {} invalid IP addresses when mirroring to EndpointSlices",
                skipped.invalid
            );
            self.events.warning(endpoints, "InvalidIPAddress", message);
        }
        if skipped.too_many > 0 {
            let message = format!(
                "A max of {} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were skipped",
                plan::CAPACITY,
                skipped.too_many + skipped.invalid
            );
            self.events
                .warning(endpoints, "TooManyAddressesToMirror", message);
        }
    }
}

/// The Endpoints that a slice mirrors.
fn mirrored(slice: &EndpointSlice) -> Vec<ObjectKey> {
    let labels = slice.metadata.labels.as_ref();
    labels
        .filter(|labels| labels.get(MANAGED_BY_LABEL).map(String::as_str) == Some(MANAGED_BY))
        .and_then(|labels| labels.get(SERVICE_LABEL))
        .map(|name| {
            let namespace = slice.metadata.namespace.clone().unwrap_or_default();
            ObjectKey::new(namespace, name.clone())
        })
        .into_iter()
        .collect()
}
