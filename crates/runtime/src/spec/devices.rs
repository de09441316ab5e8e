//! Device nodes that a container gets besides the usual ones.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use cri::v1::Device;
use serde_json::{Value, json};

use super::Error;

/// Nodes for `linux.devices` and rules for `linux.resources.devices`.
pub fn build(requested: &[Device], privileged: bool) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let (mut nodes, mut rules) = (Vec::new(), Vec::new());
    for device in requested {
        // What is asked for by name may be a link to it, as the kubelet keeps one for a block volume.
        fs::canonicalize(&device.host_path)
            .and_then(|host| {
                add(
                    &host,
                    &device.container_path,
                    &device.permissions,
                    &mut nodes,
                    &mut rules,
                )
            })
            .map_err(|error| Error::Device(device.host_path.clone(), error))?;
    }
    if privileged {
        for_all_of_host(Path::new("/dev"), &mut nodes);
    }
    Ok((nodes, rules))
}

/// A node, or every node of a directory.
fn add(
    host: &Path,
    container: &str,
    access: &str,
    nodes: &mut Vec<Value>,
    rules: &mut Vec<Value>,
) -> std::io::Result<()> {
    let metadata = fs::metadata(host)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(host)?.flatten() {
            let inside = format!("{container}/{}", entry.file_name().to_string_lossy());
            add(&entry.path(), &inside, access, nodes, rules)?;
        }
        return Ok(());
    }
    if let Some(node) = node(host, container)? {
        rules.push(json!({
            "allow": true, "type": node["type"], "major": node["major"], "minor": node["minor"], "access": access,
        }));
        nodes.push(node);
    }
    Ok(())
}

/// What a privileged container sees: the host's nodes, but not the parts of /dev that it has anew.
fn for_all_of_host(directory: &Path, nodes: &mut Vec<Value>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let skipped = [
            "pts",
            "shm",
            "fd",
            "mqueue",
            "console",
            ".lxc",
            ".lxd-mounts",
            ".udev",
        ];
        if entry
            .file_name()
            .to_str()
            .is_none_or(|name| skipped.contains(&name))
        {
            continue;
        }
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            for_all_of_host(&path, nodes);
        } else if let Ok(Some(node)) = node(&path, &path.to_string_lossy()) {
            nodes.push(node);
        }
    }
}

/// `None` if the file is no device; a link is not followed.
pub fn node(host: &Path, container: &str) -> std::io::Result<Option<Value>> {
    let metadata = fs::symlink_metadata(host)?;
    let metadata = if metadata.is_symlink() {
        return Ok(None);
    } else {
        metadata
    };
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        _ => return Ok(None),
    };
    Ok(Some(json!({
        "path": container, "type": kind,
        "major": libc::major(metadata.rdev()), "minor": libc::minor(metadata.rdev()),
        "fileMode": metadata.mode() & 0o7777, "uid": metadata.uid(), "gid": metadata.gid(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_by_the_device_it_leads_to() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("volume");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let device = Device {
            container_path: "/dev/xvda".to_owned(),
            host_path: link.display().to_string(),
            permissions: "r".to_owned(),
        };
        let (nodes, rules) = build(std::slice::from_ref(&device), false).unwrap();
        assert_eq!(nodes[0]["path"], "/dev/xvda");
        assert_eq!(
            (&nodes[0]["major"], &nodes[0]["minor"]),
            (&json!(1), &json!(3))
        );
        assert_eq!(rules[0]["access"], "r");
        let gone = Device {
            host_path: directory.path().join("gone").display().to_string(),
            ..device
        };
        assert!(build(&[gone], false).is_err());
    }
}
