//! Endpoints, the older form of EndpointSlices.

use crate::addresses;
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::repeats::Seen;
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::{invalid_number, required_one_of};

/// A cell names this many addresses.
const SHOWN: usize = 3;

pub struct Endpoints;

impl Strategy for Endpoints {
    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for subset in object.list_at_mut(&["subsets"]) {
            for port in subset.list_at_mut(&["ports"]) {
                port.set_default(&["protocol"], "TCP");
            }
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (index, subset) in object.list_at(&["subsets"]).iter().enumerate() {
            validate_subset(subset, &Path::new("subsets").index(index), &mut errors);
        }
        errors
    }

    /// Unchanged subsets are not validated again.
    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        match new.get("subsets") == old.get("subsets") {
            true => Vec::new(),
            false => self.validate_content(new),
        }
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            addresses(object).into(),
            object_age(object, now).into(),
        ]
    }
}

/// Joins the first few of a list and counts the rest.
pub fn first_few(list: &[String], empty: &str) -> String {
    match list {
        [] => empty.to_string(),
        _ if list.len() > SHOWN => {
            let shown = list[..SHOWN].join(",");
            format!("{shown} + {} more...", list.len() - SHOWN)
        }
        _ => list.join(","),
    }
}

fn validate_subset(subset: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let lists = ["addresses", "notReadyAddresses"];
    if lists.iter().all(|list| subset.list_at(&[list]).is_empty()) {
        let detail = "must specify `addresses` or `notReadyAddresses`";
        errors.push(FieldError::required(path, detail));
    }
    for list in lists {
        for (index, one) in subset.list_at(&[list]).iter().enumerate() {
            let at = path.child(list).index(index);
            let ip = one.str_at(&["ip"]);
            errors.extend(addresses::old_address(ip, &Seen::new(), &at.child("ip")));
            let hostname = one.str_at(&["hostname"]);
            if !hostname.is_empty() {
                let wrong = names::dns_label(hostname);
                errors.extend(all_invalid(&at.child("hostname"), hostname, wrong));
            }
            if one.has(&["nodeName"]) {
                let node = one.str_at(&["nodeName"]);
                let wrong = names::dns_subdomain(node);
                errors.extend(all_invalid(&at.child("nodeName"), node, wrong));
            }
            errors.extend(addresses::endpoint(ip, &at.child("ip")));
        }
    }
    let ports = subset.list_at(&["ports"]);
    for (index, port) in ports.iter().enumerate() {
        let at = path.child("ports").index(index);
        let name = port.str_at(&["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(&at.child("name"), ""));
            }
        } else {
            errors.extend(all_invalid(&at.child("name"), name, names::dns_label(name)));
        }
        let number = port.i64_at(&["port"]).unwrap_or(0);
        let wrong = names::port_number(number);
        errors.extend(invalid_number(&at.child("port"), number, wrong));
        required_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
        if port.has(&["appProtocol"]) {
            let protocol = port.str_at(&["appProtocol"]);
            let wrong = names::qualified_name(protocol);
            errors.extend(all_invalid(&at.child("appProtocol"), protocol, wrong));
        }
    }
}

fn addresses(object: &Value) -> String {
    let mut list = Vec::new();
    for subset in object.list_at(&["subsets"]) {
        let addresses = subset.list_at(&["addresses"]);
        let ports = subset.list_at(&["ports"]);
        if ports.is_empty() {
            list.extend(addresses.iter().map(|one| one.str_at(&["ip"]).to_string()));
        }
        for port in ports {
            let number = port.i64_at(&["port"]).unwrap_or(0);
            list.extend(addresses.iter().map(|one| match one.str_at(&["ip"]) {
                address if address.contains(':') => format!("[{address}]:{number}"),
                address => format!("{address}:{number}"),
            }));
        }
    }
    match object.list_at(&["subsets"]).is_empty() {
        true => "<none>".to_string(),
        false => first_few(&list, ""),
    }
}
