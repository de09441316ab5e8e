//! EndpointSlice: the addresses behind each Service, as pods become ready and go away. The legacy
//! Endpoints object is `endpoints`' to make.

pub mod packing;
mod plan;

use std::sync::Arc;

use client::controller::Reconciled;
use client::{Change, Index, Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tokio_util::sync::CancellationToken;
use trace::{Hop, Span};

use crate::lookup::{self, Labelled, Selecting, in_namespace};
use crate::service_pods::services_selecting;
use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::written::{CATCH_UP, Written};
use crate::{Config, Error, meta};
use plan::{Action, Place};

pub use crate::lookup::SERVICE_LABEL;
pub const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
pub const MANAGED_BY: &str = "endpointslice-controller.k8s.io";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let services = config.informers.of::<Service>();
    let pods = config.informers.of::<Pod>();
    let slices = config.informers.of::<EndpointSlice>();
    let nodes = config.informers.of::<Node>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join4(
        enqueue(&services, &queue, own_key),
        enqueue(&pods, &queue, {
            let services = Selecting::of(&services);
            move |pod: &Pod| services_selecting(&services, pod)
        }),
        enqueue(&slices, &queue, service_of_slice),
        follow_nodes(
            nodes.clone(),
            lookup::by_node(&pods),
            Selecting::of(&services),
            queue.clone(),
        ),
    );
    let controller = Controller {
        config,
        services,
        labelled_pods: Labelled::of(&pods),
        slices_of: lookup::by_service(&slices),
        pods,
        slices,
        nodes,
        written: Written::default(),
    };
    watching::run("endpointslice", 4, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    services: Informer<Service>,
    pods: Informer<Pod>,
    slices: Informer<EndpointSlice>,
    nodes: Informer<Node>,
    labelled_pods: Labelled<Pod>,
    slices_of: Index<EndpointSlice>,
    written: Written,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.services.synced().await;
        self.pods.synced().await;
        self.slices.synced().await;
        self.nodes.synced().await;
        // The slices of a deleted Service go with it, by their owner reference.
        let Some(service) = self.services.get(&key.namespace, &key.name) else {
            self.written.forget(key);
            return Ok(Reconciled::Done);
        };
        let Some(selector) = lookup::service_selector(&service) else {
            return Ok(Reconciled::Done);
        };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(Reconciled::Done);
        }
        if !self.written.is_shown(key, &self.slices) {
            return Ok(Reconciled::After(CATCH_UP));
        }
        let pods = self.labelled_pods.having(&key.namespace, selector);
        let mut slices = self.slices_of.get(&in_namespace(&key.namespace, &key.name));
        slices.retain(|slice| meta::label(&slice.metadata, MANAGED_BY_LABEL) == Some(MANAGED_BY));
        let started = self.config.environment.now_micros();
        let place_of = |node: &str| {
            let node = self.nodes.get("", node)?;
            let zone = zone(&node).map(str::to_string);
            Some(Place { zone })
        };
        let actions = plan::plan(&service, &pods, &slices, place_of);
        let api: Api<EndpointSlice> = Api::namespaced(self.config.client.clone(), &key.namespace);
        for action in actions {
            match action {
                Action::Create(slice) => match api.create(&PostParams::default(), &slice).await {
                    Ok(created) => {
                        self.written.note(key, &created);
                        self.record_ready(&slice, &slices, started);
                    }
                    Err(error) if retry::is_namespace_terminating(&error) => {}
                    Err(error) => return Err(error.into()),
                },
                Action::Replace(slice) => {
                    let name = slice.metadata.name.clone().unwrap_or_default();
                    let replaced = api.replace(&name, &PostParams::default(), &slice).await?;
                    self.written.note(key, &replaced);
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
        Ok(Reconciled::Done)
    }
}

impl Controller {
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
                    failure: None,
                },
            );
        }
    }
}

/// A node that moved to another zone takes its endpoints along; one that came or went, too. Only
/// Services with pods on that node are concerned.
async fn follow_nodes(
    nodes: Informer<Node>,
    pods: Index<Pod>,
    services: Selecting<Service>,
    queue: WorkQueue<ObjectKey>,
) {
    let mut changes = nodes.subscribe();
    loop {
        let moved = match changes.next().await {
            Change::Added(node) | Change::Deleted(node) => node,
            Change::Modified { old, new } if zone(&old) != zone(&new) => new,
            _ => continue,
        };
        for pod in pods.get(moved.metadata.name.as_deref().unwrap_or_default()) {
            for service in services_selecting(&services, &pod) {
                queue.add(service);
            }
        }
    }
}

fn zone(node: &Node) -> Option<&str> {
    let labels = node.metadata.labels.as_ref()?;
    labels
        .get("topology.kubernetes.io/zone")
        .map(String::as_str)
        .filter(|zone| !zone.is_empty())
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
