//! Runs one more process in a container. libcontainer's own way applies neither seccomp nor the
//! user, so this module does it: it joins the container's cgroups and namespaces, forks (a pid
//! namespace only takes children), and the child becomes the process.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use nix::{
    sched::{CloneFlags, setns},
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, fork},
};
use oci_spec::runtime::{LinuxNamespaceType, Process, Spec};

use super::{
    Error, lifecycle,
    process::{become_process, check_user, read_json},
};
use crate::{cgroups::Hierarchies, sys};

/// 1. Read everything that lies on the host. 2. Join cgroups, then namespaces. 3. Fork; the child
///    becomes the process, the parent reports its pid, or why it failed.
pub fn exec(
    root: &Path,
    id: &str,
    process_file: &Path,
    pid_file: Option<PathBuf>,
    detach: bool,
    console: Option<&Path>,
) -> Result<u8, Error> {
    let container = lifecycle::load(root, id)?;
    let init = container
        .pid()
        .ok_or_else(|| Error::Container(format!("container {id} is not running")))?;
    let process: Process = read_json(process_file, "process")?;
    check_user(process.user())?;
    let spec: Spec = read_json(&container.bundle().join("config.json"), "config.json")?;
    let pid_file = pid_file
        .map(|path| File::create(&path).map_err(Error::system(path.display().to_string())))
        .transpose()?;
    // The socket lies on the host, whose file system cannot be reached later.
    let console = console
        .filter(|_| process.terminal().unwrap_or(false))
        .map(|path| sys::connect(path).map_err(Error::system("connecting the console socket")))
        .transpose()?;
    let (mut reader, writer) = std::io::pipe().map_err(Error::system("making a pipe"))?;
    let handle = sys::pidfd_open(init.as_raw()).map_err(Error::system("finding the container"))?;
    if let Some(adjustment) = process.oom_score_adj() {
        // Best effort: lowering it needs a capability.
        let _ = fs::write("/proc/self/oom_score_adj", adjustment.to_string());
    }
    join_cgroups(init.as_raw())?;
    let _ = nix::sys::prctl::set_dumpable(false);
    join_namespaces(&handle, &spec)?;
    // SAFETY: this process has one thread, so the child may go on using everything.
    match unsafe { fork() }.map_err(Error::system("forking"))? {
        ForkResult::Child => {
            drop(reader);
            let seccomp = spec
                .linux()
                .as_ref()
                .and_then(|linux| linux.seccomp().as_ref());
            let mut writer = writer;
            let Err(error) = become_process(&process, seccomp, console);
            let _ = write!(writer, "{}", environment::chain(&error));
            std::process::exit(127)
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut failure = String::new();
            reader
                .read_to_string(&mut failure)
                .map_err(Error::system("waiting for the process"))?;
            if !failure.is_empty() {
                let _ = waitpid(child, None);
                return Err(Error::Container(format!("exec failed: {failure}")));
            }
            if let Some(mut file) = pid_file {
                write!(file, "{child}").map_err(Error::system("writing the pid file"))?;
            }
            if detach {
                return Ok(0);
            }
            match waitpid(child, None).map_err(Error::system("waiting for the process"))? {
                WaitStatus::Exited(_, code) => Ok(code as u8),
                WaitStatus::Signaled(_, signal, _) => Ok(128 + signal as u8),
                other => Err(Error::Container(format!("unexpected end {other:?}"))),
            }
        }
    }
}

/// Joins every cgroup that the container's first process is in.
fn join_cgroups(init: i32) -> Result<(), Error> {
    let hierarchies = Hierarchies::detect().map_err(Error::system("reading the cgroup mounts"))?;
    let memberships = fs::read_to_string(format!("/proc/{init}/cgroup"))
        .map_err(Error::system("reading the container's cgroups"))?;
    for line in memberships.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
            continue;
        };
        let directory = match controllers.split(',').next() {
            Some("") | None => hierarchies.unified_path(group),
            Some(first) => hierarchies.legacy_path(first, group),
        };
        let Some(directory) = directory.filter(|_| group != "/") else {
            continue;
        };
        fs::write(directory.join("cgroup.procs"), "0")
            .map_err(Error::system(directory.display().to_string()))?;
    }
    Ok(())
}

fn join_namespaces(init: &OwnedFd, spec: &Spec) -> Result<(), Error> {
    let mut flags = CloneFlags::empty();
    let namespaces = spec
        .linux()
        .as_ref()
        .and_then(|linux| linux.namespaces().as_ref());
    for namespace in namespaces.into_iter().flatten() {
        flags |= match namespace.typ() {
            LinuxNamespaceType::Mount => CloneFlags::CLONE_NEWNS,
            LinuxNamespaceType::Cgroup => CloneFlags::CLONE_NEWCGROUP,
            LinuxNamespaceType::Uts => CloneFlags::CLONE_NEWUTS,
            LinuxNamespaceType::Ipc => CloneFlags::CLONE_NEWIPC,
            LinuxNamespaceType::User => CloneFlags::CLONE_NEWUSER,
            LinuxNamespaceType::Pid => CloneFlags::CLONE_NEWPID,
            LinuxNamespaceType::Network => CloneFlags::CLONE_NEWNET,
            LinuxNamespaceType::Time => CloneFlags::empty(),
        };
    }
    setns(init, flags).map_err(Error::system("joining the container's namespaces"))
}
