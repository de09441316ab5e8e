//! A container's scope: systemd makes it around a process of ours that only waits, libcontainer then
//! puts the container's into it as into any other cgroup. libcontainer's own way to systemd neither
//! waits for it nor gives limits the right way.

use std::{
    fs,
    path::{Path, PathBuf},
};

use dbus::{slice::Scope, systemd};
use nix::{
    sys::{
        prctl::set_pdeathsig,
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork, getpid, getppid, pause},
};

use super::Error;
use crate::spec::resources::to_systemd;

/// A scope that systemd has made for the container. A process of ours keeps it alive until the
/// container's process is in it.
pub struct ReservedScope {
    scope: Scope,
    holder: Pid,
    /// A bundle that names the scope's cgroup by its path.
    pub bundle: PathBuf,
}

impl ReservedScope {
    pub fn reserve(root: &Path, id: &str, bundle: &Path) -> Result<ReservedScope, Error> {
        let file = bundle.join("config.json");
        let bytes = fs::read(&file).map_err(Error::system(file.display().to_string()))?;
        let mut document: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|source| Error::Json {
                what: "config.json",
                source,
            })?;
        let name = document["linux"]["cgroupsPath"]
            .as_str()
            .unwrap_or_default();
        let scope = match name {
            "" => Scope::parse(&format!(":coracle:{id}")),
            name => Scope::parse(name),
        };
        let scope = scope.ok_or_else(|| {
            Error::Container(format!(
                "expected cgroupsPath to be of format \"slice:prefix:name\" for systemd cgroups, got {name:?} instead"
            ))
        })?;
        let limits = to_systemd(&document["linux"]["resources"]).properties();
        document["linux"]["cgroupsPath"] = scope.path().into();
        if let Some(path) = document["root"]["path"].as_str() {
            document["root"]["path"] = bundle.join(path).to_string_lossy().into();
        }
        let reserved = ReservedScope {
            bundle: derived_bundle(root, id),
            holder: start_holder().map_err(Error::system("forking"))?,
            scope,
        };
        let file = reserved.bundle.join("config.json");
        let written = fs::create_dir_all(&reserved.bundle)
            .and_then(|()| fs::write(&file, document.to_string()))
            .map_err(Error::system(file.display().to_string()));
        let (unit, slice) = (reserved.scope.unit(), &reserved.scope.slice);
        let holder = reserved.holder.as_raw().cast_unsigned();
        let made = written.and_then(|()| {
            systemd::blocking(async |mut systemd| {
                systemd.start_scope(&unit, slice, holder, limits).await
            })
            .map_err(|source| Error::Systemd {
                what: format!("making {unit}"),
                source,
            })
        });
        match made {
            Ok(()) => Ok(reserved),
            Err(error) => {
                reserved.release(false);
                Err(error)
            }
        }
    }

    /// Ends the process that keeps the scope. Without a container in it the scope is removed.
    pub fn release(self, has_container: bool) {
        let _ = kill(self.holder, Signal::SIGKILL);
        let _ = waitpid(self.holder, None);
        if !has_container {
            let _ = stop(&self.scope);
            let _ = fs::remove_dir_all(&self.bundle);
        }
    }
}

/// Asks systemd to remove a scope.
pub fn stop(scope: &Scope) -> Result<(), Error> {
    let unit = scope.unit();
    systemd::blocking(async |mut systemd| systemd.stop(&unit).await).map_err(|source| {
        Error::Systemd {
            what: format!("ending {unit}"),
            source,
        }
    })
}

/// Removes the bundle that was derived for a container with a scope.
pub fn remove_bundle(root: &Path, id: &str) {
    let _ = fs::remove_dir_all(derived_bundle(root, id));
}

fn derived_bundle(root: &Path, id: &str) -> PathBuf {
    root.join(format!("{id}.bundle"))
}

/// A process that does nothing and ends with this one.
fn start_holder() -> nix::Result<Pid> {
    let parent = getpid();
    // SAFETY: this process has one thread, so the child may go on using everything.
    match unsafe { fork()? } {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            if set_pdeathsig(Signal::SIGKILL).is_ok() {
                while getppid() == parent {
                    pause();
                }
            }
            // SAFETY: ends this process without running what the parent registered.
            unsafe { libc::_exit(0) }
        }
    }
}
