//! The volumes that an image declares (`VOLUME`): each container has an empty directory of its own
//! there, filled with what the image has at that place, and it goes with the container. Where the
//! pod mounts something itself there is none.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use cri::v1::{ContainerConfig, Mount};

use super::Error;
use crate::{
    copy_tree,
    images::ImageRecord,
    sandbox::userns::Mapping,
    snapshots::Snapshot,
    spec::{self, user},
};

/// The kernel's own: whoever puts something else there changes what programs trust.
const KERNELS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Makes them below the container's directory, and adds their mounts to `config`. `rootfs` is the
/// container's root, in which nothing is mounted yet and nothing runs.
pub fn prepare(
    config: &mut ContainerConfig,
    image: &ImageRecord,
    rootfs: &Path,
    snapshot: &Snapshot,
    users: Option<Mapping>,
) -> Result<(), Error> {
    if image.process.volumes.is_empty() {
        return Ok(());
    }
    let owner = users.map_or((0, 0), |users| (users.host_uid, users.host_gid));
    // The working directory may lie in a volume, and is made if it is not there.
    let working_directory = spec::working_directory(config, image);
    let _ = user::make_directory_inside(rootfs, Path::new(working_directory), owner);
    let mut taken: Vec<PathBuf> = Vec::new();
    for mount in &config.mounts {
        let path = cleaned(&mount.container_path);
        taken.extend(inside(rootfs, &path));
        taken.push(path);
    }
    for declared in image.process.volumes.keys() {
        let path = cleaned(declared);
        if taken.contains(&path) || is_kernels(&path) {
            continue;
        }
        let refused = |why: String| Error::Invalid(format!("image volume {declared:?}: {why}"));
        user::make_directory_inside(rootfs, &path, owner)
            .map_err(|error| refused(error.to_string()))?;
        // From here on without links: what is mounted later must not give them another meaning.
        let real = inside(rootfs, &path).ok_or_else(|| refused("it cannot be found".into()))?;
        if taken.contains(&real) || is_kernels(&real) {
            continue;
        }
        let source = user::find_inside(rootfs, &path).filter(|source| source.is_dir());
        let source = source.ok_or_else(|| refused("it is not a directory".into()))?;
        let volume = snapshot.volumes().join(taken.len().to_string());
        fs::create_dir_all(&volume).map_err(Error::file(&volume))?;
        copy_tree::copy(&source, &volume).map_err(Error::file(&source))?;
        config.mounts.push(Mount {
            container_path: real.to_string_lossy().into_owned(),
            host_path: volume.to_string_lossy().into_owned(),
            ..Mount::default()
        });
        taken.extend([path, real]);
    }
    Ok(())
}

/// An absolute path without `.` and `..`, none of which leads above the root.
fn cleaned(path: &str) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            _ => {}
        }
    }
    clean
}

/// Where a path of the container really leads, as an absolute path of the container.
fn inside(rootfs: &Path, path: &Path) -> Option<PathBuf> {
    let root = user::find_inside(rootfs, Path::new("/"))?;
    let found = user::find_inside(rootfs, path)?;
    let below = found.strip_prefix(root).ok()?;
    Some(Path::new("/").join(below))
}

/// Whether it is the root itself or part of a file system of the kernel's.
fn is_kernels(path: &Path) -> bool {
    path == Path::new("/") || KERNELS.iter().any(|kernels| path.starts_with(kernels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn image(volumes: &[&str]) -> ImageRecord {
        let volumes: serde_json::Map<_, _> = volumes
            .iter()
            .map(|path| ((*path).to_owned(), serde_json::json!({})))
            .collect();
        serde_json::from_value(serde_json::json!({
            "id": "sha256:0", "manifest": "sha256:1", "tags": [], "digests": [], "layers": [],
            "size": 0, "process": {"Volumes": volumes},
        }))
        .expect("an image")
    }

    /// The places where volumes are mounted, and the first of them on the host.
    fn places(volumes: &[&str], mounted: &[&str]) -> Result<(Vec<String>, PathBuf), Error> {
        let directory = tempfile::tempdir().unwrap().keep();
        let rootfs = directory.join("rootfs");
        for path in ["proc", "dev", "var/data", "run/app"] {
            fs::create_dir_all(rootfs.join(path)).unwrap();
        }
        fs::write(rootfs.join("var/data/seed"), "from the image").unwrap();
        std::os::unix::fs::chown(rootfs.join("var/data"), Some(7), Some(8)).unwrap();
        fs::write(rootfs.join("file"), "").unwrap();
        for (link, target) in [
            ("data", "/var/data"),
            ("kernel", "/proc"),
            ("process", "/proc/self/attr"),
            ("up", "../../../.."),
            ("var/run", "/run"),
        ] {
            symlink(target, rootfs.join(link)).unwrap();
        }
        let mut config = ContainerConfig {
            mounts: mounted
                .iter()
                .map(|path| Mount {
                    container_path: (*path).to_owned(),
                    ..Mount::default()
                })
                .collect(),
            ..ContainerConfig::default()
        };
        let snapshot = Snapshot::new(directory.join("container"), rootfs.clone());
        prepare(&mut config, &image(volumes), &rootfs, &snapshot, None)?;
        let made = &config.mounts[mounted.len()..];
        let first = made.first().map(|mount| PathBuf::from(&mount.host_path));
        let made = made.iter().map(|mount| mount.container_path.clone());
        Ok((made.collect(), first.unwrap_or_default()))
    }

    #[test]
    fn a_volume_is_filled_from_the_image() {
        let (made, volume) = places(&["/var/data"], &[]).expect("made");
        assert_eq!(made, ["/var/data"]);
        assert_eq!(fs::read(volume.join("seed")).unwrap(), b"from the image");
        let status = fs::metadata(&volume).unwrap();
        assert_eq!((status.uid(), status.gid()), (7, 8));
    }

    #[test]
    fn volumes_are_made_at_declared_paths_where_the_pod_mounts_nothing() {
        for (volumes, mounted, expected) in [
            (&["/new/place"][..], &[][..], &["/new/place"][..]),
            (&["relative/../var/data/"], &[], &["/var/data"]),
            (&["/data"], &[], &["/var/data"]),
            (&["/data", "/var/data"], &[], &["/var/data"]),
            (&["/var/data"], &["/var/data/"], &[]),
            (&["/var/run/app"], &["/run/app"], &[]),
            (&["/var/data"], &["/var"], &["/var/data"]),
        ] {
            let (made, _) = places(volumes, mounted).expect("made");
            assert_eq!(made, expected, "{volumes:?} beside {mounted:?}");
        }
    }

    #[test]
    fn no_volume_replaces_the_root_or_a_file_system_of_the_kernel() {
        for path in [
            "/",
            "",
            "/..",
            "/proc",
            "/proc/self",
            "/dev/shm",
            "/sys/fs",
            "/kernel",
            "/up",
        ] {
            let (made, _) = places(&[path], &[]).expect("left out");
            assert!(made.is_empty(), "{path}: {made:?}");
        }
        for path in ["/process", "/process/exec", "/file", "/file/below"] {
            assert!(places(&[path], &[]).is_err(), "{path}");
        }
    }
}
