//! Validation of a pod spec, alone or in a template.

use std::net::IpAddr;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names;
use crate::metadata::{self, all_invalid};
use crate::repeats::Seen;
use crate::strategy::checks::{invalid_number, required_one_of};
use crate::strategy::pod::container_lists::all_containers;
use crate::strategy::pod::resources::PodClaims;
use crate::strategy::pod::{
    affinity, annotations, containers, level_resources, resources, security, tolerations, volumes,
    windows,
};

const MOST_NAMESERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const LONGEST_SEARCHES: usize = 2048;
const LONGEST_HOST_NAME: usize = 64;

/// Checks a Pod, its metadata apart.
pub fn pod(pod: &Value) -> Vec<FieldError> {
    let path = Path::new("spec");
    let empty = Value::object();
    let spec = pod.get("spec").unwrap_or(&empty);
    let metadata = pod.get("metadata").unwrap_or(&empty);
    let at = Path::new("metadata").child("annotations");
    let mut errors = annotations::validate(metadata.get("annotations"), spec, &at);
    errors.extend(pod_spec(spec, Some(metadata), &path));
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
            containers::own_image(container, &path.child(list).index(index), &mut errors);
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
    let annotations = pod.at(&["metadata", "annotations"]);
    let empty = Value::object();
    let spec = pod.get("spec").unwrap_or(&empty);
    errors.extend(annotations::profiles_match(annotations, spec, &path));
    errors
}

/// Checks a pod spec. `metadata` is the Pod's own; a template has none yet.
pub fn pod_spec(spec: &Value, metadata: Option<&Value>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let errors_ref = &mut errors;
    let at = path.child("volumes");
    let valid_volumes = volumes::validate(spec.list_at(&["volumes"]), metadata, &at, errors_ref);
    resource_claims(spec, metadata, &path.child("resourceClaims"), errors_ref);
    let scope = containers::Scope::of(spec, valid_volumes);
    containers::regular(&scope, &path.child("containers"), errors_ref);
    containers::init(&scope, &path.child("initContainers"), errors_ref);
    let at = path.child("ephemeralContainers");
    containers::ephemeral(&scope, &at, errors_ref);
    level_resources::validate(spec, path, errors_ref);
    host_network_ports(
        spec,
        metadata.is_some(),
        &path.child("containers"),
        errors_ref,
    );
    let policies = ["Always", "OnFailure", "Never"];
    required_one_of(spec, "restartPolicy", &policies, path, errors_ref);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    required_one_of(spec, "dnsPolicy", &policies, path, errors_ref);
    errors.extend(metadata::labels(
        spec.get("nodeSelector"),
        &path.child("nodeSelector"),
    ));
    security::pod(spec, &path.child("securityContext"), &mut errors);
    affinity::validate(spec, path, &mut errors);
    dns(spec, path, &mut errors);
    gates(spec, path, &mut errors);
    let constraints = spec.list_at(&["topologySpreadConstraints"]);
    let at = path.child("topologySpreadConstraints");
    affinity::topology_spread(constraints, &at, &mut errors);
    windows::host_process(spec, path, &mut errors);
    host_users(spec, path, &mut errors);
    host_name(spec, &path.child("hostnameOverride"), &mut errors);
    named(spec, path, &["serviceAccountName", "nodeName"], &mut errors);
    if let Some(seconds) = spec.i64_at(&["activeDeadlineSeconds"]) {
        let wrong = names::in_range(seconds, 1, i32::MAX.into());
        let at = path.child("activeDeadlineSeconds");
        errors.extend(invalid_number(&at, seconds, wrong));
    }
    named(spec, path, &["hostname", "subdomain"], &mut errors);
    let at = path.child("tolerations");
    tolerations::validate(spec.list_at(&["tolerations"]), &at, &mut errors);
    host_aliases(spec, path, &mut errors);
    named(
        spec,
        path,
        &["priorityClassName", "runtimeClassName"],
        &mut errors,
    );
    let policy = spec.get("preemptionPolicy").and_then(Value::as_str);
    if let Some(policy) =
        policy.filter(|policy| !matches!(*policy, "PreemptLowerPriority" | "Never"))
    {
        let at = path.child("preemptionPolicy");
        let supported = ["PreemptLowerPriority", "Never"];
        errors.push(match policy {
            "" => FieldError::required(&at, ""),
            _ => FieldError::not_supported(&at, policy, &supported),
        });
    }
    if let Some(overhead) = spec.get("overhead").filter(|value| !value.is_null()) {
        // It is validated as limits, and errors have that name.
        let mut limits = Value::object();
        limits.set(&["limits"], overhead.clone());
        errors.extend(resources::validate(
            &limits,
            &PodClaims::none(),
            &path.child("overhead"),
        ));
    }
    windows::system(spec, path, &mut errors);
    file_references(spec, path, &mut errors);
    errors
}

fn named(spec: &Value, path: &Path, fields: &[&str], errors: &mut Vec<FieldError>) {
    for name in fields {
        let text = spec.str_at(&[name]);
        let empty_counts = *name == "runtimeClassName" && spec.has(&[name]);
        if text.is_empty() && !empty_counts {
            continue;
        }
        let wrong = match *name {
            "hostname" | "subdomain" => names::dns_label(text),
            _ => names::dns_subdomain(text),
        };
        errors.extend(all_invalid(&path.child(name), text, wrong));
    }
}

fn resource_claims(
    spec: &Value,
    metadata: Option<&Value>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let mirrored =
        metadata.is_some_and(|metadata| metadata.has(&["annotations", annotations::MIRROR]));
    let mut seen = Seen::new();
    for (index, claim) in spec.list_at(&["resourceClaims"]).iter().enumerate() {
        if mirrored {
            let detail = "static pods do not support resource claims";
            errors.push(FieldError::forbidden(&Path::new(""), detail));
            continue;
        }
        let at = path.index(index);
        let name = claim.str_at(&["name"]);
        let name_path = at.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(&name_path, ""));
        } else if seen.contains(&name) {
            errors.push(FieldError::duplicate(&name_path, name));
        } else {
            errors.extend(all_invalid(&name_path, name, names::dns_label(name)));
            seen.insert(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let detail = match sources.iter().filter(|name| claim.has(&[name])).count() {
            0 => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            1 => None,
            _ => Some(
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        };
        if let Some(detail) = detail {
            errors.push(FieldError::invalid(&at, claim.clone(), detail));
        }
        for name in sources {
            if let Some(text) = claim.get(name).and_then(Value::as_str) {
                let wrong = names::dns_subdomain(text);
                errors.extend(all_invalid(&at.child(name), text, wrong));
            }
        }
    }
}

fn gates(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, gate) in spec.list_at(&["readinessGates"]).iter().enumerate() {
        let name = gate.str_at(&["conditionType"]);
        let at = path.child("readinessGates").index(index);
        let wrong = names::qualified_name(name);
        errors.extend(all_invalid(&at.child("conditionType"), name, wrong));
    }
    let mut seen = Seen::new();
    for (index, gate) in spec.list_at(&["schedulingGates"]).iter().enumerate() {
        let name = gate.str_at(&["name"]);
        let at = path.child("schedulingGates").index(index);
        errors.extend(all_invalid(&at, name, names::qualified_name(name)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at, name));
        }
    }
}

fn host_users(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if spec.get("hostUsers").and_then(Value::as_bool) != Some(false) {
        return;
    }
    let detail = "when `hostUsers` is false";
    for (field, name) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.bool_at(&[field]) {
            errors.push(FieldError::forbidden(&path.child(name), detail));
        }
    }
    for (list, index, container) in all_containers(spec) {
        if !container.list_at(&["volumeDevices"]).is_empty() {
            let at = path.child(list).index(index).child("volumeDevices");
            errors.push(FieldError::forbidden(&at, detail));
        }
    }
}

fn host_name(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(name) = spec.get("hostnameOverride").and_then(Value::as_str) else {
        return;
    };
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.bool_at(&[field]) {
            let detail = format!("may not be specified when {field} is true");
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    if name.len() > LONGEST_HOST_NAME {
        errors.push(FieldError::too_long(path, LONGEST_HOST_NAME));
    }
    errors.extend(all_invalid(path, name, names::dns_subdomain(name)));
}

/// Variables from files take them from volumes of the Pod's own.
fn file_references(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let volumes = spec.list_at(&["volumes"]);
    for (list, index, container) in all_containers(spec) {
        for (at, variable) in container.list_at(&["env"]).iter().enumerate() {
            if !variable.has(&["valueFrom", "fileKeyRef"]) {
                continue;
            }
            let name = variable.str_at(&["valueFrom", "fileKeyRef", "volumeName"]);
            let at = path.child(list).index(index).child("env").index(at);
            let at = at
                .child("valueFrom")
                .child("fileKeyRef")
                .child("volumeName");
            let found = volumes
                .iter()
                .rfind(|volume| volume.str_at(&["name"]) == name);
            match found {
                None => errors.push(FieldError::not_found(&at, name)),
                Some(volume) if volume.has(&["emptyDir"]) => {}
                Some(_) => {
                    let detail = "referenced volume must be of type emptyDir";
                    errors.push(FieldError::invalid(&at, name, detail));
                }
            }
        }
    }
}

fn host_network_ports(spec: &Value, is_pod: bool, path: &Path, errors: &mut Vec<FieldError>) {
    if !spec.bool_at(&["hostNetwork"]) {
        return;
    }
    for (index, container) in spec.list_at(&["containers"]).iter().enumerate() {
        for (at, port) in container.list_at(&["ports"]).iter().enumerate() {
            let host_port = port.i64_at(&["hostPort"]).unwrap_or(0);
            let own_port = port.i64_at(&["containerPort"]).unwrap_or(0);
            // In a template the port may still be left to the Pod's default.
            if (is_pod || host_port != 0) && host_port != own_port {
                let at = path.index(index).child("ports").index(at).child("hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(&at, host_port, detail));
            }
        }
    }
}

fn dns(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("dnsConfig");
    let servers = spec.list_at(&["dnsConfig", "nameservers"]);
    let servers_path = at.child("nameservers");
    if spec.str_at(&["dnsPolicy"]) == "None" {
        if !spec.has(&["dnsConfig"]) {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(FieldError::required(&at, detail));
            return;
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(FieldError::required(&servers_path, detail));
            return;
        }
    }
    if servers.len() > MOST_NAMESERVERS {
        let value = Value::Array(servers.to_vec());
        let detail = format!("must not have more than {MOST_NAMESERVERS} nameservers");
        errors.push(FieldError::invalid(&servers_path, value, detail));
    }
    for (index, server) in servers.iter().enumerate() {
        let text = server.as_str().unwrap_or_default();
        errors.extend(address(text, &servers_path.index(index)));
    }
    let searches = spec.list_at(&["dnsConfig", "searches"]);
    let searches_path = at.child("searches");
    let words: Vec<&str> = searches.iter().filter_map(Value::as_str).collect();
    let value = || Value::Array(searches.to_vec());
    if words.len() > MOST_SEARCHES {
        let detail = format!("must not have more than {MOST_SEARCHES} search paths");
        errors.push(FieldError::invalid(&searches_path, value(), detail));
    }
    if words.join(" ").len() > LONGEST_SEARCHES {
        let detail = format!(
            "must not have more than {LONGEST_SEARCHES} characters (including spaces) in the search list"
        );
        errors.push(FieldError::invalid(&searches_path, value(), detail));
    }
    for (index, search) in words.into_iter().enumerate() {
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            let wrong = names::dns_subdomain_with_underscore(search);
            errors.extend(all_invalid(&searches_path.index(index), search, wrong));
        }
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

/// The error for what is not an IP address in its usual form.
pub fn address(text: &str, path: &Path) -> Option<FieldError> {
    let detail = match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            "must not be an IPv4-mapped IPv6 address"
        }
        Ok(_) => return None,
        Err(_) if without_leading_zeros(text).parse::<IpAddr>().is_ok() => {
            "must not have leading 0s"
        }
        Err(_) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    };
    Some(FieldError::invalid(path, text, detail))
}

fn without_leading_zeros(text: &str) -> String {
    let parts = text
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            trimmed => trimmed,
        });
    parts.collect::<Vec<_>>().join(".")
}
