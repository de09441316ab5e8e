//! Removing every trace of a cluster's containers from the machine, with or without a server.

use std::{fs, io, os::fd::AsFd, path::Path};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::{cgroups::Hierarchies, config::cgroup_roots, remove_tree, sys};

/// How often what was killed is looked for again, each time waiting for it to be gone.
const ROUNDS: usize = 20;

/// Ends every shim and container of the cluster and removes mounts, cgroups, network namespaces
/// and files. Nothing there is fine.
pub fn remove_all(root: &Path, state: &Path, cluster_id: &str) -> io::Result<()> {
    let groups = cgroup_roots(cluster_id);
    let hierarchies = Hierarchies::detect()?;
    kill_shims(state);
    for _ in 0..ROUNDS {
        let own = std::process::id() as i32;
        let pids: Vec<i32> = groups
            .iter()
            .flat_map(|group| hierarchies.processes(group))
            .filter(|pid| *pid != own)
            .collect();
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            kill_and_wait(pid);
        }
    }
    for directory in [state, root] {
        let directory = match fs::canonicalize(directory) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for mount in sys::mounts_under(&directory)?.iter().rev() {
            sys::unmount(mount)?;
        }
        remove_tree::remove(&directory)?;
    }
    for group in &groups {
        hierarchies.remove_if_empty(group);
        hierarchies.remove(group)?;
    }
    Ok(())
}

/// By the pid each shim wrote down, if that process is still the same one.
fn kill_shims(state: &Path) {
    for entry in fs::read_dir(state.join("shims"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(text) = fs::read_to_string(entry.path().join("pid")) else {
            continue;
        };
        let mut fields = text.split_whitespace();
        let (Some(pid), Some(started)) = (fields.next(), fields.next()) else {
            continue;
        };
        if let (Ok(pid), Ok(started)) = (pid.parse(), started.parse())
            && sys::start_time(pid) == Some(started)
        {
            kill_and_wait(pid);
        }
    }
}

/// Returns when the process is gone, or after two seconds.
fn kill_and_wait(pid: i32) {
    let Ok(handle) = sys::pidfd_open(pid) else {
        return;
    };
    let _ = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    );
    let mut fds = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
    let _ = poll(&mut fds, PollTimeout::from(2000u16));
}
