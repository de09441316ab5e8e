//! Who a container runs as, looked up in the image's own `/etc/passwd` and `/etc/group`.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::Mode,
    unistd::{Gid, Uid, fchownat},
};

use super::id::{self, Id};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unable to find user {0}: no matching entries in passwd file")]
    NoUser(String),
    #[error("unable to find group {0}: no matching entries in group file")]
    NoGroup(String),
    #[error("user group is specified without user")]
    GroupWithoutUser,
    #[error("invalid user or group {0}: uids and gids must be in range 0-2147483647")]
    OutOfRange(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, the primary one first.
    pub groups: Vec<u32>,
}

/// What was asked for.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// `user`, `uid`, `user:group`… from the security context or the image.
    pub user: String,
    pub supplemental: &'a [i64],
    /// Leave out the groups that the image's `/etc/group` lists the user in.
    pub strict: bool,
}

/// Reads the two files once and decides.
pub fn resolve(rootfs: &Path, request: &Request<'_>) -> Result<Identity, Error> {
    let passwd = read_inside(rootfs, "etc/passwd");
    let group = read_inside(rootfs, "etc/group");
    decide(&passwd, &group, request)
}

fn decide(passwd: &str, group: &str, request: &Request<'_>) -> Result<Identity, Error> {
    let (user, wanted_group) = match request.user.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (request.user.as_str(), None),
    };
    if user.is_empty() && wanted_group.is_some() {
        return Err(Error::GroupWithoutUser);
    }
    let user = if user.is_empty() { "0" } else { user };
    let is_id = |text: &str, wanted: u32| id::read(text) == Id::Number(wanted);
    // A number is a number, regardless of the names of the image's users: else an image with a user called
    // 1000 and the id 0 would run as root where 1000 was asked for.
    let (entry, asked) = match id::read(user) {
        Id::OutOfRange(_) => return Err(Error::OutOfRange(user.into())),
        Id::Number(uid) => {
            let found = rows(passwd).find(|fields| fields.len() > 3 && is_id(fields[2], uid));
            (found, Some(uid))
        }
        Id::Name(name) => {
            let found = rows(passwd).find(|fields| fields.len() > 3 && fields[0] == name);
            (found, None)
        }
    };
    let (name, uid, default_gid) = match (&entry, asked) {
        (Some(fields), _) => (fields[0], number(fields[2])?, number(fields[3])?),
        (None, Some(uid)) => ("", uid, 0),
        (None, None) => return Err(Error::NoUser(user.into())),
    };
    let gid = match wanted_group.map(|wanted| (wanted, id::read(wanted))) {
        None => default_gid,
        Some((_, Id::Number(gid))) => gid,
        Some((wanted, Id::OutOfRange(_))) => return Err(Error::OutOfRange(wanted.into())),
        Some((wanted, Id::Name(_))) => {
            let mut rows = rows(group);
            let fields = rows.find(|fields| fields.len() > 2 && fields[0] == wanted);
            let fields = fields.ok_or_else(|| Error::NoGroup(wanted.into()))?;
            number(fields[2])?
        }
    };
    let mut groups = vec![gid];
    if !request.strict && !name.is_empty() {
        let is_member = |fields: &Vec<&str>| {
            fields.len() > 3 && fields[3].split(',').any(|member| member == name)
        };
        for fields in rows(group).filter(is_member) {
            groups.push(number(fields[2])?);
        }
    }
    for gid in request.supplemental {
        groups.push(id::in_range(*gid).ok_or_else(|| Error::OutOfRange(gid.to_string()))?);
    }
    let mut seen = std::collections::BTreeSet::new();
    groups.retain(|gid| seen.insert(*gid));
    Ok(Identity { uid, gid, groups })
}

/// An id of `/etc/passwd` or `/etc/group`; one that cannot be read is refused, not taken for 0.
fn number(text: &str) -> Result<u32, Error> {
    match id::read(text) {
        Id::Number(id) => Ok(id),
        _ => Err(Error::OutOfRange(text.into())),
    }
}

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.trim().split(':').collect())
}

/// A file of the image, or nothing; links inside it cannot lead outside.
fn read_inside(rootfs: &Path, path: &str) -> String {
    let mut text = String::new();
    // Looked at before it is opened: opening a device or a pipe that the image made has effects.
    if let Some(handle) = open_inside(rootfs, Path::new(path), OFlag::O_PATH)
        && handle.metadata().is_ok_and(|metadata| metadata.is_file())
        && let Ok(mut file) = File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
    {
        // A megabyte of users is enough for anyone.
        let _ = file.by_ref().take(1 << 20).read_to_string(&mut text);
    }
    text
}

fn open_inside(rootfs: &Path, path: &Path, flags: OFlag) -> Option<File> {
    let root = File::open(rootfs).ok()?;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(root.as_fd(), path, how).ok().map(File::from)
}

/// Where a path inside a directory really is, links followed but never to the outside.
pub fn find_inside(root: &Path, path: &Path) -> Option<PathBuf> {
    let path = path.strip_prefix("/").unwrap_or(path);
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let found = open_inside(root, path, OFlag::O_PATH)?;
    std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()
}

/// Makes a directory of the container's file system if it is not there, never outside of it. It
/// belongs to `owner`, who is the container's root as the host sees it.
pub fn make_directory_inside(rootfs: &Path, path: &Path, owner: (u32, u32)) -> std::io::Result<()> {
    let mut walked = PathBuf::new();
    for component in path.components() {
        let std::path::Component::Normal(name) = component else {
            continue;
        };
        let parent = if walked.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            walked.clone()
        };
        walked.push(name);
        if open_inside(rootfs, &walked, OFlag::O_PATH).is_some() {
            continue;
        }
        let directory = open_inside(rootfs, &parent, OFlag::O_DIRECTORY)
            .ok_or(std::io::ErrorKind::NotADirectory)?;
        nix::sys::stat::mkdirat(&directory, name, Mode::from_bits_truncate(0o755))?;
        if owner != (0, 0) {
            let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
            let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
            fchownat(&directory, name, Some(uid), Some(gid), flags)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:1000:50:Web:/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nstaff:x:50:\nextra:x:60:web,other\n";

    fn check(user: &str, supplemental: &[i64], strict: bool, expected: Option<(u32, u32, &[u32])>) {
        let request = Request {
            user: user.into(),
            supplemental,
            strict,
        };
        let found = decide(PASSWD, GROUP, &request).ok();
        let expected = expected.map(|(uid, gid, groups)| Identity {
            uid,
            gid,
            groups: groups.to_vec(),
        });
        assert_eq!(found, expected, "{user}");
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        check("", &[], false, Some((0, 0, &[0])));
        check("web", &[], false, Some((1000, 50, &[50, 60])));
        check("web", &[7], true, Some((1000, 50, &[50, 7])));
        check("1000", &[7, 60], false, Some((1000, 50, &[50, 60, 7])));
        check("1000:extra", &[], true, Some((1000, 60, &[60])));
        check("4242", &[], false, Some((4242, 0, &[0])));
        check("4242:4343", &[], false, Some((4242, 4343, &[4343])));
        check("nobody", &[], false, None);
        check("web:nogroup", &[], false, None);
        check(":50", &[], false, None);
    }

    #[test]
    fn ids_that_no_user_can_have_are_refused() {
        for (user, supplemental) in [
            ("4294967295", &[][..]),
            ("4294967296", &[]),
            ("2147483648", &[]),
            ("-1", &[]),
            (" 0", &[]),
            ("99999999999999999999", &[]),
            ("web:-1", &[]),
            ("web:4294967295", &[]),
            ("web", &[-1]),
            ("web", &[4_294_967_295]),
        ] {
            check(user, supplemental, false, None);
        }
        for (user, uid) in [("+0", 0), ("00", 0), ("-0", 0), ("01000", 1000)] {
            let gid = if uid == 0 { 0 } else { 50 };
            let groups: &[u32] = if uid == 0 { &[0] } else { &[50, 60] };
            check(user, &[], false, Some((uid, gid, groups)));
        }
    }

    #[test]
    fn ids_out_of_range_in_the_files_of_an_image_are_refused() {
        let passwd = "minus:x:-1:0::/:\nbig:x:4294967296:0::/:\nlast:x:4294967295:0::/:\n\
                      odd:x:7::/:/\nfine:x:8:8::/:\n4294967296:x:0:0::/:\n-1:x:0:0::/:\n";
        let group = "huge:x:4294967295:\nmembers:x:-5:fine\n";
        let decide = |user: &str, strict: bool| {
            let request = Request {
                user: user.into(),
                supplemental: &[],
                strict,
            };
            decide(passwd, group, &request)
        };
        for user in [
            "minus",
            "big",
            "last",
            "odd",
            "4294967296",
            "-1",
            "fine:huge",
        ] {
            let refused = decide(user, true);
            assert!(matches!(refused, Err(Error::OutOfRange(_))), "{user}");
        }
        assert_eq!(decide("fine", true).expect("in range").uid, 8);
        assert!(decide("fine", false).is_err(), "one of its groups is not");
    }

    #[test]
    fn a_path_inside_never_leads_out() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("/a", root.join("link")).unwrap();
        let find = |path: &str| find_inside(&root, Path::new(path));
        assert_eq!(find(""), Some(root.clone()));
        assert_eq!(find("link/b"), Some(root.join("a/b")));
        assert_eq!(find("../../etc"), None);
        assert_eq!(find("none"), None);
    }

    #[test]
    fn an_image_cannot_give_a_number_another_meaning() {
        let request = Request {
            user: "1000:2000".into(),
            supplemental: &[],
            strict: false,
        };
        let found = decide("1000:x:0:0::/:/bin/sh\n", "2000:x:0:\n", &request).expect("numbers");
        assert_eq!((found.uid, found.gid), (1000, 2000));
    }
}
