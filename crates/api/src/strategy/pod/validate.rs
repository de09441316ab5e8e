//! Validation of a pod spec, alone or in a template.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names;
use crate::metadata::{self, all_invalid};
use crate::strategy::pod::containers::{numbers, one_of};
use crate::strategy::pod::{containers, security, volumes};

/// Checks a new Pod, its metadata apart.
pub fn pod(pod: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let empty = Value::object();
    let spec = pod.get("spec").unwrap_or(&empty);
    let mut errors = pod_spec(spec, &path);
    if spec.str_at(&["serviceAccountName"]).is_empty() {
        for (index, volume) in spec.list_at(&["volumes"]).iter().enumerate() {
            for (at, source) in volume.list_at(&["projected", "sources"]).iter().enumerate() {
                if source.has(&["serviceAccountToken"]) {
                    let sources = path
                        .child("volumes")
                        .index(index)
                        .child("projected.sources");
                    let at = sources.index(at).child("serviceAccountToken");
                    let detail = "must not be specified when serviceAccountName is not set";
                    errors.push(FieldError::forbidden(&at, detail));
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in spec.list_at(&[list]).iter().enumerate() {
            let image = container.str_at(&["image"]);
            if image.trim() != image {
                let at = path.child(list).index(index).child("image");
                let detail = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(&at, image, detail));
            }
        }
    }
    errors
}

/// Checks a Pod at its creation only.
pub fn pod_create(pod: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    if !pod.list_at(&["spec", "ephemeralContainers"]).is_empty() {
        let at = path.child("ephemeralContainers");
        errors.push(FieldError::forbidden(&at, "cannot be set on create"));
    }
    let gated = !pod.list_at(&["spec", "schedulingGates"]).is_empty();
    if gated && !pod.str_at(&["spec", "nodeName"]).is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(&path.child("nodeName"), detail));
    }
    errors
}

/// Checks a pod spec.
pub fn pod_spec(spec: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let errors_ref = &mut errors;
    let valid_volumes = volumes::validate(
        spec.list_at(&["volumes"]),
        &path.child("volumes"),
        errors_ref,
    );
    let containers_path = path.child("containers");
    containers::regular(spec, &valid_volumes, &containers_path, errors_ref);
    let init_path = path.child("initContainers");
    containers::init(spec, &valid_volumes, &init_path, errors_ref);
    host_network_ports(spec, &containers_path, errors_ref);
    one_of(
        spec,
        "restartPolicy",
        &["Always", "OnFailure", "Never"],
        path,
        errors_ref,
    );
    one_of(
        spec,
        "dnsPolicy",
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        path,
        errors_ref,
    );
    errors.extend(metadata::labels(
        spec.get("nodeSelector"),
        &path.child("nodeSelector"),
    ));
    security::pod(spec, &path.child("securityContext"), &mut errors);
    node_affinity(spec, path, &mut errors);
    dns(spec, path, &mut errors);
    for (index, gate) in spec.list_at(&["readinessGates"]).iter().enumerate() {
        let name = gate.str_at(&["conditionType"]);
        let at = path
            .child("readinessGates")
            .index(index)
            .child("conditionType");
        errors.extend(all_invalid(&at, name, names::qualified_name(name)));
    }
    for (index, gate) in spec.list_at(&["schedulingGates"]).iter().enumerate() {
        let name = gate.str_at(&["name"]);
        let at = path.child("schedulingGates").index(index);
        errors.extend(all_invalid(&at, name, names::qualified_name(name)));
    }
    for (name, check) in [
        (
            "serviceAccountName",
            names::dns_subdomain as fn(&str) -> Vec<String>,
        ),
        ("nodeName", names::dns_subdomain),
        ("hostname", names::dns_label),
        ("subdomain", names::dns_label),
        ("priorityClassName", names::dns_subdomain),
        ("runtimeClassName", names::dns_subdomain),
    ] {
        let text = spec.str_at(&[name]);
        if !text.is_empty() {
            errors.extend(all_invalid(&path.child(name), text, check(text)));
        }
    }
    if let Some(seconds) = spec.i64_at(&["activeDeadlineSeconds"]) {
        let wrong = names::in_range(seconds, 1, i32::MAX.into());
        errors.extend(numbers(
            &path.child("activeDeadlineSeconds"),
            seconds,
            wrong,
        ));
    }
    tolerations(
        spec.list_at(&["tolerations"]),
        &path.child("tolerations"),
        &mut errors,
    );
    host_aliases(spec, path, &mut errors);
    let policy = spec.str_at(&["preemptionPolicy"]);
    if !matches!(policy, "" | "PreemptLowerPriority" | "Never") {
        let at = path.child("preemptionPolicy");
        let supported = ["PreemptLowerPriority", "Never"];
        errors.push(FieldError::not_supported(&at, policy, &supported));
    }
    errors
}

/// Checks tolerations.
pub fn tolerations(tolerations: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = path.index(index);
        let text = |name: &str| toleration.str_at(&[name]);
        let (key, operator, effect) = (text("key"), text("operator"), text("effect"));
        if !key.is_empty() {
            errors.extend(all_invalid(
                &at.child("key"),
                key,
                names::qualified_name(key),
            ));
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(&at.child("operator"), operator, detail));
        }
        if toleration.has(&["tolerationSeconds"]) && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(&at.child("effect"), effect, detail));
        }
        let value = text("value");
        let operator_path = at.child("operator");
        match operator {
            "" | "Equal" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(&operator_path, value, wrong.join(";")));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(&operator_path, value, detail));
            }
            other => {
                let supported = ["Equal", "Exists"];
                errors.push(FieldError::not_supported(&operator_path, other, &supported));
            }
        }
        if !effect.is_empty() {
            errors.extend(taint_effect(effect, &at.child("effect")));
        }
    }
}

/// The error for an effect that no taint can have.
pub fn taint_effect(effect: &str, path: &Path) -> Option<FieldError> {
    let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    match effect {
        "" => Some(FieldError::required(path, "")),
        _ if supported.contains(&effect) => None,
        _ => Some(FieldError::not_supported(path, effect, &supported)),
    }
}

fn host_network_ports(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if !spec.bool_at(&["hostNetwork"]) {
        return;
    }
    for (index, container) in spec.list_at(&["containers"]).iter().enumerate() {
        for (at, port) in container.list_at(&["ports"]).iter().enumerate() {
            let host_port = port.i64_at(&["hostPort"]).unwrap_or(0);
            // In a template the port may still be left to the Pod's default.
            if host_port != 0 && host_port != port.i64_at(&["containerPort"]).unwrap_or(0) {
                let at = path.index(index).child("ports").index(at).child("hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(&at, host_port, detail));
            }
        }
    }
}

fn node_affinity(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let node_affinity = path.child("affinity").child("nodeAffinity");
    let Some(affinity) = spec.at(&["affinity", "nodeAffinity"]) else {
        return;
    };
    if let Some(selector) = affinity.get(required).filter(|value| !value.is_null()) {
        let at = node_affinity.child(required).child("nodeSelectorTerms");
        let terms = selector.list_at(&["nodeSelectorTerms"]);
        if terms.is_empty() {
            let detail = "must have at least one node selector term";
            errors.push(FieldError::required(&at, detail));
        }
        for (index, term) in terms.iter().enumerate() {
            node_selector_term(term, &at.index(index), errors);
        }
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in affinity.list_at(&[preferred]).iter().enumerate() {
        let at = node_affinity.child(preferred).index(index);
        let weight = term.i64_at(&["weight"]).unwrap_or(0);
        if !(1..=100).contains(&weight) {
            let detail = "must be in the range 1-100";
            errors.push(FieldError::invalid(&at.child("weight"), weight, detail));
        }
        if let Some(preference) = term.get("preference") {
            node_selector_term(preference, &at.child("preference"), errors);
        }
    }
}

fn node_selector_term(term: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, expression) in term.list_at(&["matchExpressions"]).iter().enumerate() {
        let at = path.child("matchExpressions").index(index);
        let values = expression.list_at(&["values"]).len();
        let values_path = at.child("values");
        match expression.str_at(&["operator"]) {
            "In" | "NotIn" if values == 0 => errors.push(FieldError::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if values > 0 => errors.push(FieldError::forbidden(
                &values_path,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "Gt" | "Lt" if values != 1 => errors.push(FieldError::required(
                &values_path,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.push(FieldError::invalid(
                &at.child("operator"),
                other,
                "not a valid selector operator",
            )),
        }
        let key = expression.str_at(&["key"]);
        errors.extend(all_invalid(
            &at.child("key"),
            key,
            names::qualified_name(key),
        ));
    }
}

fn dns(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("dnsConfig");
    let servers = spec.list_at(&["dnsConfig", "nameservers"]);
    if spec.str_at(&["dnsPolicy"]) == "None" {
        if !spec.has(&["dnsConfig"]) {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(FieldError::required(&at, detail));
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(FieldError::required(&at.child("nameservers"), detail));
        }
    }
    if servers.len() > 3 {
        let value = Value::Array(servers.to_vec());
        let detail = "must not have more than 3 nameservers";
        errors.push(FieldError::invalid(&at.child("nameservers"), value, detail));
    }
    for (index, server) in servers.iter().enumerate() {
        let text = server.as_str().unwrap_or_default();
        errors.extend(address(text, &at.child("nameservers").index(index)));
    }
    for (index, option) in spec.list_at(&["dnsConfig", "options"]).iter().enumerate() {
        if option.str_at(&["name"]).is_empty() {
            let at = at.child("options").index(index);
            errors.push(FieldError::required(&at, "must not be empty"));
        }
    }
}

fn host_aliases(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, alias) in spec.list_at(&["hostAliases"]).iter().enumerate() {
        let at = path.child("hostAliases").index(index);
        errors.extend(address(alias.str_at(&["ip"]), &at.child("ip")));
        for (index, name) in alias.list_at(&["hostnames"]).iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            let at = at.child("hostnames").index(index);
            errors.extend(all_invalid(&at, name, names::dns_subdomain(name)));
        }
    }
}

/// The error for what is not an IP address.
pub fn address(text: &str, path: &Path) -> Option<FieldError> {
    let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    let parsed = text.parse::<std::net::IpAddr>();
    parsed
        .is_err()
        .then(|| FieldError::invalid(path, text, detail))
}
