//! Which slices a Service should have. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use super::packing::Action;
use super::packing::{self, Group};
use super::{MANAGED_BY, MANAGED_BY_LABEL, SERVICE_LABEL};
use crate::{meta, service_pods};

/// Where a node is.
#[derive(Clone, Debug, Default)]
pub struct Place {
    pub zone: Option<String>,
}

/// Slices are made per family and set of port numbers (pods may give a named port different
/// numbers). `place_of` knows the nodes: a pod of a node that is not there is no endpoint, unless
/// the Service wants also those that are not ready.
pub fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    existing: &[Arc<EndpointSlice>],
    place_of: impl Fn(&str) -> Option<Place>,
) -> Vec<Action> {
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    for family in service_pods::families(service) {
        let mut somebody = false;
        for pod in pods
            .iter()
            .filter(|pod| service_pods::is_endpoint(pod, true))
        {
            let Some(address) = service_pods::address_of_family(pod, &family) else {
                continue;
            };
            let place = place_of(meta::node_name(pod));
            if place.is_none() && !service_pods::publishes_unready(service) {
                continue;
            }
            somebody = true;
            let ports = ports_for(service, pod);
            let key = (
                family.clone(),
                serde_json::to_string(&ports).unwrap_or_default(),
            );
            let group = groups.entry(key).or_insert_with(|| Group {
                address_type: family.clone(),
                ports,
                endpoints: Vec::new(),
            });
            let zone = place.and_then(|place| place.zone);
            group.endpoints.push(endpoint(service, pod, address, zone));
        }
        let declared = service
            .spec
            .as_ref()
            .and_then(|spec| spec.ip_families.as_ref())
            .is_none_or(|families| families.contains(&family));
        if !somebody && declared {
            // An empty slice shows consumers that the Service is known and has no endpoints.
            let group = Group {
                address_type: family.clone(),
                ..Group::default()
            };
            groups.insert((family, String::new()), group);
        }
    }
    let template = ObjectMeta {
        generate_name: Some(format!(
            "{}-",
            service.metadata.name.as_deref().unwrap_or_default()
        )),
        namespace: service.metadata.namespace.clone(),
        labels: Some(labels(service)),
        owner_references: Some(vec![meta::owner_reference(service)]),
        ..ObjectMeta::default()
    };
    packing::pack(&template, groups.into_values().collect(), existing)
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
        .filter(|endpoint| is_ready(endpoint))
        .filter_map(|endpoint| endpoint.target_ref.as_ref()?.uid.as_deref())
}

fn is_ready(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.is_some_and(|conditions| conditions.ready == Some(true))
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(
        SERVICE_LABEL.to_string(),
        service.metadata.name.clone().unwrap_or_default(),
    );
    labels.insert(MANAGED_BY_LABEL.to_string(), MANAGED_BY.to_string());
    match service_pods::is_headless(service) {
        true => labels.insert(service_pods::HEADLESS_LABEL.to_string(), String::new()),
        false => labels.remove(service_pods::HEADLESS_LABEL),
    };
    labels
}

fn endpoint(service: &Service, pod: &Pod, address: String, zone: Option<String>) -> Endpoint {
    let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let serving = semantics::pod::is_ready(pod);
    let ready = service_pods::publishes_unready(service) || serving && !terminating;
    Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints: hints(service, zone.as_deref(), node_name.as_deref()).filter(|_| ready),
        zone,
        hostname: service_pods::hostname(service, pod),
        node_name,
        target_ref: Some(service_pods::target_reference(pod)),
        ..Endpoint::default()
    }
}

/// For whom an endpoint is near, if the Service asks for near ones.
fn hints(service: &Service, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    let spec = service.spec.as_ref()?;
    let same_node = match spec.traffic_distribution.as_deref()? {
        "PreferClose" | "PreferSameZone" => false,
        "PreferSameNode" => true,
        _ => return None,
    };
    let hints = EndpointHints {
        for_zones: zone.map(|name| {
            vec![ForZone {
                name: name.to_string(),
            }]
        }),
        for_nodes: node.filter(|_| same_node).map(|name| {
            vec![ForNode {
                name: name.to_string(),
            }]
        }),
    };
    (hints != EndpointHints::default()).then_some(hints)
}

/// The Service's ports with the numbers this pod gives them; ports it does not have are left out.
fn ports_for(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    service_pods::ports(service)
        .iter()
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(service_pods::port_number(pod, port)?),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_string())),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "s"},
            "spec": {"selector": {"app": "web"}, "clusterIP": "10.96.0.5", "ipFamilies": ["IPv4"],
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

    fn no_zone(_: &str) -> Option<Place> {
        Some(Place::default())
    }

    fn zone_z(_: &str) -> Option<Place> {
        Some(Place {
            zone: Some("z".into()),
        })
    }

    #[test]
    fn a_pod_of_a_deleted_node_is_no_endpoint() {
        let pods = [pod("a", "10.244.0.3", true)];
        let addresses = |service: &Service| {
            let actions = plan(service, &pods, &[], |_| None);
            let [Action::Create(slice)] = actions.as_slice() else {
                panic!("{actions:?}");
            };
            slice.endpoints.as_ref().unwrap().len()
        };
        let mut service = service();
        assert_eq!(addresses(&service), 0);
        let spec = service.spec.as_mut().unwrap();
        spec.publish_not_ready_addresses = Some(true);
        assert_eq!(addresses(&service), 1);
    }

    #[test]
    fn hints_follow_the_traffic_distribution_of_ready_endpoints() {
        let check = |distribution: &str, ready: bool, expected: serde_json::Value| {
            let mut service = service();
            service.spec.as_mut().unwrap().traffic_distribution = Some(distribution.into());
            let pods = [pod("a", "10.244.0.3", ready)];
            let actions = plan(&service, &pods, &[], zone_z);
            let [Action::Create(slice)] = actions.as_slice() else {
                panic!("{actions:?}");
            };
            let endpoint = &slice.endpoints.as_ref().unwrap()[0];
            assert_eq!(endpoint.zone.as_deref(), Some("z"));
            assert_eq!(
                serde_json::to_value(&endpoint.hints).unwrap(),
                expected,
                "{distribution} {ready}"
            );
        };
        let zone = serde_json::json!({"forZones": [{"name": "z"}]});
        check("PreferClose", true, zone.clone());
        check("PreferSameZone", true, zone);
        check(
            "PreferSameNode",
            true,
            serde_json::json!({"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]}),
        );
        check("PreferClose", false, serde_json::Value::Null);
    }

    #[test]
    fn a_service_gets_a_slice_with_its_pods_and_their_port_numbers() {
        let pods = [pod("a", "10.244.0.3", true), pod("b", "10.244.0.2", false)];
        let actions = plan(&service(), &pods, &[], no_zone);
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
        assert_eq!(
            plan(&service(), &pods, std::slice::from_ref(&stored), no_zone),
            []
        );
        let later = [pod("a", "10.244.0.3", true)];
        let actions = plan(&service(), &later, &[stored], no_zone);
        assert!(
            matches!(actions.as_slice(), [Action::Replace(_)]),
            "{actions:?}"
        );
    }

    #[test]
    fn a_service_without_endpoints_has_an_empty_slice() {
        let actions = plan(&service(), &[pod("a", "", true)], &[], no_zone);
        let [Action::Create(slice)] = actions.as_slice() else {
            panic!("{actions:?}");
        };
        assert_eq!(slice.endpoints, Some(Vec::new()));
    }

    #[test]
    fn more_pods_than_a_slice_holds_make_several() {
        let pods: Vec<Arc<Pod>> = (0..150)
            .map(|n| pod(&format!("p{n}"), &format!("10.244.1.{n}"), true))
            .collect();
        assert_eq!(plan(&service(), &pods, &[], no_zone).len(), 2);
    }
}
