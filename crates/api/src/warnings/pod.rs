//! Words about pods and their templates.

use std::collections::{BTreeMap, BTreeSet};

use super::address::address;
use super::values::{fraction, selector_term};
use super::{deprecated_label, volume, volume_paths};
use crate::document::Value;
use crate::field::Path;

/// More warnings than this are not made about ports: answers carry only a few of them.
const MOST_WARNINGS: usize = 1_000;
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APPARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";
const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Checks `{metadata, spec}`; `path` leads to it.
pub(super) fn check(pod: &Value, path: &Path, is_template: bool, warnings: &mut Vec<String>) {
    let spec_path = path.child("spec");
    placing(pod, &spec_path, warnings);
    annotations(pod, path, warnings);
    for (index, one) in pod.list_at(&["spec", "volumes"]).iter().enumerate() {
        let path = spec_path.child("volumes").index(index);
        volume::deprecated_source(one, &path, warnings);
        let claim = one.at(&["ephemeral", "volumeClaimTemplate", "spec"]);
        let path = path
            .child("ephemeral")
            .child("volumeClaimTemplate")
            .child("spec");
        volume::claim_spec(claim, &path, warnings);
    }
    volume_paths::check(pod.list_at(&["spec", "volumes"]), warnings);
    repeated(pod, "hostAliases", "ip", &spec_path, warnings);
    repeated(pod, "imagePullSecrets", "name", &spec_path, warnings);
    for (index, secret) in pod
        .list_at(&["spec", "imagePullSecrets"])
        .iter()
        .enumerate()
    {
        if secret.str_at(&["name"]).is_empty() {
            let path = spec_path
                .child("imagePullSecrets")
                .index(index)
                .child("name");
            warnings.push(format!("{path}: invalid empty name \"\""));
        }
    }
    if let Some(spec) = pod.get("spec") {
        fractions(spec, &["overhead"], &spec_path.child("overhead"), warnings);
    }
    if !pod.has(&["spec", "securityContext", "seccompProfile"]) {
        seccomp(pod, SECCOMP_POD, path, warnings);
    }
    each_container(pod, &spec_path, |container, at| {
        let name = container.str_at(&["name"]);
        if !container.has(&["securityContext", "seccompProfile"]) {
            seccomp(pod, &format!("{SECCOMP_CONTAINER}{name}"), path, warnings);
        }
        if is_template && !container.has(&["securityContext", "appArmorProfile"]) {
            app_armor(pod, &format!("{APPARMOR_CONTAINER}{name}"), path, warnings);
        }
        let resources = at.child("resources");
        for resource in ["memory", "ephemeral-storage"] {
            for list in ["limits", "requests"] {
                let path = resources.child(list).key(resource);
                let amount = container.at(&["resources", list, resource]);
                warnings.extend(fraction(amount, &path));
            }
        }
        variables(container, at, warnings);
    });
    ports(pod, &spec_path, warnings);
    let grace = pod.i64_at(&["spec", "terminationGracePeriodSeconds"]);
    if grace.is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            spec_path.child("terminationGracePeriodSeconds")
        ));
    }
    affinity(pod, &spec_path, warnings);
    for (index, server) in pod
        .list_at(&["spec", "dnsConfig", "nameservers"])
        .iter()
        .enumerate()
    {
        let path = spec_path
            .child("dnsConfig")
            .child("nameservers")
            .index(index);
        address(server.as_str().unwrap_or_default(), &path, warnings);
    }
    for (index, alias) in pod.list_at(&["spec", "hostAliases"]).iter().enumerate() {
        let path = spec_path.child("hostAliases").index(index).child("ip");
        address(alias.str_at(&["ip"]), &path, warnings);
    }
}

/// The addresses that a node reports.
pub(super) fn addresses(pod: &Value, warnings: &mut Vec<String>) {
    for list in ["podIPs", "hostIPs"] {
        for (index, one) in pod.list_at(&["status", list]).iter().enumerate() {
            let path = Path::new("status").child(list).index(index).child("ip");
            address(one.str_at(&["ip"]), &path, warnings);
        }
    }
}

fn each_container(pod: &Value, spec: &Path, mut visit: impl FnMut(&Value, &Path)) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in pod.list_at(&["spec", list]).iter().enumerate() {
            visit(container, &spec.child(list).index(index));
        }
    }
}

fn placing(pod: &Value, spec: &Path, warnings: &mut Vec<String>) {
    for (label, _) in pod.fields_at(&["spec", "nodeSelector"]) {
        if let Some(word) = deprecated_label(label) {
            warnings.push(format!("{}: {word}", spec.child("nodeSelector").key(label)));
        }
    }
    let nodes = ["spec", "affinity", "nodeAffinity"];
    if let Some(affinity) = pod.at(&nodes) {
        let path = spec.child("affinity").child("nodeAffinity");
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let at = path.child(required).child("nodeSelectorTerms");
        for (index, term) in affinity
            .list_at(&[required, "nodeSelectorTerms"])
            .iter()
            .enumerate()
        {
            selector_term(term, false, &at.index(index), warnings);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in affinity.list_at(&[preferred]).iter().enumerate() {
            let at = path.child(preferred).index(index).child("preference");
            if let Some(term) = term.get("preference") {
                selector_term(term, true, &at, warnings);
            }
        }
    }
    for (index, spread) in pod
        .list_at(&["spec", "topologySpreadConstraints"])
        .iter()
        .enumerate()
    {
        let path = spec.child("topologySpreadConstraints").index(index);
        let key = spread.str_at(&["topologyKey"]);
        if let Some(word) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {word}", path.child("topologyKey")));
        }
        if !spread.has(&["labelSelector"]) {
            warnings.push(format!("{}: {NO_SELECTOR}", path.child("labelSelector")));
        }
    }
}

fn annotations(pod: &Value, path: &Path, warnings: &mut Vec<String>) {
    for (key, word) in [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
        ),
        (
            "security.alpha.kubernetes.io/sysctls",
            r#"non-functional in v1.11+; use the "sysctls" field instead"#,
        ),
        (
            "security.alpha.kubernetes.io/unsafe-sysctls",
            r#"non-functional in v1.11+; use the "sysctls" field instead"#,
        ),
    ] {
        if pod.has(&["metadata", "annotations", key]) {
            let at = path.child("metadata").child("annotations").key(key);
            warnings.push(format!("{at}: {word}"));
        }
    }
}

fn seccomp(pod: &Value, key: &str, path: &Path, warnings: &mut Vec<String>) {
    if pod.has(&["metadata", "annotations", key]) {
        let at = path.child("metadata").child("annotations").key(key);
        warnings.push(format!(
            "{at}: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
}

fn app_armor(pod: &Value, key: &str, path: &Path, warnings: &mut Vec<String>) {
    let Some(annotation) = pod.at(&["metadata", "annotations", key]) else {
        return;
    };
    let meant = match annotation.as_str().unwrap_or_default() {
        "unconfined" => crate::document!({"type": "Unconfined"}),
        "runtime/default" => crate::document!({"type": "RuntimeDefault"}),
        other => match other.strip_prefix("localhost/") {
            Some(profile) => crate::document!({"type": "Localhost", "localhostProfile": profile}),
            None => Value::Null,
        },
    };
    if pod.at(&["spec", "securityContext", "appArmorProfile"]) != Some(&meant) {
        let at = path.child("metadata").child("annotations").key(key);
        warnings.push(format!(
            "{at}: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        ));
    }
}

fn repeated(pod: &Value, list: &str, field: &str, spec: &Path, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, item) in pod.list_at(&["spec", list]).iter().enumerate() {
        let value = item.str_at(&[field]);
        if !seen.insert(value) {
            let at = spec.child(list).index(index).child(field);
            warnings.push(format!("{at}: duplicate {field} {value:?}"));
        }
    }
}

fn fractions(object: &Value, list: &[&str], path: &Path, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        let amount = object.at(list).and_then(|amounts| amounts.get(resource));
        warnings.extend(fraction(amount, &path.key(resource)));
    }
}

fn variables(container: &Value, path: &Path, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in container.list_at(&["env"]).iter().enumerate() {
        let (name, value) = (variable.str_at(&["name"]), variable.str_at(&["value"]));
        if seen.insert(name) {
            continue;
        }
        // Building on the earlier value is fine.
        let reference = format!("$({name})");
        let hides =
            variable.has(&["valueFrom"]) || value == reference || !value.contains(&reference);
        if hides {
            let at = path.child("env").index(index);
            warnings.push(format!(
                "{at}: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

fn ports(pod: &Value, spec: &Path, warnings: &mut Vec<String>) {
    let mut seen: BTreeMap<(i64, String), Vec<(Path, String, i64)>> = BTreeMap::new();
    each_container(pod, spec, |container, path| {
        for (index, port) in container.list_at(&["ports"]).iter().enumerate() {
            let at = path.child("ports").index(index);
            let number = |field: &str| port.i64_at(&[field]).unwrap_or(0);
            let (ip, host) = (port.str_at(&["hostIP"]).to_string(), number("hostPort"));
            if !ip.is_empty() && host == 0 {
                warnings.push(format!(
                    "{at}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                    port.str_at(&["name"]),
                    number("containerPort"),
                    port.str_at(&["protocol"])
                ));
            }
            let key = (
                number("containerPort"),
                port.str_at(&["protocol"]).to_string(),
            );
            let others = seen.entry(key).or_default();
            for (other, other_ip, other_host) in others.iter() {
                // Many ports alike would give a warning for each pair of them.
                if warnings.len() >= MOST_WARNINGS {
                    return;
                }
                let how = if ip == *other_ip && host == *other_host {
                    "duplicate"
                } else if host == 0 || *other_host == 0 {
                    "overlapping"
                } else if host == *other_host && ip.is_empty() != other_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                warnings.push(format!("{at}: {how} port definition with {other}"));
            }
            others.push((at, ip, host));
        }
    });
    let mut named: BTreeMap<String, Path> = BTreeMap::new();
    each_container(pod, spec, |container, path| {
        for (index, port) in container.list_at(&["ports"]).iter().enumerate() {
            let (name, at) = (port.str_at(&["name"]), path.child("ports").index(index));
            match named.get(name) {
                _ if name.is_empty() => {}
                Some(other) => warnings.push(format!(
                    "{at}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                )),
                None => drop(named.insert(name.to_string(), at)),
            }
        }
    });
}

fn affinity(pod: &Value, spec: &Path, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let path = spec.child("affinity").child(kind);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let list = pod.list_at(&["spec", "affinity", kind, required]);
        for (index, term) in list.iter().enumerate() {
            if !term.has(&["labelSelector"]) {
                let at = path.child(required).index(index).child("labelSelector");
                warnings.push(format!("{at}: {NO_SELECTOR}"));
            }
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let list = pod.list_at(&["spec", "affinity", kind, preferred]);
        for (index, term) in list.iter().enumerate() {
            if !term.has(&["podAffinityTerm", "labelSelector"]) {
                let at = path.child(preferred).index(index);
                let at = at.child("podAffinityTerm").child("labelSelector");
                warnings.push(format!("{at}: {NO_SELECTOR}"));
            }
        }
    }
}
