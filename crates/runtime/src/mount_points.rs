//! The lowest layer of every container: empty files and directories where its mounts come to lie.
//! Images often lack them, and the OCI command would make each of them anew in each container's own
//! directory. What an image has of the same name lies above and counts.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const DIRECTORIES: [&str; 4] = ["proc", "dev", "sys", "etc"];
const FILES: [&str; 3] = ["etc/resolv.conf", "etc/hostname", "etc/hosts"];

/// Where nearly every pod finds the token of its service account; only for those that mount it.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Two of them, with and without a place for the service account.
#[derive(Clone, Debug)]
pub struct MountPoints {
    root: PathBuf,
}

impl MountPoints {
    /// Makes the missing files and directories.
    pub fn open(root: PathBuf) -> io::Result<MountPoints> {
        let points = MountPoints { root };
        let account = ACCOUNT.trim_start_matches('/');
        for (layer, more) in [(points.plain(), None), (points.account(), Some(account))] {
            for name in DIRECTORIES.into_iter().chain(more) {
                make_directory(&layer, name)?;
            }
            for name in FILES {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false);
                let file = options.open(layer.join(name))?;
                file.set_permissions(fs::Permissions::from_mode(0o644))?;
            }
        }
        Ok(points)
    }

    /// The one for a container that mounts something at these places.
    pub fn layer<'a>(&self, mut mounted: impl Iterator<Item = &'a str>) -> PathBuf {
        match mounted.any(|path| Path::new(path) == Path::new(ACCOUNT)) {
            true => self.account(),
            false => self.plain(),
        }
    }

    fn plain(&self) -> PathBuf {
        self.root.join("plain")
    }

    fn account(&self) -> PathBuf {
        self.root.join("account")
    }
}

/// With everything above it up to the layer; regardless of our umask, everybody may read it.
fn make_directory(layer: &Path, name: &str) -> io::Result<()> {
    let path = layer.join(name);
    fs::create_dir_all(&path)?;
    for made in path.ancestors().take_while(|made| made.starts_with(layer)) {
        fs::set_permissions(made, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_containers_that_mount_a_service_account_have_its_mount_point() {
        let root = tempfile::tempdir().unwrap();
        let points = MountPoints::open(root.path().join("points")).unwrap();
        MountPoints::open(root.path().join("points")).expect("again is fine");
        let place = ACCOUNT.trim_start_matches('/');
        let with =
            points.layer(["/data", "/var/run/secrets/kubernetes.io/serviceaccount/"].into_iter());
        let without = points.layer(["/data"].into_iter());
        assert!(with.join(place).is_dir() && !without.join("var").exists());
        for layer in [with, without] {
            assert!(layer.join("etc/hosts").is_file() && layer.join("proc").is_dir());
        }
    }
}
