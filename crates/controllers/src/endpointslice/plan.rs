//! Which slices a Service should have. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{MANAGED_BY, MANAGED_BY_LABEL, SERVICE_LABEL, is_endpoint};
use crate::meta;

/// The most endpoints in one slice.
const SLICE_SIZE: usize = 100;

#[derive(Debug, PartialEq)]
pub enum Action {
    Create(Box<EndpointSlice>),
    Replace(Box<EndpointSlice>),
    Delete { name: String },
}

/// Slices are made per set of port numbers (pods may give a named port different numbers).
/// Existing slices are kept and changed in place, so that watchers see the smallest difference.
pub fn plan(service: &Service, pods: &[Arc<Pod>], existing: &[Arc<EndpointSlice>]) -> Vec<Action> {
    let mut groups: BTreeMap<String, (Vec<EndpointPort>, Vec<Endpoint>)> = BTreeMap::new();
    let publish_unready = service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    for pod in pods.iter().filter(|pod| is_endpoint(pod)) {
        let ports = ports_for(service, pod);
        let key = serde_json::to_string(&ports).unwrap_or_default();
        groups
            .entry(key)
            .or_insert_with(|| (ports, Vec::new()))
            .1
            .push(endpoint(service, pod, publish_unready));
    }
    if groups.is_empty() {
        // An empty slice tells consumers that the Service is known and has nobody.
        groups.insert(String::new(), (ports_without_pods(service), Vec::new()));
    }
    let mut wanted: Vec<(Vec<EndpointPort>, Vec<Endpoint>)> = Vec::new();
    for (ports, mut endpoints) in groups.into_values() {
        endpoints.sort_by(|a, b| a.addresses.cmp(&b.addresses));
        if endpoints.is_empty() {
            wanted.push((ports, endpoints));
            continue;
        }
        for chunk in endpoints.chunks(SLICE_SIZE) {
            wanted.push((ports.clone(), chunk.to_vec()));
        }
    }

    let mut free: Vec<&Arc<EndpointSlice>> = existing
        .iter()
        .filter(|slice| slice.metadata.deletion_timestamp.is_none())
        .collect();
    free.sort_by_key(|slice| slice.metadata.name.clone());
    let mut actions = Vec::new();
    for (ports, endpoints) in wanted {
        let same_ports = free
            .iter()
            .position(|slice| slice.ports.as_deref().unwrap_or_default() == ports)
            .or((!free.is_empty()).then_some(0));
        match same_ports {
            Some(index) => {
                let current = free.remove(index);
                let mut updated = (**current).clone();
                updated.endpoints = Some(endpoints).filter(|endpoints| !endpoints.is_empty());
                updated.ports = Some(ports).filter(|ports| !ports.is_empty());
                updated.metadata.labels = Some(labels(service));
                let mut compared = (**current).clone();
                compared.endpoints = compared.endpoints.filter(|list| !list.is_empty());
                compared.ports = compared.ports.filter(|list| !list.is_empty());
                if updated != compared {
                    actions.push(Action::Replace(Box::new(updated)));
                }
            }
            None => actions.push(Action::Create(Box::new(new_slice(
                service, ports, endpoints,
            )))),
        }
    }
    for slice in free {
        actions.push(Action::Delete {
            name: slice.metadata.name.clone().unwrap_or_default(),
        });
    }
    actions
}

pub fn labels_match(selector: &BTreeMap<String, String>, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector
        .iter()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// UIDs of pods that are ready in `slice` and were not in any slice `before`.
pub fn newly_ready<'a>(
    slice: &'a EndpointSlice,
    before: &[Arc<EndpointSlice>],
) -> impl Iterator<Item = &'a str> {
    let known: BTreeSet<String> = before
        .iter()
        .flat_map(|slice| ready_uids(slice))
        .map(str::to_string)
        .collect();
    ready_uids(slice).filter(move |uid| !known.contains(*uid))
}

fn ready_uids(slice: &EndpointSlice) -> impl Iterator<Item = &str> {
    slice
        .endpoints
        .iter()
        .flatten()
        .filter(|endpoint| {
            endpoint
                .conditions
                .as_ref()
                .is_some_and(|conditions| conditions.ready == Some(true))
        })
        .filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.as_deref())
}

fn new_slice(
    service: &Service,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!(
                "{}-",
                service.metadata.name.as_deref().unwrap_or_default()
            )),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels(service)),
            owner_references: Some(vec![meta::owner_reference(service)]),
            ..ObjectMeta::default()
        },
        address_type: "IPv4".to_string(),
        endpoints: Some(endpoints).filter(|endpoints| !endpoints.is_empty()),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(
        SERVICE_LABEL.to_string(),
        service.metadata.name.clone().unwrap_or_default(),
    );
    labels.insert(MANAGED_BY_LABEL.to_string(), MANAGED_BY.to_string());
    let headless = service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"));
    if headless {
        labels.insert("service.kubernetes.io/headless".to_string(), String::new());
    }
    labels
}

fn endpoint(service: &Service, pod: &Pod, publish_unready: bool) -> Endpoint {
    let status = pod.status.clone().unwrap_or_default();
    let spec = pod.spec.clone().unwrap_or_default();
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let serving = meta::is_ready(pod);
    let same_subdomain = spec.hostname.is_some()
        && spec.subdomain == service.metadata.name
        && pod.metadata.namespace == service.metadata.namespace;
    Endpoint {
        addresses: vec![status.pod_ip.unwrap_or_default()],
        conditions: Some(EndpointConditions {
            ready: Some(publish_unready || serving && !terminating),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: spec.hostname.filter(|_| same_subdomain),
        node_name: spec.node_name,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_string()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    }
}

/// The Service's ports with the numbers this pod gives them; ports it does not have are left out.
fn ports_for(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    service_ports(service)
        .iter()
        .filter_map(|port| {
            let number = match port.target_port.as_ref() {
                None => Some(port.port),
                Some(IntOrString::Int(0)) => Some(port.port),
                Some(IntOrString::Int(number)) => Some(*number),
                Some(IntOrString::String(name)) => named_port(pod, name, port.protocol.as_deref()),
            }?;
            Some(endpoint_port(port, number))
        })
        .collect()
}

fn ports_without_pods(service: &Service) -> Vec<EndpointPort> {
    service_ports(service)
        .iter()
        .filter_map(|port| match port.target_port.as_ref() {
            None | Some(IntOrString::Int(0)) => Some(endpoint_port(port, port.port)),
            Some(IntOrString::Int(number)) => Some(endpoint_port(port, *number)),
            Some(IntOrString::String(_)) => None,
        })
        .collect()
}

fn endpoint_port(port: &ServicePort, number: i32) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(number),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_string())),
        app_protocol: port.app_protocol.clone(),
    }
}

fn named_port(pod: &Pod, name: &str, protocol: Option<&str>) -> Option<i32> {
    pod.spec
        .as_ref()?
        .containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
        .find(|port| {
            port.name.as_deref() == Some(name)
                && port.protocol.as_deref().unwrap_or("TCP") == protocol.unwrap_or("TCP")
        })
        .map(|port| port.container_port)
}

fn service_ports(service: &Service) -> &[ServicePort] {
    service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_deref())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "s"},
            "spec": {"selector": {"app": "web"}, "clusterIP": "10.96.0.5",
                "ports": [{"port": 80, "targetPort": "http", "protocol": "TCP"}]},
        }))
        .unwrap()
    }

    fn pod(name: &str, address: &str, ready: bool) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "uid": name, "namespace": "default", "labels": {"app": "web"}},
                "spec": {"nodeName": "n", "containers": [
                    {"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
                "status": {"phase": "Running", "podIP": address,
                    "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn a_service_gets_a_slice_with_its_pods_and_their_port_numbers() {
        let pods = [pod("a", "10.244.0.3", true), pod("b", "10.244.0.2", false)];
        let actions = plan(&service(), &pods, &[]);
        let [Action::Create(slice)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        let endpoints = slice.endpoints.as_ref().unwrap();
        assert_eq!(endpoints[0].addresses, ["10.244.0.2"]);
        assert_eq!(endpoints[0].conditions.as_ref().unwrap().ready, Some(false));
        assert_eq!(endpoints[1].conditions.as_ref().unwrap().ready, Some(true));
        assert_eq!(slice.ports.as_ref().unwrap()[0].port, Some(8080));
        assert_eq!(newly_ready(slice, &[]).collect::<Vec<_>>(), ["a"]);

        let mut stored = (**slice).clone();
        stored.metadata.name = Some("web-x".into());
        let stored = Arc::new(stored);
        assert_eq!(plan(&service(), &pods, std::slice::from_ref(&stored)), []);
        let later = [pod("a", "10.244.0.3", true)];
        let actions = plan(&service(), &later, &[stored]);
        assert!(
            matches!(actions.as_slice(), [Action::Replace(_)]),
            "{actions:?}"
        );
    }

    #[test]
    fn nobody_there_is_an_empty_slice() {
        let actions = plan(&service(), &[pod("a", "", true)], &[]);
        let [Action::Create(slice)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        assert_eq!(slice.endpoints, None);
    }

    #[test]
    fn more_pods_than_a_slice_holds_make_several() {
        let pods: Vec<Arc<Pod>> = (0..150)
            .map(|n| pod(&format!("p{n}"), &format!("10.244.1.{n}"), true))
            .collect();
        assert_eq!(plan(&service(), &pods, &[]).len(), 2);
    }
}
