//! The machine as the server uses it: the configuration, the clock, the cgroup hierarchies, and the
//! place of each file of a sandbox or a container. It knows no sandbox and no container.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use environment::Environment;

use super::Error;
use crate::{
    cgroups::Hierarchies,
    config::{CgroupDriver, Config, cgroup_roots},
    pause,
    records::Directory,
    sandbox::{files::Files, userns},
    shim::Layout,
    snapshots::Snapshot,
    sys,
};

pub struct Host {
    config: Config,
    environment: Environment,
    hierarchies: Hierarchies,
    container_directories: Directory,
    /// Whether a thread is preparing the kernel for processes that change their cgroup.
    preparing_cgroup_moves: AtomicBool,
}

impl Host {
    /// Makes the directories of the server, closed to other users, and looks for the cgroups.
    pub fn open(config: Config, environment: Environment) -> Result<Host, Error> {
        close_directories(&config)?;
        let hierarchies = Hierarchies::detect().map_err(Error::file("/proc/self/mountinfo"))?;
        let is_unified = hierarchies.legacy.is_empty();
        check_driver(
            config.cgroup_driver,
            dbus::systemd::is_running(),
            is_unified,
        )?;
        let host = Host {
            container_directories: Directory::of_containers(&config.root),
            config,
            environment,
            hierarchies,
            preparing_cgroup_moves: AtomicBool::new(false),
        };
        let pause_root = host.pause_root();
        fs::create_dir_all(&pause_root).map_err(Error::file(&pause_root))?;
        pause::write_root(&pause_root).map_err(Error::file(&pause_root))?;
        Ok(host)
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub fn hierarchies(&self) -> &Hierarchies {
        &self.hierarchies
    }

    pub fn now_nanos(&self) -> i64 {
        self.environment.now_micros() * 1000
    }

    /// 64 hexadecimal characters, as other runtimes make them.
    pub fn new_id(&self) -> String {
        let mut bytes = [0; 32];
        self.environment.fill(&mut bytes);
        hex::encode(bytes)
    }

    /// Processes are about to be put into cgroups. The kernel's preparation for the first of these
    /// moves takes a while, so it runs on a thread while the caller prepares everything else.
    pub fn prepare_cgroup_moves(self: &Arc<Self>) {
        if self.preparing_cgroup_moves.swap(true, Ordering::AcqRel) {
            return;
        }
        let host = self.clone();
        tokio::task::spawn_blocking(move || {
            host.hierarchies.make_ready_for_moves();
            host.preparing_cgroup_moves.store(false, Ordering::Release);
        });
    }

    /// Removes the cluster's cgroups that contain no process; those of live pods stay. It blocks.
    pub fn remove_empty_cgroups(&self) {
        let [root, slice] = cgroup_roots(&self.config.cluster_id);
        let (pods, shims) = (
            self.config.cgroup_of("pods"),
            self.config.cgroup_of("shims"),
        );
        for group in [pods, shims, root, slice] {
            self.hierarchies.remove_if_empty(&group);
        }
    }

    /// The root of every pause process. It lies below a closed directory, since it must itself be
    /// open to the pause process.
    pub fn pause_root(&self) -> PathBuf {
        self.config.state.join("pause").join("root")
    }

    pub fn shim_directory(&self, sandbox: &str) -> PathBuf {
        self.config.state.join("shims").join(sandbox)
    }

    /// The OCI bundle of a container, or of a sandbox's pause process (then both ids are the same).
    pub fn bundle(&self, sandbox: &str, container: &str) -> PathBuf {
        Layout(&self.shim_directory(sandbox)).bundle(container)
    }

    pub fn files(&self, sandbox: &str) -> Files {
        Files(self.shim_directory(sandbox).join("files"))
    }

    pub fn snapshot(&self, container: &str) -> Snapshot {
        let rootfs = self.config.state.join("rootfs").join(container);
        Snapshot::new(self.container_directories.of(container), rootfs)
    }

    /// The directory that holds one directory per container.
    pub fn container_directories(&self) -> &Path {
        self.container_directories.path()
    }

    /// The file that keeps a pod's user namespace alive, if the pod has one.
    pub fn userns(&self, sandbox: &str) -> PathBuf {
        userns::path(&self.config.state, &self.config.cluster_id, sandbox)
    }

    pub fn shim_cgroup(&self, sandbox: &str) -> String {
        let name = match self.config.cgroup_driver {
            CgroupDriver::Cgroupfs => sandbox.to_owned(),
            CgroupDriver::Systemd => format!("shim-{sandbox}"),
        };
        self.config
            .cgroup_below(&self.config.cgroup_of("shims"), &name)
    }

    /// The mounts of a container (or a pause process) of a pod with a user namespace, at a place that
    /// the pod's users can reach.
    pub fn reachable(&self, container: &str) -> PathBuf {
        self.reachable_directories().join(container)
    }

    /// The directory that holds every [`Host::reachable`] one.
    pub fn reachable_directories(&self) -> PathBuf {
        self.config.state.join(REACHABLE)
    }

    /// Lets the users of pods with a user namespace pass through to what is [`Host::reachable`]: an
    /// OCI command takes on their rights before it has mounted everything.
    pub fn open_passage(&self) -> Result<(), Error> {
        let own = [self.config.state.clone(), self.reachable_directories()];
        for path in self.config.passage.iter().chain(&own) {
            let metadata = fs::metadata(path).map_err(Error::file(path))?;
            let mode = metadata.permissions().mode() & 0o7777;
            if mode & 0o11 != 0o11 {
                let permissions = fs::Permissions::from_mode(mode | 0o11);
                fs::set_permissions(path, permissions).map_err(Error::file(path))?;
            }
        }
        Ok(())
    }
}

const REACHABLE: &str = "mapped";

fn check_driver(driver: CgroupDriver, has_systemd: bool, is_unified: bool) -> Result<(), Error> {
    match driver == CgroupDriver::Systemd && !(has_systemd && is_unified) {
        false => Ok(()),
        true => Err(Error::Precondition(
            "the systemd cgroup driver needs systemd and unified cgroups (v2)".into(),
        )),
    }
}

/// Nothing of ours is open to others, neither below a closed directory nor where a passage is open
/// (see [`Host::open_passage`]). Directories that an earlier version left open are closed.
fn close_directories(config: &Config) -> Result<(), Error> {
    let close = |path: &Path| sys::private_directory(path).map_err(Error::file(path));
    close(&config.root)?;
    close(&config.state)?;
    for name in [
        "pause", "shims", "rootfs", "netns", "userns", "consoles", "cni", REACHABLE,
    ] {
        close(&config.state.join(name))?;
    }
    let reachable = fs::read_dir(config.state.join(REACHABLE));
    for entry in reachable.into_iter().flatten().flatten() {
        let mode = entry.metadata().map(|found| found.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o7 != 0) {
            close(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systemd_driver_needs_systemd_and_unified_cgroups() {
        let is_accepted =
            |driver, has_systemd, is_unified| check_driver(driver, has_systemd, is_unified).is_ok();
        assert!(is_accepted(CgroupDriver::Systemd, true, true));
        assert!(!is_accepted(CgroupDriver::Systemd, true, false));
        assert!(!is_accepted(CgroupDriver::Systemd, false, true));
        assert!(is_accepted(CgroupDriver::Cgroupfs, false, false));
    }
}
