//! Block volumes: devices of the node that containers get as they are, without a file system of
//! ours on them. A link in the pod's directory leads to the device, at upstream's place.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{FileTypeExt, symlink},
    path::Path,
};

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{Error, Mounted, at};

/// Refuses a volume that is used otherwise than its mode allows.
pub(super) fn check_mode(pod: &Pod, volume: &str, mode: &str) -> Result<(), Error> {
    let Some(spec) = &pod.spec else {
        return Ok(());
    };
    let ephemeral = crate::pod_spec::ephemeral(pod);
    let init = spec.init_containers.iter().flatten();
    let containers = || spec.containers.iter().chain(init.clone()).chain(&ephemeral);
    let mounts = containers().flat_map(|container| container.volume_mounts.iter().flatten());
    let mounts: BTreeSet<&str> = mounts.map(|mount| mount.name.as_str()).collect();
    let devices = containers().flat_map(|container| container.volume_devices.iter().flatten());
    let devices: BTreeSet<&str> = devices.map(|device| device.name.as_str()).collect();
    for (used, wanted, place) in [
        (mounts, "Filesystem", "volumeMounts"),
        (devices, "Block", "volumeDevices"),
    ] {
        if used.contains(volume) && mode != wanted {
            return Err(Error::Claim(format!(
                "volume {volume} has volumeMode {mode}, but is specified in {place}"
            )));
        }
    }
    Ok(())
}

/// Makes `link` lead to `device`. Blocking.
pub(super) fn link(link: &Path, device: &Path) -> Result<(), Error> {
    let found = fs::metadata(device)
        .map_err(|error| Error::Device(format!("{}: {error}", device.display())))?;
    if !found.file_type().is_block_device() {
        return Err(Error::Device(format!(
            "path \"{}\" is not a block device",
            device.display()
        )));
    }
    if fs::read_link(link).is_ok_and(|present| present == device) {
        return Ok(());
    }
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent).map_err(at("creating", parent))?;
    }
    match fs::remove_file(link) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(at("removing", link)(error));
        }
        _ => symlink(device, link).map_err(at("linking", link)),
    }
}

/// The devices that a container is given.
pub fn of(container: &Container, mounted: &Mounted) -> Result<Vec<v1::Device>, Error> {
    let wanted = container.volume_devices.iter().flatten();
    wanted
        .map(|device| {
            if !device.device_path.starts_with('/') {
                return Err(Error::Key(format!(
                    "error DevicePath `{}` must be an absolute path",
                    device.device_path
                )));
            }
            let Some(link) = mounted.devices.get(&device.name) else {
                return Err(Error::Key(format!(
                    "cannot find volume \"{}\" to pass into container \"{}\"",
                    device.name, container.name
                )));
            };
            let read_only = mounted.read_only.contains(&device.name);
            Ok(v1::Device {
                container_path: device.device_path.clone(),
                host_path: link.to_string_lossy().into_owned(),
                permissions: if read_only { "r" } else { "mrw" }.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_container_gets_its_devices() {
        let container: Container = serde_json::from_value(serde_json::json!({"name": "c",
            "volumeDevices": [{"name": "a", "devicePath": "/dev/xvda"},
                {"name": "b", "devicePath": "/dev/xvdb"}]}))
        .expect("a container");
        let mut mounted = Mounted::default();
        for name in ["a", "b"] {
            let place = PathBuf::from(format!("/pods/u/{name}"));
            mounted.devices.insert(name.to_owned(), place);
        }
        mounted.read_only.insert("b".to_owned());
        let devices = of(&container, &mounted).expect("devices");
        let found: Vec<_> = devices
            .iter()
            .map(|one| [&*one.host_path, &one.container_path, &one.permissions])
            .collect();
        assert_eq!(
            found,
            [
                ["/pods/u/a", "/dev/xvda", "mrw"],
                ["/pods/u/b", "/dev/xvdb", "r"]
            ]
        );
        mounted.devices.remove("a");
        let missing = of(&container, &mounted).expect_err("no device");
        assert_eq!(
            missing.to_string(),
            "cannot find volume \"a\" to pass into container \"c\""
        );
    }

    #[test]
    fn a_volume_is_used_as_its_mode_says() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {"containers": [
            {"name": "c", "volumeMounts": [{"name": "files", "mountPath": "/f"}],
                "volumeDevices": [{"name": "disk", "devicePath": "/dev/x"}]}]}}))
        .expect("a pod");
        let check = |volume: &str, mode: &str| {
            let result = check_mode(&pod, volume, mode);
            result.map_err(|error| error.to_string())
        };
        assert_eq!(check("files", "Filesystem"), Ok(()));
        assert_eq!(check("disk", "Block"), Ok(()));
        assert_eq!(check("other", "Block"), Ok(()));
        let words = "volume files has volumeMode Block, but is specified in volumeMounts";
        assert_eq!(check("files", "Block"), Err(words.to_owned()));
        let words = "volume disk has volumeMode Filesystem, but is specified in volumeDevices";
        assert_eq!(check("disk", "Filesystem"), Err(words.to_owned()));
    }

    #[test]
    fn only_a_block_device_is_linked() {
        let directory = tempfile::tempdir().expect("a directory");
        let (place, file) = (directory.path().join("d/v"), directory.path().join("file"));
        fs::write(&file, "").expect("written");
        let error = link(&place, &file).expect_err("no device").to_string();
        assert!(error.ends_with("file\" is not a block device"), "{error}");
        assert!(link(&place, Path::new("/dev/null")).is_err());
        assert!(!place.exists());
    }
}
