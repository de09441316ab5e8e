//! The restricted level: hardened pods only. Comes on top of most of the baseline.

use std::collections::BTreeSet;

use api::Value;

use super::baseline;
use super::violation::{Violations, in_words, named, plural, quoted, setters, uses};

const CONTEXT: &str = "securityContext";
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The rules in the order they are told.
pub(super) fn check(pod: &Value, minor: u32, found: &mut Violations) {
    // Since 1.25 what makes no sense on Windows is not asked of its pods.
    let windows = minor >= 25 && pod.str_at(&["spec", "os", "name"]) == "windows";
    let in_user_namespace =
        minor >= 35 && pod.at(&["spec", "hostUsers"]).and_then(Value::as_bool) == Some(false);
    if minor >= 8 && !windows {
        privilege_escalation(pod, found);
    }
    if minor >= 22 && !windows {
        capabilities(pod, found);
    }
    if minor >= 35 {
        baseline::proc_mount(pod, found);
    }
    volumes(pod, found);
    if !in_user_namespace {
        run_as_non_root(pod, found);
        if minor >= 23 {
            run_as_user(pod, found);
        }
    }
    if minor >= 19 && !windows {
        seccomp(pod, found);
    }
}

fn privilege_escalation(pod: &Value, found: &mut Violations) {
    let names = named(pod, |container| {
        let allowed = container.at(&[CONTEXT, "allowPrivilegeEscalation"]);
        allowed.and_then(Value::as_bool) != Some(false)
    });
    if !names.is_empty() {
        let who = in_words(&names);
        found.add(
            "allowPrivilegeEscalation != false",
            format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
        );
    }
}

fn capabilities(pod: &Value, found: &mut Violations) {
    let list = |container: &Value, field: &str| -> Vec<String> {
        let items = container.list_at(&[CONTEXT, "capabilities", field]).iter();
        items
            .filter_map(Value::as_str)
            .map(str::to_string)
            .collect()
    };
    let keeping = named(pod, |container| {
        !list(container, "drop").iter().any(|name| name == "ALL")
    });
    let mut added = BTreeSet::new();
    let adding = named(pod, |container| {
        let mut bad = list(container, "add");
        bad.retain(|name| name != "NET_BIND_SERVICE");
        let is_bad = !bad.is_empty();
        added.extend(bad);
        is_bad
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let who = in_words(&keeping);
        details.push(format!(
            "{who} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            in_words(&adding),
            quoted(added)
        ));
    }
    if !details.is_empty() {
        found.add("unrestricted capabilities", details.join("; "));
    }
}

fn volumes(pod: &Value, found: &mut Violations) {
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in pod.list_at(&["spec", "volumes"]) {
        let mut sources = volume.fields_at(&[]).filter(|(name, _)| *name != "name");
        let source = sources.find(|(_, value)| !value.is_null());
        let kind = source.map_or("unknown", |(name, _)| name);
        if !VOLUMES.contains(&kind) {
            names.push(volume.str_at(&["name"]).to_string());
            kinds.insert(kind.to_string());
        }
    }
    if !names.is_empty() {
        found.add(
            "restricted volume types",
            format!(
                "{} {} {} {} {}",
                plural("volume", names.len()),
                quoted(&names),
                uses(names.len()),
                plural("restricted volume type", kinds.len()),
                quoted(kinds)
            ),
        );
    }
}

fn run_as_non_root(pod: &Value, found: &mut Violations) {
    const REASON: &str = "runAsNonRoot != true";
    let says = |holder: &Value| {
        holder
            .at(&[CONTEXT, "runAsNonRoot"])
            .and_then(Value::as_bool)
    };
    let of_pod = pod.get("spec").and_then(says);
    let refusing = named(pod, |container| says(container) == Some(false));
    if let Some(setters) = setters(of_pod == Some(false), &refusing) {
        found.add(
            REASON,
            format!("{setters} must not set securityContext.runAsNonRoot=false"),
        );
        return;
    }
    let silent = named(pod, |container| {
        says(container).is_none() && of_pod != Some(true)
    });
    if !silent.is_empty() {
        let who = in_words(&silent);
        found.add(
            REASON,
            format!("pod or {who} must set securityContext.runAsNonRoot=true"),
        );
    }
}

fn run_as_user(pod: &Value, found: &mut Violations) {
    let is_bad = |holder: &Value| holder.i64_at(&[CONTEXT, "runAsUser"]) == Some(0);
    let pod_itself = pod.get("spec").is_some_and(is_bad);
    if let Some(setters) = setters(pod_itself, &named(pod, is_bad)) {
        found.add("runAsUser=0", format!("{setters} must not set runAsUser=0"));
    }
}

fn seccomp(pod: &Value, found: &mut Violations) {
    const REASON: &str = "seccompProfile";
    let good = |kind: &str| matches!(kind, "RuntimeDefault" | "Localhost");
    let kind = |holder: &Value| {
        let profile = holder.at(&[CONTEXT, "seccompProfile"])?;
        Some(profile.str_at(&["type"]).to_string())
    };
    let of_pod = pod.get("spec").and_then(kind);
    let pod_is_good = of_pod.as_deref().is_some_and(good);
    let mut values: BTreeSet<String> = of_pod
        .clone()
        .filter(|kind| !good(kind))
        .into_iter()
        .collect();
    let pod_is_bad = !values.is_empty();
    let refusing = named(pod, |container| {
        let bad = kind(container).filter(|kind| !good(kind));
        let is_bad = bad.is_some();
        values.extend(bad);
        is_bad
    });
    if let Some(setters) = setters(pod_is_bad, &refusing) {
        found.add(
            REASON,
            format!(
                "{setters} must not set securityContext.seccompProfile.type to {}",
                quoted(values)
            ),
        );
        return;
    }
    let silent = named(pod, |container| kind(container).is_none() && !pod_is_good);
    if !silent.is_empty() {
        let who = in_words(&silent);
        found.add(
            REASON,
            format!(
                "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
            ),
        );
    }
}
