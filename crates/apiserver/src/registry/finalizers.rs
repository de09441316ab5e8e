//! What keeps an object that is being deleted: finalizers and its grace period.

use api::{Resource, Value};

pub(super) fn is_deleting(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some()
}

/// Whether an object that is being deleted must still stay.
pub(super) fn awaits_deletion(resource: &Resource, object: &Value) -> bool {
    let grace = object
        .at(&["metadata", "deletionGracePeriodSeconds"])
        .and_then(Value::as_i64);
    has_finalizers(resource, object) || grace.is_some_and(|seconds| seconds > 0)
}

pub(super) fn has_finalizers(resource: &Resource, object: &Value) -> bool {
    !object.list_at(&["metadata", "finalizers"]).is_empty()
        || resource.strategy().has_finalizers_of_its_own(object)
}
