//! The slices that mirror an Endpoints object written by hand. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::MANAGED_BY;
use crate::endpointslice::packing::{self, Action, Group};
use crate::endpointslice::{MANAGED_BY_LABEL, SERVICE_LABEL};
use crate::meta;

/// The most addresses of a subset that are mirrored.
pub const CAPACITY: usize = 1000;
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const NOT_COPIED: [&str; 2] = [
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// What a mirroring could not take along.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    pub invalid: usize,
    pub too_many: usize,
}

/// Whether an Endpoints object of this Service is to be mirrored at all.
pub fn is_mirrored(endpoints: &Endpoints, service: Option<&Service>) -> bool {
    let has = |map: &Option<BTreeMap<String, String>>, key: &str| {
        map.as_ref().is_some_and(|map| map.contains_key(key))
    };
    let skipped = endpoints
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(SKIP_MIRROR))
        .is_some_and(|value| value == "true");
    !skipped
        && !has(&endpoints.metadata.annotations, LEADER)
        && service.is_some_and(|service| {
            let spec = service.spec.as_ref();
            spec.is_none_or(|spec| spec.selector.is_none())
        })
}

pub fn plan(endpoints: &Endpoints, existing: &[Arc<EndpointSlice>]) -> (Vec<Action>, Skipped) {
    let mut skipped = Skipped::default();
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<EndpointPort> = subset
            .ports
            .iter()
            .flatten()
            .map(|port| EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(port.port),
                protocol: port.protocol.clone(),
                app_protocol: port.app_protocol.clone(),
            })
            .collect();
        let key = serde_json::to_string(&ports).unwrap_or_default();
        let ready = subset
            .addresses
            .iter()
            .flatten()
            .map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten();
        let mut taken = 0;
        for (address, ready) in ready.chain(unready.map(|address| (address, false))) {
            if taken >= CAPACITY {
                skipped.too_many += 1;
                continue;
            }
            let Some((family, endpoint)) = endpoint(address, ready) else {
                skipped.invalid += 1;
                continue;
            };
            taken += 1;
            let group = groups
                .entry((family.to_string(), key.clone()))
                .or_insert_with(|| Group {
                    address_type: family.to_string(),
                    ports: ports.clone(),
                    endpoints: Vec::new(),
                });
            group.endpoints.push(endpoint);
        }
    }
    let template = template(endpoints);
    let groups = groups.into_values().collect();
    (packing::pack(&template, groups, existing), skipped)
}

fn template(endpoints: &Endpoints) -> ObjectMeta {
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_LABEL.to_string(), name.clone());
    labels.insert(MANAGED_BY_LABEL.to_string(), MANAGED_BY.to_string());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    ObjectMeta {
        generate_name: Some(format!("{name}-")),
        namespace: endpoints.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![meta::owner_reference(endpoints)]),
        ..ObjectMeta::default()
    }
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Option<(&'static str, Endpoint)> {
    let parsed: IpAddr = address.ip.parse().ok()?;
    let family = if parsed.is_ipv4() { "IPv4" } else { "IPv6" };
    let endpoint = Endpoint {
        addresses: vec![parsed.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    };
    Some((family, endpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(value: serde_json::Value) -> Endpoints {
        serde_json::from_value(value).unwrap()
    }

    fn service(selector: serde_json::Value) -> Service {
        serde_json::from_value(serde_json::json!({"spec": {"selector": selector}})).unwrap()
    }

    #[test]
    fn families_are_kept_apart_and_bad_addresses_left_out() {
        let endpoints = endpoints(serde_json::json!({
            "metadata": {"name": "db", "namespace": "x", "labels": {"l": "1"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}},
            "subsets": [{
                "addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "nonsense"}],
                "notReadyAddresses": [{"ip": "10.0.0.2"}],
                "ports": [{"port": 5432, "protocol": "TCP"}],
            }],
        }));
        let (actions, skipped) = plan(&endpoints, &[]);
        assert_eq!(
            skipped,
            Skipped {
                invalid: 1,
                too_many: 0
            }
        );
        let slices: Vec<&EndpointSlice> = actions
            .iter()
            .map(|action| match action {
                Action::Create(slice) => &**slice,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(slices[0].address_type, "IPv4");
        assert_eq!(slices[0].endpoints.as_ref().unwrap().len(), 2);
        assert_eq!(slices[1].address_type, "IPv6");
        let metadata = &slices[0].metadata;
        assert_eq!(metadata.annotations.as_ref().unwrap().len(), 1);
        assert_eq!(metadata.labels.as_ref().unwrap()[SERVICE_LABEL], "db");
    }

    #[test]
    fn only_endpoints_of_services_without_a_selector_are_mirrored() {
        let plain = endpoints(serde_json::json!({"metadata": {"name": "db"}}));
        assert!(is_mirrored(&plain, Some(&service(serde_json::Value::Null))));
        assert!(!is_mirrored(&plain, None));
        assert!(!is_mirrored(
            &plain,
            Some(&service(serde_json::json!({"a": "b"})))
        ));
        let marked = endpoints(serde_json::json!({"metadata": {"name": "db",
            "labels": {SKIP_MIRROR: "true"}}}));
        assert!(!is_mirrored(
            &marked,
            Some(&service(serde_json::Value::Null))
        ));
        let elected = endpoints(serde_json::json!({"metadata": {"name": "db",
            "annotations": {LEADER: "{}"}}}));
        assert!(!is_mirrored(
            &elected,
            Some(&service(serde_json::Value::Null))
        ));
    }
}
