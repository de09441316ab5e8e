//! subPath: a place inside a volume, bound where no later change of links can lead out of it.

use std::{
    fs,
    os::fd::{AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
    mount::{MsFlags, mount},
    sys::stat::{Mode, mkdirat},
};

use super::{Error, at, mount_table};

/// How much of an env file is read.
const MAX_ENV_FILE: u64 = 64 * 1024;

/// Binds `sub_path` of the volume at `volume` to `target` and returns `target`. A missing path is
/// made as directories. Links inside the volume are followed, links that lead out are refused.
pub fn bind(volume: &Path, sub_path: &str, target: &Path) -> Result<PathBuf, Error> {
    let relative = Path::new(sub_path);
    let plain = relative
        .components()
        .all(|component| matches!(component, Component::Normal(_) | Component::CurDir));
    if !plain {
        return Err(Error::Key(format!(
            "subPath {sub_path:?} must be relative and must not contain \"..\""
        )));
    }
    let file = match open_or_make(volume, relative) {
        Ok(file) => file,
        Err(error) => match inside(volume, relative) {
            // Opened as strictly as any other, so that no link put there meanwhile leads out.
            Some(place) => open_or_make(volume, &place)?,
            None => return Err(error),
        },
    };
    let source = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let is_directory = fs::metadata(&source)
        .map_err(at("reading", relative))?
        .is_dir();
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(at("creating", parent))?;
    }
    if is_directory {
        fs::create_dir_all(target).map_err(at("creating", target))?;
    } else if !target.exists() {
        fs::File::create(target).map_err(at("creating", target))?;
    }
    // One container start after another may find its place bound already: bind it afresh, so
    // that it shows the present file.
    mount_table::unmount_below(target)?;
    mount(
        Some(&source),
        target,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )
    .map_err(|errno| at("binding", target)(errno.into()))?;
    // What lies below is a copy of the host's mounts: unmounting it later must not reach the host.
    mount(
        None::<&str>,
        target,
        None::<&str>,
        MsFlags::MS_SLAVE | MsFlags::MS_REC,
        None::<&str>,
    )
    .map_err(|errno| at("binding", target)(errno.into()))?;
    Ok(target.to_path_buf())
}

/// The text of a file inside a volume, `None` when it cannot be read. No link leads out.
pub fn read(volume: &Path, path: &str) -> Option<String> {
    use std::io::Read;
    let root = fs::File::open(volume).ok()?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = fs::File::from(openat2(&root, Path::new(path), how).ok()?);
    let mut text = String::new();
    file.take(MAX_ENV_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The end of a path that leads over absolute links, relative to the volume, if it is inside of it.
fn inside(volume: &Path, relative: &Path) -> Option<PathBuf> {
    let root = fs::canonicalize(volume).ok()?;
    let place = fs::canonicalize(root.join(relative)).ok()?;
    let place = place.strip_prefix(&root).ok()?;
    Some(Path::new(".").join(place))
}

fn open_or_make(volume: &Path, relative: &Path) -> Result<OwnedFd, Error> {
    let root = fs::File::open(volume).map_err(at("opening", volume))?;
    // As open as the volume itself.
    let permissions = root
        .metadata()
        .map_err(at("reading", volume))?
        .permissions();
    let open = |path: &Path| {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(&root, path, how)
    };
    match open(relative) {
        Ok(file) => return Ok(file),
        Err(Errno::ENOENT) => {}
        Err(errno) => return Err(at("opening", relative)(errno.into())),
    }
    let mut done = PathBuf::from(".");
    for component in relative.components() {
        let parent = open(&done).map_err(|errno| at("opening", &done)(errno.into()))?;
        let name = Path::new(component.as_os_str());
        let made = match mkdirat(&parent, name, Mode::S_IRWXU) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(errno) => return Err(at("creating", relative)(errno.into())),
        };
        done.push(name);
        if made {
            // Set apart: the mode of a new directory is subject to the umask.
            let new = open_directory(&parent, name)
                .map_err(|errno| at("opening", &done)(errno.into()))?;
            new.set_permissions(permissions.clone())
                .map_err(at("changing", &done))?;
        }
    }
    open(relative).map_err(|errno| at("opening", relative)(errno.into()))
}

/// A directory that was just made. What has been put in its place meanwhile is not followed.
fn open_directory(parent: &OwnedFd, name: &Path) -> nix::Result<fs::File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(parent, name, how).map(fs::File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_out_of_the_volume_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let volume = directory.path().join("v");
        fs::create_dir(&volume).expect("made");
        std::os::unix::fs::symlink("/etc", volume.join("out")).expect("linked");
        std::os::unix::fs::symlink("..", volume.join("up")).expect("linked");
        assert!(open_or_make(&volume, Path::new("out/passwd")).is_err());
        assert!(open_or_make(&volume, Path::new("up")).is_err());
        assert_eq!(inside(&volume, Path::new("out/passwd")), None);
        assert_eq!(inside(&volume, Path::new("up")), None);
        open_or_make(&volume, Path::new("a/b/c")).expect("made");
        // One that names the volume by its own path leads back into it.
        std::os::unix::fs::symlink(volume.join("a"), volume.join("in")).expect("linked");
        assert!(open_or_make(&volume, Path::new("in/b")).is_err());
        let place = inside(&volume, Path::new("in/b")).expect("inside");
        open_or_make(&volume, &place).expect("opened");
        assert!(volume.join("a/b/c").is_dir());
        assert!(bind(&volume, "../x", &directory.path().join("t")).is_err());
    }

    #[test]
    fn directories_made_for_a_sub_path_are_as_open_as_the_volume() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let volume = directory.path().join("v");
        fs::create_dir(&volume).expect("made");
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
        };
        let mode = |path: &str| {
            let metadata = fs::metadata(volume.join(path)).expect("there");
            metadata.permissions().mode() & 0o7777
        };
        set(&volume, 0o777);
        open_or_make(&volume, Path::new("a/b")).expect("made");
        assert_eq!((mode("a"), mode("a/b")), (0o777, 0o777));
        // What was there keeps its mode; what is new below it does not follow it.
        set(&volume.join("a"), 0o711);
        set(&volume, 0o2775);
        open_or_make(&volume, Path::new("a/c")).expect("made");
        assert_eq!((mode("a"), mode("a/c")), (0o711, 0o2775));
        set(&volume, 0o700);
        open_or_make(&volume, Path::new("closed")).expect("made");
        assert_eq!(mode("closed"), 0o700);
    }
}
