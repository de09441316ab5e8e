//! What is allowed and yet deserves a word: deprecated labels, hidden variables, odd addresses.
//! Told in `Warning` headers with the answer to a write. Pure; one file per family of kinds.

mod address;
mod inert;
mod pod;
mod service;
mod values;
mod volume;
mod volume_paths;

use std::borrow::Cow;

use crate::document::Value;
use crate::field::Path;
use crate::metadata::names;
use crate::repeats::{Seen, repeats};
use crate::resource::Resource;

/// The word that every request about a deprecated kind gets.
pub fn deprecation(resource: &Resource) -> Option<Cow<'_, str>> {
    if let Some(custom) = resource.definition.custom() {
        return custom.deprecation.as_deref().map(Cow::Borrowed);
    }
    let text = match (&*resource.group, &*resource.version, &*resource.kind) {
        ("", "v1", "Endpoints") => {
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
        }
        ("", "v1", "ComponentStatus") => "v1 ComponentStatus is deprecated in v1.19+",
        _ => return None,
    };
    Some(Cow::Borrowed(text))
}

/// What there is to say about a valid object that is being created, or with `old` updated.
pub fn of(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    subresource: &str,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = || Path::new("spec");
    match (&*resource.group, &*resource.kind, subresource) {
        ("", "Pod", "") => {
            if old.is_none() {
                let word = "the Pod's hostname";
                warnings.extend(name_as_host(object, word));
            }
            pod::check(object, &Path::new(""), false, &mut warnings);
        }
        ("", "Pod", "status") => pod::addresses(object, &mut warnings),
        ("", "PodTemplate", "") => template(object, old, &["template"], &mut warnings),
        ("", "ReplicationController", "") => match old {
            None => {
                warnings.extend(name_as_host(object, "Pod names and hostnames"));
                template(object, None, &["spec", "template"], &mut warnings);
            }
            // Upstream takes the old template for the new one.
            Some(old) => template(old, Some(object), &["spec", "template"], &mut warnings),
        },
        ("apps", "Deployment" | "ReplicaSet", "") => {
            if old.is_none() {
                warnings.extend(name_as_host(object, "Pod names and hostnames"));
            }
            template(object, old, &["spec", "template"], &mut warnings);
        }
        ("apps", "DaemonSet", "") => template(object, old, &["spec", "template"], &mut warnings),
        ("apps", "StatefulSet", "") => {
            template(object, old, &["spec", "template"], &mut warnings);
            for (index, claim) in object
                .list_at(&["spec", "volumeClaimTemplates"])
                .iter()
                .enumerate()
            {
                let mut path = spec().child("volumeClaimTemplates").index(index);
                if old.is_some() {
                    path = path.child("Spec");
                }
                volume::claim_spec(claim.get("spec"), &path, &mut warnings);
            }
            if object
                .i64_at(&["spec", "revisionHistoryLimit"])
                .is_some_and(|limit| limit < 0)
            {
                warnings.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_string());
            }
        }
        ("batch", "Job", "") => {
            if old.is_none() {
                warnings.extend(name_as_host(object, "Pod names and hostnames"));
            }
            job(object, old, &["spec"], &mut warnings);
        }
        ("batch", "CronJob", "") => {
            if old.is_none() {
                warnings.extend(name_as_host(object, "Pod names and hostnames"));
            }
            job(object, old, &["spec", "jobTemplate", "spec"], &mut warnings);
            let zoned = object.str_at(&["spec", "schedule"]).contains("TZ");
            if zoned && old.is_some() {
                warnings.push("cannot use TZ or CRON_TZ in spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_string());
            }
        }
        ("", "Service", "") => service::check(object, &mut warnings),
        ("", "Endpoints", "") => service::endpoints(object, &mut warnings),
        ("discovery.k8s.io", "EndpointSlice", "") => {
            service::slice(object, old.is_none(), &mut warnings);
        }
        ("networking.k8s.io", "NetworkPolicy", "") => service::policy(object, &mut warnings),
        ("networking.k8s.io", "Ingress", "") if old.is_none() => {
            const OLD: &str = "kubernetes.io/ingress.class";
            let annotated = object.has(&["metadata", "annotations", OLD]);
            if annotated && !object.has(&["spec", "ingressClassName"]) {
                warnings.push(format!(
                    "annotation {OLD:?} is deprecated, please use 'spec.ingressClassName' instead"
                ));
            }
        }
        ("", "Service", "status") | ("networking.k8s.io", "Ingress", "status") => {
            service::balancer(object, &mut warnings);
        }
        ("", "Node", "") => node(object, &mut warnings),
        ("", "PersistentVolume", "") => volume::volume(object, &mut warnings),
        ("", "PersistentVolumeClaim", "") => volume::claim(object, &mut warnings),
        ("storage.k8s.io", "StorageClass", "") => volume::storage_class(object, &mut warnings),
        ("node.k8s.io", "RuntimeClass", "") => {
            for (label, _) in object.fields_at(&["scheduling", "nodeSelector"]) {
                if let Some(word) = deprecated_label(label) {
                    warnings.push(format!("scheduling.nodeSelector: {word}"));
                }
            }
        }
        _ => warnings = resource.strategy().warnings(object, old, subresource),
    }
    if subresource.is_empty() {
        warnings.extend(inert::check(resource, object, old));
    }
    warnings
}

/// A template is told about when it is new or has changed.
fn template(object: &Value, old: Option<&Value>, at: &[&str], warnings: &mut Vec<String>) {
    if old.is_some_and(|old| old.at(at) == object.at(at)) {
        return;
    }
    if let Some(template) = object.at(at) {
        pod::check(template, &Path::new(&at.join(".")), true, warnings);
    }
}

fn job(object: &Value, old: Option<&Value>, at: &[&str], warnings: &mut Vec<String>) {
    let (Some(spec), same) = (
        object.at(at),
        old.is_some_and(|old| old.at(at) == object.at(at)),
    ) else {
        return;
    };
    if same {
        return;
    }
    let number = |field: &str| spec.i64_at(&[field]).unwrap_or(0);
    let indexed = spec.str_at(&["completionMode"]) == "Indexed";
    if indexed && number("completions") > 100_000 && number("parallelism") > 10_000 {
        warnings.push(format!(
            "{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
            at.join(".")
        ));
    }
    if let Some(template) = spec.get("template") {
        let path = Path::new(&at.join(".")).child("template");
        pod::check(template, &path, true, warnings);
    }
}

fn node(object: &Value, warnings: &mut Vec<String>) {
    if object.has(&["spec", "configSource"]) {
        warnings.push("spec.configSource: the feature is removed".to_string());
    }
    if !object.str_at(&["spec", "externalID"]).is_empty() {
        warnings.push(
            "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_string(),
        );
    }
    let path = Path::new("spec").child("podCIDRs");
    for (index, range) in object.list_at(&["spec", "podCIDRs"]).iter().enumerate() {
        address::range(
            range.as_str().unwrap_or_default(),
            &path.index(index),
            warnings,
        );
    }
}

/// A name that is no DNS label makes odd host names.
fn name_as_host(object: &Value, used_in: &str) -> Option<String> {
    let problems = names::dns_label(object.str_at(&["metadata", "name"]));
    if problems.is_empty() {
        return None;
    }
    Some(format!(
        "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: [{}]",
        problems.join(" ")
    ))
}

/// What to say about a label of nodes that has been replaced.
pub(crate) fn deprecated_label(label: &str) -> Option<&'static str> {
    Some(match label {
        "beta.kubernetes.io/arch" => r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
        "beta.kubernetes.io/os" => r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
        "failure-domain.beta.kubernetes.io/region" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#
        }
        "beta.kubernetes.io/instance-type" => {
            r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => {
            r#"use "node-role.kubernetes.io/control-plane" instead"#
        }
        _ => return None,
    })
}

/// Leaves out repeated owner references, which the server does for old clients, and tells of it.
pub fn without_repeated_owners(object: &mut Value, after_admission: bool) -> Option<String> {
    let path = ["metadata", "ownerReferences"];
    let owners = object.list_at(&path);
    let texts: Vec<String> = owners.iter().map(Value::to_string).collect();
    let again: Seen<usize> = repeats(&texts).into_iter().collect();
    let (mut kept, mut repeated): (Vec<Value>, Vec<String>) = Default::default();
    let mut told = Seen::new();
    for (index, owner) in owners.iter().enumerate() {
        let uid = owner.str_at(&["uid"]);
        if !again.contains(&index) {
            kept.push(owner.clone());
        } else if told.insert(uid) {
            repeated.push(uid.to_string());
        }
    }
    if repeated.is_empty() {
        return None;
    }
    object.set(&path, kept);
    let when = match after_admission {
        true => " after mutating admission happens",
        false => "",
    };
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: (&str, &str), object: Value, expected: &[&str]) {
        let resource = crate::catalogue::built_in()
            .find(kind.0, "v1", kind.1)
            .expect("a kind");
        assert_eq!(of(resource, &object, None, ""), expected);
    }

    #[test]
    fn each_family_has_its_words() {
        check(
            ("", "pods"),
            crate::document!({
                "metadata": {"name": "a"},
                "spec": {
                    "nodeSelector": {"beta.kubernetes.io/os": "linux"},
                    "containers": [{
                        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
                        "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}],
                    }],
                    "volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"path": "a"}, {"path": "a/b"}]}}],
                },
            }),
            &[
                r#"spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead"#,
                r#"volume "v" (ConfigMap "c"): overlapping paths: "a/b" with "a""#,
                r#"spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply"#,
                "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
            ],
        );
        check(
            ("", "services"),
            crate::document!({"spec": {"type": "ClusterIP", "externalIPs": ["010.0.0.1"], "externalName": "x"}}),
            &[
                r#"spec.externalIPs[0]: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1""#,
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
                r#"spec.externalName is ignored when spec.type is not "ExternalName""#,
            ],
        );
    }

    #[test]
    fn repeated_owners_are_removed_with_a_warning() {
        let owner = crate::document!({"name": "o", "uid": "u"});
        let mut object = crate::document!({"metadata": {"ownerReferences": [owner, owner]}});
        let told = without_repeated_owners(&mut object, false).unwrap();
        assert!(told.ends_with("duplicate UID(s) observed: u"), "{told}");
        assert_eq!(object.list_at(&["metadata", "ownerReferences"]).len(), 1);
        assert_eq!(without_repeated_owners(&mut object, false), None);
    }
}
