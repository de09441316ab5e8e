//! What a sandbox's config asks for, read in one place.

use std::collections::BTreeMap;

use cri::v1::{NamespaceMode, NamespaceOption, PodSandboxConfig};
use dbus::slice::Scope;

use crate::sandbox::userns::Mapping;

pub fn namespace_options(config: &PodSandboxConfig) -> NamespaceOption {
    config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref())
        .and_then(|security| security.namespace_options.clone())
        .unwrap_or_default()
}

/// The pod's own sysctls, and two that let every pod with a network of its own bind low ports and
/// send pings without privileges.
pub fn sysctls(config: &PodSandboxConfig, users: Option<Mapping>) -> BTreeMap<String, String> {
    let mut sysctls = BTreeMap::new();
    if namespace_options(config).network() != NamespaceMode::Node {
        sysctls.insert(
            "net.ipv4.ip_unprivileged_port_start".to_owned(),
            "0".to_owned(),
        );
        sysctls.insert(
            "net.ipv4.ping_group_range".to_owned(),
            // Only groups that exist inside can be named.
            format!(
                "0 {}",
                users.map_or(i32::MAX as u32, |users| users.gids - 1)
            ),
        );
    }
    sysctls.extend(config.linux.iter().flat_map(|linux| linux.sysctls.clone()));
    sysctls
}

/// A cgroup in the form that OCI runtimes expect.
pub fn oci_cgroup(group: &str) -> String {
    Scope::at(group).map_or_else(|| group.to_owned(), |scope| scope.to_oci())
}
