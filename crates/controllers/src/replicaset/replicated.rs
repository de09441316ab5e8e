//! What ReplicaSet and ReplicationController have in common, which is everything but their names.

use crate::lookup::Selects;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition,
    ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// An object that asks for a number of equal pods.
pub trait Replicated:
    Selects + kube::Resource<Scope = NamespaceResourceScope> + serde::Serialize + std::fmt::Debug
{
    const KIND: &'static str;
    /// The component that Events name.
    const CONTROLLER: &'static str;

    fn wanted(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn selector(&self) -> LabelSelector;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn status(&self) -> ReplicaSetStatus;
    fn set_status(&mut self, status: ReplicaSetStatus);
}

impl Replicated for ReplicaSet {
    const KIND: &'static str = "ReplicaSet";
    const CONTROLLER: &'static str = "replicaset-controller";

    fn wanted(&self) -> i32 {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0)
    }

    fn min_ready_seconds(&self) -> i32 {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn selector(&self) -> LabelSelector {
        let spec = self.spec.as_ref();
        spec.map(|spec| spec.selector.clone()).unwrap_or_default()
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn set_status(&mut self, status: ReplicaSetStatus) {
        self.status = Some(status);
    }
}

impl Replicated for ReplicationController {
    const KIND: &'static str = "ReplicationController";
    const CONTROLLER: &'static str = "replication-controller";

    fn wanted(&self) -> i32 {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0)
    }

    fn min_ready_seconds(&self) -> i32 {
        let spec = self.spec.as_ref();
        spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn selector(&self) -> LabelSelector {
        LabelSelector {
            match_labels: self.spec.as_ref().and_then(|spec| spec.selector.clone()),
            match_expressions: None,
        }
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        let conditions = status.conditions.map(|conditions| {
            let convert = |condition: ReplicationControllerCondition| ReplicaSetCondition {
                last_transition_time: condition.last_transition_time,
                message: condition.message,
                reason: condition.reason,
                status: condition.status,
                type_: condition.type_,
            };
            conditions.into_iter().map(convert).collect()
        });
        ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions,
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        }
    }

    fn set_status(&mut self, status: ReplicaSetStatus) {
        let conditions = status.conditions.map(|conditions| {
            let convert = |condition: ReplicaSetCondition| ReplicationControllerCondition {
                last_transition_time: condition.last_transition_time,
                message: condition.message,
                reason: condition.reason,
                status: condition.status,
                type_: condition.type_,
            };
            conditions.into_iter().map(convert).collect()
        });
        self.status = Some(ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions,
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        });
    }
}
