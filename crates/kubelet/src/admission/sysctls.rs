//! The kernel settings that a pod may have: those that are known to stay inside its namespaces, and
//! those that the administrator allows besides. Pure.

use k8s_openapi::api::core::v1::Pod;

use super::Rejection;

const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

pub(super) fn check(pod: &Pod, unsafe_allowed: &[String]) -> Vec<Rejection> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let sysctls = spec
        .security_context
        .as_ref()
        .and_then(|context| context.sysctls.as_deref())
        .unwrap_or_default();
    let host_network = spec.host_network == Some(true);
    let host_ipc = spec.host_ipc == Some(true);
    sysctls
        .iter()
        .find_map(|sysctl| problem(&sysctl.name, unsafe_allowed, host_network, host_ipc))
        .map(|problem| Rejection::new("SysctlForbidden", format!("forbidden sysctl: {problem}")))
        .into_iter()
        .collect()
}

fn problem(
    name: &str,
    unsafe_allowed: &[String],
    host_network: bool,
    host_ipc: bool,
) -> Option<String> {
    let name = with_dots(name);
    let allowed = SAFE.contains(&name.as_str())
        || unsafe_allowed.iter().any(|pattern| {
            let pattern = with_dots(pattern);
            match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => pattern == name,
            }
        });
    if !allowed {
        return Some(format!("\"{name}\" not allowlisted"));
    }
    let network = name.starts_with("net.");
    match (network, host_network, host_ipc) {
        (true, true, _) => Some(format!("\"{name}\" not allowed with host net enabled")),
        (false, _, true) => Some(format!("\"{name}\" not allowed with host ipc enabled")),
        _ => None,
    }
}

/// `net/ipv4/conf/eth0.1/x` is the other way of writing a name whose parts may contain dots.
fn with_dots(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name
            .chars()
            .map(|character| match character {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_sysctls_are_rejected_by_name() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(
                problem(name, &["net.core.*".to_owned()], false, false).as_deref(),
                expected,
                "{name}"
            );
        };
        check("kernel.shm_rmid_forced", None);
        check("net/ipv4/tcp_rmem", None);
        check("net.core.somaxconn", None);
        check("kernel.msgmax", Some("\"kernel.msgmax\" not allowlisted"));
        assert_eq!(
            problem("net.ipv4.tcp_rmem", &[], true, false).as_deref(),
            Some("\"net.ipv4.tcp_rmem\" not allowed with host net enabled")
        );
    }
}
