//! PodSecurity: a namespace's labels say which of the three standard levels its pods must keep
//! (`enforce`) or are warned about (`warn`). What a level demands is in `baseline` and `restricted`.

mod baseline;
mod policy;
mod restricted;
mod violation;

use std::collections::{BTreeMap, BTreeSet};

use api::{Status, Value};

use super::{Admitted, Operation};
use policy::{Level, LevelVersion, Policy};
use violation::Violations;

/// Pods looked at when a namespace's level rises.
const MOST_PODS: usize = 3000;
/// Below a pod, these change nothing about what it may do.
const HARMLESS: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

pub(super) async fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    let resource = admitted.resource;
    match (&*resource.group, &*resource.kind) {
        ("", "Namespace") if admitted.subresource.is_empty() => namespace(admitted),
        ("", "Pod") => pod(admitted).await,
        _ if admitted.subresource.is_empty() => match template(&resource.group, &resource.kind) {
            Some(path) => controller(admitted, path).await,
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Where a kind that makes pods keeps their template.
fn template(group: &str, kind: &str) -> Option<&'static [&'static str]> {
    match (group, kind) {
        ("", "PodTemplate") => Some(&["template"]),
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => Some(&["spec", "template"]),
        ("batch", "CronJob") => Some(&["spec", "jobTemplate", "spec", "template"]),
        _ => None,
    }
}

async fn policy_of(admitted: &Admitted<'_>) -> Result<Policy, Status> {
    let name = admitted.namespace();
    let found = admitted.one("", "namespaces", "", &name).await?;
    let namespace = found
        .ok_or_else(|| Status::internal(format_args!("failed to lookup namespace {name:?}")))?;
    // A label that cannot be read counts as the strictest level.
    Ok(Policy::of(&namespace).0)
}

async fn pod(admitted: &Admitted<'_>) -> Result<(), Status> {
    if HARMLESS.contains(&admitted.subresource) {
        return Ok(());
    }
    if let (Operation::Update, Some(old)) = (admitted.operation, admitted.old)
        && !is_significant(admitted.object, old)
    {
        return Ok(());
    }
    let policy = policy_of(admitted).await?;
    let enforced = violations(policy.enforce, admitted.object);
    if !enforced.is_empty() {
        return Err(admitted.forbidden(format_args!(
            "violates PodSecurity {:?}: {}",
            policy.enforce.to_string(),
            enforced.detail()
        )));
    }
    warn(admitted, &policy, admitted.object);
    Ok(())
}

async fn controller(admitted: &Admitted<'_>, path: &[&str]) -> Result<(), Status> {
    let Some(template) = admitted.object.at(path) else {
        return Ok(());
    };
    let policy = policy_of(admitted).await?;
    warn(admitted, &policy, template);
    Ok(())
}

fn warn(admitted: &Admitted<'_>, policy: &Policy, pod: &Value) {
    let warned = violations(policy.warn, pod);
    if !warned.is_empty() {
        admitted.context.warn(format!(
            "would violate PodSecurity {:?}: {}",
            policy.warn.to_string(),
            warned.detail()
        ));
    }
}

/// What a level of a version finds wrong with a pod or a template of one.
fn violations(level: LevelVersion, pod: &Value) -> Violations {
    let mut found = Violations::default();
    let minor = level.minor();
    match level.level {
        Level::Privileged => {}
        Level::Baseline => baseline::check(pod, minor, &mut found, false),
        Level::Restricted => {
            baseline::check(pod, minor, &mut found, true);
            restricted::check(pod, minor, &mut found);
        }
    }
    found
}

/// Whether an update changes something the levels look at: the containers and their images.
fn is_significant(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value, list: &str| -> Vec<String> {
        let containers = pod.list_at(&["spec", list]).iter();
        containers
            .map(|container| container.str_at(&["image"]).to_string())
            .collect()
    };
    if ["containers", "initContainers"]
        .iter()
        .any(|list| images(new, list) != images(old, list))
    {
        return true;
    }
    let named = |pod: &Value| -> BTreeSet<(String, String)> {
        let containers = pod.list_at(&["spec", "ephemeralContainers"]).iter();
        let pair = |container: &Value| {
            let text = |field: &str| container.str_at(&[field]).to_string();
            (text("name"), text("image"))
        };
        containers.map(pair).collect()
    };
    !named(new).is_subset(&named(old))
}

/// A namespace's labels must make sense; when its level rises, its pods are looked at.
fn namespace(admitted: &Admitted<'_>) -> Result<(), Status> {
    let (new, errors) = Policy::of(admitted.object);
    let before = admitted.old.map(Policy::of);
    let known = before
        .as_ref()
        .is_some_and(|(_, old_errors)| *old_errors == errors);
    if !errors.is_empty() && !known {
        let name = admitted.name();
        return Err(admitted.resource.invalid(name, errors));
    }
    let Some((old, _)) = before else {
        return Ok(());
    };
    let rises = new.enforce != old.enforce
        && new.enforce.level != Level::Privileged
        && !(new.enforce.version == old.enforce.version && new.enforce.level <= old.enforce.level);
    if rises {
        for warning in existing(admitted, new.enforce)? {
            admitted.context.warn(warning);
        }
    }
    Ok(())
}

fn existing(admitted: &Admitted<'_>, level: LevelVersion) -> Result<Vec<String>, Status> {
    let namespace = admitted.name().to_string();
    let pods = admitted.all("", "pods", &namespace);
    let mut found: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for entry in pods.iter().take(MOST_PODS) {
        let violations = violations(level, &entry.object()?);
        if violations.is_empty() {
            continue;
        }
        let name = entry.name().to_string();
        let (first, count) = found
            .entry(violations.reasons())
            .or_insert((name.clone(), 0));
        *count += 1;
        if name < *first {
            *first = name;
        }
    }
    let mut warnings = Vec::new();
    if pods.len() > MOST_PODS {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MOST_PODS} of {} existing pods",
            pods.len()
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level {:?}",
            level.to_string()
        ));
    }
    let mut told: Vec<String> = found
        .into_iter()
        .map(|(reasons, (name, count))| match count {
            1 => format!("{name}: {reasons}"),
            2 => format!("{name} (and 1 other pod): {reasons}"),
            _ => format!("{name} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    told.sort();
    warnings.extend(told);
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(level: &str, spec: Value, expected: &str) {
        let mut namespace = Value::object();
        namespace.set(
            &["metadata", "labels", "pod-security.kubernetes.io/enforce"],
            level,
        );
        let (policy, errors) = Policy::of(&namespace);
        assert!(errors.is_empty());
        let mut pod = Value::object();
        pod.set(&["spec"], spec);
        assert_eq!(violations(policy.enforce, &pod).detail(), expected);
    }

    #[test]
    fn the_levels_read_as_upstream_words_them() {
        let plain = || api::document!({"containers": [{"name": "a"}]});
        check("privileged", plain(), "");
        check("baseline", plain(), "");
        check(
            "restricted",
            plain(),
            "allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        );
        let wild = || {
            api::document!({
                "hostNetwork": true, "hostPID": true,
                "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
                "securityContext": {"sysctls": [{"name": "kernel.msgmax"}]},
                "containers": [
                    {"name": "a", "securityContext": {"privileged": true, "capabilities": {"add": ["NET_ADMIN", "CHOWN"]}}},
                    {"name": "b", "securityContext": {"privileged": true}, "ports": [{"hostPort": 80}]},
                ],
            })
        };
        check(
            "baseline",
            wild(),
            "non-default capabilities (container \"a\" must not include \"NET_ADMIN\" in securityContext.capabilities.add), host namespaces (hostNetwork=true, hostPID=true), hostPath volumes (volume \"v\"), hostPort (container \"b\" uses hostPort 80), privileged (containers \"a\", \"b\" must not set securityContext.privileged=true), forbidden sysctls (kernel.msgmax)",
        );
        let good = api::document!({
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "a", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            }}],
        });
        check("restricted", good, "");
    }

    #[test]
    fn only_new_images_and_containers_matter_in_an_update() {
        let pod =
            |image: &str| api::document!({"spec": {"containers": [{"name": "a", "image": image}]}});
        assert!(!is_significant(&pod("x"), &pod("x")));
        assert!(is_significant(&pod("y"), &pod("x")));
    }
}
