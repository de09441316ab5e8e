//! The Endpoints object that a Service should have. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::service_pods;

pub const MANAGED_BY_LABEL: &str = "endpoints.kubernetes.io/managed-by";
pub const MANAGED_BY: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The most addresses in one object.
const CAPACITY: usize = 1000;

/// The object to write; none if `current` is as it should be.
pub fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    current: Option<&Endpoints>,
) -> Option<Endpoints> {
    let mut subsets = subsets(service, pods);
    let truncated = truncate(&mut subsets);
    let mut wanted = current.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    wanted.subsets = Some(subsets).filter(|subsets| !subsets.is_empty());
    wanted.metadata.labels = Some(labels(service));
    let mut annotations = wanted.metadata.annotations.take().unwrap_or_default();
    match truncated {
        true => annotations.insert(OVER_CAPACITY.to_string(), "truncated".to_string()),
        false => annotations.remove(OVER_CAPACITY),
    };
    wanted.metadata.annotations = Some(annotations).filter(|all| !all.is_empty());
    let same = current.is_some_and(|current| {
        normalised(&current.subsets) == normalised(&wanted.subsets)
            && current.metadata.labels == wanted.metadata.labels
            && current
                .metadata
                .annotations
                .clone()
                .filter(|all| !all.is_empty())
                == wanted.metadata.annotations
    });
    (!same).then_some(wanted)
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    match service_pods::is_headless(service) {
        true => labels.insert(service_pods::HEADLESS_LABEL.to_string(), String::new()),
        false => labels.remove(service_pods::HEADLESS_LABEL),
    };
    labels.insert(MANAGED_BY_LABEL.to_string(), MANAGED_BY.to_string());
    labels
}

/// Addresses that offer the same ports share a subset.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let unready_too = service_pods::publishes_unready(service);
    let families = service_pods::families(service);
    let mut by_ports: BTreeMap<String, EndpointSubset> = BTreeMap::new();
    for pod in pods {
        if !service_pods::is_endpoint(pod, unready_too) {
            continue;
        }
        let family = families.first().map_or("IPv4", String::as_str);
        let Some(ip) = service_pods::address_of_family(pod, family) else {
            continue;
        };
        let mut ports: Vec<EndpointPort> = service_pods::ports(service)
            .iter()
            .filter_map(|port| {
                Some(EndpointPort {
                    name: port.name.clone().filter(|name| !name.is_empty()),
                    port: service_pods::port_number(pod, port)?,
                    protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_string())),
                    app_protocol: port.app_protocol.clone(),
                })
            })
            .collect();
        // Only a headless Service may have no ports at all.
        let portless =
            service_pods::ports(service).is_empty() && service_pods::is_headless(service);
        if ports.is_empty() && !portless {
            continue;
        }
        ports.sort_by(|a, b| (&a.name, a.port, &a.protocol).cmp(&(&b.name, b.port, &b.protocol)));
        let key = serde_json::to_string(&ports).unwrap_or_default();
        let subset = by_ports.entry(key).or_insert_with(|| EndpointSubset {
            ports: Some(ports).filter(|ports| !ports.is_empty()),
            ..EndpointSubset::default()
        });
        let address = EndpointAddress {
            ip,
            hostname: service_pods::hostname(service, pod),
            node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            target_ref: Some(service_pods::target_reference(pod)),
        };
        match unready_too || semantics::pod::is_ready(pod) {
            true => subset.addresses.get_or_insert_default().push(address),
            false => subset
                .not_ready_addresses
                .get_or_insert_default()
                .push(address),
        }
    }
    by_ports.into_values().map(sorted).collect()
}

fn sorted(mut subset: EndpointSubset) -> EndpointSubset {
    let lists = [&mut subset.addresses, &mut subset.not_ready_addresses];
    for list in lists.into_iter().flatten() {
        list.sort_by(|a, b| (&a.ip, uid(a)).cmp(&(&b.ip, uid(b))));
    }
    subset
}

fn uid(address: &EndpointAddress) -> Option<&String> {
    address.target_ref.as_ref()?.uid.as_ref()
}

fn normalised(subsets: &Option<Vec<EndpointSubset>>) -> BTreeSet<String> {
    let each = subsets.iter().flatten().cloned().map(sorted);
    each.map(|subset| serde_json::to_string(&subset).unwrap_or_default())
        .collect()
}

/// Cuts what is too much, unready addresses first, each subset by its share; true if it did.
fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let unready: usize = subsets
        .iter()
        .map(|subset| count(&subset.not_ready_addresses))
        .sum();
    if ready + unready <= CAPACITY {
        return false;
    }
    let cut_ready = ready > CAPACITY;
    let (room, total) = match cut_ready {
        true => (CAPACITY, ready),
        false => (CAPACITY - ready, unready),
    };
    let mut left = room;
    for subset in subsets {
        let list = match cut_ready {
            true => {
                subset.not_ready_addresses = None;
                &mut subset.addresses
            }
            false => &mut subset.not_ready_addresses,
        };
        let share = (count(list) * room).div_ceil(total.max(1)).min(left);
        if let Some(addresses) = list {
            addresses.truncate(share);
            left -= addresses.len();
        }
        if list.as_ref().is_some_and(Vec::is_empty) {
            *list = None;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(extra: serde_json::Value) -> Service {
        let mut value = serde_json::json!({
            "metadata": {"name": "web", "namespace": "default", "labels": {"a": "b"}},
            "spec": {"selector": {"app": "web"}, "clusterIP": "10.96.0.5", "ipFamilies": ["IPv4"],
                "ports": [{"port": 80, "targetPort": "http", "protocol": "TCP"}]},
        });
        for (key, new) in extra.as_object().unwrap() {
            value["spec"][key] = new.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    fn pod(name: &str, address: &str, ready: bool, port: i32) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "uid": name, "namespace": "default"},
                "spec": {"nodeName": "n", "containers": [
                    {"name": "c", "ports": [{"name": "http", "containerPort": port}]}]},
                "status": {"phase": "Running", "podIP": address,
                    "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn ready_and_unready_pods_are_distinguished_and_ports_make_subsets() {
        let pods = [
            pod("a", "10.0.0.2", true, 8080),
            pod("b", "10.0.0.1", false, 8080),
            pod("c", "10.0.0.3", true, 9090),
        ];
        let service = service(serde_json::json!({}));
        let endpoints = plan(&service, &pods, None).unwrap();
        let subsets = endpoints.subsets.clone().unwrap();
        assert_eq!(subsets.len(), 2);
        assert_eq!(subsets[0].addresses.as_ref().unwrap()[0].ip, "10.0.0.2");
        assert_eq!(
            subsets[0].not_ready_addresses.as_ref().unwrap()[0].ip,
            "10.0.0.1"
        );
        assert_eq!(subsets[1].ports.as_ref().unwrap()[0].port, 9090);
        let labels = endpoints.metadata.labels.as_ref().unwrap();
        assert_eq!(labels[MANAGED_BY_LABEL], MANAGED_BY);
        assert_eq!(labels["a"], "b");
        assert_eq!(plan(&service, &pods, Some(&endpoints)), None);
        assert!(plan(&service, &pods[1..], Some(&endpoints)).is_some());
    }

    #[test]
    fn unready_and_terminating_pods_count_when_the_service_says_so() {
        let mut leaving = (*pod("a", "10.0.0.2", false, 80)).clone();
        leaving.metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
        );
        let pods = [Arc::new(leaving)];
        let plain = plan(&service(serde_json::json!({})), &pods, None).unwrap();
        assert_eq!(plain.subsets, None);
        let published = service(serde_json::json!({"publishNotReadyAddresses": true}));
        let subsets = plan(&published, &pods, None).unwrap().subsets.unwrap();
        assert_eq!(subsets[0].addresses.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn more_than_the_capacity_is_cut_unready_first() {
        let make = |count: usize, ready: bool| {
            (0..count).map(move |n| {
                let name = format!("{ready}{n:04}");
                pod(
                    &name,
                    &format!("10.{}.{}.{}", u8::from(ready), n / 250, n % 250),
                    ready,
                    80,
                )
            })
        };
        let pods: Vec<Arc<Pod>> = make(900, true).chain(make(300, false)).collect();
        let endpoints = plan(&service(serde_json::json!({})), &pods, None).unwrap();
        let subset = &endpoints.subsets.as_ref().unwrap()[0];
        assert_eq!(subset.addresses.as_ref().unwrap().len(), 900);
        assert_eq!(subset.not_ready_addresses.as_ref().unwrap().len(), 100);
        assert_eq!(
            endpoints.metadata.annotations.as_ref().unwrap()[OVER_CAPACITY],
            "truncated"
        );
        assert_eq!(
            plan(&service(serde_json::json!({})), &pods, Some(&endpoints)),
            None
        );
        let pods: Vec<Arc<Pod>> = make(1200, true).chain(make(3, false)).collect();
        let endpoints = plan(&service(serde_json::json!({})), &pods, None).unwrap();
        let subset = &endpoints.subsets.as_ref().unwrap()[0];
        assert_eq!(subset.addresses.as_ref().unwrap().len(), 1000);
        assert_eq!(subset.not_ready_addresses, None);
    }
}
