//! What is allowed in a Pod and yet will not do what its author hopes.

use std::net::IpAddr;

use crate::document::Value;
use crate::field::{Path, quote};
use crate::metadata::names;
use crate::quantity::Quantity;
use crate::strategy::pod::annotations::{APPARMOR_CONTAINER, SECCOMP_CONTAINER, SECCOMP_POD};
use crate::strategy::pod::resources::parsed;
use crate::strategy::pod::validate::containers;

const OLD_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
    ),
    (
        "beta.kubernetes.io/os",
        r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        r#"use "node-role.kubernetes.io/control-plane" instead"#,
    ),
];
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
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
];
const OLD_VOLUMES: [(&str, &str, &str); 9] = [
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "flocker",
        "flocker",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "quobyte",
        "quobyte",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Warnings about a new Pod.
pub fn of_new_pod(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let wrong = names::dns_label(pod.str_at(&["metadata", "name"]));
    if !wrong.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
    warnings.extend(of(pod, None, &Path::new("")));
    let annotations = pod.at(&["metadata", "annotations"]).unwrap_or(&Value::Null);
    let empty = Value::object();
    let spec = pod.get("spec").unwrap_or(&empty);
    let whole = spec.at(&["securityContext", "appArmorProfile"]);
    for (_, _, container) in containers(spec) {
        let key = format!("{APPARMOR_CONTAINER}{}", container.str_at(&["name"]));
        let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else {
            continue;
        };
        let own = container.at(&["securityContext", "appArmorProfile"]);
        let field = annotated_profile(annotation);
        let from_annotation = field.is_none() && own.is_none()
            || field.is_some() && own == field.as_ref() && whole != field.as_ref();
        if from_annotation {
            warnings.push(format!(
                r#"metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead"#
            ));
        }
    }
    warnings
}

/// Warnings about a write to a Pod's status.
pub fn of_status(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for list in ["podIPs", "hostIPs"] {
        for (index, entry) in pod.list_at(&["status", list]).iter().enumerate() {
            let at = Path::new("status").child(list).index(index).child("ip");
            warnings.extend(address(entry.str_at(&["ip"]), &at));
        }
    }
    warnings
}

/// Warnings about a template.
pub fn of_template(template: &Value, old: Option<&Value>, path: &Path) -> Vec<String> {
    match template.is_null() {
        true => Vec::new(),
        false => of(template, old, path),
    }
}

/// Gives containers the AppArmor profiles that only annotations name.
pub fn apply_annotated_profiles(pod: &mut Value) {
    if pod.str_at(&["spec", "os", "name"]) == "windows" {
        return;
    }
    let annotations = pod
        .at(&["metadata", "annotations"])
        .cloned()
        .unwrap_or_default();
    let whole = pod
        .at(&["spec", "securityContext", "appArmorProfile"])
        .cloned();
    let at = ["securityContext", "appArmorProfile"];
    for list in ["initContainers", "containers"] {
        for container in pod.list_at_mut(&["spec", list]) {
            let key = format!("{APPARMOR_CONTAINER}{}", container.str_at(&["name"]));
            let profile = annotations.get(&key).and_then(Value::as_str);
            let Some(profile) = profile.and_then(annotated_profile) else {
                continue;
            };
            if !container.has(&at) && whole.as_ref() != Some(&profile) {
                container.set(&at, profile);
            }
        }
    }
}

fn annotated_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(crate::document!({"type": "Unconfined"})),
        "runtime/default" => Some(crate::document!({"type": "RuntimeDefault"})),
        _ => {
            let profile = annotation.strip_prefix("localhost/")?;
            let valid = !profile.is_empty() && profile.trim() == profile && profile.len() <= 4095;
            valid.then(|| crate::document!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
}

fn of(object: &Value, _old: Option<&Value>, path: &Path) -> Vec<String> {
    let empty = Value::object();
    let spec = object.get("spec").unwrap_or(&empty);
    let mut check = Check {
        spec,
        annotations: object
            .at(&["metadata", "annotations"])
            .unwrap_or(&Value::Null),
        path,
        at: path.child("spec"),
        warnings: Vec::new(),
    };
    check.labels();
    check.spread();
    check.old_annotations();
    check.volumes();
    check.overlaps();
    check.duplicates();
    check.whole_bytes();
    check.containers();
    check.ports();
    check.grace_and_affinity();
    check.addresses();
    check.warnings
}

struct Check<'a> {
    spec: &'a Value,
    annotations: &'a Value,
    /// Of the template; "" for a Pod.
    path: &'a Path,
    /// Of the spec.
    at: Path,
    warnings: Vec<String>,
}

impl Check<'_> {
    fn warn(&mut self, path: &Path, words: impl std::fmt::Display) {
        self.warnings.push(format!("{path}: {words}"));
    }

    fn labels(&mut self) {
        for (key, _) in self.spec.fields_at(&["nodeSelector"]) {
            if let Some(words) = old_label(key) {
                self.warn(&self.at.child("nodeSelector").key(key), words);
            }
        }
        let path = self.at.child("affinity").child("nodeAffinity");
        let at = ["affinity", "nodeAffinity"];
        let required = self
            .spec
            .list_at(&[at[0], at[1], REQUIRED, "nodeSelectorTerms"]);
        for (index, term) in required.iter().enumerate() {
            let at = path.child(REQUIRED).child("nodeSelectorTerms").index(index);
            self.term(term, false, &at);
        }
        let preferred = self.spec.list_at(&[at[0], at[1], PREFERRED]);
        for (index, term) in preferred.iter().enumerate() {
            let at = path.child(PREFERRED).index(index).child("preference");
            self.term(term.get("preference").unwrap_or(&Value::Null), true, &at);
        }
    }

    fn term(&mut self, term: &Value, values: bool, path: &Path) {
        for (index, expression) in term.list_at(&["matchExpressions"]).iter().enumerate() {
            let at = path.child("matchExpressions").index(index);
            let key = expression.str_at(&["key"]);
            if let Some(words) = old_label(key) {
                self.warn(&at.child("key"), format!("{key} is {words}"));
            }
            let list = expression.list_at(&["values"]).iter().enumerate();
            for (index, value) in list.filter(|_| values) {
                let value = value.as_str().unwrap_or_default();
                for words in names::label_value(value) {
                    let at = at.child("values").index(index);
                    self.warn(&at, format!("{value} is invalid, {words}"));
                }
            }
        }
    }

    fn spread(&mut self) {
        let constraints = self.spec.list_at(&["topologySpreadConstraints"]);
        for (index, constraint) in constraints.iter().enumerate() {
            let at = self.at.child("topologySpreadConstraints").index(index);
            let key = constraint.str_at(&["topologyKey"]);
            if let Some(words) = old_label(key) {
                self.warn(&at.child("topologyKey"), format!("{key} is {words}"));
            }
            if !constraint.has(&["labelSelector"]) {
                let words = "a null labelSelector results in matching no pod";
                self.warn(&at.child("labelSelector"), words);
            }
        }
    }

    fn old_annotations(&mut self) {
        let path = self.path.child("metadata").child("annotations");
        for (key, words) in OLD_ANNOTATIONS {
            if self.annotations.get(key).is_some() {
                self.warn(&path.key(key), words);
            }
        }
    }

    fn volumes(&mut self) {
        for (index, volume) in self.spec.list_at(&["volumes"]).iter().enumerate() {
            let at = self.at.child("volumes").index(index);
            for (kind, name, words) in OLD_VOLUMES {
                if volume.has(&[kind]) {
                    self.warn(&at.child(name), words);
                }
            }
            let claim = volume.at(&["ephemeral", "volumeClaimTemplate", "spec"]);
            if let Some(claim) = claim {
                let at = at
                    .child("ephemeral")
                    .child("volumeClaimTemplate")
                    .child("spec");
                for list in ["requests", "limits"] {
                    let value = claim.at(&["resources", list, "storage"]);
                    let at = at.child("resources").child(list).key("storage");
                    self.fraction(value, &at);
                }
            }
        }
    }

    fn overlaps(&mut self) {
        for volume in self.spec.list_at(&["volumes"]) {
            let name = volume.str_at(&["name"]);
            for kind in ["configMap", "secret", "downwardAPI"] {
                let Some(source) = volume.get(kind).filter(|value| !value.is_null()) else {
                    continue;
                };
                let words = match kind {
                    "configMap" => format!("ConfigMap {}", quote(source.str_at(&["name"]))),
                    "secret" => format!("Secret {}", quote(source.str_at(&["secretName"]))),
                    _ => "DownwardAPI".to_string(),
                };
                let items = source.list_at(&["items"]).iter();
                let paths = items.map(|item| (item.str_at(&["path"]).to_string(), String::new()));
                self.collisions(name, &words, paths.collect());
            }
            let mut all = Vec::new();
            for source in volume.list_at(&["projected", "sources"]) {
                let fields = source
                    .as_object()
                    .into_iter()
                    .flat_map(|fields| fields.iter());
                if fields.filter(|(_, value)| !value.is_null()).count() == 0 {
                    self.warnings.push(format!(
                        "volume {} (Projected) has no sources provided",
                        quote(name)
                    ));
                    continue;
                }
                all.extend(projected_paths(source));
            }
            self.collisions(name, "Projected", all);
        }
    }

    fn collisions(&mut self, volume: &str, words: &str, paths: Vec<(String, String)>) {
        let shown = |path: &str, source: &str| match source {
            "" => quote(path),
            _ => format!("{} ({source})", quote(path)),
        };
        let mut seen: Vec<(String, String)> = Vec::new();
        for (path, source) in paths {
            let path = path.trim_end_matches('/').to_string();
            for (other, of) in seen.iter().filter(|(other, _)| overlap(other, &path)) {
                self.warnings.push(format!(
                    "volume {} ({words}): overlapping paths: {} with {}",
                    quote(volume),
                    shown(&path, &source),
                    shown(other, of)
                ));
            }
            seen.push((path, source));
        }
    }

    fn duplicates(&mut self) {
        for (list, field, word) in [
            ("hostAliases", "ip", "ip"),
            ("imagePullSecrets", "name", "name"),
        ] {
            let mut seen: Vec<&str> = Vec::new();
            let items = self.spec.list_at(&[list]);
            for (index, item) in items.iter().enumerate() {
                let text = item.str_at(&[field]);
                match seen.contains(&text) {
                    true => {
                        let at = self.at.child(list).index(index).child(field);
                        self.warn(&at, format!("duplicate {word} {}", quote(text)));
                    }
                    false => seen.push(text),
                }
            }
        }
        for (index, secret) in self.spec.list_at(&["imagePullSecrets"]).iter().enumerate() {
            if secret.str_at(&["name"]).is_empty() {
                let at = self.at.child("imagePullSecrets").index(index).child("name");
                self.warn(&at, r#"invalid empty name """#);
            }
        }
    }

    fn whole_bytes(&mut self) {
        for name in ["memory", "ephemeral-storage"] {
            let at = self.at.child("overhead").key(name);
            self.fraction(self.spec.at(&["overhead", name]), &at);
        }
        let seccomp = self.spec.has(&["securityContext", "seccompProfile"]);
        if !seccomp && self.annotations.get(SECCOMP_POD).is_some() {
            self.old_seccomp(SECCOMP_POD);
        }
    }

    fn old_seccomp(&mut self, key: &str) {
        let at = self.path.child("metadata").child("annotations").key(key);
        let words = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
        self.warn(&at, words);
    }

    fn fraction(&mut self, value: Option<&Value>, path: &Path) {
        let Some(quantity) = value.and_then(parsed) else {
            return;
        };
        if !Quantity::is_integer(quantity) {
            let words = format!(
                "fractional byte value {} is invalid, must be an integer",
                quote(&quantity.to_string())
            );
            self.warn(path, words);
        }
    }

    fn containers(&mut self) {
        for (list, index, container) in containers(self.spec) {
            let at = self.at.child(list).index(index);
            let name = container.str_at(&["name"]);
            let key = format!("{SECCOMP_CONTAINER}{name}");
            let own = container.has(&["securityContext", "seccompProfile"]);
            if !own && self.annotations.get(&key).is_some() {
                self.old_seccomp(&key);
            }
            self.app_armor(container, name);
            for resource in ["memory", "ephemeral-storage"] {
                for list in ["limits", "requests"] {
                    let value = container.at(&["resources", list, resource]);
                    let at = at.child("resources").child(list).key(resource);
                    self.fraction(value, &at);
                }
            }
            let mut seen: Vec<&str> = Vec::new();
            for (index, variable) in container.list_at(&["env"]).iter().enumerate() {
                let name = variable.str_at(&["name"]);
                if !seen.contains(&name) {
                    seen.push(name);
                    continue;
                }
                let (value, reference) = (variable.str_at(&["value"]), format!("$({name})"));
                let extends = value.contains(&reference) && value != reference;
                if variable.has(&["valueFrom"]) || !extends {
                    let words = format!(
                        "hides previous definition of {}, which may be dropped when using apply",
                        quote(name)
                    );
                    self.warn(&at.child("env").index(index), words);
                }
            }
        }
    }

    /// A Pod's annotation becomes a field; a template's does not.
    fn app_armor(&mut self, container: &Value, name: &str) {
        let is_template = *self.path != Path::new("");
        let at = ["securityContext", "appArmorProfile"];
        if !is_template || container.has(&at) {
            return;
        }
        let key = format!("{APPARMOR_CONTAINER}{name}");
        let Some(annotation) = self.annotations.get(&key).and_then(Value::as_str) else {
            return;
        };
        let whole = self.spec.at(&at).filter(|value| !value.is_null());
        if whole.is_none() || whole != annotated_profile(annotation).as_ref() {
            let at = self.path.child("metadata").child("annotations").key(&key);
            let words = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
            self.warn(&at, words);
        }
    }

    fn ports(&mut self) {
        let mut all: Vec<(String, Path, &Value)> = Vec::new();
        let mut names: Vec<(&str, Path)> = Vec::new();
        for (list, index, container) in containers(self.spec) {
            for (place, port) in container.list_at(&["ports"]).iter().enumerate() {
                let at = self.at.child(list).index(index).child("ports").index(place);
                let number = |port: &Value| port.i64_at(&["hostPort"]).unwrap_or(0);
                let own = port.i64_at(&["containerPort"]).unwrap_or(0);
                let (address, protocol) = (port.str_at(&["hostIP"]), port.str_at(&["protocol"]));
                if !address.is_empty() && number(port) == 0 {
                    let words = format!(
                        "hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{own} Protocol:{protocol} HostIP:{address}}}",
                        port.str_at(&["name"])
                    );
                    self.warn(&at, words);
                }
                let key = format!("{own}/{protocol}");
                for (_, other_path, other) in all.iter().filter(|(known, ..)| *known == key) {
                    let other_address = other.str_at(&["hostIP"]);
                    let (a, b) = (number(port), number(other));
                    let word = if address == other_address && a == b {
                        "duplicate"
                    } else if a == 0 || b == 0 {
                        "overlapping"
                    } else if a == b && address.is_empty() != other_address.is_empty() {
                        "dangerously ambiguous"
                    } else {
                        continue;
                    };
                    let words = format!("{at}: {word} port definition with {other_path}");
                    self.warnings.push(words);
                }
                all.push((key, at, port));
            }
        }
        for (list, index, container) in containers(self.spec) {
            for (place, port) in container.list_at(&["ports"]).iter().enumerate() {
                let at = self.at.child(list).index(index).child("ports").index(place);
                let name = port.str_at(&["name"]);
                if name.is_empty() {
                    continue;
                }
                match names.iter().find(|(known, _)| *known == name) {
                    Some((_, other)) => {
                        let words = format!(
                            "{at}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                            quote(name)
                        );
                        self.warnings.push(words);
                    }
                    None => names.push((name, at)),
                }
            }
        }
    }

    fn grace_and_affinity(&mut self) {
        let grace = self.spec.i64_at(&["terminationGracePeriodSeconds"]);
        if grace.is_some_and(|seconds| seconds < 0) {
            let at = self.at.child("terminationGracePeriodSeconds");
            let words = "must be >= 0; negative values are invalid and will be treated as 1";
            self.warn(&at, words);
        }
        let words = "a null labelSelector results in matching no pod";
        for name in ["podAffinity", "podAntiAffinity"] {
            let path = self.at.child("affinity").child(name);
            for (list, inner) in [(REQUIRED, None), (PREFERRED, Some("podAffinityTerm"))] {
                let terms = self.spec.list_at(&["affinity", name, list]);
                for (index, term) in terms.iter().enumerate() {
                    let at = path.child(list).index(index);
                    let (has, at) = match inner {
                        None => (term.has(&["labelSelector"]), at),
                        Some(inner) => (term.has(&[inner, "labelSelector"]), at.child(inner)),
                    };
                    if !has {
                        self.warn(&at.child("labelSelector"), words);
                    }
                }
            }
        }
    }

    fn addresses(&mut self) {
        let servers = self.spec.list_at(&["dnsConfig", "nameservers"]);
        for (index, server) in servers.iter().enumerate() {
            let at = self.at.child("dnsConfig").child("nameservers").index(index);
            let text = server.as_str().unwrap_or_default();
            self.warnings.extend(address(text, &at));
        }
        for (index, alias) in self.spec.list_at(&["hostAliases"]).iter().enumerate() {
            let at = self.at.child("hostAliases").index(index).child("ip");
            self.warnings.extend(address(alias.str_at(&["ip"]), &at));
        }
    }
}

fn projected_paths(source: &Value) -> Vec<(String, String)> {
    let items = |kind: &str, words: String| -> Vec<(String, String)> {
        let items = source.list_at(&[kind, "items"]).iter();
        items
            .map(|item| (item.str_at(&["path"]).to_string(), words.clone()))
            .collect()
    };
    let name = |kind: &str| quote(source.str_at(&[kind, "name"]));
    if source.has(&["configMap", "items"]) {
        items("configMap", format!("ConfigMap {}", name("configMap")))
    } else if source.has(&["secret", "items"]) {
        items("secret", format!("Secret {}", name("secret")))
    } else if source.has(&["downwardAPI", "items"]) {
        items("downwardAPI", "DownwardAPI".to_string())
    } else if source.has(&["serviceAccountToken"]) {
        let path = source.str_at(&["serviceAccountToken", "path"]).to_string();
        vec![(path, "ServiceAccountToken".to_string())]
    } else {
        Vec::new()
    }
}

fn overlap(one: &str, other: &str) -> bool {
    let below = |inner: &str, outer: &str| format!("{inner}/").starts_with(&format!("{outer}/"));
    !one.is_empty() && !other.is_empty() && (below(one, other) || below(other, one))
}

fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS
        .iter()
        .find(|(label, _)| *label == key)
        .map(|(_, words)| *words)
}

fn address(text: &str, path: &Path) -> Option<String> {
    let Ok(IpAddr::V6(parsed)) = text.parse::<IpAddr>() else {
        return None;
    };
    let canonical = parsed.to_string();
    (canonical != text).then(|| {
        format!(
            "{path}: IPv6 address {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&canonical)
        )
    })
}
