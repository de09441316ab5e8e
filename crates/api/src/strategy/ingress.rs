//! Ingresses.

use std::collections::BTreeSet;

use crate::addresses;
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::repeats::Seen;
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::invalid_number;

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
/// The number of hosts in a cell.
const SHOWN: usize = 3;

pub struct Ingress;

impl Strategy for Ingress {
    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "loadBalancer"], Value::object());
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = crate::metadata::validate(object, self.metadata_rules());
        errors.extend(self.validate_content(object));
        let class = object.at(&["metadata", "annotations", CLASS_ANNOTATION]);
        if let Some(class) = class
            && object.has(&["spec", "ingressClassName"])
            && object.at(&["spec", "ingressClassName"]) != Some(class)
        {
            let at = Path::new("annotations").child(CLASS_ANNOTATION);
            let detail = "must match `ingressClassName` when both are specified";
            errors.push(FieldError::invalid(&at, class.clone(), detail));
        }
        errors
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let empty = Value::object();
        spec(object.get("spec").unwrap_or(&empty))
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "status" => status(new, old),
            _ => self.validate_content(new),
        }
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        MetadataChecks::both_of_object(subresource)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let class = match object.has(&["spec", "ingressClassName"]) {
            true => object.str_at(&["spec", "ingressClassName"]),
            false => "<none>",
        };
        let ports = match object.list_at(&["spec", "tls"]).is_empty() {
            true => "80",
            false => "80, 443",
        };
        vec![
            object.str_at(&["metadata", "name"]).into(),
            class.into(),
            hosts(object.list_at(&["spec", "rules"])).into(),
            balancer_cell(object).into(),
            ports.into(),
            object_age(object, now).into(),
        ]
    }
}

/// The addresses of a load balancer, sorted, each once.
pub fn balancer_cell(object: &Value) -> String {
    let ingress = object.list_at(&["status", "loadBalancer", "ingress"]);
    let set: BTreeSet<&str> = ingress
        .iter()
        .map(|one| match one.str_at(&["ip"]) {
            "" => one.str_at(&["hostname"]),
            address => address,
        })
        .filter(|text| !text.is_empty())
        .collect();
    let texts: Vec<&str> = set.into_iter().collect();
    texts.join(",")
}

/// Checks the hostname of a load balancer.
pub fn balancer_hostname(one: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let hostname = one.str_at(&["hostname"]);
    if hostname.is_empty() {
        return;
    }
    let at = path.child("hostname");
    errors.extend(all_invalid(&at, hostname, names::dns_subdomain(hostname)));
    if addresses::parse(hostname).is_some() {
        let detail = "must be a DNS name, not an IP address";
        errors.push(FieldError::invalid(&at, hostname, detail));
    }
}

/// The addresses that an old load balancer status has.
pub fn known_addresses(old: &Value) -> Seen<String> {
    let ingress = old.list_at(&["status", "loadBalancer", "ingress"]).iter();
    let addresses = ingress.filter_map(|one| one.get("ip")?.as_str());
    addresses.map(str::to_string).collect()
}

fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let known = known_addresses(old);
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let mut errors = Vec::new();
    let ingress = new.list_at(&["status", "loadBalancer", "ingress"]);
    for (index, one) in ingress.iter().enumerate() {
        let at = path.index(index);
        let address = one.str_at(&["ip"]);
        if !address.is_empty() {
            errors.extend(addresses::old_address(address, &known, &at.child("ip")));
        }
        balancer_hostname(one, &at, &mut errors);
    }
    errors
}

fn spec(spec: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let rules = spec.list_at(&["rules"]);
    let default = spec.get("defaultBackend").filter(|value| !value.is_null());
    if rules.is_empty() && default.is_none() {
        let value = match spec.get("rules") {
            Some(Value::Array(_)) => Value::Array(Vec::new()),
            _ => Value::Null,
        };
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid(&path, value, detail));
    }
    if let Some(default) = default {
        backend(default, &path.child("defaultBackend"), &mut errors);
    }
    for (index, one) in rules.iter().enumerate() {
        rule(one, &path.child("rules").index(index), &mut errors);
    }
    for (index, tls) in spec.list_at(&["tls"]).iter().enumerate() {
        let at = path.child("tls").index(index);
        for (index, host) in tls.list_at(&["hosts"]).iter().enumerate() {
            let host = host.as_str().unwrap_or_default();
            let wrong = host_errors(host);
            errors.extend(all_invalid(&at.child("hosts").index(index), host, wrong));
        }
        let secret = tls.str_at(&["secretName"]);
        if !secret.is_empty() {
            let wrong = names::dns_subdomain(secret);
            errors.extend(all_invalid(&at.child("secretName"), secret, wrong));
        }
    }
    if spec.has(&["ingressClassName"]) {
        let class = spec.str_at(&["ingressClassName"]);
        let wrong = names::dns_subdomain(class);
        errors.extend(all_invalid(&path.child("ingressClassName"), class, wrong));
    }
    errors
}

fn host_errors(host: &str) -> Vec<String> {
    match host.contains('*') {
        true => names::wildcard_subdomain(host),
        false => names::dns_subdomain(host),
    }
}

fn rule(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let host = rule.str_at(&["host"]);
    let at = path.child("host");
    if !host.is_empty() {
        if addresses::parse(host).is_some() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(&at, host, detail));
        }
        errors.extend(all_invalid(&at, host, host_errors(host)));
    }
    let Some(http) = rule.get("http").filter(|value| !value.is_null()) else {
        return;
    };
    let path = path.child("http").child("paths");
    let paths = http.list_at(&["paths"]);
    if paths.is_empty() {
        errors.push(FieldError::required(&path, ""));
    }
    for (index, one) in paths.iter().enumerate() {
        http_path(one, &path.index(index), errors);
    }
}

fn http_path(one: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if !one.has(&["pathType"]) {
        let detail = "pathType must be specified";
        errors.push(FieldError::required(&path.child("pathType"), detail));
        return;
    }
    let kind = one.str_at(&["pathType"]);
    let text = one.str_at(&["path"]);
    let at = path.child("path");
    let mut wrong = |detail: String| errors.push(FieldError::invalid(&at, text, detail));
    let absolute = text.starts_with('/');
    match kind {
        "Exact" | "Prefix" => {
            if !absolute {
                wrong("must be an absolute path".to_string());
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(sequence) {
                    wrong(format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if text.ends_with(suffix) {
                    wrong(format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !absolute && !text.is_empty() {
                wrong("must be an absolute path".to_string());
            }
        }
        _ => {
            let at = path.child("pathType");
            errors.push(FieldError::not_supported(&at, kind, &PATH_TYPES));
        }
    }
    let empty = Value::object();
    let one = one.get("backend").unwrap_or(&empty);
    backend(one, &path.child("backend"), errors);
}

fn backend(backend: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    match (backend.has(&["resource"]), backend.has(&["service"])) {
        (true, true) => {
            let detail = "cannot set both resource and service backends";
            errors.push(FieldError::invalid(path, "", detail));
        }
        (true, false) => {
            let empty = Value::object();
            let resource = backend.get("resource").unwrap_or(&empty);
            typed_reference(resource, &path.child("resource"), errors);
        }
        (false, true) => service_backend(backend, path, errors),
        (false, false) => {
            let detail = "resource or service backend is required";
            errors.push(FieldError::invalid(path, "", detail));
        }
    }
}

/// Checks a reference to an object of any kind in the same namespace.
pub fn typed_reference(reference: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if reference.has(&["apiGroup"]) {
        let group = reference.str_at(&["apiGroup"]);
        let wrong = names::dns_subdomain(group);
        errors.extend(all_invalid(&path.child("apiGroup"), group, wrong));
    }
    for name in ["kind", "name"] {
        let text = reference.str_at(&[name]);
        let at = path.child(name);
        match text {
            "" => errors.push(FieldError::required(&at, "")),
            _ => errors.extend(all_invalid(&at, text, names::path_segment(text, false))),
        }
    }
}

fn service_backend(backend: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("service");
    let name = backend.str_at(&["service", "name"]);
    match name {
        "" => errors.push(FieldError::required(&at.child("name"), "")),
        _ => errors.extend(all_invalid(&at.child("name"), name, names::dns_label(name))),
    }
    let port = at.child("port");
    let port_name = backend.str_at(&["service", "port", "name"]);
    let number = backend.i64_at(&["service", "port", "number"]).unwrap_or(0);
    match (port_name, number) {
        ("", 0) => {
            let detail = "port name or number is required";
            errors.push(FieldError::required(path, detail));
        }
        ("", _) => {
            let wrong = names::port_number(number);
            errors.extend(invalid_number(&port.child("number"), number, wrong));
        }
        (_, 0) => {
            let wrong = names::port_name(port_name);
            errors.extend(all_invalid(&port.child("name"), port_name, wrong));
        }
        _ => {
            let detail = "cannot set both port name & port number";
            errors.push(FieldError::invalid(path, "", detail));
        }
    }
}

fn hosts(rules: &[Value]) -> String {
    let mut list: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        let host = rule.str_at(&["host"]);
        more |= list.len() == SHOWN;
        if !more && !host.is_empty() {
            list.push(host);
        }
    }
    match (list.is_empty(), more) {
        (true, _) => "*".to_string(),
        (false, false) => list.join(","),
        (false, true) => format!("{} + {} more...", list.join(","), rules.len() - SHOWN),
    }
}
