//! The end of a CustomResourceDefinition: it stays until its instances are gone.

use crate::document::Value;

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether a definition stays although nothing says so yet: when it is first deleted.
pub(super) fn stays(definition: &Value) -> bool {
    !definition.has(&["metadata", "deletionTimestamp"])
}

/// Marks a definition for deletion, as upstream does: without a grace period, and without counting it
/// as a change of what is wanted.
pub(super) fn mark(object: &mut Value) {
    let conditions = object.list_at(&["status", "conditions"]).iter();
    let mut conditions: Vec<Value> = conditions.cloned().collect();
    let found = conditions
        .iter_mut()
        .find(|condition| condition.str_at(&["type"]) == "Terminating");
    if found.is_some_and(|condition| condition.str_at(&["status"]) == "True") {
        return;
    }
    object.remove(&["metadata", "deletionGracePeriodSeconds"]);
    let generation = object
        .at(&["metadata", "generation"])
        .and_then(Value::as_i64);
    if let Some(generation) = generation.filter(|generation| *generation > 1) {
        object.set(&["metadata", "generation"], generation - 1);
    }
    let mut finalizers = object.list_at(&["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|one| one.as_str() == Some(FINALIZER)) {
        finalizers.push(FINALIZER.into());
        object.set(&["metadata", "finalizers"], finalizers);
    }
    conditions.retain(|condition| condition.str_at(&["type"]) != "Terminating");
    conditions.push(crate::document!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        "lastTransitionTime": object.str_at(&["metadata", "deletionTimestamp"]),
    }));
    object.set(&["status", "conditions"], conditions);
}
