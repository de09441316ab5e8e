//! A container's root file system: an overlayfs mount of its image's layers with a directory of
//! its own on top. Nothing here knows images or records.

use std::{
    fs,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open},
    mount::{MsFlags, mount},
    sys::stat::Mode,
};

use crate::{failpoint, remove_tree, sys};

/// The smallest page that Linux has, less its end.
const OPTIONS_LIMIT: usize = 4095;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("mounting {path} with {layers} layers")]
    Mount {
        path: PathBuf,
        layers: usize,
        source: nix::Error,
    },
}

/// Where the parts of one container's file system lie.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What outlives a reboot.
    directory: PathBuf,
    rootfs: PathBuf,
}

impl Snapshot {
    pub fn new(directory: PathBuf, rootfs: PathBuf) -> Snapshot {
        Snapshot { directory, rootfs }
    }

    /// Where it is mounted.
    pub fn rootfs(&self) -> PathBuf {
        self.rootfs.clone()
    }

    /// What the container has written.
    pub fn upper(&self) -> PathBuf {
        self.directory.join("upper")
    }

    /// Where the volumes lie that the image declares.
    pub fn volumes(&self) -> PathBuf {
        self.directory.join("volumes")
    }

    /// Makes the directories and mounts. `layers` are lower directories, lowest first. What the host
    /// sees of it has no setuid programs and no devices; the container's own view of it has.
    pub fn mount(&self, layers: &[PathBuf]) -> Result<(), Error> {
        let failed = |path: PathBuf| move |source| Error::File { path, source };
        for part in [self.upper(), self.directory.join("work"), self.rootfs()] {
            fs::create_dir_all(&part).map_err(failed(part.clone()))?;
        }
        // The root directory's mode comes from the upper directory.
        if let Some(topmost) = layers.last() {
            copy_root_attributes(topmost, &self.upper()).map_err(failed(self.upper()))?;
        }
        // An image without layers still needs one lower directory.
        let empty = self.directory.join("empty");
        let mut lower: Vec<PathBuf> = layers.iter().rev().cloned().collect();
        if lower.is_empty() {
            fs::create_dir_all(&empty).map_err(failed(empty.clone()))?;
            lower.push(empty);
        }
        let options = format!(
            "upperdir={},workdir={},xino=off",
            escape(&self.upper()),
            escape(&self.directory.join("work"))
        );
        mount_overlay(&lower, &options, &self.rootfs(), sys::HOST_VIEW)
    }

    /// Mounts an image's layers to be read only, as the container's volume number `index`.
    /// Returns where.
    pub fn mount_image(&self, index: usize, layers: &[PathBuf]) -> Result<PathBuf, Error> {
        let failed = |path: PathBuf| move |source| Error::File { path, source };
        let directory = self.directory.join("images").join(index.to_string());
        let (target, empty) = (directory.join("rootfs"), directory.join("empty"));
        for part in [&target, &empty] {
            fs::create_dir_all(part).map_err(failed(part.clone()))?;
        }
        // Without a writable directory overlayfs wants at least two lower ones.
        let mut lower: Vec<PathBuf> = layers.iter().rev().cloned().collect();
        while lower.len() < 2 {
            lower.push(empty.clone());
        }
        lower.dedup();
        if lower.len() < 2 {
            return Ok(empty);
        }
        let flags = MsFlags::MS_RDONLY | sys::HOST_VIEW;
        mount_overlay(&lower, "xino=off", &target, flags)?;
        Ok(target)
    }

    /// Unmounts and removes everything the container wrote.
    pub fn remove(&self) -> Result<(), Error> {
        // An older server mounted it next to the record.
        for rootfs in [self.rootfs(), self.directory.join("rootfs")] {
            sys::unmount(&rootfs).map_err(|source| Error::Mount {
                path: rootfs.clone(),
                layers: 0,
                source,
            })?;
        }
        for entry in fs::read_dir(self.directory.join("images"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path().join("rootfs");
            if path.exists() {
                sys::unmount(&path).map_err(|source| Error::Mount {
                    path: path.clone(),
                    layers: 0,
                    source,
                })?;
            }
        }
        failpoint::reach("a snapshot is unmounted");
        let parts = ["images", "rootfs", "upper", "work", "empty", "volumes"];
        let parts = parts.map(|part| self.directory.join(part));
        for path in parts.into_iter().chain([self.rootfs()]) {
            remove_tree::remove(&path).map_err(|source| Error::File { path, source })?;
        }
        Ok(())
    }
}

/// `lower` is in overlayfs' order, highest first.
fn mount_overlay(
    lower: &[PathBuf],
    options: &str,
    target: &Path,
    flags: MsFlags,
) -> Result<(), Error> {
    let names: Vec<String> = lower.iter().map(|path| escape(path)).collect();
    let mut text = format!("lowerdir={},{options}", names.join(":"));
    // The kernel reads one page of options. Paths that do not fit are replaced by descriptors.
    let mut opened = Vec::new();
    if text.len() >= OPTIONS_LIMIT {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        for path in lower {
            let fd = open(path, flags, Mode::empty()).map_err(|errno| Error::File {
                path: path.clone(),
                source: errno.into(),
            })?;
            opened.push(fd);
        }
        let names: Vec<String> = opened
            .iter()
            .map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .collect();
        text = format!("lowerdir={},{options}", names.join(":"));
    }
    failpoint::reach("before a snapshot is mounted");
    mount(
        Some("overlay"),
        target,
        Some("overlay"),
        flags,
        Some(text.as_str()),
    )
    .map_err(|source| Error::Mount {
        path: target.to_owned(),
        layers: lower.len(),
        source,
    })?;
    failpoint::reach("a snapshot is mounted");
    Ok(())
}

fn copy_root_attributes(from: &Path, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(from)?;
    std::os::unix::fs::chown(to, Some(found.uid()), Some(found.gid()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o7777))
}

/// Overlayfs splits at colons and commas.
fn escape(path: &Path) -> String {
    path.to_string_lossy()
        .replace('\\', "\\\\")
        .replace(':', "\\:")
        .replace(',', "\\,")
}
