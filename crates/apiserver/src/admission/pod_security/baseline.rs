//! The baseline level: no known way out of the container.

use std::collections::BTreeSet;

use api::Value;

use super::violation::{Violations, containers, in_words, named, plural, quoted, setters, uses};

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Sysctls and the minor version since which they are harmless.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const CONTEXT: &str = "securityContext";

/// The rules in the order they are told. `stricter`: those that the restricted level words anew
/// are left to it.
pub(super) fn check(pod: &Value, minor: u32, found: &mut Violations, stricter: bool) {
    app_armor(pod, found);
    if !(stricter && minor >= 22) {
        capabilities(pod, found);
    }
    host_namespaces(pod, found);
    if !stricter {
        host_paths(pod, found);
    }
    host_ports(pod, found);
    if minor >= 34 {
        probe_hosts(pod, found);
    }
    privileged(pod, found);
    let in_user_namespace = pod.at(&["spec", "hostUsers"]).and_then(Value::as_bool) == Some(false);
    if minor < 35 || !(stricter || in_user_namespace) {
        proc_mount(pod, found);
    }
    selinux(pod, minor, found);
    if !(stricter && minor >= 19) {
        seccomp(pod, minor, found);
    }
    sysctls(pod, minor, found);
    host_process(pod, found);
}

fn app_armor(pod: &Value, found: &mut Violations) {
    let mut values = BTreeSet::new();
    let mut is_bad = |holder: &Value| {
        let profile = holder.at(&[CONTEXT, "appArmorProfile"]);
        let kind = profile.map(|profile| profile.str_at(&["type"]));
        let bad = kind.filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"));
        values.extend(bad.map(str::to_string));
        bad.is_some()
    };
    let pod_itself = pod.get("spec").is_some_and(&mut is_bad);
    let names = named(pod, is_bad);
    let mut values: Vec<String> = values.into_iter().collect();
    let mut setters: Vec<String> = setters(pod_itself, &names).into_iter().collect();
    let annotations: Vec<String> = pod
        .fields_at(&["metadata", "annotations"])
        .filter(|(name, _)| name.starts_with(APPARMOR))
        .map(|(name, value)| (name, value.as_str().unwrap_or_default()))
        .filter(|(_, value)| {
            !value.is_empty() && *value != "runtime/default" && !value.starts_with("localhost/")
        })
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    if !annotations.is_empty() {
        setters.push(plural("annotation", annotations.len()));
        values.extend(annotations);
    }
    if !setters.is_empty() {
        found.add(
            plural("forbidden AppArmor profile", values.len()),
            format!(
                "{} must not set AppArmor profile type to {}",
                setters.join(" and "),
                quoted(values)
            ),
        );
    }
}

fn capabilities(pod: &Value, found: &mut Violations) {
    let mut values = BTreeSet::new();
    let names = named(pod, |container| {
        let added = container.list_at(&[CONTEXT, "capabilities", "add"]).iter();
        let bad: Vec<String> = added
            .filter_map(Value::as_str)
            .filter(|name| !CAPABILITIES.contains(name))
            .map(str::to_string)
            .collect();
        let is_bad = !bad.is_empty();
        values.extend(bad);
        is_bad
    });
    if !names.is_empty() {
        found.add(
            "non-default capabilities",
            format!(
                "{} must not include {} in securityContext.capabilities.add",
                in_words(&names),
                quoted(values)
            ),
        );
    }
}

fn host_namespaces(pod: &Value, found: &mut Violations) {
    let set: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.bool_at(&["spec", field]))
        .map(|field| format!("{field}=true"))
        .collect();
    if !set.is_empty() {
        found.add("host namespaces", set.join(", "));
    }
}

fn host_paths(pod: &Value, found: &mut Violations) {
    let names: Vec<&str> = pod
        .list_at(&["spec", "volumes"])
        .iter()
        .filter(|volume| volume.has(&["hostPath"]))
        .map(|volume| volume.str_at(&["name"]))
        .collect();
    if !names.is_empty() {
        let count = names.len();
        found.add(
            "hostPath volumes",
            format!("{} {}", plural("volume", count), quoted(names)),
        );
    }
}

fn host_ports(pod: &Value, found: &mut Violations) {
    let mut ports = BTreeSet::new();
    let names = named(pod, |container| {
        let numbers = container.list_at(&["ports"]).iter();
        let used: Vec<String> = numbers
            .filter_map(|port| port.i64_at(&["hostPort"]))
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        let is_bad = !used.is_empty();
        ports.extend(used);
        is_bad
    });
    if !names.is_empty() {
        let count = ports.len();
        let ports: Vec<String> = ports.into_iter().collect();
        found.add(
            "hostPort",
            format!(
                "{} {} {} {}",
                in_words(&names),
                uses(names.len()),
                plural("hostPort", count),
                ports.join(", ")
            ),
        );
    }
}

fn probe_hosts(pod: &Value, found: &mut Violations) {
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in containers(pod) {
        let handlers = [
            &["livenessProbe"][..],
            &["readinessProbe"],
            &["startupProbe"],
            &["lifecycle", "postStart"],
            &["lifecycle", "preStop"],
        ];
        for handler in handlers.into_iter().filter_map(|path| container.at(path)) {
            for action in ["httpGet", "tcpSocket"] {
                let host = handler.str_at(&[action, "host"]);
                if !host.is_empty() {
                    names.insert(container.str_at(&["name"]).to_string());
                    hosts.insert(host.to_string());
                }
            }
        }
    }
    if !names.is_empty() {
        let names: Vec<String> = names.into_iter().collect();
        found.add(
            "probe or lifecycle host",
            format!(
                "{} {} {} {}",
                in_words(&names),
                uses(names.len()),
                plural("probe or lifecycle host", hosts.len()),
                quoted(hosts)
            ),
        );
    }
}

fn privileged(pod: &Value, found: &mut Violations) {
    let names = named(pod, |container| container.bool_at(&[CONTEXT, "privileged"]));
    if !names.is_empty() {
        let who = in_words(&names);
        found.add(
            "privileged",
            format!("{who} must not set securityContext.privileged=true"),
        );
    }
}

pub(super) fn proc_mount(pod: &Value, found: &mut Violations) {
    let mut values = BTreeSet::new();
    let names = named(pod, |container| {
        let mount = container.str_at(&[CONTEXT, "procMount"]);
        let is_bad = !matches!(mount, "" | "Default");
        if is_bad {
            values.insert(mount.to_string());
        }
        is_bad
    });
    if !names.is_empty() {
        found.add(
            "procMount",
            format!(
                "{} must not set securityContext.procMount to {}",
                in_words(&names),
                quoted(values)
            ),
        );
    }
}

fn selinux(pod: &Value, minor: u32, found: &mut Violations) {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut is_bad = |holder: &Value| {
        let Some(options) = holder.at(&[CONTEXT, "seLinuxOptions"]) else {
            return false;
        };
        let kind = options.str_at(&["type"]);
        let known = matches!(
            kind,
            "" | "container_t" | "container_init_t" | "container_kvm_t"
        ) || kind == "container_engine_t" && minor >= 31;
        if !known {
            types.insert(kind.to_string());
        }
        let (has_user, has_role) = (
            !options.str_at(&["user"]).is_empty(),
            !options.str_at(&["role"]).is_empty(),
        );
        user |= has_user;
        role |= has_role;
        !known || has_user || has_role
    };
    let pod_itself = pod.get("spec").is_some_and(&mut is_bad);
    let names = named(pod, is_bad);
    if let Some(setters) = setters(pod_itself, &names) {
        let mut data = Vec::new();
        if !types.is_empty() {
            data.push(format!("{} {}", plural("type", types.len()), quoted(types)));
        }
        if user {
            data.push("user may not be set".to_string());
        }
        if role {
            data.push("role may not be set".to_string());
        }
        found.add(
            "seLinuxOptions",
            format!(
                "{setters} set forbidden securityContext.seLinuxOptions: {}",
                data.join("; ")
            ),
        );
    }
}

fn seccomp(pod: &Value, minor: u32, found: &mut Violations) {
    if minor < 19 {
        return seccomp_annotations(pod, found);
    }
    let mut values = BTreeSet::new();
    let mut is_bad = |holder: &Value| {
        let profile = holder.at(&[CONTEXT, "seccompProfile"]);
        let kind = profile.map(|profile| profile.str_at(&["type"]));
        let bad = kind.filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"));
        values.extend(bad.map(str::to_string));
        bad.is_some()
    };
    let pod_itself = pod.get("spec").is_some_and(&mut is_bad);
    let names = named(pod, is_bad);
    if let Some(setters) = setters(pod_itself, &names) {
        found.add(
            "seccompProfile",
            format!(
                "{setters} must not set securityContext.seccompProfile.type to {}",
                quoted(values)
            ),
        );
    }
}

/// Before the field there were annotations.
fn seccomp_annotations(pod: &Value, found: &mut Violations) {
    let mut keys = vec!["seccomp.security.alpha.kubernetes.io/pod".to_string()];
    keys.extend(containers(pod).map(|container| {
        format!(
            "container.seccomp.security.alpha.kubernetes.io/{}",
            container.str_at(&["name"])
        )
    }));
    let forbidden: BTreeSet<String> = keys
        .iter()
        .filter_map(|key| {
            let value = pod.at(&["metadata", "annotations", key])?.as_str()?;
            let good = matches!(value, "runtime/default" | "docker/default")
                || value.starts_with("localhost/");
            (!good).then(|| format!("{key}={value:?}"))
        })
        .collect();
    if !forbidden.is_empty() {
        let count = forbidden.len();
        let list: Vec<String> = forbidden.into_iter().collect();
        found.add(
            "seccompProfile",
            format!(
                "forbidden {} {}",
                plural("annotation", count),
                list.join(", ")
            ),
        );
    }
}

fn sysctls(pod: &Value, minor: u32, found: &mut Violations) {
    let forbidden: Vec<&str> = pod
        .list_at(&["spec", CONTEXT, "sysctls"])
        .iter()
        .map(|sysctl| sysctl.str_at(&["name"]))
        .filter(|name| {
            !SYSCTLS
                .iter()
                .any(|(known, since)| known == name && minor >= *since)
        })
        .collect();
    if !forbidden.is_empty() {
        found.add("forbidden sysctls", forbidden.join(", "));
    }
}

fn host_process(pod: &Value, found: &mut Violations) {
    let is_bad = |holder: &Value| holder.bool_at(&[CONTEXT, "windowsOptions", "hostProcess"]);
    let pod_itself = pod.get("spec").is_some_and(is_bad);
    if let Some(setters) = setters(pod_itself, &named(pod, is_bad)) {
        found.add(
            "hostProcess",
            format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"),
        );
    }
}
