//! EndpointSlices.

use std::net::IpAddr;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, immutable, names};
use crate::strategy::endpoints::first_few;
use crate::strategy::pod::containers::one_of;
use crate::strategy::pod::validate::address;
use crate::strategy::{Strategy, generic};
use crate::table::duration::object_age;

const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;

pub struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn namespaced(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for port in object.list_at_mut(&["ports"]) {
            if !port.has(&["name"]) {
                port.set(&["name"], "");
            }
            port.set_default(&["protocol"], "TCP");
        }
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, _: &str) {
        // Labels choose the Service, so they count as a change of the desired state.
        let at = ["metadata", "labels"];
        if !generic::desired_state_changed(new, old) && new.at(&at) != old.at(&at) {
            let generation = old.i64_at(&["metadata", "generation"]).unwrap_or(0);
            new.set(&["metadata", "generation"], generation + 1);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let root = Path::new("");
        let kinds = ["FQDN", "IPv4", "IPv6"];
        one_of(object, "addressType", &kinds, &root, &mut errors);
        ports(object.list_at(&["ports"]), &mut errors);
        endpoints(object, &mut errors);
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        let name = "addressType";
        errors.extend(immutable(new.get(name), old.get(name), &Path::new(name)));
        errors
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let ports: Vec<String> = object
            .list_at(&["ports"])
            .iter()
            .map(|port| match port.i64_at(&["port"]) {
                Some(number) => number.to_string(),
                None if port.has(&["name"]) => port.str_at(&["name"]).to_string(),
                None => "*".to_string(),
            })
            .collect();
        let addresses: Vec<String> = object
            .list_at(&["endpoints"])
            .iter()
            .flat_map(|endpoint| endpoint.list_at(&["addresses"]))
            .filter_map(|address| address.as_str().map(str::to_string))
            .collect();
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["addressType"]).into(),
            first_few(&ports, "<unset>").into(),
            first_few(&addresses, "<unset>").into(),
            object_age(object, now).into(),
        ]
    }
}

fn ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let path = Path::new("ports");
    if ports.len() > MOST_PORTS {
        errors.push(FieldError::too_many(&path, ports.len(), MOST_PORTS));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = port.str_at(&["name"]);
        if !name.is_empty() {
            errors.extend(all_invalid(&at.child("name"), name, names::dns_label(name)));
        }
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        seen.push(name);
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
    }
}

fn endpoints(object: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("endpoints");
    let endpoints = object.list_at(&["endpoints"]);
    if endpoints.len() > MOST_ENDPOINTS {
        let error = FieldError::too_many(&path, endpoints.len(), MOST_ENDPOINTS);
        errors.push(error);
        return;
    }
    let kind = object.str_at(&["addressType"]);
    for (index, endpoint) in endpoints.iter().enumerate() {
        let at = path.index(index);
        let addresses_path = at.child("addresses");
        let addresses = endpoint.list_at(&["addresses"]);
        if addresses.is_empty() {
            let detail = "must contain at least 1 address";
            errors.push(FieldError::required(&addresses_path, detail));
        } else if addresses.len() > MOST_ADDRESSES {
            let error = FieldError::too_many(&addresses_path, addresses.len(), MOST_ADDRESSES);
            errors.push(error);
        }
        for (index, one) in addresses.iter().enumerate() {
            let text = one.as_str().unwrap_or_default();
            if !matches!(kind, "IPv4" | "IPv6") {
                continue;
            }
            let error = address(text, &addresses_path.index(index));
            let family = text.parse::<IpAddr>().map(|address| match address {
                IpAddr::V4(_) => "IPv4",
                IpAddr::V6(_) => "IPv6",
            });
            if family.is_ok_and(|family| family != kind) {
                let detail = format!("must be an {kind} address");
                errors.push(FieldError::invalid(&addresses_path, text, detail));
            }
            errors.extend(error);
        }
        let node = endpoint.str_at(&["nodeName"]);
        if !node.is_empty() {
            let wrong = names::dns_subdomain(node);
            errors.extend(all_invalid(&at.child("nodeName"), node, wrong));
        }
        let hostname = endpoint.str_at(&["hostname"]);
        if !hostname.is_empty() {
            let wrong = names::dns_label(hostname);
            errors.extend(all_invalid(&at.child("hostname"), hostname, wrong));
        }
    }
}
