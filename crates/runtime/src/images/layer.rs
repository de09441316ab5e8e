//! Applies one layer tar to a directory that will be an overlayfs lower directory.
//!
//! Every path is resolved by the kernel inside the layer's root (`openat2` with `RESOLVE_IN_ROOT`),
//! so that neither `..` nor a symbolic link, absolute or not, reaches outside. Whiteouts become
//! overlayfs' own form. Nothing outside the directory is read but the parents' attributes.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
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

use super::{
    Error,
    content::Hashing,
    recipe::{Tape, Taped},
};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// How much room is looked for between two looks at the file system's free space.
const SPACE_STEP: u64 = 64 << 20;
/// Directories inside each other; more could neither be opened nor removed reliably.
const DEEPEST: usize = 250;

/// What one layer may take: a small file can unpack to more than any disk holds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub entries: usize,
    /// Bytes of the uncompressed tar.
    pub bytes: u64,
    /// Bytes that must stay free on the file system, but no more than this share of it.
    pub reserve: u64,
    pub reserve_percent: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            entries: 2_000_000,
            bytes: 256 << 30,
            reserve: 256 << 20,
            reserve_percent: 5,
        }
    }
}

/// The most bytes between one file's content and the next one's.
const HEADER_BYTES: u64 = 4 << 20;

/// Refuses to give more than the allowance, and more than `left` in all.
struct Bounded<'a, R> {
    inner: R,
    allowance: &'a Cell<u64>,
    left: u64,
    /// Bytes that may pass until the free space is looked at again.
    unlooked: u64,
    space: &'a dyn Fn() -> io::Result<()>,
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
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::other("the layer unpacks to more than is allowed"))?;
        match self.unlooked.checked_sub(count as u64) {
            Some(rest) => self.unlooked = rest,
            None => {
                (self.space)()?;
                self.unlooked = SPACE_STEP;
            }
        }
        if allowed != u64::MAX {
            self.allowance.set(allowed - count as u64);
        }
        Ok(count)
    }
}

/// Applies the uncompressed tar. `parents` are the layers below, highest first: a directory that
/// the tar only implies takes its attributes from them, as overlayfs shows the topmost ones.
/// Everything is recorded in the recipe; the digests of the files' content are returned by inode.
pub fn apply(
    tar: impl Read,
    directory: &Path,
    parents: &[PathBuf],
    limits: Limits,
    tape: &Tape,
) -> Result<BTreeMap<u64, String>, Error> {
    let root = Root::open(directory)?;
    let space = || enough_space(&root.fd, limits);
    space().map_err(Error::file(directory))?;
    // Long names and attributes are read into memory whole, so the bytes between two files are
    // bounded.
    let allowance = Cell::new(HEADER_BYTES);
    let reader = Bounded {
        inner: Taped { inner: tar, tape },
        allowance: &allowance,
        left: limits.bytes,
        unlooked: SPACE_STEP,
        space: &space,
    };
    let mut digests = BTreeMap::new();
    let mut archive = tar::Archive::new(reader);
    archive.set_ignore_zeros(false);
    let mut directory_times: Vec<(PathBuf, u64)> = Vec::new();
    let mut entries = archive.entries().map_err(broken)?;
    for number in 0.. {
        if number > limits.entries {
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
            Findings {
                directory_times: &mut directory_times,
                digests: &mut digests,
                tape,
            },
        )?;
    }
    // What follows the last entry belongs to the tar too.
    allowance.set(u64::MAX);
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    // Children change the times of their directories, so these come last.
    for (path, modified) in directory_times.into_iter().rev() {
        if let Ok(fd) = root.open_directory(&path) {
            set_times(&fd, c"", modified, libc::AT_EMPTY_PATH);
        }
    }
    Ok(digests)
}

/// Fails when the file system is about to be full.
pub(super) fn enough_space(directory: &impl AsFd, limits: Limits) -> io::Result<()> {
    let found = nix::sys::statvfs::fstatvfs(directory)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
    let share = bytes(found.blocks()) / 100 * limits.reserve_percent;
    if bytes(found.blocks_available()) < limits.reserve.min(share) {
        return Err(Errno::ENOSPC.into());
    }
    Ok(())
}

/// What unpacking a layer collects.
struct Findings<'a> {
    directory_times: &'a mut Vec<(PathBuf, u64)>,
    digests: &'a mut BTreeMap<u64, String>,
    tape: &'a Tape,
}

/// Puts one ordinary entry at `name` inside `parent`.
fn place<R: Read>(
    root: &Root,
    entry: &mut tar::Entry<'_, R>,
    parent: &OwnedFd,
    name: &OsStr,
    path: &Path,
    parents: &[PathBuf],
    findings: Findings<'_>,
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
        too_deep(&fd, path)?;
        attributes.apply_to(&fd)?;
        findings
            .directory_times
            .push((path.to_owned(), attributes.modified));
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
            let mut content = Hashing::new(entry);
            findings.tape.begin_content().map_err(broken)?;
            io::copy(&mut content, &mut file).map_err(broken)?;
            findings.tape.end_content(path).map_err(broken)?;
            let digest = content.finish().map_err(broken)?;
            let fd = OwnedFd::from(file);
            let inode = nix::sys::stat::fstat(&fd).map_err(at(path))?.st_ino;
            findings.digests.insert(inode, digest);
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
            xattrs: xattrs_of(&source),
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
                    too_deep(&fd, &walked)?;
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
        for (key, value) in xattrs_of(&found) {
            set_xattr_fd(fd, &key, &value)?;
        }
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

/// `name` is one component, and the kernel does not follow it if it is a link.
fn open_with(parent: &OwnedFd, name: &OsStr, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    nix::fcntl::openat(parent, name, flags, mode)
}

/// Removes the file or the whole tree at `name`; a missing one is fine.
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

/// Links make paths longer than they look, so the kernel is asked where a new directory lies.
fn too_deep(directory: &OwnedFd, path: &Path) -> Result<(), Error> {
    let place =
        std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).map_err(broken)?;
    match place.components().count() > DEEPEST {
        true => Err(Error::Layer(format!("{} lies too deep", path.display()))),
        false => Ok(()),
    }
}

/// Extended attributes but those that are overlayfs' own. None can be read: there are none.
fn xattrs_of(file: &impl AsRawFd) -> HashMap<CString, Vec<u8>> {
    let fd = file.as_raw_fd();
    let mut names = vec![0_u8; 1 << 16];
    // SAFETY: the buffer is valid for the length given and the descriptor is open.
    let length = unsafe { libc::flistxattr(fd, names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).unwrap_or(0));
    let mut found = HashMap::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let Ok(key) = CString::new(name) else {
            continue;
        };
        if name.starts_with(b"trusted.") {
            continue;
        }
        let mut value = vec![0_u8; 1 << 16];
        // SAFETY: as above; the name ends with a zero.
        let length =
            unsafe { libc::fgetxattr(fd, key.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        if let Ok(length) = usize::try_from(length) {
            value.truncate(length);
            found.insert(key, value);
        }
    }
    found
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

    fn apply_to(tar: impl Read, directory: &Path, limits: Limits) -> Result<(), Error> {
        let recipes = tempfile::tempdir().expect("temporary directory");
        let tape = Tape::create(&recipes.path().join("recipe")).expect("tape");
        apply(tar, directory, &[], limits, &tape).map(|_| ())
    }

    fn archive(entries: &[(EntryType, &str, u64, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (kind, path, size, link) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(*size);
            let content = io::repeat(0).take(*size);
            match link.is_empty() {
                true => builder.append_data(&mut header, path, content),
                false => builder.append_link(&mut header, path, link),
            }
            .expect("entry");
        }
        builder.into_inner().expect("archive")
    }

    #[test]
    fn layers_beyond_the_limits_are_refused() {
        let refused = |tar: &[u8], limits: Limits, why: &str| {
            let directory = tempfile::tempdir().expect("temporary directory");
            let error = apply_to(tar, directory.path(), limits).expect_err(why);
            let text = environment::chain(&error).to_string();
            assert!(text.contains(why), "{text}");
        };
        let limits = Limits::default();
        let large = archive(&[(EntryType::Regular, "zeros", 3 << 20, "")]);
        let few = Limits {
            bytes: 1 << 20,
            ..limits
        };
        refused(&large, few, "more than is allowed");
        let full = Limits {
            reserve: u64::MAX,
            reserve_percent: 200,
            ..limits
        };
        refused(&large, full, "No space left");
        let names: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
        let many: Vec<_> = names
            .iter()
            .map(|name| (EntryType::Regular, name.as_str(), 0, ""))
            .collect();
        let few = Limits {
            entries: 50,
            ..limits
        };
        refused(&archive(&many), few, "too many entries");
        // Depth, plain and through links that each look shallow.
        let deep = "d/".repeat(300);
        refused(
            &archive(&[(EntryType::Directory, &deep, 0, "")]),
            limits,
            "too deep",
        );
        let half = "d/".repeat(140);
        let (link, below) = (format!("{half}d"), format!("down/{half}x"));
        let chained = [
            (EntryType::Directory, half.as_str(), 0, ""),
            (EntryType::Directory, link.as_str(), 0, ""),
            (EntryType::Symlink, "down", 0, link.as_str()),
            (EntryType::Directory, below.as_str(), 0, ""),
        ];
        refused(&archive(&chained), limits, "too deep");
    }

    #[test]
    fn link_loops_and_chains_stay_inside() {
        let outside = tempfile::tempdir().expect("temporary directory");
        let target = outside.path().to_str().expect("plain path").to_owned();
        let directory = tempfile::tempdir().expect("temporary directory");
        let up = "../".repeat(30) + &target;
        let tar = archive(&[
            (EntryType::Symlink, "loop", 0, "loop"),
            (EntryType::Regular, "loop/file", 3, ""),
            (EntryType::Symlink, "one", 0, "two"),
            (EntryType::Symlink, "two", 0, &up),
            (EntryType::Regular, "one/file", 3, ""),
            // A directory that becomes a link while files are put below it.
            (EntryType::Directory, "swap", 0, ""),
            (EntryType::Regular, "swap/before", 3, ""),
            (EntryType::Symlink, "swap", 0, &target),
            (EntryType::Regular, "swap/after", 3, ""),
        ]);
        apply_to(&tar[..], directory.path(), Limits::default()).expect("applied inside");
        let left = std::fs::read_dir(outside.path()).expect("listing").count();
        assert_eq!(left, 0, "nothing came out");
    }

    #[test]
    fn a_header_that_would_fill_the_memory_is_refused() {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        let layer = header.as_bytes().chain(io::repeat(b'a').take(1 << 40));
        let directory = tempfile::tempdir().expect("temporary directory");
        let error = apply_to(layer, directory.path(), Limits::default()).expect_err("refused");
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
        apply_to(&archive[..], directory.path(), Limits::default()).expect("applied");
        for name in ["one", "two"] {
            let metadata = std::fs::metadata(directory.path().join(name)).expect("file");
            assert_eq!(metadata.len(), HEADER_BYTES + 1);
        }
    }
}
