//! Custom resources in the version that a request is about. A kind without a conversion webhook is
//! converted on the spot; otherwise the hook is asked, once for all objects of a request.

use std::sync::Arc;

use api::conversion::custom as conversion;
use api::resource::CustomVersion;
use api::{Reason, Resource, Status, Value};
use bytes::Bytes;
use store::Compare;

use crate::cache::{CachedObject, storage_key};
use crate::converters::Ways;
use crate::server::Server;

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// The version of a kind whose objects the store has: for a custom kind the one that its cache is of.
pub(crate) fn stored_version(
    server: &Server,
    resource: &Arc<Resource>,
) -> Result<Arc<Resource>, Status> {
    match resource.is_custom() {
        true => Ok(server.objects.kind(resource)?.resource.clone()),
        false => Ok(resource.clone()),
    }
}

/// An object of any version as an object of `resource`.
pub(crate) async fn as_requested(
    server: &Server,
    resource: &Resource,
    object: Value,
) -> Result<Value, Status> {
    let Some(custom) = resource.definition.custom() else {
        return Ok(object);
    };
    let mut converted = convert(server, resource, custom, vec![object]).await?;
    Ok(converted.pop().unwrap_or_default())
}

/// An object of the version `requested` as it will be read from the store: what comes from another
/// version gets the defaults of the stored one.
pub(crate) async fn as_stored(
    server: &Server,
    requested: &Resource,
    stored: &Resource,
    object: Value,
) -> Result<Value, Status> {
    let mut object = as_requested(server, stored, object).await?;
    if stored.is_custom() && requested.version != stored.version {
        conversion::settle_stored(stored, &mut object);
    }
    Ok(object)
}

/// Entries of any version as `resource` shows them. Only those that a webhook converts are made here:
/// the others are made where they are written, and kept.
pub(crate) async fn as_shown(
    server: &Server,
    resource: &Arc<Resource>,
    entries: Vec<Arc<CachedObject>>,
) -> Result<Vec<Arc<CachedObject>>, Status> {
    let Some(custom) = needs_hook(resource) else {
        return Ok(entries);
    };
    let api_version = resource.api_version();
    let is_other = |entry: &Arc<CachedObject>| !entry.names_version(&api_version);
    if !entries.iter().any(is_other) {
        return Ok(entries);
    }
    let objects: Result<Vec<Value>, Status> = entries
        .iter()
        .filter(|entry| is_other(entry))
        .map(|entry| entry.object())
        .collect();
    let mut converted = convert(server, resource, custom, objects?)
        .await?
        .into_iter();
    let mut shown = Vec::with_capacity(entries.len());
    for entry in entries {
        match is_other(&entry) {
            false => shown.push(entry),
            true => {
                let object = converted.next().unwrap_or_default();
                let bytes = Bytes::from(object.to_json());
                let made = CachedObject::new(resource, &entry.key, bytes, entry.revision, &object)?;
                shown.push(Arc::new(made));
            }
        }
    }
    Ok(shown)
}

/// Whether objects of the kind may have to be converted by a webhook.
pub(crate) fn needs_hook(resource: &Resource) -> Option<&CustomVersion> {
    let custom = resource.definition.custom();
    custom.filter(|custom| custom.kind.is_converted_by_webhook)
}

async fn convert(
    server: &Server,
    resource: &Resource,
    custom: &CustomVersion,
    objects: Vec<Value>,
) -> Result<Vec<Value>, Status> {
    let api_version = resource.api_version();
    let is_same = |object: &Value| object.str_at(&["apiVersion"]) == api_version;
    if objects.iter().all(is_same) {
        return Ok(objects);
    }
    if !custom.kind.is_converted_by_webhook {
        let converted = objects.into_iter().map(|object| match is_same(&object) {
            true => object,
            false => conversion::renamed(resource, object),
        });
        return Ok(converted.collect());
    }
    let ways = Ways {
        webhooks: &server.webhooks,
        environment: &server.environment,
    };
    let definition = || {
        let definitions = server.cache.named(GROUP, PLURAL);
        let found = definitions.get(&custom.kind.name);
        found.ok_or_else(not_served)?.object()
    };
    let converters = &server.converters;
    let mut converted = converters
        .ask(ways, custom, &api_version, objects, definition)
        .await?;
    for object in &mut converted {
        conversion::prune_as(resource, &resource.version, object);
    }
    Ok(converted)
}

/// The condition that the definition of a custom kind stays as it is until an object is put: nothing
/// may be left of a kind whose definition goes.
pub(crate) fn definition_unchanged(
    server: &Server,
    resource: &Resource,
    name: &str,
) -> Result<Option<Compare>, Status> {
    let Some(custom) = resource.definition.custom() else {
        return Ok(None);
    };
    let definitions = server.cache.named(GROUP, PLURAL);
    let found = definitions.get(&custom.kind.name);
    let Some(definition) = found else {
        return Err(not_served());
    };
    let document = definition.object()?;
    if document.str_at(&["metadata", "uid"]) != custom.kind.uid {
        return Err(not_served());
    }
    if document.has(&["metadata", "deletionTimestamp"]) {
        return Err(terminating(resource, name));
    }
    Ok(Some(Compare::ModRevision {
        key: storage_key(&definitions.resource, &definition.key),
        revision: definition.revision,
    }))
}

/// The kind went while the request was under way.
fn not_served() -> Status {
    Status::new(
        Reason::NotFound,
        "the server could not find the requested resource",
    )
}

/// The answer to a creation while the definition of the kind is being deleted.
pub(crate) fn terminating(resource: &Resource, name: &str) -> Status {
    resource.forbidden(
        name,
        "create not allowed while custom resource definition is terminating",
    )
}
