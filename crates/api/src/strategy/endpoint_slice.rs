//! EndpointSlices.

use crate::addresses;
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, immutable, names};
use crate::repeats::Seen;
use crate::resource::{MetadataChecks, Strategy, generic};
use crate::strategy::checks::{optional_one_of, required_one_of};
use crate::strategy::endpoints::first_few;

const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
const MOST_HINTS: usize = 8;

pub struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for port in object.list_at_mut(&["ports"]) {
            if !port.has(&["name"]) {
                port.set(&["name"], "");
            }
            port.set_missing(&["protocol"], "TCP");
        }
    }

    fn prepare_create_content(&self, object: &mut Value) {
        forget_topology(object, None);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, _: &str) {
        forget_topology(new, Some(old));
        // Labels choose the Service, so they count as a change of the desired state.
        let at = ["metadata", "labels"];
        if !generic::desired_state_changed(new, old) && new.at(&at) != old.at(&at) {
            let generation = old.i64_at(&["metadata", "generation"]).unwrap_or(0);
            new.set(&["metadata", "generation"], generation + 1);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = about_ports(object);
        endpoints(object, &mut errors);
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = about_ports(new);
        // Unchanged endpoints are not validated again.
        if new.get("endpoints") != old.get("endpoints") {
            endpoints(new, &mut errors);
        }
        let name = "addressType";
        errors.extend(immutable(new.get(name), old.get(name), &Path::new(name)));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::WHOLE
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

fn about_ports(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let root = Path::new("");
    let kinds = ["FQDN", "IPv4", "IPv6"];
    required_one_of(object, "addressType", &kinds, &root, &mut errors);
    ports(object.list_at(&["ports"]), &mut errors);
    errors
}

/// The older form of `nodeName` and `zone` is read from what others wrote, never written by v1.
fn forget_topology(new: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| old.get("endpoints") == new.get("endpoints")) {
        return;
    }
    for endpoint in new.list_at_mut(&["endpoints"]) {
        endpoint.remove(&["deprecatedTopology"]);
    }
}

fn ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let path = Path::new("ports");
    if ports.len() > MOST_PORTS {
        errors.push(FieldError::too_many(&path, ports.len(), MOST_PORTS));
        return;
    }
    let mut seen = Seen::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = port.str_at(&["name"]);
        if !name.is_empty() {
            errors.extend(all_invalid(&at.child("name"), name, names::dns_label(name)));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        match port.has(&["protocol"]) {
            true => optional_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors),
            false => errors.push(FieldError::required(&at.child("protocol"), "")),
        }
        if port.has(&["appProtocol"]) {
            let protocol = port.str_at(&["appProtocol"]);
            let wrong = names::qualified_name(protocol);
            errors.extend(all_invalid(&at.child("appProtocol"), protocol, wrong));
        }
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
            address(kind, text, &addresses_path, index, errors);
        }
        let node = endpoint.str_at(&["nodeName"]);
        if endpoint.has(&["nodeName"]) {
            let wrong = names::dns_subdomain(node);
            errors.extend(all_invalid(&at.child("nodeName"), node, wrong));
        }
        let hostname = endpoint.str_at(&["hostname"]);
        if endpoint.has(&["hostname"]) {
            let wrong = names::dns_label(hostname);
            errors.extend(all_invalid(&at.child("hostname"), hostname, wrong));
        }
        for (list, check) in [
            ("forZones", names::label_value as fn(&str) -> Vec<String>),
            ("forNodes", names::dns_subdomain),
        ] {
            let hints = endpoint.list_at(&["hints", list]);
            let at = at.child("hints").child(list);
            if hints.len() > MOST_HINTS {
                errors.push(FieldError::too_many(&at, hints.len(), MOST_HINTS));
                break;
            }
            for (index, hint) in hints.iter().enumerate() {
                let at = at.index(index).child("name");
                let name = hint.str_at(&["name"]);
                if hints[..index].contains(hint) {
                    errors.push(FieldError::duplicate(&at, name));
                }
                errors.extend(all_invalid(&at, name, check(name)));
            }
        }
    }
}

/// Checks one address of an endpoint as its type demands.
fn address(kind: &str, text: &str, path: &Path, index: usize, errors: &mut Vec<FieldError>) {
    let at = path.index(index);
    let wrong = match kind {
        "IPv4" => addresses::old_address(text, &Seen::new(), &at),
        "IPv6" => addresses::address(text, &at),
        "FQDN" => fully_qualified_domain(text, &at),
        _ => return,
    };
    let valid = wrong.is_empty();
    errors.extend(wrong);
    if !valid || kind == "FQDN" {
        return;
    }
    let is_ipv4 = addresses::parse(text).is_some_and(|address| address.is_ipv4());
    if is_ipv4 != (kind == "IPv4") {
        let detail = format!("must be an {kind} address");
        errors.push(FieldError::invalid(path, text, detail));
    }
    errors.extend(addresses::endpoint(text, &at));
}

/// Checks a domain of at least two labels.
fn fully_qualified_domain(text: &str, path: &Path) -> Vec<FieldError> {
    if text.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let wrong = names::dns_subdomain(name);
    if !wrong.is_empty() {
        return vec![FieldError::invalid(path, name, wrong.join(","))];
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return vec![FieldError::invalid(path, name, detail)];
    }
    let mut labels = name
        .split('.')
        .map(|label| (label, names::dns_label(label)));
    match labels.find(|(_, wrong)| !wrong.is_empty()) {
        Some((label, wrong)) => vec![FieldError::invalid(path, label, wrong.join(","))],
        None => Vec::new(),
    }
}
