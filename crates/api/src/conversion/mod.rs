//! Several versions of one kind: each is stored in one version, and served in the others by
//! converting what is stored. Defaulting, admission and validation see the stored version only.
//!
//! A conversion is between two documents of the schema; it loses nothing that a user can see.

mod event;
mod horizontal_pod_autoscaler;
mod ordered;

use std::sync::Arc;

use crate::document::Value;
use crate::resource::Resource;
use crate::schema;

/// The version that a resource's objects are stored in: its own, as a rule.
pub fn storage_of(resource: &Arc<Resource>) -> &Arc<Resource> {
    resource.storage.as_ref().unwrap_or(resource)
}

/// The group and version that a built-in kind is stored in, if those are not its own.
pub(crate) fn built_in_storage(
    group: &str,
    version: &str,
    plural: &str,
) -> Option<(&'static str, &'static str)> {
    match (group, version, plural) {
        ("autoscaling", "v1", "horizontalpodautoscalers") => Some(("autoscaling", "v2")),
        ("events.k8s.io", "v1", "events") => Some(("", "v1")),
        _ => None,
    }
}

/// An object of `resource`, as it is stored.
pub fn to_storage(resource: &Resource, mut object: Value) -> Value {
    match (&*resource.group, &*resource.version, &*resource.kind) {
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => {
            horizontal_pod_autoscaler::to_v2(&mut object);
        }
        ("events.k8s.io", "v1", "Event") => event::to_core(&mut object),
        _ => return object,
    }
    renamed(resource.storage.as_deref().unwrap_or(resource), object)
}

/// A stored object, as `resource` shows it.
pub fn from_storage(resource: &Resource, mut object: Value) -> Value {
    match (&*resource.group, &*resource.version, &*resource.kind) {
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => {
            horizontal_pod_autoscaler::to_v1(&mut object);
        }
        ("events.k8s.io", "v1", "Event") => event::from_core(&mut object),
        _ => return object,
    }
    renamed(resource, object)
}

/// The stored name of a selectable field that a version calls otherwise; `None` for one that it
/// does not know.
pub fn selectable_field<'a>(resource: &Resource, field: &'a str) -> Option<&'a str> {
    match (&*resource.group, &*resource.kind) {
        ("events.k8s.io", "Event") => event::selectable_field(field),
        _ => Some(field),
    }
}

fn renamed(resource: &Resource, mut object: Value) -> Value {
    object.set(&["apiVersion"], resource.api_version());
    object.set(&["kind"], &*resource.kind);
    if let Some(definition) = schema::table().definition(resource.definition) {
        schema::normalise(definition, &mut object);
    }
    object
}

#[cfg(test)]
mod tests;
