//! The versions of a custom kind. Where no webhook converts them they differ in name only; either
//! way an object has no fields that the schema of its version does not know.

use crate::custom::{Malformed, Schema};
use crate::document::Value;
use crate::resource::{Resource, api_version, split_api_version};

/// Brings what the store has into the form in which it is shown: of the stored version, without
/// unknown fields and with all defaults. What a webhook would have to convert stays in its version.
pub fn settle_stored(resource: &Resource, object: &mut Value) {
    let Some(custom) = resource.definition.custom() else {
        return;
    };
    let kind = &custom.kind;
    let (group, version) = split_api_version(object.str_at(&["apiVersion"]));
    if group != resource.group {
        return;
    }
    let schema = kind.schema(version).unwrap_or(&custom.schema);
    let is_other = version != kind.storage_version;
    if let Some(schema) = schema.get::<Schema>() {
        if !kind.preserves_unknown_fields {
            // What cannot be brought into shape is shown as it is.
            let _ = schema.conform(object, Malformed::Dropped);
        }
        schema.default(object);
    }
    if is_other && !kind.is_converted_by_webhook {
        rename(resource, &kind.storage_version, object);
    }
}

/// An object of any version, as `resource` shows it; only for kinds that no webhook converts.
pub fn renamed(resource: &Resource, mut object: Value) -> Value {
    rename(resource, &resource.version, &mut object);
    object
}

fn rename(resource: &Resource, version: &str, object: &mut Value) {
    object.set(&["apiVersion"], api_version(&resource.group, version));
    prune_as(resource, version, object);
}

/// Removes what the schema of a version does not know.
pub fn prune_as(resource: &Resource, version: &str, object: &mut Value) {
    let Some(custom) = resource.definition.custom() else {
        return;
    };
    if let Some(schema) = custom.kind.schema(version)
        && let Some(schema) = schema.get::<Schema>()
        && !custom.kind.preserves_unknown_fields
    {
        schema.prune(object);
        schema.prune_nulls(object);
    }
}
