//! Events about pods, their containers and the node, worded as upstream words them.

use std::collections::BTreeMap;

use client::events::{Recorder, Severity, reference};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

use crate::pod_spec::{Role, role};

#[derive(Clone)]
pub struct Events(pub Recorder);

impl Events {
    pub fn normal(&self, pod: &Pod, reason: &str, message: impl Into<String>) {
        self.0.normal(pod, reason, message);
    }

    pub fn warning(&self, pod: &Pod, reason: &str, message: impl Into<String>) {
        self.0.warning(pod, reason, message);
    }

    /// A warning with annotations for programs.
    pub fn warning_annotated(
        &self,
        pod: &Pod,
        reason: &str,
        message: impl Into<String>,
        annotations: BTreeMap<String, String>,
    ) {
        let about = reference(pod);
        let severity = Severity::Warning;
        self.0
            .record_annotated(about, severity, reason, message, annotations);
    }

    /// About the node itself, which carries its name for a UID in events, as upstream has it.
    pub fn node(&self, name: &str, severity: Severity, reason: &str, message: impl Into<String>) {
        let about = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.0.record(about, severity, reason, message);
    }

    /// About one container: the reference names its place in the spec.
    pub fn container(
        &self,
        pod: &Pod,
        container: &str,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        let mut about = reference(pod);
        about.field_path = Some(field_path(pod, container));
        self.0.record(about, severity, reason, message);
    }
}

fn field_path(pod: &Pod, container: &str) -> String {
    let list = match role(pod, container) {
        Role::Init => "spec.initContainers",
        Role::App => "spec.containers",
        Role::Ephemeral => "spec.ephemeralContainers",
    };
    format!("{list}{{{container}}}")
}
