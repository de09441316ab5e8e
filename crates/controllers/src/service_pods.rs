//! Pods as endpoints of the Services that select them: which of them are, with which addresses and
//! port numbers. Used by the controllers of Endpoints and of EndpointSlices.

use std::net::IpAddr;

use client::ObjectKey;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::lookup::{Selecting, namespace_of};

pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// The Services that select a pod.
pub fn services_selecting(services: &Selecting<Service>, pod: &Pod) -> Vec<ObjectKey> {
    let namespace = namespace_of(&pod.metadata);
    let services = services.of_labels(namespace, pod.metadata.labels.as_ref());
    services
        .iter()
        .map(|service| ObjectKey::of(&**service))
        .collect()
}

pub fn ports(service: &Service) -> &[ServicePort] {
    service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_deref())
        .unwrap_or_default()
}

pub fn is_headless(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| matches!(spec.cluster_ip.as_deref(), Some("None")))
}

pub fn publishes_unready(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.publish_not_ready_addresses == Some(true))
}

/// A pod that can be an endpoint: it has an address and has not ended.
pub fn is_endpoint(pod: &Pod, include_terminating: bool) -> bool {
    !semantics::pod::is_terminal(pod)
        && (include_terminating || pod.metadata.deletion_timestamp.is_none())
        && addresses(pod).next().is_some()
}

/// The pod's address of a family, `IPv4` or `IPv6`.
pub fn address_of_family(pod: &Pod, family: &str) -> Option<String> {
    addresses(pod)
        .find(|address| family_of(address) == family)
        .map(str::to_string)
}

pub fn family_of(address: &str) -> &'static str {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => "IPv6",
        _ => "IPv4",
    }
}

/// The families a Service has endpoints in, its own first.
pub fn families(service: &Service) -> Vec<String> {
    let spec = service.spec.as_ref();
    let declared = spec.and_then(|spec| spec.ip_families.clone());
    match declared {
        Some(families) if !families.is_empty() => families,
        _ => match spec.and_then(|spec| spec.cluster_ip.as_deref()) {
            Some(address) if address != "None" && !address.is_empty() => {
                vec![family_of(address).to_string()]
            }
            _ => vec!["IPv4".to_string(), "IPv6".to_string()],
        },
    }
}

/// The name under which DNS finds the pod in this Service.
pub fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let belongs = spec.subdomain.is_some()
        && spec.subdomain == service.metadata.name
        && pod.metadata.namespace == service.metadata.namespace;
    spec.hostname
        .clone()
        .filter(|hostname| belongs && !hostname.is_empty())
}

pub fn target_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_string()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The number that a pod gives a Service's port; none if it has no port of that name.
pub fn port_number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    match port.target_port.as_ref() {
        None | Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => named_port(pod, name, port.protocol.as_deref()),
    }
}

fn named_port(pod: &Pod, name: &str, protocol: Option<&str>) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    spec.containers
        .iter()
        .chain(semantics::pod::sidecars(spec))
        .flat_map(|container| container.ports.iter().flatten())
        .find(|port| {
            port.name.as_deref() == Some(name)
                && port.protocol.as_deref().unwrap_or("TCP") == protocol.unwrap_or("TCP")
        })
        .map(|port| port.container_port)
}

fn addresses(pod: &Pod) -> impl Iterator<Item = &str> {
    let status = pod.status.as_ref();
    let many = status
        .and_then(|status| status.pod_ips.as_deref())
        .unwrap_or_default()
        .iter()
        .map(|address| address.ip.as_str());
    let single = status.and_then(|status| status.pod_ip.as_deref());
    many.chain(single).filter(|address| !address.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn named_ports_are_found_in_containers_and_sidecars_by_protocol() {
        let pod = pod(serde_json::json!({"spec": {
            "containers": [{"name": "a", "ports": [
                {"name": "dns", "containerPort": 53, "protocol": "UDP"}]}],
            "initContainers": [
                {"name": "i", "ports": [{"name": "once", "containerPort": 1}]},
                {"name": "s", "restartPolicy": "Always",
                    "ports": [{"name": "mesh", "containerPort": 15001}]}],
        }}));
        let check = |name: &str, protocol: &str, expected: Option<i32>| {
            let port = serde_json::from_value(serde_json::json!({
                "port": 80, "targetPort": name, "protocol": protocol,
            }));
            assert_eq!(port_number(&pod, &port.unwrap()), expected, "{name}");
        };
        check("dns", "UDP", Some(53));
        check("dns", "TCP", None);
        check("mesh", "TCP", Some(15001));
        check("once", "TCP", None);
    }

    #[test]
    fn an_address_is_chosen_by_family() {
        let pod = pod(serde_json::json!({"status": {
            "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}));
        assert_eq!(address_of_family(&pod, "IPv4").as_deref(), Some("10.0.0.1"));
        assert_eq!(address_of_family(&pod, "IPv6").as_deref(), Some("fd00::1"));
        assert!(is_endpoint(&pod, false));
    }
}
