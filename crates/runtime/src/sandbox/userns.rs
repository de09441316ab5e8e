//! A pod's user namespace: the users of the host that its own are mapped to, and the namespace itself,
//! kept alive by a bind mount together with the network namespace that it owns.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use cri::v1::{IdMapping, NamespaceMode, UserNamespace};
use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};

use super::netns;
use crate::sys;

/// The range of host users and the range of host groups that a pod's own are mapped to; inside the pod
/// both begin at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    pub host_uid: u32,
    pub host_gid: u32,
    pub uids: u32,
    pub gids: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unsupported user namespace mode: {0}")]
    Mode(&'static str),
    #[error("user namespace mode is NODE but {0} mappings are given")]
    Unwanted(&'static str),
    #[error("user namespaces are supported with exactly one mapping of {0}, not {1}")]
    Count(&'static str, usize),
    #[error("container ID 0 must be mapped first, not {0}")]
    NoRoot(u32),
}

impl Mapping {
    /// `None` means that the pod has the host's users.
    pub fn requested(options: Option<&UserNamespace>) -> Result<Option<Mapping>, Error> {
        let Some(options) = options else {
            return Ok(None);
        };
        match options.mode() {
            NamespaceMode::Node => match (options.uids.is_empty(), options.gids.is_empty()) {
                (true, true) => Ok(None),
                (false, _) => Err(Error::Unwanted("uid")),
                (_, false) => Err(Error::Unwanted("gid")),
            },
            NamespaceMode::Pod => {
                let (uid, gid) = (one(&options.uids, "uids")?, one(&options.gids, "gids")?);
                Ok(Some(Mapping {
                    host_uid: uid.host_id,
                    host_gid: gid.host_id,
                    uids: uid.length,
                    gids: gid.length,
                }))
            }
            other => Err(Error::Mode(other.as_str_name())),
        }
    }
}

fn one<'a>(mappings: &'a [IdMapping], what: &'static str) -> Result<&'a IdMapping, Error> {
    match mappings {
        [mapping] if mapping.container_id == 0 => Ok(mapping),
        [mapping] => Err(Error::NoRoot(mapping.container_id)),
        other => Err(Error::Count(what, other.len())),
    }
}

/// `<state>/userns/<cluster>-<sandbox>`.
pub fn path(state: &Path, cluster_id: &str, sandbox: &str) -> PathBuf {
    state.join("userns").join(format!("{cluster_id}-{sandbox}"))
}

/// Makes both namespaces. They begin with a process of their own, since a process with threads may
/// not change its users; it runs `idle` (any program that waits) until they are pinned.
pub async fn create(
    idle: PathBuf,
    mapping: Mapping,
    user: PathBuf,
    network: PathBuf,
) -> io::Result<()> {
    tokio::task::spawn_blocking(move || {
        let made = make(&idle, mapping, &user, &network);
        if made.is_err() {
            let _ = netns::remove(&user);
            let _ = netns::remove(&network);
        }
        made
    })
    .await
    .unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn make(idle: &Path, mapping: Mapping, user: &Path, network: &Path) -> io::Result<()> {
    for path in [user, network] {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        File::create(path)?;
    }
    let mut command = Command::new(idle);
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
            netns::raise_loopback()
        });
    }
    let mut child = command.spawn()?;
    let directory = PathBuf::from(format!("/proc/{}", child.id()));
    let pinned = (|| {
        let line = |host, length| format!("0 {host} {length}\n");
        fs::write(
            directory.join("uid_map"),
            line(mapping.host_uid, mapping.uids),
        )?;
        fs::write(
            directory.join("gid_map"),
            line(mapping.host_gid, mapping.gids),
        )?;
        sys::bind_mount(&directory.join("ns/user"), user)?;
        sys::bind_mount(&directory.join("ns/net"), network)?;
        Ok(())
    })();
    child.kill()?;
    child.wait()?;
    pinned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(container_id: u32) -> IdMapping {
        IdMapping {
            container_id,
            host_id: 100_000,
            length: 65536,
        }
    }

    fn check(mode: NamespaceMode, mappings: &[IdMapping], expected: Result<bool, Error>) {
        let options = UserNamespace {
            mode: mode.into(),
            uids: mappings.to_vec(),
            gids: mappings.to_vec(),
        };
        let found = Mapping::requested(Some(&options)).map(|found| found.is_some());
        assert_eq!(found, expected);
    }

    #[test]
    fn exactly_one_mapping_that_begins_at_root_is_accepted() {
        assert_eq!(Mapping::requested(None), Ok(None));
        check(NamespaceMode::Node, &[], Ok(false));
        check(
            NamespaceMode::Node,
            &[mapping(0)],
            Err(Error::Unwanted("uid")),
        );
        check(NamespaceMode::Pod, &[mapping(0)], Ok(true));
        check(NamespaceMode::Pod, &[mapping(1)], Err(Error::NoRoot(1)));
        check(NamespaceMode::Pod, &[], Err(Error::Count("uids", 0)));
        check(
            NamespaceMode::Pod,
            &[mapping(0), mapping(0)],
            Err(Error::Count("uids", 2)),
        );
        check(NamespaceMode::Container, &[], Err(Error::Mode("CONTAINER")));
        check(NamespaceMode::Target, &[], Err(Error::Mode("TARGET")));
    }
}
