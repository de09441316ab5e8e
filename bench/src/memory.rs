//! Memory of all processes of a cluster: the sum of their proportional set sizes.

use anyhow::Result;

use crate::cluster::Cluster;

pub struct Process {
    /// The subcommand: keeper, server or shim.
    pub kind: String,
    pub pss_kb: u64,
}

pub fn of(cluster: &Cluster) -> Result<String> {
    let processes = processes_of(&cluster.data_dir().display().to_string())?;
    let sum = |kind: &str| -> f64 {
        let kilobytes: u64 = processes
            .iter()
            .filter(|process| kind.is_empty() || process.kind == kind)
            .map(|process| process.pss_kb)
            .sum();
        kilobytes as f64 / 1024.0
    };
    let shims = processes
        .iter()
        .filter(|process| process.kind == "shim")
        .count();
    Ok(format!(
        "{:.1} MB PSS (server {:.1}, keeper {:.1}, {shims} shims {:.1})",
        sum(""),
        sum("server"),
        sum("keeper"),
        sum("shim")
    ))
}

/// Processes whose arguments contain the data directory.
pub fn processes_of(data_dir: &str) -> Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(command) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let command = String::from_utf8_lossy(&command).into_owned();
        let arguments: Vec<&str> = command.split('\0').collect();
        if !arguments.contains(&data_dir) {
            continue;
        }
        let Ok(rollup) = std::fs::read_to_string(entry.path().join("smaps_rollup")) else {
            continue;
        };
        let pss_kb = rollup
            .lines()
            .find_map(|line| line.strip_prefix("Pss:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0);
        processes.push(Process {
            kind: arguments.get(1).unwrap_or(&"").to_string(),
            pss_kb,
        });
    }
    Ok(processes)
}
