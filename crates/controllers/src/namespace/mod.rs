//! Namespace: when one is deleted, empties it kind by kind and then lets it go.

use std::sync::Arc;
use std::time::Duration;

use api::catalogue::{self, Resource};
use client::controller::Outcome;
use client::{Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams};
use tokio_util::sync::CancellationToken;

use crate::garbage_collector::metadata_api;
use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error};

/// Content with finalizers or a grace period is looked at again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub async fn run(config: Config, shutdown: CancellationToken) {
    let namespaces = config.informers.of::<Namespace>();
    let queue = WorkQueue::new();
    let feed = enqueue(&namespaces, &queue, own_key);
    let reconcile = {
        let config = Arc::new(config);
        move |key: ObjectKey| {
            let (config, namespaces) = (config.clone(), namespaces.clone());
            async move { reconcile(&config, &namespaces, &key.name).await }
        }
    };
    watching::run("namespace", 2, queue, feed, reconcile, shutdown).await;
}

async fn reconcile(
    config: &Config,
    namespaces: &Informer<Namespace>,
    name: &str,
) -> Result<Outcome, Error> {
    let Some(namespace) = namespaces.get("", name) else {
        return Ok(Outcome::Done);
    };
    let held = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.as_ref())
        .is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == "kubernetes"));
    if namespace.metadata.deletion_timestamp.is_none() || !held {
        return Ok(Outcome::Done);
    }
    let mut left = false;
    for resource in catalogue::resources() {
        if resource.namespaced && resource.verbs.contains(&"deletecollection") {
            left |= empty(config, resource, name).await?;
        }
    }
    if left {
        return Ok(Outcome::After(LOOK_AGAIN));
    }
    finalize(config, &namespace, name).await?;
    Ok(Outcome::Done)
}

/// Asks for the deletion of everything of one kind; true while something is still there.
async fn empty(config: &Config, resource: &Resource, namespace: &str) -> Result<bool, Error> {
    let objects = metadata_api(config, resource, namespace);
    let list = objects.list_metadata(&ListParams::default()).await?;
    if list.items.is_empty() {
        return Ok(false);
    }
    for object in &list.items {
        if object.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let name = object.metadata.name.as_deref().unwrap_or_default();
        match objects.delete(name, &DeleteParams::background()).await {
            Err(error) if !retry::is_not_found(&error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(!objects
        .list_metadata(&ListParams::default())
        .await?
        .items
        .is_empty())
}

/// Takes our finalizer away; the API server then removes the namespace.
async fn finalize(config: &Config, namespace: &Namespace, name: &str) -> Result<(), Error> {
    let mut updated = namespace.clone();
    if let Some(finalizers) = updated
        .spec
        .as_mut()
        .and_then(|spec| spec.finalizers.as_mut())
    {
        finalizers.retain(|finalizer| finalizer != "kubernetes");
    }
    let body = serde_json::to_vec(&updated)
        .map_err(|error| Error::Object(format!("namespace {name}: {error}")))?;
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|error| Error::Object(error.to_string()))?;
    match config.client.request::<Namespace>(request).await {
        Err(error) if !retry::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}
