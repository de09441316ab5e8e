//! The pause process of a sandbox.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{OCI_VERSION, id_mappings};
use crate::sandbox::userns::Mapping;

pub struct SandboxInput<'a> {
    pub sandbox: &'a str,
    pub rootfs: &'a Path,
    pub hostname: &'a str,
    /// `None` means the host's network and host name.
    pub netns: Option<&'a Path>,
    pub host_ipc: bool,
    pub host_pid: bool,
    pub cgroup: &'a str,
    pub sysctls: &'a BTreeMap<String, String>,
    pub oom_score_adj: i64,
    /// The pod's own users and where their namespace is.
    pub users: Option<(Mapping, PathBuf)>,
}

/// It runs our own program and nothing else: no capabilities, a read-only root, the user `nobody`.
pub fn sandbox(input: &SandboxInput<'_>) -> Value {
    let mut namespaces = vec![json!({"type": "mount"})];
    if let Some(netns) = input.netns {
        namespaces.push(json!({"type": "network", "path": netns}));
        namespaces.push(json!({"type": "uts"}));
    }
    if !input.host_ipc {
        namespaces.push(json!({"type": "ipc"}));
    }
    if !input.host_pid {
        namespaces.push(json!({"type": "pid"}));
    }
    let mut spec = json!({
        "ociVersion": OCI_VERSION,
        "root": {"path": input.rootfs, "readonly": true},
        "process": {
            "args": ["/pause"],
            "env": ["PATH=/"],
            "cwd": "/",
            "user": {"uid": 65535, "gid": 65535},
            "capabilities": {"bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": []},
            "noNewPrivileges": true,
            "oomScoreAdj": input.oom_score_adj,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=64k"]},
        ],
        "annotations": {
            "io.kubernetes.cri.container-type": "sandbox",
            "io.kubernetes.cri.sandbox-id": input.sandbox,
        },
        "linux": {
            "cgroupsPath": input.cgroup,
            "namespaces": namespaces,
            "resources": {"cpu": {"shares": 2}, "devices": [{"allow": false, "access": "rwm"}]},
            "sysctl": input.sysctls,
        },
    });
    if input.netns.is_some() && !input.hostname.is_empty() {
        spec["hostname"] = input.hostname.into();
    }
    if let Some((users, path)) = &input.users {
        id_mappings(&mut spec, *users, path);
        if users.uids.min(users.gids) <= 65535 {
            spec["process"]["user"] = json!({"uid": 0, "gid": 0});
        }
    }
    spec
}
