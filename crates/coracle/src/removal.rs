//! Removes a cluster from this machine: everything that carries its id, then its data directory.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};

use crate::claims::Claims;
use crate::foreign_pods;
use crate::kubeconfig;
use crate::layout::{Layout, Settings};
use crate::node_configuration;

/// Removes everything that carries the cluster's id, except its data directory.
pub fn from_machine(layout: &Layout, settings: &Settings) -> Result<()> {
    let id = &settings.cluster_id;
    if let Some(socket) = node_configuration::foreign_runtime(layout, settings)? {
        foreign_pods::remove(&socket, &layout.kubelet().join("pods"))
            .context("removing the cluster's pods from the container runtime")?;
    }
    runtime::remove_all(&layout.runtime(), &settings.run_dir().join("runtime"), id)
        .context("removing the cluster's containers")?;
    network::node::remove_all(id).context("removing the cluster's network interfaces and rules")?;
    unmount_below(&layout.data_dir)?;
    unmount_below(&settings.run_dir())?;
    // The run directory may be a file system of its own.
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

/// Removes the cluster's files from the data directory by their names, so that nothing else is lost
/// where the wrong directory was chosen. Names in `kept` stay.
pub fn data(layout: &Layout, kept: &BTreeSet<OsString>) -> Result<()> {
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
    let is_removed = |path: &&PathBuf| path.file_name().is_none_or(|name| !kept.contains(name));
    for directory in directories.iter().filter(is_removed) {
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
    for file in files.iter().filter(is_removed) {
        match fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", file.display()));
            }
            _ => {}
        }
    }
    // This fails where files remain that are not the cluster's. They stay.
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
