//! Pods with users of their own (`hostUsers: false`): which range of the host's users stands for a
//! pod's, kept in a file of the pod's directory in upstream's form, so that it outlives us and goes
//! with the pod.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::Path,
};

use cri::v1;
use files::atomic_file::{self, Options};
use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

/// Users of one pod, as upstream gives them.
const LENGTH: u32 = 65536;
/// The first range is the host's own.
const RANGES: std::ops::Range<u32> = 1..(u32::MAX / LENGTH);
const FILE: &str = "userns";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ranges {
    uid_mappings: Vec<Range>,
    gid_mappings: Vec<Range>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Range {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// Whether the pod asks for it.
pub fn wanted(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_users) == Some(false)
}

/// Gives the pod a range that no other pod below `pods_root` has, unless it has one already.
pub fn ensure(pods_root: &Path, pod: &Pod) -> io::Result<()> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let directory = pods_root.join(uid);
    if !wanted(pod) || directory.join(FILE).exists() {
        return Ok(());
    }
    fs::create_dir_all(&directory)?;
    // Two pods that start side by side take turns.
    let lock = File::open(pods_root)?;
    lock.lock()?;
    let taken: BTreeSet<u32> = fs::read_dir(pods_root)?
        .flatten()
        .filter_map(|entry| read_file(&entry.path().join(FILE)).ok())
        .flat_map(|ranges| ranges.uid_mappings)
        .map(|range| range.host_id / LENGTH)
        .collect();
    let free = RANGES
        .clone()
        .find(|range| !taken.contains(range))
        .ok_or_else(|| io::Error::other("no range of users is left for a pod"))?;
    let range = vec![Range {
        host_id: free * LENGTH,
        container_id: 0,
        length: LENGTH,
    }];
    let ranges = Ranges {
        uid_mappings: range.clone(),
        gid_mappings: range,
    };
    let bytes = serde_json::to_vec(&ranges)?;
    atomic_file::write(&directory.join(FILE), &bytes, Options::plain())
}

/// The pod's user namespace for CRI. `None` means that it uses the host's.
pub fn namespace(pods_root: &Path, pod: &Pod) -> io::Result<Option<v1::UserNamespace>> {
    if !wanted(pod) {
        return Ok(None);
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let ranges = read_file(&pods_root.join(uid).join(FILE))?;
    Ok(Some(v1::UserNamespace {
        mode: v1::NamespaceMode::Pod as i32,
        uids: mappings(&ranges.uid_mappings),
        gids: mappings(&ranges.gid_mappings),
    }))
}

/// A sandbox in its users' namespace.
pub fn apply_to_sandbox(config: &mut v1::PodSandboxConfig, users: &v1::UserNamespace) {
    if let Some(options) = config
        .linux
        .as_mut()
        .and_then(|linux| linux.security_context.as_mut())
        .and_then(|security| security.namespace_options.as_mut())
    {
        options.userns_options = Some(users.clone());
    }
}

/// A container in its pod's, with volumes whose owners are mapped likewise.
pub fn apply_to_container(config: &mut v1::ContainerConfig, users: &v1::UserNamespace) {
    if let Some(options) = config
        .linux
        .as_mut()
        .and_then(|linux| linux.security_context.as_mut())
        .and_then(|security| security.namespace_options.as_mut())
    {
        options.userns_options = Some(users.clone());
    }
    for mount in &mut config.mounts {
        if mount.image.is_none() {
            mount.uid_mappings.clone_from(&users.uids);
            mount.gid_mappings.clone_from(&users.gids);
        }
    }
}

fn read_file(path: &Path) -> io::Result<Ranges> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn mappings(ranges: &[Range]) -> Vec<v1::IdMapping> {
    ranges
        .iter()
        .map(|range| v1::IdMapping {
            host_id: range.host_id,
            container_id: range.container_id,
            length: range.length,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, host_users: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": uid, "uid": uid},
            "spec": {"hostUsers": host_users, "containers": []},
        }))
        .expect("a pod")
    }

    fn first_user(root: &Path, pod: &Pod) -> Option<u32> {
        let users = namespace(root, pod).expect("readable")?;
        Some(users.uids[0].host_id)
    }

    #[test]
    fn every_pod_has_a_range_of_its_own_and_keeps_it() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let (one, two, host) = (pod("one", false), pod("two", false), pod("host", true));
        for pod in [&one, &two, &host, &one] {
            ensure(root, pod).expect("a range");
        }
        assert_eq!(first_user(root, &one), Some(65536));
        assert_eq!(first_user(root, &two), Some(2 * 65536));
        assert_eq!(first_user(root, &host), None);
        // The range of a pod that is gone is given again.
        fs::remove_dir_all(root.join("one")).expect("removed");
        let three = pod("three", false);
        ensure(root, &three).expect("a range");
        assert_eq!(first_user(root, &three), Some(65536));
    }

    #[test]
    fn volumes_are_mapped_and_images_are_not() {
        let users = v1::UserNamespace {
            uids: mappings(&[Range {
                host_id: 65536,
                container_id: 0,
                length: LENGTH,
            }]),
            ..Default::default()
        };
        let mut config = v1::ContainerConfig {
            mounts: vec![
                v1::Mount::default(),
                v1::Mount {
                    image: Some(v1::ImageSpec::default()),
                    ..Default::default()
                },
            ],
            ..Default::default()
        };
        apply_to_container(&mut config, &users);
        assert_eq!(config.mounts[0].uid_mappings, users.uids);
        assert!(config.mounts[1].uid_mappings.is_empty());
    }
}
