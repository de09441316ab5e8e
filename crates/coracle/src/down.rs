//! `coracle down`: stop the server; with `--delete`, remove everything that carries the cluster's
//! id from the machine: processes, mounts, namespaces, links, rules, cgroups, files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use nix::mount::{MntFlags, umount2};

use crate::agent;
use crate::claims::Claims;
use crate::cli::DEFAULT_DATA_DIR;
use crate::foreign_pods;
use crate::keeper;
use crate::kubeconfig;
use crate::layout::{Layout, Settings};
use crate::privileges;

#[derive(Args)]
pub struct DownArguments {
    /// Data directory of the cluster
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// End its pods too and remove every trace of the cluster from this machine
    #[arg(long)]
    delete: bool,
}

/// What goes on without a server, and what does not.
const STOPPED: &str = "Pods go on and Services keep their endpoints, but the cluster's DNS does not \
                       answer until the next `coracle up`.";

pub fn run(arguments: DownArguments) -> Result<ExitCode> {
    privileges::need_root("coracle down")?;
    if !arguments.data_dir.exists() {
        tell!("No cluster in {}.", arguments.data_dir.display());
        return Ok(ExitCode::SUCCESS);
    }
    let layout = Layout::existing(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    if let Some(running) = keeper::running(&layout)? {
        keeper::stop(&layout, running)?;
        tell!("Stopped.");
        if !arguments.delete {
            tell!("{STOPPED}");
        }
    } else {
        tell!("No server runs in {}.", layout.data_dir.display());
    }
    if arguments.delete {
        delete(&layout)?;
        tell!("Removed everything of {}.", layout.data_dir.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// In the order in which things hold on to each other:
/// 1. containers and shims, which hold mounts, namespaces and cgroups;
/// 2. links, routes and rules;
/// 3. mounts below our directories;
/// 4. cgroups, empty by now;
/// 5. the run directory, the claims (which restores sysctls), and last the data directory, so
///    that an interrupted delete can be asked again.
fn delete(layout: &Layout) -> Result<()> {
    // A user's file that we cannot change must not keep the cluster here.
    let authority = fs::read_to_string(layout.pki().join("ca.crt")).unwrap_or_default();
    if let Err(error) = kubeconfig::withdraw(layout, &authority) {
        complain!("warning: the cluster's entries stay in a kubeconfig: {error:#}");
    }
    // Images may have been imported before the first start.
    if let Some(settings) = layout.settings()? {
        remove_from_machine(layout, &settings)?;
    }
    remove_data(layout, &BTreeSet::new())
}

/// Removes everything but the data directory.
pub fn remove_from_machine(layout: &Layout, settings: &Settings) -> Result<()> {
    let id = &settings.cluster_id;
    if let Some(socket) = agent::foreign_runtime(layout, settings)? {
        foreign_pods::remove(&socket, &layout.kubelet().join("pods"))
            .context("removing pods from the container runtime")?;
    }
    runtime::remove_all(&layout.runtime(), &settings.run_dir().join("runtime"), id)
        .context("removing containers")?;
    network::node::remove_all(id).context("removing network parts")?;
    unmount_below(&layout.data_dir)?;
    unmount_below(&settings.run_dir())?;
    // It may be a file system of its own.
    let _ = umount2(&settings.run_dir(), MntFlags::MNT_DETACH);
    remove_cgroups(&settings.cgroup_root())?;
    remove_dir(&settings.run_dir())?;
    Claims::lock()?.release(id)
}

/// Unmounts everything below `dir`, the newest mount first.
fn unmount_below(dir: &Path) -> Result<()> {
    let points = files::mount_table::mount_points_below(dir)?;
    for point in points.iter().rev().filter(|point| *point != dir) {
        umount2(point, MntFlags::MNT_DETACH)
            .with_context(|| format!("unmounting {}", point.display()))?;
    }
    Ok(())
}

/// Removes our cgroups in every hierarchy (v1 has one per controller, v2 a single one).
fn remove_cgroups(cgroup: &str) -> Result<()> {
    let root = Path::new("/sys/fs/cgroup");
    let name = cgroup.trim_start_matches('/');
    let mut hierarchies = vec![root.to_path_buf()];
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            hierarchies.push(entry.path());
        }
    }
    for hierarchy in hierarchies {
        let path = hierarchy.join(name);
        if path.is_dir() {
            remove_cgroup(&path)?;
        }
    }
    Ok(())
}

/// Depth first: a cgroup can be removed when it has no children and no processes.
fn remove_cgroup(path: &Path) -> Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroup(&entry.path())?;
        }
    }
    fs::remove_dir(path).with_context(|| format!("removing cgroup {}", path.display()))
}

/// Removes what a cluster keeps, by name, so that a wrongly chosen directory loses nothing else.
/// What is named in `kept` stays.
pub fn remove_data(layout: &Layout, kept: &BTreeSet<OsString>) -> Result<()> {
    let place = |name: &str| layout.data_dir.join(name);
    let mut directories: Vec<PathBuf> = [
        "store",
        "timelines",
        "pki",
        "kubelet",
        "logs",
        "runtime",
        "cni",
        "local-path",
    ]
    .map(place)
    .to_vec();
    // Stores that a restored snapshot replaced.
    for entry in fs::read_dir(&layout.data_dir)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("store.") {
            directories.push(entry.path());
        }
    }
    let goes = |path: &&PathBuf| path.file_name().is_none_or(|name| !kept.contains(name));
    for directory in directories.iter().filter(goes) {
        remove_dir(directory)?;
    }
    let files = [
        layout.server_log(),
        layout.keeper_file(),
        layout.lock_file(),
        layout.kubeconfig(),
        layout.nodes_file(),
        kubeconfig::record(layout),
        place("cluster.json"),
    ];
    for file in files.iter().filter(goes) {
        match fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                bail!("removing {}: {error}", file.display());
            }
            _ => {}
        }
    }
    // Fails when something that is not ours lies there; then it stays.
    let _ = fs::remove_dir(&layout.data_dir);
    Ok(())
}

fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}
