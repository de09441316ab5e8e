//! The strategies of the built-in kinds: what a schema cannot say about them, such as defaults that
//! depend on other fields, what an update may change, validation across fields, selectable fields
//! and table cells.
//!
//! A kind is one file here. The contract is [`crate::resource::Strategy`]. Nothing here talks HTTP or
//! reads the store.

mod admission_registration;
pub mod api_service;
mod certificate_signing_request;
mod checks;
pub mod claim_spec;
mod conditions;
pub mod config_map;
mod controller_revision;
mod cron_job;
mod csi_driver;
mod csi_node;
mod csi_storage_capacity;
pub mod custom_resource_definition;
mod daemon_set;
mod deployment;
mod devices;
mod endpoint_slice;
mod endpoints;
pub mod event;
mod flow_control;
mod horizontal_pod_autoscaler;
mod ingress;
mod ingress_class;
mod int_or_percent;
mod ip_address;
mod job;
mod lease;
mod limit_range;
pub mod namespace;
mod network_policy;
mod node;
mod node_selector;
mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
mod pod_disruption_budget;
mod pod_template;
mod priority_class;
mod rbac;
mod replica_set;
mod replication_controller;
mod resource_names;
mod resource_quota;
mod runtime_class;
mod secret;
pub mod service;
mod service_account;
mod service_cidr;
mod stateful_set;
mod storage_class;
mod storage_version_migration;
mod terminating_definition;
mod volume_attachment;
mod volume_attributes_class;
mod workload;

#[cfg(test)]
mod tests;

use crate::resource::Strategy;

/// The strategy of a built-in kind that has rules of its own.
pub(crate) fn built_in(group: &str, kind: &str) -> Option<&'static dyn Strategy> {
    Some(match (group, kind) {
        ("", "ConfigMap") => &config_map::ConfigMap,
        ("", "Endpoints") => &endpoints::Endpoints,
        ("", "Event") => &event::Event { strict: false },
        ("", "LimitRange") => &limit_range::LimitRange,
        ("", "Namespace") => &namespace::Namespace,
        ("", "Node") => &node::Node,
        ("", "PersistentVolume") => &persistent_volume::PersistentVolume,
        ("", "PersistentVolumeClaim") => &persistent_volume_claim::PersistentVolumeClaim,
        ("", "Pod") => &pod::Pod,
        ("", "PodTemplate") => &pod_template::PodTemplate,
        ("", "ReplicationController") => &replication_controller::ReplicationController,
        ("", "ResourceQuota") => &resource_quota::ResourceQuota,
        ("", "Secret") => &secret::Secret,
        ("", "Service") => &service::Service,
        ("", "ServiceAccount") => &service_account::ServiceAccount,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            &custom_resource_definition::CustomResourceDefinition {
                expressions: Some(crate::expressions::RULES),
            }
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            &admission_registration::MutatingAdmissionPolicy
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            &admission_registration::PolicyBinding { is_mutating: true }
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            &admission_registration::WebhookConfiguration { is_mutating: true }
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            &admission_registration::ValidatingAdmissionPolicy
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            &admission_registration::PolicyBinding { is_mutating: false }
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            &admission_registration::WebhookConfiguration { is_mutating: false }
        }
        ("apiregistration.k8s.io", "APIService") => &api_service::ApiService,
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
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            &certificate_signing_request::CertificateSigningRequest
        }
        ("coordination.k8s.io", "Lease") => &lease::Lease,
        ("events.k8s.io", "Event") => &event::Event { strict: true },
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => &flow_control::FlowSchema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            &flow_control::PriorityLevelConfiguration
        }
        ("policy", "PodDisruptionBudget") => &pod_disruption_budget::PodDisruptionBudget,
        ("discovery.k8s.io", "EndpointSlice") => &endpoint_slice::EndpointSlice,
        ("networking.k8s.io", "IPAddress") => &ip_address::IpAddress,
        ("networking.k8s.io", "Ingress") => &ingress::Ingress,
        ("networking.k8s.io", "IngressClass") => &ingress_class::IngressClass,
        ("networking.k8s.io", "NetworkPolicy") => &network_policy::NetworkPolicy,
        ("networking.k8s.io", "ServiceCIDR") => &service_cidr::ServiceCidr,
        ("node.k8s.io", "RuntimeClass") => &runtime_class::RuntimeClass,
        ("rbac.authorization.k8s.io", "ClusterRole") => &rbac::Role { namespaced: false },
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => &rbac::Binding { namespaced: false },
        ("rbac.authorization.k8s.io", "Role") => &rbac::Role { namespaced: true },
        ("rbac.authorization.k8s.io", "RoleBinding") => &rbac::Binding { namespaced: true },
        ("resource.k8s.io", "DeviceClass") => &devices::class::DeviceClass,
        ("resource.k8s.io", "ResourceClaim") => &devices::claim::ResourceClaim,
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            &devices::claim_template::ResourceClaimTemplate
        }
        ("resource.k8s.io", "ResourceSlice") => &devices::slice::ResourceSlice,
        ("scheduling.k8s.io", "PriorityClass") => &priority_class::PriorityClass,
        ("storage.k8s.io", "CSIDriver") => &csi_driver::CsiDriver,
        ("storage.k8s.io", "CSINode") => &csi_node::CsiNode,
        ("storage.k8s.io", "CSIStorageCapacity") => &csi_storage_capacity::CsiStorageCapacity,
        ("storage.k8s.io", "StorageClass") => &storage_class::StorageClass,
        ("storage.k8s.io", "VolumeAttachment") => &volume_attachment::VolumeAttachment,
        ("storage.k8s.io", "VolumeAttributesClass") => {
            &volume_attributes_class::VolumeAttributesClass
        }
        ("storagemigration.k8s.io", "StorageVersionMigration") => {
            &storage_version_migration::StorageVersionMigration
        }
        _ => return None,
    })
}
