//! Validation of Services.

use std::net::IpAddr;

use crate::document::{Object, Value};
use crate::field::FieldError;
use crate::metadata::{self, all_invalid, names};
use crate::strategy::pod::containers::{numbers, one_of};
use crate::strategy::pod::probes;
use crate::strategy::pod::validate::address;
use crate::strategy::service::{externally_accessible, is_headless, spec};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Checks a Service, its metadata apart.
pub fn service(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kind = object.str_at(&["spec", "type"]);
    let list = object.list_at(&["spec", "ports"]);
    if list.is_empty() && !is_headless(object) && kind != "ExternalName" {
        errors.push(FieldError::required(&spec("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(object) => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(
                &spec("clusterIPs").index(0),
                "None",
                detail,
            ));
        }
        "ExternalName" => external_name(object, &mut errors),
        _ => {}
    }
    ports(list, &mut errors);
    let selector = object.at(&["spec", "selector"]);
    errors.extend(metadata::labels(selector, &spec("selector")));
    session_affinity(object, &mut errors);
    cluster_ips(object, &mut errors);
    for (index, one) in object.list_at(&["spec", "externalIPs"]).iter().enumerate() {
        let text = one.as_str().unwrap_or_default();
        errors.extend(address(text, &spec("externalIPs").index(index)));
    }
    if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(&spec("type"), kind, &TYPES));
    }
    port_conflicts(object, list, &mut errors);
    let balancer = kind == "LoadBalancer";
    for name in ["loadBalancerSourceRanges", "allocateLoadBalancerNodePorts"] {
        let set = match object.at(&["spec", name]) {
            Some(Value::Array(ranges)) => !ranges.is_empty(),
            Some(Value::Null) | None => false,
            Some(_) => true,
        };
        if set && !balancer {
            // Upstream spells this one path with a capital.
            let path = match name {
                "loadBalancerSourceRanges" => spec("LoadBalancerSourceRanges"),
                _ => spec(name),
            };
            let detail = "may only be used when `type` is 'LoadBalancer'";
            errors.push(FieldError::forbidden(&path, detail));
        }
    }
    traffic_policies(object, &mut errors);
    errors
}

/// Checks what an update did to the cluster IPs.
pub fn cluster_ips_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let kind = |object: &Value| object.str_at(&["spec", "type"]).to_string();
    if kind(new) == "ExternalName" || kind(old) == "ExternalName" {
        return Vec::new();
    }
    if is_headless(new) && is_headless(old) {
        return Vec::new();
    }
    let path = spec("clusterIPs");
    let list = |object: &Value| object.list_at(&["spec", "clusterIPs"]).to_vec();
    let (new_list, old_list) = (list(new), list(old));
    let mut errors = Vec::new();
    if new_list.is_empty() && !old_list.is_empty() {
        let detail = "primary clusterIP can not be unset";
        errors.push(FieldError::invalid(&path.index(0), new_list, detail));
        return errors;
    }
    for (index, (new, old)) in std::iter::zip(&new_list, &old_list).enumerate() {
        let compared = index == 0 || new_list.len() == old_list.len();
        if new != old && compared {
            let detail = "may not change once set";
            let value = new_list.clone();
            errors.push(FieldError::invalid(&path.index(index), value, detail));
        }
    }
    errors
}

fn external_name(object: &Value, errors: &mut Vec<FieldError>) {
    for name in ["clusterIPs", "ipFamilies"] {
        if !object.list_at(&["spec", name]).is_empty() {
            let detail = "may not be set for ExternalName services";
            errors.push(FieldError::forbidden(&spec(name), detail));
        }
    }
    if object.has(&["spec", "ipFamilyPolicy"]) {
        let detail = "may not be set for ExternalName services";
        errors.push(FieldError::forbidden(&spec("ipFamilyPolicy"), detail));
    }
    let name = object.str_at(&["spec", "externalName"]);
    let name = name.strip_suffix('.').unwrap_or(name);
    let path = spec("externalName");
    match name {
        "" => errors.push(FieldError::required(&path, "")),
        _ => errors.extend(all_invalid(&path, name, names::dns_subdomain(name))),
    }
}

fn ports(ports: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = spec("ports").index(index);
        let name = port.str_at(&["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(&at.child("name"), ""));
            }
        } else {
            errors.extend(all_invalid(&at.child("name"), name, names::dns_label(name)));
            if seen.contains(&name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            }
            seen.push(name);
        }
        let number = port.i64_at(&["port"]).unwrap_or(0);
        let wrong = names::port_number(number);
        errors.extend(numbers(&at.child("port"), number, wrong));
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
        errors.extend(probes::port(
            port.get("targetPort"),
            &at.child("targetPort"),
        ));
        let protocol = port.str_at(&["appProtocol"]);
        if !protocol.is_empty() {
            let wrong = names::qualified_name(protocol);
            errors.extend(all_invalid(&at.child("appProtocol"), protocol, wrong));
        }
    }
}

fn port_conflicts(object: &Value, ports: &[Value], errors: &mut Vec<FieldError>) {
    let path = spec("ports");
    let number = |port: &Value, name: &str| port.i64_at(&[name]).unwrap_or(0);
    let same = |one: &Value, other: &Value, name: &str| {
        number(one, name) == number(other, name)
            && one.str_at(&["protocol"]) == other.str_at(&["protocol"])
    };
    if object.str_at(&["spec", "type"]) == "ClusterIP" {
        for (index, port) in ports.iter().enumerate() {
            if number(port, "nodePort") != 0 {
                let detail = "may not be used when `type` is 'ClusterIP'";
                let at = path.index(index).child("nodePort");
                errors.push(FieldError::forbidden(&at, detail));
            }
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let node_port = number(port, "nodePort");
        let taken = ports[..index].iter().any(|one| same(one, port, "nodePort"));
        if node_port != 0 && taken {
            let at = path.index(index).child("nodePort");
            errors.push(FieldError::duplicate(&at, node_port));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        if ports[..index].iter().any(|one| same(one, port, "port")) {
            let mut key = Object::default();
            key.insert("port", number(port, "port"));
            key.insert("protocol", port.str_at(&["protocol"]));
            errors.push(FieldError::duplicate(&path.index(index), key));
        }
    }
}

fn session_affinity(object: &Value, errors: &mut Vec<FieldError>) {
    let supported = ["ClientIP", "None"];
    let affinity = object.str_at(&["spec", "sessionAffinity"]);
    match affinity {
        "" => errors.push(FieldError::required(&spec("sessionAffinity"), "")),
        "None" => {}
        "ClientIP" => {
            let at = spec("sessionAffinityConfig")
                .child("clientIP")
                .child("timeoutSeconds");
            let path = [
                "spec",
                "sessionAffinityConfig",
                "clientIP",
                "timeoutSeconds",
            ];
            let seconds = object.i64_at(&path).unwrap_or(0);
            if !(1..=86_400).contains(&seconds) {
                let detail = "must be greater than 0 and less than 86400";
                errors.push(FieldError::invalid(&at, seconds, detail));
            }
        }
        _ => errors.push(FieldError::not_supported(
            &spec("sessionAffinity"),
            affinity,
            &supported,
        )),
    }
}

fn cluster_ips(object: &Value, errors: &mut Vec<FieldError>) {
    if object.str_at(&["spec", "type"]) == "ExternalName" {
        return;
    }
    let path = spec("clusterIPs");
    let single = object.str_at(&["spec", "clusterIP"]);
    let list = object.list_at(&["spec", "clusterIPs"]);
    let all = || Value::Array(list.to_vec());
    match (single, list.first().and_then(Value::as_str)) {
        ("", Some(_)) => {
            let detail = "must be empty when `clusterIP` is not specified";
            errors.push(FieldError::invalid(&path, all(), detail));
        }
        ("", None) => {}
        (_, None) => errors.push(FieldError::required(&path, "")),
        (single, Some(first)) if single != first => {
            let detail = "first value must match `clusterIP`";
            errors.push(FieldError::invalid(&path, all(), detail));
        }
        _ => {}
    }
    let families = object.list_at(&["spec", "ipFamilies"]);
    for (index, family) in families.iter().enumerate() {
        let at = spec("ipFamilies").index(index);
        let name = family.as_str().unwrap_or_default();
        if !matches!(name, "IPv4" | "IPv6") {
            errors.push(FieldError::not_supported(&at, name, &["IPv4", "IPv6"]));
        }
        if families[..index].contains(family) {
            errors.push(FieldError::duplicate(&at, name));
        }
    }
    let policy = object.str_at(&["spec", "ipFamilyPolicy"]);
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if !policy.is_empty() && !policies.contains(&policy) {
        let at = spec("ipFamilyPolicy");
        errors.push(FieldError::not_supported(&at, policy, &policies));
    }
    for (index, one) in list.iter().enumerate() {
        let text = one.as_str().unwrap_or_default();
        if index == 0 && text == "None" {
            if list.len() > 1 {
                let detail = "'None' must be the first and only value";
                errors.push(FieldError::invalid(&path, all(), detail));
            }
            continue;
        }
        let at = path.index(index);
        errors.extend(address(text, &at));
        let family = families.get(index).and_then(Value::as_str);
        let actual = text.parse::<IpAddr>().map(|address| match address {
            IpAddr::V4(_) => "IPv4",
            IpAddr::V6(_) => "IPv6",
        });
        if let (Some(family), Ok(actual)) = (family, actual)
            && family != actual
        {
            let detail =
                format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(FieldError::invalid(&at, text, detail));
        }
    }
    if list.len() > 2 {
        let detail = "may only hold up to 2 values";
        errors.push(FieldError::invalid(&path, all(), detail));
    }
}

fn traffic_policies(object: &Value, errors: &mut Vec<FieldError>) {
    let policies = ["Cluster", "Local"];
    let external = object.str_at(&["spec", "externalTrafficPolicy"]);
    let path = spec("externalTrafficPolicy");
    match (externally_accessible(object), external) {
        (false, "") => {}
        (false, _) => {
            let detail = "may only be set for externally-accessible services";
            errors.push(FieldError::invalid(&path, external, detail));
        }
        (true, "") => errors.push(FieldError::required(&path, "")),
        (true, _) if policies.contains(&external) => {}
        (true, _) => errors.push(FieldError::not_supported(&path, external, &policies)),
    }
    let internal = object.str_at(&["spec", "internalTrafficPolicy"]);
    if !internal.is_empty() && !policies.contains(&internal) {
        let path = spec("internalTrafficPolicy");
        errors.push(FieldError::not_supported(&path, internal, &policies));
    }
}
