//! A container's mounts: the usual kernel file systems, then what CRI asks for, parents first.

use std::{fs, path::Path};

use cri::v1::{Mount, MountPropagation};
use serde_json::{Value, json};

use super::Error;

/// Files and directories that the sandbox provides unless CRI mounts something there itself.
pub struct Provided<'a> {
    pub shm: &'a Path,
    pub resolv_conf: &'a Path,
    pub hostname: &'a Path,
    pub hosts: &'a Path,
}

/// The mounts, and the propagation that the root file system needs for them.
pub fn build(
    requested: &[Mount],
    provided: &Provided<'_>,
    privileged: bool,
) -> Result<(Vec<Value>, Option<&'static str>), Error> {
    let taken = |path: &str| {
        requested
            .iter()
            .any(|mount| normal(&mount.container_path) == path)
    };
    let access = if privileged { "rw" } else { "ro" };
    let mut mounts = vec![
        special("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        special(
            "/dev",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        special(
            "/dev/pts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
                "gid=5",
            ],
        ),
        special("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        special("/sys", "sysfs", &["nosuid", "noexec", "nodev", access]),
    ];
    mounts.push(special(
        "/sys/fs/cgroup",
        "cgroup",
        &["nosuid", "noexec", "nodev", "relatime", access],
    ));
    mounts.retain(|mount| !taken(mount["destination"].as_str().unwrap_or_default()));
    for (path, source) in [
        ("/dev/shm", provided.shm),
        ("/etc/resolv.conf", provided.resolv_conf),
        ("/etc/hostname", provided.hostname),
        ("/etc/hosts", provided.hosts),
    ] {
        if !taken(path) && source.exists() {
            mounts.push(json!({
                "destination": path, "type": "bind", "source": source,
                "options": ["rbind", "rprivate", "rw"],
            }));
        }
    }
    let mut ordered: Vec<&Mount> = requested.iter().collect();
    ordered.sort_by_key(|mount| Path::new(&mount.container_path).components().count());
    let mut root_propagation = None;
    for mount in ordered {
        if mount
            .image
            .as_ref()
            .is_some_and(|image| !image.image.is_empty())
        {
            return Err(Error::Unsupported("image volumes".into()));
        }
        let source = Path::new(&mount.host_path);
        if !source.exists() {
            fs::create_dir_all(source)
                .map_err(|error| Error::Source(mount.host_path.clone(), error))?;
        }
        let source = fs::canonicalize(source)
            .map_err(|error| Error::Source(mount.host_path.clone(), error))?;
        let propagation = match mount.propagation() {
            MountPropagation::PropagationPrivate => "rprivate",
            MountPropagation::PropagationHostToContainer => {
                root_propagation.get_or_insert("rslave");
                "rslave"
            }
            MountPropagation::PropagationBidirectional => {
                root_propagation = Some("rshared");
                "rshared"
            }
        };
        let access = if mount.readonly { "ro" } else { "rw" };
        mounts.push(json!({
            "destination": normal(&mount.container_path), "type": "bind", "source": source,
            "options": ["rbind", propagation, access],
        }));
    }
    Ok((mounts, root_propagation))
}

fn special(destination: &str, kind: &str, options: &[&str]) -> Value {
    json!({"destination": destination, "type": kind, "source": kind, "options": options})
}

/// Without a trailing slash.
fn normal(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() {
        "/".into()
    } else {
        trimmed.to_owned()
    }
}
