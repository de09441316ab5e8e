//! File systems of containers whose pod has users of its own: layers and volumes with their owners
//! mapped, all below one directory per container that those users can pass through, and no others.
//! For them nothing else of ours is reachable.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsFd,
        unix::fs::{PermissionsExt, chown},
    },
    path::{Path, PathBuf},
};

use cri::v1::{Mount, MountPropagation};

use super::Error;
use crate::{mount_tree, sandbox::userns::Mapping, snapshots::Snapshot, sys};

/// One container's directory.
pub struct Mapped {
    directory: PathBuf,
    namespace: File,
}

impl Mapped {
    /// `userns` is where the pod's user namespace is pinned. Of all others but us only the pod's
    /// own group may pass through the directory.
    pub fn create(directory: PathBuf, userns: &Path, users: Mapping) -> Result<Mapped, Error> {
        sys::private_directory(&directory)
            .and_then(|()| chown(&directory, None, Some(users.host_gid)))
            .and_then(|()| fs::set_permissions(&directory, fs::Permissions::from_mode(0o710)))
            .map_err(Error::file(&directory))?;
        let namespace = File::open(userns).map_err(Error::file(userns))?;
        Ok(Mapped {
            directory,
            namespace,
        })
    }

    /// Mounts the container's root on mapped layers; returns its path.
    pub fn root(
        &self,
        snapshot: &Snapshot,
        layers: &[PathBuf],
        users: Mapping,
    ) -> Result<PathBuf, Error> {
        let mut mapped = Vec::new();
        for (index, layer) in layers.iter().enumerate() {
            let target = self.directory.join("layers").join(index.to_string());
            self.mount(layer, &target, true)
                .map_err(Error::file(layer))?;
            mapped.push(target);
        }
        let mounted = snapshot.mount(&mapped);
        // The overlay keeps what it needs of them.
        for target in &mapped {
            sys::unmount(target).map_err(|errno| Error::file(target)(errno.into()))?;
        }
        mounted?;
        if mapped.is_empty() {
            let owner = (Some(users.host_uid), Some(users.host_gid));
            chown(snapshot.upper(), owner.0, owner.1).map_err(Error::file(snapshot.upper()))?;
        }
        let root = self.directory.join("rootfs");
        let rootfs = snapshot.rootfs();
        self.mount(&rootfs, &root, false)
            .map_err(Error::file(&rootfs))?;
        Ok(root)
    }

    /// Mounts the root of the pause process; returns its path.
    pub fn pause(&self, root: &Path) -> Result<PathBuf, Error> {
        let target = self.directory.join("rootfs");
        self.mount(root, &target, false)
            .map_err(Error::file(root))?;
        Ok(target)
    }

    /// Mounts the file of a namespace; returns its path.
    pub fn namespace_file(&self, name: &str, source: &Path) -> Result<PathBuf, Error> {
        let target = self.directory.join(name);
        self.mount(source, &target, false)
            .map_err(Error::file(source))?;
        Ok(target)
    }

    /// Gives every mount of the container a source that its users can reach, with mapped owners
    /// where that was asked for.
    pub fn volumes(&self, mounts: &mut [Mount]) -> Result<(), Error> {
        for (index, mount) in mounts.iter_mut().enumerate() {
            let wanted = !mount.uid_mappings.is_empty() || !mount.gid_mappings.is_empty();
            let source = PathBuf::from(&mount.host_path);
            if !source.exists() {
                fs::create_dir_all(&source).map_err(Error::file(&source))?;
            }
            let target = self.directory.join("volumes").join(index.to_string());
            self.mount(&source, &target, wanted)
                .map_err(|error| refused(&source, wanted, error))?;
            mount.host_path = target.to_string_lossy().into_owned();
        }
        Ok(())
    }

    /// Mounts a file or directory of ours as if the pod's root owned it; returns its path.
    pub fn provided(&self, name: &str, source: &Path) -> Result<PathBuf, Error> {
        let target = self.directory.join("provided").join(name);
        if source.exists() {
            self.mount(source, &target, true)
                .map_err(Error::file(source))?;
        }
        Ok(target)
    }

    fn mount(&self, source: &Path, target: &Path, mapped: bool) -> io::Result<()> {
        make_target(source, target)?;
        let tree = mount_tree::clone_tree(source)?;
        if mapped {
            mount_tree::map_ids(&tree, self.namespace.as_fd())?;
        }
        mount_tree::attach(&tree, target)
    }
}

/// libcontainer gives every mount the propagation of the container's root, which is that of the
/// mount that shares most with the host. The others get sources of their own that share less.
pub fn keep_apart(directory: &Path, mounts: &mut [Mount]) -> Result<(), Error> {
    let of_root = mounts.iter().map(shared_with_host).max();
    for (index, mount) in mounts.iter_mut().enumerate() {
        if Some(shared_with_host(mount)) == of_root {
            continue;
        }
        let source = PathBuf::from(&mount.host_path);
        if !source.exists() {
            fs::create_dir_all(&source).map_err(Error::file(&source))?;
        }
        sys::private_directory(directory).map_err(Error::file(directory))?;
        let target = directory.join("volumes").join(index.to_string());
        let private = mount.propagation() == MountPropagation::PropagationPrivate;
        make_target(&source, &target)
            .and_then(|()| {
                let tree = mount_tree::clone_tree(&source)?;
                if private {
                    mount_tree::make_private(&tree)?;
                }
                mount_tree::attach(&tree, &target)
            })
            .map_err(Error::file(&source))?;
        mount.host_path = target.to_string_lossy().into_owned();
    }
    Ok(())
}

/// How much of its mounts a container shares with the host; a larger number is more.
fn shared_with_host(mount: &Mount) -> u8 {
    match mount.propagation() {
        MountPropagation::PropagationPrivate => 0,
        MountPropagation::PropagationHostToContainer => 1,
        MountPropagation::PropagationBidirectional => 2,
    }
}

fn make_target(source: &Path, target: &Path) -> io::Result<()> {
    if source.is_dir() {
        return fs::create_dir_all(target);
    }
    fs::create_dir_all(target.parent().unwrap_or(target))?;
    File::create(target).map(|_| ())
}

fn refused(source: &Path, mapped: bool, error: io::Error) -> Error {
    match (mapped, error.raw_os_error()) {
        (true, Some(libc::EINVAL)) => Error::Invalid(format!(
            "{}: this file system cannot have its owners mapped, as hostUsers: false needs",
            source.display()
        )),
        _ => Error::file(source)(error),
    }
}

/// Unmounts everything below a directory made here and removes it. A missing one is fine.
pub fn remove(directory: &Path) -> Result<(), Error> {
    if !directory.exists() {
        return Ok(());
    }
    let mut mounts = sys::mounts_under(directory).map_err(Error::file(directory))?;
    mounts.sort();
    for point in mounts.iter().rev() {
        sys::unmount(point).map_err(|errno| Error::file(point)(errno.into()))?;
    }
    // The removal would empty a file system that could not be unmounted, so the directory stays then.
    if !sys::mounts_under(directory)
        .map_err(Error::file(directory))?
        .is_empty()
    {
        return Err(Error::Precondition(format!(
            "{} is still mounted",
            directory.display()
        )));
    }
    fs::remove_dir_all(directory).map_err(Error::file(directory))
}
