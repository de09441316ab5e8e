//! The life of a CustomResourceDefinition: which versions its objects are stored in, and that it stays
//! until its instances are gone.

use crate::document::Value;
use crate::resource::Strategy;

pub struct CustomDefinition;

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const STORED: [&str; 2] = ["status", "storedVersions"];

impl Strategy for CustomDefinition {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        object.set_missing(&["spec", "conversion", "strategy"], "None");
        let kind = object.str_at(&["spec", "names", "kind"]).to_string();
        object.set_missing(&["spec", "names", "singular"], kind.to_lowercase());
        object.set_missing(&["spec", "names", "listKind"], format!("{kind}List"));
    }

    fn prepare_create_content(&self, object: &mut Value) {
        note_stored_version(object);
    }

    fn prepare_update_content(&self, new: &mut Value, _old: &Value, subresource: &str) {
        if subresource.is_empty() {
            note_stored_version(new);
        }
    }

    /// Every definition stays for its instances when it is first deleted.
    fn has_finalizers_of_its_own(&self, object: &Value) -> bool {
        !object.has(&["metadata", "deletionTimestamp"])
    }

    fn prepare_deleting(&self, object: &mut Value) {
        mark_terminating(object);
    }

    fn checks_delete_preconditions_itself(&self) -> bool {
        true
    }
}

/// Remembers the version that objects are stored in from now on.
fn note_stored_version(object: &mut Value) {
    let versions = object.list_at(&["spec", "versions"]).iter();
    let mut stored = versions.filter(|one| one.get("storage") == Some(&Value::Bool(true)));
    let Some(name) = stored.next().map(|one| one.str_at(&["name"]).to_string()) else {
        return;
    };
    let mut known = object.list_at(&STORED).to_vec();
    if !known.iter().any(|one| one.as_str() == Some(&name)) {
        known.push(name.into());
        object.set(&STORED, known);
    }
}

/// Marks a definition for deletion, as upstream does: without a grace period, and without counting it
/// as a change of what is wanted.
fn mark_terminating(object: &mut Value) {
    let conditions = object.list_at(&["status", "conditions"]).iter();
    let mut conditions: Vec<Value> = conditions.cloned().collect();
    let found = conditions
        .iter_mut()
        .find(|condition| condition.str_at(&["type"]) == "Terminating");
    if found.is_some_and(|condition| condition.str_at(&["status"]) == "True") {
        return;
    }
    object.remove(&["metadata", "deletionGracePeriodSeconds"]);
    let generation = object.at(&["metadata", "generation"]).and_then(Value::as_i64);
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
