//! A container's mounts: the usual kernel file systems, then what CRI asks for, parents first.

use std::{fs, path::Path};

use cri::v1::{Mount, MountPropagation};
use serde_json::{Value, json};

use super::Error;
use crate::cgroups::{Hierarchies, LIMITING};

/// Files and directories that the sandbox provides unless CRI mounts something there itself.
pub struct Provided<'a> {
    pub shm: &'a Path,
    pub resolv_conf: &'a Path,
    pub hostname: &'a Path,
    pub hosts: &'a Path,
}

/// The mounts, and the propagation that the root file system needs for them. `group` is the
/// container's control group.
pub fn build(
    requested: &[Mount],
    provided: &Provided<'_>,
    privileged: bool,
    readonly_rootfs: bool,
    hierarchies: &Hierarchies,
    group: &str,
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
    mounts.extend(control_groups(hierarchies, group, access));
    let parent_taken = taken("/sys/fs/cgroup") || taken("/sys");
    mounts.retain(|mount| {
        let destination = mount["destination"].as_str().unwrap_or_default();
        !(taken(destination) || parent_taken && destination.starts_with("/sys/fs/cgroup"))
    });
    // The pod's other containers have the same files.
    let files = if readonly_rootfs { "ro" } else { "rw" };
    for (path, source, access) in [
        ("/dev/shm", provided.shm, "rw"),
        ("/etc/resolv.conf", provided.resolv_conf, files),
        ("/etc/hostname", provided.hostname, files),
        ("/etc/hosts", provided.hosts, files),
    ] {
        if !taken(path) && source.exists() {
            mounts.push(json!({
                "destination": path, "type": "bind", "source": source,
                "options": ["rbind", "rprivate", access],
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
                root_propagation.get_or_insert("slave");
                "rslave"
            }
            MountPropagation::PropagationBidirectional => {
                root_propagation = Some("shared");
                "rshared"
            }
        };
        let access = access_of(mount)?;
        mounts.push(json!({
            "destination": normal(&mount.container_path), "type": "bind", "source": source,
            "options": ["rbind", propagation, access],
        }));
    }
    Ok((mounts, root_propagation))
}

/// The container's own part of each hierarchy. With v1 every hierarchy is a mount of its own, and
/// libcontainer would leave them writable.
fn control_groups(hierarchies: &Hierarchies, group: &str, access: &str) -> Vec<Value> {
    let root = "/sys/fs/cgroup";
    let options = ["nosuid", "noexec", "nodev", "relatime", access];
    if hierarchies.legacy.is_empty() {
        return vec![special(root, "cgroup", &options)];
    }
    let mut mounts = vec![special(
        root,
        "tmpfs",
        &["nosuid", "noexec", "nodev", "mode=755", "size=64k"],
    )];
    let mut names = std::collections::BTreeSet::new();
    for (controllers, point) in &hierarchies.legacy {
        // Others have no group of the container's.
        if !controllers
            .iter()
            .any(|name| LIMITING.contains(&name.as_str()))
        {
            continue;
        }
        let source = point.join(group.trim_start_matches('/'));
        let own = point.file_name().and_then(|name| name.to_str());
        // `cpu,cpuacct` is found under both names as well.
        for name in own
            .into_iter()
            .chain(controllers.iter().map(String::as_str))
        {
            if !names.insert(name.to_owned()) {
                continue;
            }
            let mut options = vec!["bind", "rprivate"];
            options.extend(["nosuid", "noexec", "nodev", "relatime", access]);
            mounts.push(json!({
                "destination": format!("{root}/{name}"), "type": "bind", "source": source,
                "options": options,
            }));
        }
    }
    mounts
}

/// Read-only with everything mounted below it needs a mount that no one else adds to.
fn access_of(mount: &Mount) -> Result<&'static str, Error> {
    if !mount.recursive_read_only {
        return Ok(if mount.readonly { "ro" } else { "rw" });
    }
    let refused = |why: &str| Error::Recursive(mount.container_path.clone(), why.into());
    if !mount.readonly {
        return Err(refused("the mount is not read-only"));
    }
    if mount.propagation() != MountPropagation::PropagationPrivate {
        return Err(refused("its propagation is not private"));
    }
    Ok("rro")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(readonly: bool, propagation: MountPropagation, expected: Option<&str>) {
        let mount = Mount {
            container_path: "/data".into(),
            readonly,
            recursive_read_only: true,
            propagation: propagation.into(),
            ..Mount::default()
        };
        assert_eq!(access_of(&mount).ok(), expected);
    }

    #[test]
    fn every_v1_hierarchy_is_mounted_under_all_its_names() {
        let hierarchies = Hierarchies {
            legacy: vec![
                (
                    vec!["cpu".into(), "cpuacct".into()],
                    "/sys/fs/cgroup/cpu,cpuacct".into(),
                ),
                (vec!["name=systemd".into()], "/sys/fs/cgroup/systemd".into()),
            ],
            unified: None,
        };
        let mounts = control_groups(&hierarchies, "/pods/x", "ro");
        let places: Vec<&str> = mounts
            .iter()
            .filter_map(|mount| mount["destination"].as_str())
            .collect();
        assert_eq!(
            places,
            [
                "/sys/fs/cgroup",
                "/sys/fs/cgroup/cpu,cpuacct",
                "/sys/fs/cgroup/cpu",
                "/sys/fs/cgroup/cpuacct"
            ]
        );
        assert_eq!(mounts[1]["source"], "/sys/fs/cgroup/cpu,cpuacct/pods/x");
        assert!(
            mounts[1]["options"]
                .as_array()
                .unwrap()
                .contains(&json!("ro"))
        );
    }

    #[test]
    fn recursively_read_only_mounts_are_read_only_and_private() {
        check(true, MountPropagation::PropagationPrivate, Some("rro"));
        check(false, MountPropagation::PropagationPrivate, None);
        check(true, MountPropagation::PropagationHostToContainer, None);
        check(true, MountPropagation::PropagationBidirectional, None);
    }
}
