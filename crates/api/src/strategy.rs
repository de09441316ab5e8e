//! What a schema cannot say about a kind: defaults that depend on other fields, what an update may
//! change, validation across fields, selectable fields, table cells.
//!
//! A kind is one file in `strategy/`. Nothing here talks HTTP or reads the store.

use crate::catalogue::Resource;
use crate::document::Value;
use crate::field::FieldError;
use crate::metadata::{self, NameRule};

pub mod claim_spec;
mod conditions;
pub mod config_map;
mod controller_revision;
mod cron_job;
mod daemon_set;
mod deployment;
mod endpoint_slice;
mod endpoints;
mod event;
mod generic;
mod horizontal_pod_autoscaler;
mod int_or_percent;
mod job;
mod lease;
pub mod namespace;
mod node;
pub mod pod;
mod pod_disruption_budget;
mod pod_template;
mod priority_class;
mod rbac;
mod replica_set;
mod replication_controller;
mod secret;
pub mod service;
mod service_account;
mod stateful_set;
mod workload;

#[cfg(test)]
mod tests;

/// The rules of one kind. The provided methods are the whole of it for a kind without rules of its
/// own; a kind overrides the `…_content` hooks and the small facts.
///
/// The server calls, in order: `default`, `prepare_create`, (admission), `validate_create`; or
/// `default`, `prepare_update`, (admission), `validate_update`.
pub trait Strategy: Send + Sync {
    fn namespaced(&self) -> bool;

    fn name_rule(&self) -> NameRule {
        NameRule::DnsSubdomain
    }

    /// Whether `status` is written only through the status subresource.
    fn has_status(&self) -> bool {
        false
    }

    /// Whether `metadata.generation` counts the changes of the desired state.
    fn has_generation(&self) -> bool {
        false
    }

    /// Fills in what the user left out. Also run on what was stored before.
    fn default(&self, _object: &mut Value) {}

    /// Makes a submitted object ready to be created: status emptied, generation 1.
    fn prepare_create(&self, object: &mut Value) {
        if self.has_status() {
            object.set(&["status"], Value::object());
        }
        match self.has_generation() {
            true => object.set(&["metadata", "generation"], 1),
            false => drop(object.remove(&["metadata", "generation"])),
        }
        self.prepare_create_content(object);
    }

    fn prepare_create_content(&self, _object: &mut Value) {}

    /// Takes from `old` whatever this request may not change. `subresource` is "" for the object
    /// itself.
    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        metadata::carry_over(new, old);
        if self.has_status() && subresource == "status" {
            generic::keep_all_but_status(new, old);
        } else if self.has_status() && subresource.is_empty() {
            generic::keep_field(new, old, &["status"]);
        }
        self.prepare_update_content(new, old, subresource);
        if self.has_generation() && generic::desired_state_changed(new, old) {
            let generation = old.at(&["metadata", "generation"]).and_then(Value::as_i64);
            new.set(&["metadata", "generation"], generation.unwrap_or(0) + 1);
        }
    }

    fn prepare_update_content(&self, _new: &mut Value, _old: &Value, _subresource: &str) {}

    /// Everything that is wrong with a new object, metadata included.
    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = metadata::validate(object, self.namespaced(), self.name_rule());
        errors.extend(self.validate_content(object));
        errors
    }

    fn validate_content(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Everything that is wrong with the new state of an object, metadata included.
    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        let mut errors = metadata::validate(new, self.namespaced(), NameRule::PathSegment);
        errors.extend(metadata::validate_update(new, old));
        errors.extend(self.validate_update_content(new, old, subresource));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        _old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "" => self.validate_content(new),
            _ => Vec::new(),
        }
    }

    /// What the user should know about a request that was granted.
    fn warnings(&self, _new: &Value, _old: Option<&Value>, _subresource: &str) -> Vec<String> {
        Vec::new()
    }

    /// The fields a field selector may name, with this object's values.
    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        generic::metadata_fields(object, self.namespaced())
    }

    /// One row, in the order of the resource's columns.
    fn cells(&self, object: &Value, _now: jiff::Timestamp) -> Vec<Value> {
        crate::table::name_and_creation(object)
    }

    /// The grace period of a delete that may ask for one; `None` for kinds that go at once.
    fn graceful_delete(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// What becomes of an object's dependents when a delete does not say.
    fn dependents(&self) -> Dependents {
        Dependents::Deleted
    }

    /// Whether an update may leave out `metadata.resourceVersion`.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Whether a PUT to a name that does not exist creates it.
    fn allow_create_on_update(&self) -> bool {
        false
    }
}

/// What a kind's deletion means for those it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    Deleted,
    /// Left alone, as the first clients of the kind expect.
    Orphaned,
    /// It has none: a propagation policy says nothing.
    None,
}

/// The strategy of a resource.
pub fn of(resource: &Resource) -> &'static dyn Strategy {
    match (resource.group, resource.kind) {
        ("", "ConfigMap") => &config_map::ConfigMap,
        ("", "Endpoints") => &endpoints::Endpoints,
        ("", "Event") => &event::Event { strict: false },
        ("", "Namespace") => &namespace::Namespace,
        ("", "Node") => &node::Node,
        ("", "Pod") => &pod::Pod,
        ("", "PodTemplate") => &pod_template::PodTemplate,
        ("", "ReplicationController") => &replication_controller::ReplicationController,
        ("", "Secret") => &secret::Secret,
        ("", "Service") => &service::Service,
        ("", "ServiceAccount") => &service_account::ServiceAccount,
        ("apps", "ControllerRevision") => &controller_revision::ControllerRevision,
        ("apps", "DaemonSet") => &daemon_set::DaemonSet,
        ("apps", "Deployment") => &deployment::Deployment,
        ("apps", "ReplicaSet") => &replica_set::ReplicaSet,
        ("apps", "StatefulSet") => &stateful_set::StatefulSet,
        ("autoscaling", "HorizontalPodAutoscaler") => {
            &horizontal_pod_autoscaler::HorizontalPodAutoscaler
        }
        ("batch", "CronJob") => &cron_job::CronJob,
        ("batch", "Job") => &job::Job,
        ("coordination.k8s.io", "Lease") => &lease::Lease,
        ("events.k8s.io", "Event") => &event::Event { strict: true },
        ("policy", "PodDisruptionBudget") => &pod_disruption_budget::PodDisruptionBudget,
        ("discovery.k8s.io", "EndpointSlice") => &endpoint_slice::EndpointSlice,
        ("rbac.authorization.k8s.io", "ClusterRole") => &rbac::Role { namespaced: false },
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => &rbac::Binding { namespaced: false },
        ("rbac.authorization.k8s.io", "Role") => &rbac::Role { namespaced: true },
        ("rbac.authorization.k8s.io", "RoleBinding") => &rbac::Binding { namespaced: true },
        ("scheduling.k8s.io", "PriorityClass") => &priority_class::PriorityClass,
        _ => generic::of(resource.namespaced, resource.has_status()),
    }
}
