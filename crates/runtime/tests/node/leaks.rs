//! Everything that a runtime could leave behind, listed, so that before and after can be compared:
//! processes, zombies, mounts, namespaces, cgroups, links, addresses and files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail};

use super::server::Server;

pub type Inventory = BTreeSet<String>;

/// What there is of the server's making right now.
pub fn inventory(server: &Server) -> Inventory {
    let mut found = Inventory::new();
    processes(server, &mut found);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let directory = server.directory.to_string_lossy().into_owned();
    // A namespace that something holds is a mount of nsfs here, or belongs to a process above.
    for point in table.lines().filter_map(|line| line.split(' ').nth(4)) {
        if point.starts_with(&directory) {
            found.insert(format!("mount {point}"));
        }
    }
    for hierarchy in fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten()
    {
        if fs::symlink_metadata(hierarchy.path()).is_ok_and(|kind| kind.is_dir()) {
            for name in [
                format!("coracle-{}", server.cluster_id),
                format!("coracle_{}.slice", server.cluster_id),
            ] {
                let group = match hierarchy.file_name().to_string_lossy() == name {
                    true => hierarchy.path(),
                    false => hierarchy.path().join(name),
                };
                tree("cgroup", &group, &|path| path.is_dir(), &mut found);
            }
        }
    }
    let bridge = format!("crt{}", server.cluster_id);
    let ports = PathBuf::from(format!("/sys/class/net/{bridge}/brif"));
    for port in fs::read_dir(ports).into_iter().flatten().flatten() {
        found.insert(format!("link {}", port.file_name().to_string_lossy()));
    }
    for part in ["root", "state", "ipam"] {
        let volatile = |path: &Path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            name.starts_with("last_reserved_ip") || name == "lock" || name == "adding.lock"
        };
        let kept = |path: &Path| !volatile(path);
        tree("file", &server.directory.join(part), &kept, &mut found);
    }
    found
}

/// Waits until nothing is there that was not before; what is asked to end takes a moment.
pub async fn expect_none(server: &Server, before: &Inventory) -> Result<()> {
    let mut left = Vec::new();
    for _ in 0..600 {
        let now = inventory(server);
        left = now.difference(before).cloned().collect();
        if left.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("left behind:\n{}", left.join("\n"))
}

fn processes(server: &Server, found: &mut Inventory) {
    let directory = server.directory.to_string_lossy().into_owned();
    let own = server.server_pid().map(|pid| pid.to_string());
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) || Some(&pid) == own.as_ref() {
            continue;
        }
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let text = |name: &str| String::from_utf8_lossy(&read(name)).into_owned();
        let stat = text("stat");
        let Some((_, fields)) = stat.rsplit_once(')') else {
            continue;
        };
        let mut fields = fields.split_whitespace();
        let (state, parent) = (fields.next(), fields.next());
        if state == Some("Z") {
            if parent == own.as_deref() {
                found.insert(format!("zombie {pid}"));
            }
            continue;
        }
        let command = text("cmdline").replace('\0', " ");
        let cgroups = text("cgroup");
        if command.contains(&directory)
            || [b'-', b'_'].iter().any(|sign| {
                cgroups.contains(&format!(
                    "coracle{}{}",
                    char::from(*sign),
                    server.cluster_id
                ))
            })
        {
            found.insert(format!("process {pid} {command}"));
        }
    }
}

fn tree(kind: &str, directory: &Path, wanted: &dyn Fn(&Path) -> bool, found: &mut Inventory) {
    if !directory.exists() {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if !wanted(&path) {
            continue;
        }
        found.insert(format!("{kind} {}", path.display()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            tree(kind, &path, wanted, found);
        }
    }
}
