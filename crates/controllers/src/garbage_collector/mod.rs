//! Garbage collection by owner: an object whose owners are all gone is deleted; a foreground
//! deletion waits for its dependents; an orphaning one cuts their references first.
//!
//! It watches metadata of the kinds that own or are owned in the catalogue.

mod graph;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use api::catalogue::{self, Resource};
use client::controller::Outcome;
use client::{Change, Informer, Object, ObjectKey, WorkQueue, retry};
use graph::{Graph, Node, Verdict};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node as ClusterNode, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::discovery::ApiResource;
use kube::core::{DynamicObject, PartialObjectMeta};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{Config, Error};

type Metadata = PartialObjectMeta<DynamicObject>;
type Feed = Pin<Box<dyn Future<Output = ()> + Send>>;

pub async fn run(config: Config, shutdown: CancellationToken) {
    let graph = Arc::new(Mutex::new(Graph::default()));
    let queue: WorkQueue<ObjectKey> = WorkQueue::new();
    let mut feeds: Vec<Feed> = Vec::new();
    let mut synced: Vec<Feed> = Vec::new();
    macro_rules! watch {
        ($($kind:ty),*) => {$(
            let informer = config.informers.of::<$kind>();
            synced.push(Box::pin({
                let informer = informer.clone();
                async move { informer.synced().await }
            }));
            feeds.push(Box::pin(feed(informer, graph.clone(), queue.clone())));
        )*};
    }
    // Kinds that other controllers hold whole are shared with them; of the rest only the metadata
    // is kept.
    watch!(
        Deployment,
        ReplicaSet,
        Pod,
        Service,
        EndpointSlice,
        ServiceAccount,
        ClusterNode,
        Namespace,
        PartialObjectMeta<Endpoints>,
        PartialObjectMeta<ConfigMap>,
        PartialObjectMeta<Secret>,
        PartialObjectMeta<Lease>
    );
    let reconcile = {
        let config = Arc::new(config);
        move |key: ObjectKey| {
            let (config, graph) = (config.clone(), graph.clone());
            async move { reconcile(&config, &graph, &key.name).await }
        }
    };
    let collect = async {
        // Before every kind has been listed an owner could look gone that is only not yet known.
        futures::future::join_all(synced).await;
        client::controller::run("garbage-collector", queue, 4, reconcile, shutdown.clone()).await;
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        _ = futures::future::join_all(feeds) => {}
        () = collect => {}
    }
}

/// Keeps the graph in step with one kind and enqueues (by UID) what a change touches.
async fn feed<K: Object>(
    informer: Informer<K>,
    graph: Arc<Mutex<Graph>>,
    queue: WorkQueue<ObjectKey>,
) {
    let mut changes = informer.subscribe();
    loop {
        let touched = match changes.next().await {
            Change::Added(object) | Change::Modified { new: object, .. } => {
                graph.lock().put(node_of(&*object))
            }
            Change::Deleted(object) => graph
                .lock()
                .remove(object.meta().uid.as_deref().unwrap_or_default()),
            Change::Resynced => continue,
        };
        for uid in touched {
            queue.add(ObjectKey::new("", uid));
        }
    }
}

fn node_of<K: Object>(object: &K) -> Node {
    let meta = object.meta();
    Node {
        uid: meta.uid.clone().unwrap_or_default(),
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        owners: meta.owner_references.clone().unwrap_or_default(),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
    }
}

async fn reconcile(config: &Config, graph: &Mutex<Graph>, uid: &str) -> Result<Outcome, Error> {
    let (node, verdict) = {
        let graph = graph.lock();
        match graph.get(uid) {
            Some(node) => (node.clone(), graph.judge(uid)),
            None => return Ok(Outcome::Done),
        }
    };
    let Some(objects) = api_of(config, &node) else {
        return Ok(Outcome::Done);
    };
    match verdict {
        Verdict::Keep => {}
        Verdict::CheckOwners => {
            // The cache says that every owner is gone; the API decides.
            for owner in &node.owners {
                if owner_exists(config, owner, &node.namespace).await? {
                    return Ok(Outcome::Done);
                }
            }
            delete(&objects, &node, DeleteParams::background()).await?;
        }
        Verdict::DeleteWithOwner => {
            delete(&objects, &node, DeleteParams::foreground()).await?;
        }
        Verdict::Release { finalizer } => {
            remove_finalizer(&objects, &node, finalizer).await?;
        }
        Verdict::Orphan { dependents } => {
            for dependent in dependents {
                cut_reference(config, &dependent, &node.uid).await?;
            }
            remove_finalizer(&objects, &node, "orphan").await?;
        }
    }
    Ok(Outcome::Done)
}

async fn delete(
    objects: &Api<Metadata>,
    node: &Node,
    parameters: DeleteParams,
) -> Result<(), Error> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(node.uid.clone()),
            resource_version: None,
        }),
        ..parameters
    };
    match objects.delete(&node.name, &parameters).await {
        Err(error) if !retry::is_not_found(&error) && !retry::is_conflict(&error) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

async fn remove_finalizer(
    objects: &Api<Metadata>,
    node: &Node,
    finalizer: &str,
) -> Result<(), Error> {
    let kept: Vec<&String> = node
        .finalizers
        .iter()
        .filter(|name| *name != finalizer)
        .collect();
    let patch = serde_json::json!({"metadata": {"uid": node.uid, "finalizers": kept}});
    ignore_gone(
        objects
            .patch_metadata(&node.name, &PatchParams::default(), &Patch::Merge(patch))
            .await,
    )
}

async fn cut_reference(config: &Config, dependent: &Node, owner: &str) -> Result<(), Error> {
    let Some(objects) = api_of(config, dependent) else {
        return Ok(());
    };
    let kept: Vec<&OwnerReference> = dependent
        .owners
        .iter()
        .filter(|reference| reference.uid != owner)
        .collect();
    let patch = serde_json::json!({"metadata": {
        "uid": dependent.uid, "ownerReferences": kept,
    }});
    ignore_gone(
        objects
            .patch_metadata(
                &dependent.name,
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await,
    )
}

fn ignore_gone<T>(result: Result<T, kube::Error>) -> Result<(), Error> {
    match result {
        Err(error) if !retry::is_not_found(&error) && !retry::is_conflict(&error) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

async fn owner_exists(
    config: &Config,
    owner: &OwnerReference,
    namespace: &str,
) -> Result<bool, Error> {
    let Some(resource) = resource_of(&owner.api_version, &owner.kind) else {
        // A kind nobody serves: upstream keeps such dependents too.
        return Ok(true);
    };
    let objects = metadata_api(config, resource, namespace);
    match objects.get_metadata_opt(&owner.name).await? {
        Some(found) => Ok(found.metadata.uid.as_deref() == Some(&owner.uid)),
        None => Ok(false),
    }
}

fn api_of(config: &Config, node: &Node) -> Option<Api<Metadata>> {
    let resource = resource_of(&node.api_version, &node.kind)?;
    Some(metadata_api(config, resource, &node.namespace))
}

fn resource_of(api_version: &str, kind: &str) -> Option<&'static Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    catalogue::find_kind(group, version, kind)
}

/// An API for the metadata of any kind in the catalogue.
pub fn metadata_api(config: &Config, resource: &Resource, namespace: &str) -> Api<Metadata> {
    let kind = ApiResource {
        group: resource.group.to_string(),
        version: resource.version.to_string(),
        api_version: match resource.group {
            "" => resource.version.to_string(),
            group => format!("{group}/{}", resource.version),
        },
        kind: resource.kind.to_string(),
        plural: resource.plural.to_string(),
    };
    if resource.namespaced {
        Api::namespaced_with(config.client.clone(), namespace, &kind)
    } else {
        Api::all_with(config.client.clone(), &kind)
    }
}
