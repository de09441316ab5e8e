//! From a CRI config and an image's defaults to an OCI bundle's `config.json`. It only reads mount
//! sources, devices and the image's user files, and starts nothing.

mod apparmor;
pub mod capabilities;
mod cdi;
mod container;
mod devices;
pub mod id;
mod mounts;
pub mod resources;
mod sandbox;
mod seccomp;
pub mod user;

pub use container::{ContainerInput, container, exec_process, working_directory};
pub use mounts::Provided;
pub use sandbox::{SandboxInput, sandbox};

use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::userns::Mapping;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    User(#[from] user::Error),
    #[error(transparent)]
    Capability(#[from] capabilities::Unknown),
    #[error(transparent)]
    AppArmor(#[from] apparmor::Error),
    #[error("CDI device injection failed")]
    Devices(#[from] cdi::Error),
    #[error("mount source {0}")]
    Source(String, #[source] std::io::Error),
    #[error("device {0}")]
    Device(String, #[source] std::io::Error),
    #[error("seccomp profile {0}")]
    SeccompProfile(String, #[source] std::io::Error),
    #[error("{0} cannot be made recursively read-only: {1}")]
    Recursive(String, String),
    #[error("no command specified")]
    NoCommand,
    #[error("{0} are not supported by this runtime yet")]
    Unsupported(String),
}

/// Puts the container into an existing user namespace. The ranges are given as well: some commands
/// want to know them although the namespace has them.
fn id_mappings(spec: &mut Value, users: Mapping, path: &Path) {
    let range = |host: u32, size: u32| json!([{"containerID": 0, "hostID": host, "size": size}]);
    spec["linux"]["uidMappings"] = range(users.host_uid, users.uids);
    spec["linux"]["gidMappings"] = range(users.host_gid, users.gids);
    if let Some(namespaces) = spec["linux"]["namespaces"].as_array_mut() {
        namespaces.push(json!({"type": "user", "path": path}));
    }
}

const OCI_VERSION: &str = "1.0.2";

/// The score to ask for: without the capability it can only be raised.
pub fn oom_score_adj(wanted: i64, held: u64) -> i64 {
    if capabilities::has_sys_resource(held) {
        return wanted;
    }
    let current = std::fs::read_to_string("/proc/self/oom_score_adj")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    wanted.max(current)
}
