//! Validation of Services.

use crate::addresses;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{self, all_invalid, names};
use crate::repeats::Seen;
use crate::strategy::checks::{invalid_number, required_one_of};
use crate::strategy::ingress::{balancer_hostname, known_addresses};
use crate::strategy::pod::probes;
use crate::strategy::service::{externally_accessible, is_headless, needs_health_check, spec};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// Checks a Service without its metadata. Values of `old` are valid.
pub fn service(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = topology_annotations(object);
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
    errors.extend(cluster_ips(object, old));
    let known = old.map_or(&[][..], |old| old.list_at(&["spec", "externalIPs"]));
    let known = addresses::existing(known);
    for (index, one) in object.list_at(&["spec", "externalIPs"]).iter().enumerate() {
        let text = one.as_str().unwrap_or_default();
        let at = spec("externalIPs").index(index);
        let wrong = addresses::old_address(text, &known, &at);
        match wrong.is_empty() {
            true => errors.extend(addresses::endpoint(text, &at)),
            false => errors.extend(wrong),
        }
    }
    if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(&spec("type"), kind, &TYPES));
    }
    port_conflicts(object, list, &mut errors);
    source_ranges(object, old, &mut errors);
    let balancer = kind == "LoadBalancer";
    let allocate = object.has(&["spec", "allocateLoadBalancerNodePorts"]);
    match (balancer, allocate) {
        (false, true) => {
            let detail = "may only be used when `type` is 'LoadBalancer'";
            let at = spec("allocateLoadBalancerNodePorts");
            errors.push(FieldError::forbidden(&at, detail));
        }
        (true, false) => {
            let at = Path::new("allocateLoadBalancerNodePorts");
            errors.push(FieldError::required(&at, ""));
        }
        _ => {}
    }
    balancer_class(object, &mut errors);
    traffic_policies(object, &mut errors);
    errors
}

/// Checks an update of a Service.
pub fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = cluster_ips_update(new, old);
    errors.extend(families_update(new, old));
    let class = ["spec", "loadBalancerClass"];
    let balancer = |object: &Value| object.str_at(&["spec", "type"]) == "LoadBalancer";
    if balancer(new) && balancer(old) && new.at(&class) != old.at(&class) {
        let value = new.at(&class).cloned().unwrap_or_default();
        let at = spec("loadBalancerClass");
        errors.push(FieldError::invalid(&at, value, "may not change once set"));
    }
    balancer_class(new, &mut errors);
    let health = ["spec", "healthCheckNodePort"];
    if needs_health_check(new) && needs_health_check(old) && new.at(&health) != old.at(&health) {
        let at = spec("healthCheckNodePort");
        errors.push(FieldError::forbidden(&at, "field is immutable"));
    }
    errors.extend(service(new, Some(old)));
    errors
}

/// Checks the status of a Service.
pub fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let ingress = new.list_at(&["status", "loadBalancer", "ingress"]);
    let mut errors = Vec::new();
    if new.str_at(&["spec", "type"]) != "LoadBalancer" && !ingress.is_empty() {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        return vec![FieldError::forbidden(&path, detail)];
    }
    let known = known_addresses(old);
    for (index, one) in ingress.iter().enumerate() {
        let at = path.index(index);
        let address = one.str_at(&["ip"]);
        if !address.is_empty() {
            errors.extend(addresses::old_address(address, &known, &at.child("ip")));
        }
        let mode_at = at.child("ipMode");
        let mode = one.get("ipMode").and_then(Value::as_str);
        match (mode, address) {
            (None, "") => {}
            (None, _) => {
                let detail = "must be specified when `ip` is set";
                errors.push(FieldError::required(&mode_at, detail));
            }
            (Some(_), "") => {
                let detail = "may not be specified when `ip` is not set";
                errors.push(FieldError::forbidden(&mode_at, detail));
            }
            (Some(mode), _) if !matches!(mode, "VIP" | "Proxy") => {
                let modes = ["Proxy", "VIP"];
                errors.push(FieldError::not_supported(&mode_at, mode, &modes));
            }
            _ => {}
        }
        balancer_hostname(one, &at, &mut errors);
    }
    errors
}

fn topology_annotations(object: &Value) -> Vec<FieldError> {
    let (hints, mode) = (
        "service.kubernetes.io/topology-aware-hints",
        "service.kubernetes.io/topology-mode",
    );
    let annotation = |key: &str| object.at(&["metadata", "annotations", key]);
    match (annotation(hints), annotation(mode)) {
        (Some(old), Some(new)) if old != new => {
            let at = Path::new("metadata").child("annotations").key(mode);
            let detail = format!("must match annotations[{hints}] when both are specified");
            vec![FieldError::invalid(&at, new.clone(), detail)]
        }
        _ => Vec::new(),
    }
}

fn source_ranges(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let balancer = object.str_at(&["spec", "type"]) == "LoadBalancer";
    let detail = "may only be used when `type` is 'LoadBalancer'";
    let trimmed = |one: &Value| -> Value { one.as_str().unwrap_or_default().trim().into() };
    let ranges = object.list_at(&["spec", "loadBalancerSourceRanges"]);
    let key = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let annotation = ["metadata", "annotations", key];
    if !ranges.is_empty() {
        // Upstream spells this one path with a capital.
        let at = spec("LoadBalancerSourceRanges");
        if !balancer {
            errors.push(FieldError::forbidden(&at, detail));
        }
        let known = old.map_or(&[][..], |old| {
            old.list_at(&["spec", "loadBalancerSourceRanges"])
        });
        let known: Vec<Value> = known.iter().map(trimmed).collect();
        let known = addresses::existing(&known);
        for (index, one) in ranges.iter().enumerate() {
            let text = trimmed(one);
            let text = text.as_str().unwrap_or_default();
            errors.extend(addresses::old_range(text, &known, &at.index(index)));
        }
    } else if let Some(value) = object.at(&annotation) {
        let at = Path::new("metadata").child("annotations").key(key);
        if !balancer {
            errors.push(FieldError::forbidden(&at, detail));
        }
        let text = value.as_str().unwrap_or_default().trim();
        if old.is_none_or(|old| old.at(&annotation) != Some(value)) && !text.is_empty() {
            for one in text.split(',') {
                errors.extend(addresses::old_range(one.trim(), &Seen::new(), &at));
            }
        }
    }
}

fn balancer_class(object: &Value, errors: &mut Vec<FieldError>) {
    if !object.has(&["spec", "loadBalancerClass"]) {
        return;
    }
    let at = spec("loadBalancerClass");
    if object.str_at(&["spec", "type"]) == "LoadBalancer" {
        let class = object.str_at(&["spec", "loadBalancerClass"]);
        errors.extend(all_invalid(&at, class, names::qualified_name(class)));
    } else {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden(&at, detail));
    }
}

/// Checks a change of the IP families.
fn families_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let kind = |object: &Value| object.str_at(&["spec", "type"]).to_string();
    if kind(new) == "ExternalName"
        || kind(old) == "ExternalName"
        || is_headless(new)
        || is_headless(old)
    {
        return Vec::new();
    }
    let list = |object: &Value, name: &str| object.list_at(&["spec", name]).to_vec();
    let (families, before) = (list(new, "ipFamilies"), list(old, "ipFamilies"));
    let at = spec("ipFamilies").index(0);
    let wrong = |value: Vec<Value>| FieldError::invalid(&at, value, "may not change once set");
    let mut errors = Vec::new();
    if families.len() == before.len() {
        for (new, old) in std::iter::zip(&families, &before) {
            if new != old {
                errors.push(wrong(families.clone()));
            }
        }
        return errors;
    }
    if families.first() != before.first() && !families.is_empty() && !before.is_empty() {
        errors.push(wrong(list(new, "clusterIPs")));
    }
    if families.len() < before.len() {
        if list(new, "clusterIPs").is_empty() {
            let detail = "primary ipFamily can not be unset";
            errors.push(FieldError::invalid(&at, families.clone(), detail));
        }
        errors.extend(released(new, families.len(), "ipFamily"));
    }
    errors
}

fn released(new: &Value, left: usize, what: &str) -> Option<FieldError> {
    let policy = new.at(&["spec", "ipFamilyPolicy"]);
    let single = policy.and_then(Value::as_str) == Some("SingleStack");
    let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
    let value = policy.cloned().unwrap_or_default();
    (left == 1 && !single).then(|| FieldError::invalid(&spec("ipFamilyPolicy"), value, detail))
}

/// Checks a change of the cluster IPs.
fn cluster_ips_update(new: &Value, old: &Value) -> Vec<FieldError> {
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
    if new_list.len() < old_list.len() {
        errors.extend(released(new, new_list.len(), "clusterIP"));
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
    let mut seen = Seen::new();
    for (index, port) in ports.iter().enumerate() {
        let at = spec("ports").index(index);
        let name = port.str_at(&["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                errors.push(FieldError::required(&at.child("name"), ""));
            }
        } else {
            errors.extend(all_invalid(&at.child("name"), name, names::dns_label(name)));
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            }
        }
        let number = port.i64_at(&["port"]).unwrap_or(0);
        let wrong = names::port_number(number);
        errors.extend(invalid_number(&at.child("port"), number, wrong));
        required_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
        errors.extend(probes::port(
            port.get("targetPort"),
            &at.child("targetPort"),
        ));
        let protocol = port.str_at(&["appProtocol"]);
        if port.has(&["appProtocol"]) {
            let wrong = names::qualified_name(protocol);
            errors.extend(all_invalid(&at.child("appProtocol"), protocol, wrong));
        }
    }
}

fn port_conflicts(object: &Value, ports: &[Value], errors: &mut Vec<FieldError>) {
    let path = spec("ports");
    let number = |port: &Value, name: &str| port.i64_at(&[name]).unwrap_or(0);
    if object.str_at(&["spec", "type"]) == "ClusterIP" {
        for (index, port) in ports.iter().enumerate() {
            if number(port, "nodePort") != 0 {
                let detail = "may not be used when `type` is 'ClusterIP'";
                let at = path.index(index).child("nodePort");
                errors.push(FieldError::forbidden(&at, detail));
            }
        }
    }
    let mut seen = Seen::new();
    for (index, port) in ports.iter().enumerate() {
        let node_port = number(port, "nodePort");
        let is_new = seen.insert((node_port, port.str_at(&["protocol"])));
        if node_port != 0 && !is_new {
            let at = path.index(index).child("nodePort");
            errors.push(FieldError::duplicate(&at, node_port));
        }
    }
    let mut seen = Seen::new();
    for (index, port) in ports.iter().enumerate() {
        if !seen.insert((number(port, "port"), port.str_at(&["protocol"]))) {
            let error = FieldError::duplicate(&path.index(index), Value::Null);
            errors.push(error.showing(&[
                ("Name", "".into()),
                ("Protocol", port.str_at(&["protocol"]).into()),
                ("AppProtocol", Value::Null),
                ("Port", number(port, "port").into()),
                ("TargetPort", 0.into()),
                ("NodePort", 0.into()),
            ]));
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

/// Checks addresses, IP families and their policy. Allocation calls this too.
pub fn cluster_ips(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object.str_at(&["spec", "type"]) == "ExternalName" {
        return errors;
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
    families(object, &mut errors);
    let known = old.map_or(&[][..], |old| old.list_at(&["spec", "clusterIPs"]));
    let known = addresses::existing(known);
    let mut malformed = false;
    for (index, one) in list.iter().enumerate() {
        let text = one.as_str().unwrap_or_default();
        if index == 0 && text == "None" {
            if list.len() > 1 {
                malformed = true;
                let detail = "'None' must be the first and only value";
                errors.push(FieldError::invalid(&path, all(), detail));
            }
            continue;
        }
        let wrong = addresses::old_address(text, &known, &path.index(index));
        malformed |= !wrong.is_empty();
        errors.extend(wrong);
    }
    if list.len() > 2 {
        let detail = "may only hold up to 2 values";
        errors.push(FieldError::invalid(&path, all(), detail));
    }
    if malformed {
        return errors;
    }
    let is_ipv4 = |one: &Value| {
        let address = addresses::parse(one.as_str().unwrap_or_default());
        address.is_some_and(|address| address.is_ipv4())
    };
    let both = list.iter().any(is_ipv4) && !list.iter().all(is_ipv4);
    if list.len() > 1 && !both {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(&path, all(), detail));
    }
    if is_headless(object) {
        return errors;
    }
    let families = object.list_at(&["spec", "ipFamilies"]);
    for (index, (one, family)) in std::iter::zip(list, families).enumerate() {
        let family = family.as_str().unwrap_or_default();
        let actual = if is_ipv4(one) { "IPv4" } else { "IPv6" };
        if matches!(family, "IPv4" | "IPv6") && family != actual {
            let detail =
                format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(FieldError::invalid(&path.index(index), one.clone(), detail));
        }
    }
    errors
}

fn families(object: &Value, errors: &mut Vec<FieldError>) {
    let families = object.list_at(&["spec", "ipFamilies"]);
    let mut seen = Seen::new();
    for (index, family) in families.iter().enumerate() {
        let at = spec("ipFamilies").index(index);
        let name = family.as_str().unwrap_or_default();
        if !matches!(name, "IPv4" | "IPv6") {
            errors.push(FieldError::not_supported(&at, name, &["IPv4", "IPv6"]));
        }
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at, name));
        }
    }
    if object.has(&["spec", "ipFamilyPolicy"]) {
        let policy = object.str_at(&["spec", "ipFamilyPolicy"]);
        let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        if !policies.contains(&policy) {
            let at = spec("ipFamilyPolicy");
            errors.push(FieldError::not_supported(&at, policy, &policies));
        }
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
    let port = object.i64_at(&["spec", "healthCheckNodePort"]).unwrap_or(0);
    let path = spec("healthCheckNodePort");
    match (needs_health_check(object), port) {
        (false, 0) => {}
        (false, _) => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(&path, port, detail));
        }
        (true, 0) => errors.push(FieldError::required(&path, "")),
        (true, _) => errors.extend(invalid_number(&path, port, names::port_number(port))),
    }
    let internal = object.at(&["spec", "internalTrafficPolicy"]);
    let path = spec("internalTrafficPolicy");
    let known_type = ["ClusterIP", "NodePort", "LoadBalancer"];
    match internal.and_then(Value::as_str) {
        None if known_type.contains(&object.str_at(&["spec", "type"])) => {
            errors.push(FieldError::required(&path, ""));
        }
        Some(policy) if !policies.contains(&policy) => {
            errors.push(FieldError::not_supported(&path, policy, &policies));
        }
        _ => {}
    }
    if object.has(&["spec", "trafficDistribution"]) {
        let distribution = object.str_at(&["spec", "trafficDistribution"]);
        let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        if !known.contains(&distribution) {
            let path = spec("trafficDistribution");
            errors.push(FieldError::not_supported(&path, distribution, &known));
        }
    }
}
