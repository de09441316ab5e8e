//! The container's root and what is mounted in it, made in its own mount namespace. Paths of the
//! image are followed by the kernel as if the root were `/`, so that no link leads out of it.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::{Mode, SFlag, fstat, makedev, mkdirat, mknodat},
    unistd::{UnlinkatFlags, fchdir, symlinkat, unlinkat},
};

use super::document::{Device, NO_DEV, NO_EXEC, NO_SUID, Point, READ_ONLY, What};
use crate::{mount_tree, oci::Error};

const NOTHING: Option<&str> = None;

/// Character devices that every container has, by number.
const NODES: [(&str, u64, u64); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("tty", 5, 0),
    ("random", 1, 8),
    ("urandom", 1, 9),
];

const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
];

/// Whether the kernel can change detached mounts (5.12 and later).
pub fn kernel_can() -> bool {
    mount_tree::restrict_path(Path::new("/nonexistent-on-purpose"), READ_ONLY)
        .is_err_and(|error| error.raw_os_error() != Some(libc::ENOSYS))
}

pub struct Root(OwnedFd);

impl Root {
    /// Cuts this mount namespace off from all others, and makes the root a mount of its own.
    pub fn enter(path: &Path) -> Result<Root, Error> {
        let failed = || Error::system(format!("mounting the root {}", path.display()));
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(NOTHING, "/", NOTHING, private, NOTHING).map_err(failed())?;
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(path), path, NOTHING, bind, NOTHING).map_err(failed())?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(path, flags, Mode::empty()).map_err(failed())?;
        Ok(Root(root))
    }

    pub fn mount(&self, point: &Point) -> Result<(), Error> {
        let place = &point.destination;
        self.place(place, &point.what)
            .map_err(Error::system(format!("mounting {}", place.display())))
    }

    fn place(&self, place: &Path, what: &What) -> io::Result<()> {
        match what {
            What::New { kind, flags, data } => {
                // What processes trust to be the kernel's must not be somewhere else.
                let straight = matches!(kind.as_str(), "proc" | "sysfs");
                let target = self.ensure(place, true, straight)?;
                let (kind, data) = (Some(kind.as_str()), Some(data.as_str()));
                Ok(mount(kind, &through(&target), kind, *flags, data)?)
            }
            What::Bind {
                source,
                recursive,
                attributes,
                all,
            } => {
                let tree = mount_tree::copy(source, *recursive).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", source.display()))
                })?;
                if *attributes != 0 {
                    mount_tree::restrict(&tree, *attributes, *all)?;
                }
                let directory = fstat(&tree)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
                let target = self.ensure(place, directory, false)?;
                mount_tree::attach_to(&tree, target.as_fd())
            }
        }
    }

    /// Opens the file at `path` inside the root; it is made if there is none.
    fn ensure(&self, path: &Path, directory: bool, straight: bool) -> nix::Result<OwnedFd> {
        match self.open(path, straight) {
            Err(Errno::ENOENT) => {}
            other => return other,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::EINVAL);
        };
        let parent = self.ensure(parent, true, straight)?;
        if directory {
            mkdirat(&parent, name, Mode::from_bits_truncate(0o755))?;
        } else {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            openat(&parent, name, flags, Mode::from_bits_truncate(0o644))?;
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&parent, name, flags, Mode::empty())
    }

    fn open(&self, path: &Path, straight: bool) -> nix::Result<OwnedFd> {
        let inside = path.strip_prefix("/").unwrap_or(path);
        let inside = if inside.as_os_str().is_empty() {
            Path::new(".")
        } else {
            inside
        };
        let mut resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        if straight {
            resolve |= ResolveFlag::RESOLVE_NO_SYMLINKS;
        }
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(resolve);
        // Whoever mounts or renames something, anywhere, while a link leads upwards, makes the kernel
        // unsure of where it is.
        for _ in 0..1000 {
            match openat2(&self.0, inside, how) {
                Err(Errno::EAGAIN) => {}
                other => return other,
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Makes the links and device nodes of the container's `/dev`. Returns its `null`.
    pub fn populate_dev(&self, devices: &[Device]) -> Result<Null, Error> {
        let dev = self
            .open(Path::new("/dev"), true)
            .map_err(Error::system("/dev"))?;
        let kcore = [("/proc/kcore", "kcore")];
        let kcore = kcore.iter().filter(|(path, _)| Path::new(path).exists());
        for (target, name) in LINKS.iter().chain(kcore) {
            symlinkat(*target, &dev, *name).map_err(Error::system(format!("/dev/{name}")))?;
        }
        let before = nix::sys::stat::umask(Mode::empty());
        for (name, major, minor) in NODES {
            let path = Path::new("/dev").join(name);
            if devices.iter().any(|device| device.path == path) {
                continue;
            }
            let mode = Mode::from_bits_truncate(0o666);
            mknodat(&dev, name, SFlag::S_IFCHR, mode, makedev(major, minor))
                .map_err(Error::system(path.display().to_string()))?;
        }
        for device in devices {
            self.make_node(device)
                .map_err(Error::system(device.path.display().to_string()))?;
        }
        nix::sys::stat::umask(before);
        // A container with all devices of the host has the host's `ptmx` among them.
        let failed = || Error::system("/dev/ptmx");
        match unlinkat(&dev, "ptmx", UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(failed()(errno)),
        }
        symlinkat("pts/ptmx", &dev, "ptmx").map_err(failed())?;
        Null::open(&dev).map_err(Error::system("/dev/null"))
    }

    fn make_node(&self, device: &Device) -> nix::Result<()> {
        let (Some(parent), Some(name)) = (device.path.parent(), device.path.file_name()) else {
            return Err(Errno::EINVAL);
        };
        let parent = self.ensure(parent, true, false)?;
        let kind = match device.kind.as_str() {
            "b" => SFlag::S_IFBLK,
            "p" => SFlag::S_IFIFO,
            _ => SFlag::S_IFCHR,
        };
        let mode = Mode::from_bits_truncate(device.file_mode);
        let number = makedev(device.major, device.minor);
        mknodat(&parent, name, kind, mode, number)?;
        let (uid, gid) = (device.uid.into(), device.gid.into());
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
        nix::unistd::fchownat(&parent, name, Some(uid), Some(gid), flags)
    }

    /// Makes it the root of this process and unmounts the old root.
    pub fn pivot(self) -> Result<(), Error> {
        let failed = || Error::system("entering the root");
        // A descriptor of the path alone does for going there.
        fchdir(&self.0).map_err(failed())?;
        // The old root comes to lie over the new one, and is taken off.
        nix::unistd::pivot_root(".", ".").map_err(failed())?;
        umount2(".", MntFlags::MNT_DETACH).map_err(failed())?;
        nix::unistd::chdir("/").map_err(failed())
    }
}

/// A path that leads to an open file.
fn through(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// The container's own `/dev/null`. It is opened and checked once, where it was made, and never by its
/// path again, which may lead to something else by then.
pub struct Null(OwnedFd);

impl Null {
    fn open(dev: &OwnedFd) -> io::Result<Null> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let null = openat(dev, "null", flags, Mode::empty())?;
        let status = fstat(&null)?;
        let is_device = status.st_mode & libc::S_IFMT == libc::S_IFCHR;
        if !is_device || status.st_rdev != makedev(1, 3) {
            return Err(io::Error::other("it is something else"));
        }
        Ok(Null(null))
    }

    /// Replaces the host's `/dev/null` in the standard streams. This must come before the root is
    /// entered: the host's `/proc` leads from the descriptor to the device.
    pub fn replace_streams(&self) -> Result<(), Error> {
        self.duplicate_into_streams()
            .map_err(Error::system("/dev/null"))
    }

    fn duplicate_into_streams(&self) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let null = options.read(true).write(true).open(through(&self.0))?;
        for stream in 0..3 {
            // SAFETY: the standard streams are open for as long as this process lives.
            let stream = unsafe { BorrowedFd::borrow_raw(stream) };
            if fstat(stream)?.st_rdev == makedev(1, 3) {
                // SAFETY: both are descriptors of this process; dup2 leaves the copy open on exec.
                if unsafe { libc::dup2(null.as_raw_fd(), stream.as_raw_fd()) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
        }
        Ok(())
    }

    /// Hides parts of kernel file systems: directories behind an empty one, files behind this.
    pub fn mask(&self, paths: &[PathBuf]) -> Result<(), Error> {
        for path in paths {
            self.hide(path)
                .map_err(Error::system(format!("masking {}", path.display())))?;
        }
        Ok(())
    }

    fn hide(&self, path: &Path) -> io::Result<()> {
        let Some(place) = find(path)? else {
            return Ok(());
        };
        let tree = match fstat(&place)?.st_mode & libc::S_IFMT {
            libc::S_IFDIR => mount_tree::empty_read_only()?,
            _ => mount_tree::copy_of(self.0.as_fd(), false)?,
        };
        mount_tree::attach_to(&tree, place.as_fd())
    }
}

/// Opens what lies at a path after the root was entered; `None` if there is nothing to protect.
fn find(path: &Path) -> io::Result<Option<OwnedFd>> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let here = nix::fcntl::AT_FDCWD;
    match openat2(here, path, how) {
        Ok(place) => Ok(Some(place)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The root itself, not what is mounted in it.
pub fn make_read_only() -> Result<(), Error> {
    mount_tree::restrict_path(Path::new("/"), READ_ONLY)
        .map_err(Error::system("making the root read-only"))
}

/// Makes parts of kernel file systems read-only; what is not there needs no protection.
pub fn protect(paths: &[PathBuf]) -> Result<(), Error> {
    for path in paths {
        restrict(path).map_err(Error::system(format!("protecting {}", path.display())))?;
    }
    Ok(())
}

fn restrict(path: &Path) -> io::Result<()> {
    let Some(place) = find(path)? else {
        return Ok(());
    };
    let tree = mount_tree::copy_of(place.as_fd(), true)?;
    let attributes = READ_ONLY | NO_SUID | NO_DEV | NO_EXEC;
    mount_tree::restrict(&tree, attributes, false)?;
    mount_tree::attach_to(&tree, place.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_null_device_is_accepted_as_dev_null() {
        let directory = tempfile::tempdir().unwrap();
        let open = |path: &Path| {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
            nix::fcntl::open(path, flags, Mode::empty()).unwrap()
        };
        let null = directory.path().join("null");
        let taken = || Null::open(&open(directory.path())).is_ok();
        assert!(!taken(), "there is none");
        fs::write(&null, "").unwrap();
        assert!(!taken(), "a file");
        fs::remove_file(&null).unwrap();
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        assert!(!taken(), "a link to it");
        fs::remove_file(&null).unwrap();
        let node = |minor| {
            let mode = Mode::from_bits_truncate(0o666);
            nix::sys::stat::mknod(&null, SFlag::S_IFCHR, mode, makedev(1, minor))
                .expect("these tests need root");
        };
        node(5);
        assert!(!taken(), "another device");
        fs::remove_file(&null).unwrap();
        node(3);
        assert!(taken());
    }
}
