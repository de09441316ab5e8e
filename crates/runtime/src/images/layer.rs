//! Applies one layer tar to a directory that will be an overlayfs lower directory.
//!
//! Every path is resolved by the kernel inside the layer's root (`openat2` with `RESOLVE_IN_ROOT`),
//! so that neither `..` nor a symbolic link, absolute or not, reaches outside. Whiteouts become
//! overlayfs' own form. Nothing outside the directory is read but the parents' attributes.

use std::{
    cell::Cell,
    collections::HashMap,
    ffi::{CString, OsStr},
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{Mode, SFlag, fchmod, mkdirat, mknodat},
    unistd::{Gid, LinkatFlags, Uid, UnlinkatFlags, fchownat, linkat, symlinkat, unlinkat},
};
use tar::EntryType;

use super::Error;

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// A layer may not claim more entries than this; bounded as everything is.
const MOST_ENTRIES: usize = 5_000_000;

/// The most bytes between one file's content and the next one's.
const HEADER_BYTES: u64 = 4 << 20;

/// Refuses to give more than the allowance.
struct Bounded<'a, R> {
    inner: R,
    allowance: &'a Cell<u64>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = self.allowance.get();
        if allowed == 0 {
            return Err(io::Error::other("an entry's header is too large"));
        }
        let most = usize::try_from(allowed).unwrap_or(usize::MAX);
        let length = buffer.len().min(most);
        let count = self.inner.read(&mut buffer[..length])?;
        if allowed != u64::MAX {
            self.allowance.set(allowed - count as u64);
        }
        Ok(count)
    }
}

/// Applies the uncompressed tar. `parents` are the layers below, highest first: a directory that
/// the tar only implies takes its attributes from them, as overlayfs shows the topmost ones.
pub fn apply(tar: impl Read, directory: &Path, parents: &[PathBuf]) -> Result<(), Error> {
    let root = Root::open(directory)?;
    // Long names and attributes are read into memory whole, so what stands between two files is
    // bounded.
    let allowance = Cell::new(HEADER_BYTES);
    let reader = Bounded {
        inner: tar,
        allowance: &allowance,
    };
    let mut archive = tar::Archive::new(reader);
    archive.set_ignore_zeros(false);
    let mut directory_times: Vec<(PathBuf, u64)> = Vec::new();
    let mut entries = archive.entries().map_err(broken)?;
    for number in 0.. {
        if number > MOST_ENTRIES {
            return Err(Error::Layer("too many entries".into()));
        }
        allowance.set(HEADER_BYTES);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry.map_err(broken)?;
        // The rest of a file that is passed over belongs to it, not to the next header.
        allowance.set(u64::MAX);
        if matches!(
            entry.header().entry_type(),
            EntryType::XGlobalHeader | EntryType::GNUSparse
        ) {
            if entry.header().entry_type() == EntryType::XGlobalHeader {
                continue;
            }
            return Err(Error::Layer("sparse files are not supported".into()));
        }
        let path = clean(&entry.path().map_err(broken)?)?;
        let Some(name) = path.file_name().map(OsStr::to_owned) else {
            // The root directory itself: only its attributes count.
            let attributes = Attributes::of(&mut entry)?;
            attributes.apply_to(&root.open_directory(Path::new("."))?)?;
            continue;
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent_fd = root.make_parents(parent, parents)?;
        if name.as_bytes() == OPAQUE {
            set_xattr_fd(&parent_fd, c"trusted.overlay.opaque", b"y")?;
            continue;
        }
        if let Some(hidden) = name.as_bytes().strip_prefix(WHITEOUT) {
            if hidden.is_empty() || hidden == b"." || hidden == b".." {
                return Err(Error::Layer(format!("invalid whiteout {}", path.display())));
            }
            let hidden = OsStr::from_bytes(hidden);
            remove(&parent_fd, hidden)?;
            mknodat(&parent_fd, hidden, SFlag::S_IFCHR, Mode::empty(), 0).map_err(at(&path))?;
            continue;
        }
        place(
            &root,
            &mut entry,
            &parent_fd,
            &name,
            &path,
            parents,
            &mut directory_times,
        )?;
    }
    // Children change the times of their directories, so these come last.
    for (path, modified) in directory_times.into_iter().rev() {
        if let Ok(fd) = root.open_directory(&path) {
            set_times(&fd, c"", modified, libc::AT_EMPTY_PATH);
        }
    }
    Ok(())
}

/// Puts one ordinary entry at `name` inside `parent`.
fn place<R: Read>(
    root: &Root,
    entry: &mut tar::Entry<'_, R>,
    parent: &OwnedFd,
    name: &OsStr,
    path: &Path,
    parents: &[PathBuf],
    directory_times: &mut Vec<(PathBuf, u64)>,
) -> Result<(), Error> {
    let attributes = Attributes::of(entry)?;
    let kind = entry.header().entry_type();
    if kind == EntryType::Directory {
        // A directory joins an existing one; anything else replaces what is there.
        match mkdirat(parent, name, Mode::from_bits_truncate(0o700)) {
            Err(Errno::EEXIST) if open_at(parent, name, OFlag::O_DIRECTORY).is_ok() => {}
            Err(Errno::EEXIST) => {
                remove(parent, name)?;
                mkdirat(parent, name, Mode::from_bits_truncate(0o700)).map_err(at(path))?;
            }
            other => other.map_err(at(path))?,
        }
        let fd = open_at(parent, name, OFlag::O_DIRECTORY).map_err(at(path))?;
        attributes.apply_to(&fd)?;
        directory_times.push((path.to_owned(), attributes.modified));
        return Ok(());
    }
    if kind != EntryType::Link {
        remove(parent, name)?;
    }
    match kind {
        EntryType::Regular | EntryType::Continuous => {
            let how = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
            let fd =
                open_with(parent, name, how, Mode::from_bits_truncate(0o600)).map_err(at(path))?;
            let mut file = std::fs::File::from(fd);
            io::copy(entry, &mut file).map_err(broken)?;
            let fd = OwnedFd::from(file);
            attributes.apply_to(&fd)?;
            set_times(&fd, c"", attributes.modified, libc::AT_EMPTY_PATH);
        }
        EntryType::Link => {
            let target = entry
                .link_name()
                .map_err(broken)?
                .ok_or_else(|| Error::Layer(format!("{}: hard link to nothing", path.display())))?;
            let target = clean(&target)?;
            if target == path {
                return Err(Error::Layer(format!(
                    "{}: hard link to itself",
                    path.display()
                )));
            }
            remove(parent, name)?;
            hard_link(root, &target, parent, name, path, parents)?;
        }
        EntryType::Symlink => {
            let target = entry.link_name_bytes().unwrap_or_default();
            symlinkat(OsStr::from_bytes(&target), parent, name).map_err(at(path))?;
            fchownat(
                parent,
                name,
                Some(attributes.uid),
                Some(attributes.gid),
                AtFlags::AT_SYMLINK_NOFOLLOW,
            )
            .map_err(at(path))?;
            let name = c_string(name)?;
            set_times(
                parent,
                &name,
                attributes.modified,
                libc::AT_SYMLINK_NOFOLLOW,
            );
        }
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            let (kind, device) = match kind {
                EntryType::Fifo => (SFlag::S_IFIFO, 0),
                kind => {
                    let major = entry.header().device_major().map_err(broken)?.unwrap_or(0);
                    let minor = entry.header().device_minor().map_err(broken)?.unwrap_or(0);
                    if kind == EntryType::Char && (major, minor) == (0, 0) {
                        return Err(Error::Layer(format!(
                            "{}: a device 0:0 would be a whiteout",
                            path.display()
                        )));
                    }
                    let flag = if kind == EntryType::Char {
                        SFlag::S_IFCHR
                    } else {
                        SFlag::S_IFBLK
                    };
                    (flag, nix::sys::stat::makedev(major.into(), minor.into()))
                }
            };
            mknodat(parent, name, kind, Mode::from_bits_truncate(0o600), device)
                .map_err(at(path))?;
            attributes.apply_to_node(parent, name, path)?;
        }
        other => {
            return Err(Error::Layer(format!(
                "{}: unsupported entry type {other:?}",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Links to a file of this layer, or to a copy of a lower layer's file.
fn hard_link(
    root: &Root,
    target: &Path,
    parent: &OwnedFd,
    name: &OsStr,
    path: &Path,
    parents: &[PathBuf],
) -> Result<(), Error> {
    let target_name = target
        .file_name()
        .ok_or_else(|| Error::Layer(format!("{}: hard link to the root", path.display())))?;
    let target_parent = target.parent().unwrap_or(Path::new(""));
    if let Ok(directory) = root.open_directory(target_parent)
        && linkat(&directory, target_name, parent, name, LinkatFlags::empty()).is_ok()
    {
        return Ok(());
    }
    for lower in parents {
        let lower = Root::open(lower)?;
        let Ok(directory) = lower.open_directory(target_parent) else {
            continue;
        };
        let how = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        let Ok(handle) = open_with(&directory, target_name, how, Mode::empty()) else {
            continue;
        };
        // Looked at before it is opened: opening a device or a pipe of the image has effects.
        let handle = std::fs::File::from(handle);
        let metadata = handle.metadata().map_err(broken)?;
        if !metadata.is_file() {
            break;
        }
        let mut source =
            std::fs::File::open(format!("/proc/self/fd/{}", handle.as_raw_fd())).map_err(broken)?;
        use std::os::unix::fs::MetadataExt;
        let how = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
        let fd = open_with(parent, name, how, Mode::from_bits_truncate(0o600)).map_err(at(path))?;
        let mut file = std::fs::File::from(fd);
        io::copy(&mut source, &mut file).map_err(broken)?;
        let attributes = Attributes {
            uid: Uid::from_raw(metadata.uid()),
            gid: Gid::from_raw(metadata.gid()),
            mode: metadata.mode() & 0o7777,
            modified: metadata.mtime().max(0) as u64,
            xattrs: HashMap::new(),
        };
        return attributes.apply_to(&OwnedFd::from(file));
    }
    Err(Error::Layer(format!(
        "{}: hard link to {} which does not exist",
        path.display(),
        target.display()
    )))
}

struct Attributes {
    uid: Uid,
    gid: Gid,
    mode: u32,
    modified: u64,
    xattrs: HashMap<CString, Vec<u8>>,
}

impl Attributes {
    fn of<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Attributes, Error> {
        let mut xattrs = HashMap::new();
        if let Some(extensions) = entry.pax_extensions().map_err(broken)? {
            for extension in extensions {
                let extension = extension.map_err(broken)?;
                let Some(key) = extension.key_bytes().strip_prefix(b"SCHILY.xattr.") else {
                    continue;
                };
                // `trusted.overlay.*` would steer overlayfs itself.
                if key.starts_with(b"trusted.") {
                    continue;
                }
                if let Ok(key) = CString::new(key) {
                    xattrs.insert(key, extension.value_bytes().to_vec());
                }
            }
        }
        let header = entry.header();
        Ok(Attributes {
            uid: Uid::from_raw(header.uid().map_err(broken)? as u32),
            gid: Gid::from_raw(header.gid().map_err(broken)? as u32),
            mode: header.mode().map_err(broken)? & 0o7777,
            modified: header.mtime().unwrap_or(0),
            xattrs,
        })
    }

    /// Owner first (it clears set-id bits), then mode, then extended attributes.
    fn apply_to(&self, fd: &OwnedFd) -> Result<(), Error> {
        nix::unistd::fchown(fd, Some(self.uid), Some(self.gid))
            .and_then(|()| fchmod(fd, Mode::from_bits_truncate(self.mode)))
            .map_err(|errno| Error::Layer(format!("setting attributes: {errno}")))?;
        for (key, value) in &self.xattrs {
            set_xattr_fd(fd, key, value)?;
        }
        Ok(())
    }

    fn apply_to_node(&self, parent: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), Error> {
        fchownat(
            parent,
            name,
            Some(self.uid),
            Some(self.gid),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .map_err(at(path))?;
        // The node was just made by us inside a directory nobody else can reach.
        nix::sys::stat::fchmodat(
            parent,
            name,
            Mode::from_bits_truncate(self.mode),
            nix::sys::stat::FchmodatFlags::FollowSymlink,
        )
        .map_err(at(path))
    }
}

/// A directory that paths cannot leave.
struct Root {
    fd: OwnedFd,
}

impl Root {
    fn open(directory: &Path) -> Result<Root, Error> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let fd = nix::fcntl::open(directory, flags, Mode::empty())
            .map_err(|errno| Error::file(directory)(errno.into()))?;
        Ok(Root { fd })
    }

    fn open_directory(&self, path: &Path) -> Result<OwnedFd, Error> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let how = OpenHow::new()
            .flags(OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(self.fd.as_fd(), path, how).map_err(at(path))
    }

    /// Opens a directory, making what is missing on the way with the attributes the layers below
    /// give it. A link that leads nowhere inside this layer, or a file in the way, gives place to
    /// a directory.
    fn make_parents(&self, path: &Path, parents: &[PathBuf]) -> Result<OwnedFd, Error> {
        if let Ok(fd) = self.open_directory(path) {
            return Ok(fd);
        }
        let mut current = self.open_directory(Path::new(""))?;
        let mut walked = PathBuf::new();
        for component in path.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            walked.push(name);
            current = match self.open_directory(&walked) {
                Ok(fd) => fd,
                Err(_) => {
                    remove(&current, name)?;
                    mkdirat(&current, name, Mode::from_bits_truncate(0o755))
                        .map_err(at(&walked))?;
                    let fd = open_at(&current, name, OFlag::O_DIRECTORY).map_err(at(&walked))?;
                    copy_attributes_from(parents, &walked, &fd)?;
                    fd
                }
            };
        }
        Ok(current)
    }
}

fn copy_attributes_from(parents: &[PathBuf], path: &Path, fd: &OwnedFd) -> Result<(), Error> {
    for lower in parents {
        let Ok(found) = Root::open(lower)?.open_directory(path) else {
            continue;
        };
        let status = nix::sys::stat::fstat(&found).map_err(at(path))?;
        nix::unistd::fchown(
            fd,
            Some(Uid::from_raw(status.st_uid)),
            Some(Gid::from_raw(status.st_gid)),
        )
        .and_then(|()| fchmod(fd, Mode::from_bits_truncate(status.st_mode & 0o7777)))
        .map_err(at(path))?;
        return Ok(());
    }
    Ok(())
}

/// A relative path without `.`; one with `..` is refused rather than guessed at.
fn clean(path: &Path) -> Result<PathBuf, Error> {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => cleaned.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(Error::Layer(format!(
                    "path {} leaves the layer",
                    path.display()
                )));
            }
        }
    }
    Ok(cleaned)
}

fn open_at(parent: &OwnedFd, name: &OsStr, flags: OFlag) -> nix::Result<OwnedFd> {
    open_with(
        parent,
        name,
        flags | OFlag::O_RDONLY | OFlag::O_NOFOLLOW,
        Mode::empty(),
    )
}

/// `name` is one component: the kernel is told not to follow it.
fn open_with(parent: &OwnedFd, name: &OsStr, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    nix::fcntl::openat(parent, name, flags, mode)
}

/// Removes whatever is at `name`, a tree too; nothing there is fine.
fn remove(parent: &OwnedFd, name: &OsStr) -> Result<(), Error> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EISDIR) => {}
        Err(errno) => return Err(at(Path::new(name))(errno)),
    }
    let directory = open_at(parent, name, OFlag::O_DIRECTORY).map_err(at(Path::new(name)))?;
    let copy = directory.try_clone().map_err(broken)?;
    let mut listing = nix::dir::Dir::from_fd(copy).map_err(at(Path::new(name)))?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        let entry = entry.map_err(at(Path::new(name)))?;
        let bytes = entry.file_name().to_bytes();
        if bytes != b"." && bytes != b".." {
            names.push(OsStr::from_bytes(bytes).to_owned());
        }
    }
    for child in names {
        remove(&directory, &child)?;
    }
    unlinkat(parent, name, UnlinkatFlags::RemoveDir).map_err(at(Path::new(name)))
}

/// A filesystem without this kind of attribute is no reason to refuse the image, except for ours.
fn set_xattr_fd(fd: &OwnedFd, key: &std::ffi::CStr, value: &[u8]) -> Result<(), Error> {
    // SAFETY: the pointers are valid for the lengths given and the descriptor is open.
    let result = unsafe {
        libc::fsetxattr(
            fd.as_raw_fd(),
            key.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    match Errno::result(result) {
        Ok(_) => Ok(()),
        Err(Errno::ENOTSUP) if !key.to_bytes().starts_with(b"trusted.") => Ok(()),
        Err(errno) => Err(Error::Layer(format!("setting {key:?}: {errno}"))),
    }
}

/// Best effort: a wrong time is no reason to refuse an image.
fn set_times(fd: &OwnedFd, name: &std::ffi::CStr, modified: u64, flags: i32) {
    let time = libc::timespec {
        tv_sec: modified as libc::time_t,
        tv_nsec: 0,
    };
    let times = [time, time];
    // SAFETY: two timespecs and a terminated name, both alive during the call.
    unsafe { libc::utimensat(fd.as_raw_fd(), name.as_ptr(), times.as_ptr(), flags) };
}

fn c_string(name: &OsStr) -> Result<CString, Error> {
    CString::new(name.as_bytes()).map_err(|error| Error::Layer(error.to_string()))
}

fn broken(error: io::Error) -> Error {
    Error::Layer(error.to_string())
}

fn at(path: &Path) -> impl FnOnce(Errno) -> Error {
    let path = path.display().to_string();
    move |errno| Error::Layer(format!("{path}: {errno}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_would_fill_the_memory_is_refused() {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        let layer = header.as_bytes().chain(io::repeat(b'a').take(1 << 40));
        let directory = tempfile::tempdir().expect("temporary directory");
        let error = apply(layer, directory.path(), &[]).expect_err("refused");
        assert!(error.to_string().contains("too large"), "{error}");
    }

    #[test]
    fn a_large_file_is_not_a_large_header() {
        let mut builder = tar::Builder::new(Vec::new());
        for name in ["one", "two"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(HEADER_BYTES + 1);
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            let content = io::repeat(7).take(HEADER_BYTES + 1);
            builder
                .append_data(&mut header, name, content)
                .expect("entry");
        }
        let archive = builder.into_inner().expect("archive");
        let directory = tempfile::tempdir().expect("temporary directory");
        apply(&archive[..], directory.path(), &[]).expect("applied");
        for name in ["one", "two"] {
            let metadata = std::fs::metadata(directory.path().join(name)).expect("file");
            assert_eq!(metadata.len(), HEADER_BYTES + 1);
        }
    }
}
