//! A pod's sandbox configuration for CRI. Pure.

use std::path::Path;

use cri::v1;
use k8s_openapi::api::core::v1::Pod;

use super::{hosts, security};
use crate::{pod_spec, runtime::label};

/// The kubelet's own settings that a sandbox depends on.
pub struct Settings<'a> {
    pub log_directory: &'a Path,
    pub cgroup_parent: &'a str,
    pub dns: v1::DnsConfig,
    pub domain: &'a str,
}

pub fn config(pod: &Pod, attempt: u32, settings: Settings<'_>) -> v1::PodSandboxConfig {
    let metadata = &pod.metadata;
    let spec = pod_spec::spec(pod);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (name, namespace, uid) = (
        text(&metadata.name),
        text(&metadata.namespace),
        text(&metadata.uid),
    );
    let mut labels: std::collections::HashMap<String, String> = metadata
        .labels
        .clone()
        .unwrap_or_default()
        .into_iter()
        .collect();
    labels.insert(label::POD_NAME.to_owned(), name.clone());
    labels.insert(label::POD_NAMESPACE.to_owned(), namespace.clone());
    labels.insert(label::POD_UID.to_owned(), uid.clone());
    let hostname = match spec.host_network {
        Some(true) => String::new(),
        // A name that is too long has kept the sandbox from being made.
        _ => hosts::kernel_name(pod, settings.domain).unwrap_or_default(),
    };
    let port_mappings = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .flat_map(|container| container.ports.iter().flatten())
        .filter(|port| port.host_port.is_some_and(|port| port > 0))
        .map(|port| v1::PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => v1::Protocol::Udp,
                Some("SCTP") => v1::Protocol::Sctp,
                _ => v1::Protocol::Tcp,
            } as i32,
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or_default(),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect();
    let sysctls = spec
        .security_context
        .as_ref()
        .and_then(|context| context.sysctls.as_deref())
        .unwrap_or_default()
        .iter()
        .map(|sysctl| (sysctl.name.clone(), sysctl.value.clone()))
        .collect();
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name,
            uid,
            namespace,
            attempt,
        }),
        hostname,
        log_directory: settings.log_directory.to_string_lossy().into_owned(),
        dns_config: Some(settings.dns),
        port_mappings,
        labels,
        annotations: metadata
            .annotations
            .clone()
            .unwrap_or_default()
            .into_iter()
            .collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: settings.cgroup_parent.to_owned(),
            security_context: Some(security::sandbox(pod)),
            sysctls,
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sandbox_carries_the_pods_identity_and_ports() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "ports": [
                {"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]}]},
        }))
        .expect("a pod");
        let config = config(
            &pod,
            2,
            Settings {
                log_directory: Path::new("/logs/shop_web_u1"),
                cgroup_parent: "/coracle-x/kubepods/besteffort/podu1",
                dns: v1::DnsConfig::default(),
                domain: "cluster.local",
            },
        );
        assert_eq!(config.metadata.expect("metadata").attempt, 2);
        assert_eq!(config.hostname, "web");
        assert_eq!(config.port_mappings.len(), 1);
        assert_eq!(config.labels[label::POD_UID], "u1");
        assert_eq!(config.labels["app"], "web");
    }
}
