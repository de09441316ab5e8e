//! Garbage collection by owner: an object whose owners are all gone is deleted; a foreground
//! deletion waits for its dependents; an orphaning one cuts their references first.
//!
//! The graph is filled from watches (`monitors`) and only points at what may need a look; before
//! anything is deleted the API is asked.

mod graph;
mod monitors;
mod node;
mod plan;

use std::sync::Arc;

use client::controller::Reconciled;
use client::events::{Recorder, Severity};
use client::{ObjectKey, WorkQueue, retry};
use graph::{Graph, NextStep};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::DynamicObject;
use monitors::Monitors;
use node::{FOREGROUND, Node, ORPHAN};
use parking_lot::Mutex;
use plan::{Action, Propagation, Standing};
use tokio_util::sync::CancellationToken;

use crate::discovery::{Metadata, Served};
use crate::{Config, Error, watching};

const WORKERS: usize = 8;

pub async fn run(config: Config, shutdown: CancellationToken) {
    let graph = Arc::new(Mutex::new(Graph::default()));
    let queue: WorkQueue<ObjectKey> = WorkQueue::new();
    let monitors = Arc::new(Monitors::new(graph.clone(), queue.clone()));
    let collector = Arc::new(Collector {
        events: config.events("garbage-collector-controller"),
        client: config.client.clone(),
        graph,
        monitors: monitors.clone(),
    });
    let reconcile = move |key: ObjectKey| {
        let collector = collector.clone();
        async move {
            // Before every kind has been listed much would be looked at that is in order.
            collector.monitors.filled().await;
            collector.reconcile(&key.name).await
        }
    };
    let feeds = monitors.run(&config);
    watching::run(
        "garbage-collector",
        WORKERS,
        queue,
        feeds,
        reconcile,
        shutdown,
    )
    .await;
}

struct Collector {
    client: kube::Client,
    events: Recorder,
    graph: Arc<Mutex<Graph>>,
    monitors: Arc<Monitors>,
}

impl Collector {
    async fn reconcile(&self, uid: &str) -> Result<Reconciled, Error> {
        let (node, step) = {
            let graph = self.graph.lock();
            match graph.get(uid) {
                Some(node) => (node.clone(), graph.next_step(uid)),
                None => return Ok(Reconciled::Done),
            }
        };
        if step == NextStep::Keep {
            return Ok(Reconciled::Done);
        }
        let Some(objects) = self.api_of(&node.api_version, &node.kind, &node.namespace) else {
            return Ok(Reconciled::Done);
        };
        match step {
            NextStep::Keep => {}
            NextStep::Examine => self.examine(&objects, &node).await?,
            NextStep::Release => remove_finalizer(&objects, &node, FOREGROUND).await?,
            NextStep::Orphan { dependents } => {
                for dependent in dependents {
                    self.cut_references(&dependent, std::slice::from_ref(&node.uid))
                        .await?;
                }
                remove_finalizer(&objects, &node, ORPHAN).await?;
            }
        }
        Ok(Reconciled::Done)
    }

    /// Asks the API for what the graph cannot know, and acts on it.
    async fn examine(&self, objects: &Api<DynamicObject>, node: &Node) -> Result<(), Error> {
        let Some(latest) = current(objects, node).await? else {
            return Ok(());
        };
        if latest.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        for owner in self.graph.lock().misplaced_owners(&node.uid) {
            self.report_misplaced(node, &owner);
        }
        let references = latest.metadata.owner_references.clone().unwrap_or_default();
        let mut owners = Vec::with_capacity(references.len());
        for owner in &references {
            let Some(standing) = self.standing(owner, node).await? else {
                // The kind is not served (yet), or cannot own this object: it stays as it is.
                return Ok(());
            };
            owners.push((owner.uid.clone(), standing));
        }
        let dependents = self.graph.lock().dependents(&node.uid);
        let finalizers = latest.metadata.finalizers.clone().unwrap_or_default();
        match plan::decide(&finalizers, &owners, &dependents) {
            Action::Keep => Ok(()),
            Action::DropReferences(stale) => self.cut_references(node, &stale).await,
            Action::Delete {
                propagation,
                unblock_owners,
            } => {
                let mut version = latest.metadata.resource_version.clone();
                if unblock_owners {
                    version = unblock(objects, node, &latest).await?;
                }
                delete(objects, node, propagation, version).await
            }
        }
    }

    async fn standing(
        &self,
        owner: &OwnerReference,
        node: &Node,
    ) -> Result<Option<Standing>, Error> {
        if let Some(standing) = self.graph.lock().standing(owner, &node.namespace) {
            return Ok(Some(standing));
        }
        let served = self
            .monitors
            .served_or_later(&owner.api_version, &owner.kind, &node.uid);
        let Some(served) = served else {
            return Ok(None);
        };
        if served.namespaced && node.namespace.is_empty() {
            return Ok(None);
        }
        let owners = served.metadata_api(&self.client, &node.namespace);
        let found = owners.get_metadata_opt(&owner.name).await?;
        Ok(Some(match found {
            Some(found) if found.metadata.uid.as_deref() == Some(&owner.uid) => {
                let waits = found.metadata.deletion_timestamp.is_some()
                    && found
                        .metadata
                        .finalizers
                        .iter()
                        .flatten()
                        .any(|finalizer| finalizer == FOREGROUND);
                match waits {
                    true => Standing::Waiting,
                    false => Standing::Solid,
                }
            }
            _ => Standing::Gone,
        }))
    }

    fn report_misplaced(&self, node: &Node, owner: &OwnerReference) {
        let about = ObjectReference {
            api_version: Some(node.api_version.clone()),
            kind: Some(node.kind.clone()),
            namespace: Some(node.namespace.clone()),
            name: Some(node.name.clone()),
            uid: Some(node.uid.clone()),
            ..ObjectReference::default()
        };
        let message = format!(
            "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
            owner.api_version, owner.kind, node.namespace, owner.name, owner.uid, node.namespace
        );
        self.events.record(
            about,
            Severity::Warning,
            "OwnerRefInvalidNamespace",
            message,
        );
    }

    async fn cut_references(&self, dependent: &Node, owners: &[String]) -> Result<(), Error> {
        let Some(objects) = self.api_of(
            &dependent.api_version,
            &dependent.kind,
            &dependent.namespace,
        ) else {
            return Ok(());
        };
        let Some(latest) = current(&objects, dependent).await? else {
            return Ok(());
        };
        let before = latest.metadata.owner_references.unwrap_or_default();
        let kept: Vec<&OwnerReference> = before
            .iter()
            .filter(|reference| !owners.contains(&reference.uid))
            .collect();
        if kept.len() == before.len() {
            return Ok(());
        }
        let patch = serde_json::json!({"metadata": {
            "uid": dependent.uid,
            "resourceVersion": latest.metadata.resource_version,
            "ownerReferences": kept,
        }});
        patch_metadata(&objects, &dependent.name, patch)
            .await
            .map(drop)
    }

    fn api_of(&self, api_version: &str, kind: &str, namespace: &str) -> Option<Api<DynamicObject>> {
        let served: Served = self.monitors.served(api_version, kind)?;
        Some(served.metadata_api(&self.client, namespace))
    }
}

/// The object as the API has it, if it is still the one we mean.
async fn current(objects: &Api<DynamicObject>, node: &Node) -> Result<Option<Metadata>, Error> {
    let found = objects.get_metadata_opt(&node.name).await?;
    Ok(found.filter(|found| found.metadata.uid.as_deref() == Some(&node.uid)))
}

async fn delete(
    objects: &Api<DynamicObject>,
    node: &Node,
    propagation: Propagation,
    resource_version: Option<String>,
) -> Result<(), Error> {
    let parameters = match propagation {
        Propagation::Background => DeleteParams::background(),
        Propagation::Foreground => DeleteParams::foreground(),
        Propagation::Orphan => DeleteParams::orphan(),
    };
    // With the version too: a controller may adopt it in the meantime.
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(node.uid.clone()),
            resource_version,
        }),
        ..parameters
    };
    match objects.delete(&node.name, &parameters).await {
        Err(error) if !retry::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Makes the owners of `node` no longer wait for it; returns its new version.
async fn unblock(
    objects: &Api<DynamicObject>,
    node: &Node,
    latest: &Metadata,
) -> Result<Option<String>, Error> {
    let mut references = latest.metadata.owner_references.clone().unwrap_or_default();
    for reference in &mut references {
        if reference.block_owner_deletion == Some(true) {
            reference.block_owner_deletion = Some(false);
        }
    }
    let patch = serde_json::json!({"metadata": {
        "uid": node.uid,
        "resourceVersion": latest.metadata.resource_version,
        "ownerReferences": references,
    }});
    let patched = patch_metadata(objects, &node.name, patch).await?;
    Ok(patched.and_then(|patched| patched.metadata.resource_version))
}

async fn remove_finalizer(
    objects: &Api<DynamicObject>,
    node: &Node,
    finalizer: &str,
) -> Result<(), Error> {
    let Some(latest) = current(objects, node).await? else {
        return Ok(());
    };
    let before = latest.metadata.finalizers.unwrap_or_default();
    let kept: Vec<&String> = before.iter().filter(|name| *name != finalizer).collect();
    if kept.len() == before.len() {
        return Ok(());
    }
    let patch = serde_json::json!({"metadata": {
        "uid": node.uid,
        "resourceVersion": latest.metadata.resource_version,
        "finalizers": kept,
    }});
    patch_metadata(objects, &node.name, patch).await.map(drop)
}

/// None if the object is gone.
async fn patch_metadata(
    objects: &Api<DynamicObject>,
    name: &str,
    patch: serde_json::Value,
) -> Result<Option<Metadata>, Error> {
    match objects
        .patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(patched) => Ok(Some(patched)),
        Err(error) if retry::is_not_found(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
