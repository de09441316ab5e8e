//! Numbers read from cgroup files: cpu time, memory, processes, and the size of writable layers.

use std::sync::Arc;

use cri::v1::{
    ContainerAttributes, ContainerStats, CpuUsage, FilesystemIdentifier, FilesystemUsage,
    LinuxPodSandboxStats, MemoryUsage, NetworkInterfaceUsage, NetworkUsage, PodSandboxAttributes,
    PodSandboxStats, ProcessUsage, UInt64Value,
};
use files::disk_usage::usage;

use super::{container_table::ContainerTable, host::Host};
use crate::{
    cgroups::{read_flat, read_number},
    records::{ContainerRecord, SandboxRecord},
    snapshots::Snapshot,
};

pub struct Stats {
    host: Arc<Host>,
    containers: Arc<ContainerTable>,
}

/// Everything here blocks: the size of a writable layer is found by walking it.
impl Stats {
    pub fn new(host: Arc<Host>, containers: Arc<ContainerTable>) -> Stats {
        Stats { host, containers }
    }

    pub fn of_container(&self, record: &ContainerRecord) -> ContainerStats {
        let now = self.host.now_nanos();
        let used = written_by(&self.host.snapshot(&record.id));
        ContainerStats {
            attributes: Some(ContainerAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            }),
            cpu: self.cpu(&record.cgroup, now),
            memory: self.memory(&record.cgroup, now),
            writable_layer: used.map(|(bytes, inodes)| FilesystemUsage {
                timestamp: now,
                fs_id: Some(FilesystemIdentifier {
                    mountpoint: self.host.config().root.to_string_lossy().into_owned(),
                }),
                used_bytes: value(bytes),
                inodes_used: value(inodes),
            }),
            ..ContainerStats::default()
        }
    }

    pub fn of_sandbox(&self, record: &SandboxRecord) -> PodSandboxStats {
        let now = self.host.now_nanos();
        let parent = record
            .cgroup
            .rsplit_once('/')
            .map_or(record.cgroup.as_str(), |(parent, _)| parent);
        let containers = self
            .containers
            .of_sandbox(&record.id)
            .iter()
            .filter(|container| container.is_running())
            .map(|container| self.of_container(container))
            .collect();
        PodSandboxStats {
            attributes: Some(PodSandboxAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            }),
            linux: Some(LinuxPodSandboxStats {
                cpu: self.cpu(parent, now),
                memory: self.memory(parent, now),
                network: network(record, now),
                process: Some(ProcessUsage {
                    timestamp: now,
                    process_count: self
                        .host
                        .hierarchies()
                        .count_processes(parent)
                        .and_then(value),
                }),
                containers,
                ..LinuxPodSandboxStats::default()
            }),
            ..PodSandboxStats::default()
        }
    }

    fn cpu(&self, group: &str, now: i64) -> Option<CpuUsage> {
        let hierarchies = self.host.hierarchies();
        let nanos = hierarchies
            .legacy_path("cpuacct", group)
            .and_then(|directory| read_number(&directory.join("cpuacct.usage")))
            .or_else(|| {
                let directory = hierarchies.unified_path(group)?;
                read_flat(&directory.join("cpu.stat"), "usage_usec").map(|micros| micros * 1000)
            })?;
        Some(CpuUsage {
            timestamp: now,
            usage_core_nano_seconds: value(nanos),
            ..CpuUsage::default()
        })
    }

    fn memory(&self, group: &str, now: i64) -> Option<MemoryUsage> {
        let hierarchies = self.host.hierarchies();
        let (directory, files) = match hierarchies.legacy_path("memory", group) {
            Some(directory) => (
                directory,
                [
                    "memory.usage_in_bytes",
                    "total_inactive_file",
                    "total_rss",
                    "memory.limit_in_bytes",
                ],
            ),
            None => (
                hierarchies.unified_path(group)?,
                ["memory.current", "inactive_file", "anon", "memory.max"],
            ),
        };
        let [usage, inactive, resident, limit] = files;
        let usage = read_number(&directory.join(usage))?;
        let stat = directory.join("memory.stat");
        let flat = |key: &str| read_flat(&stat, key);
        let working_set = flat(inactive).map(|inactive| usage.saturating_sub(inactive));
        // Values near the top of the range mean "no limit" on v1.
        let limit = read_number(&directory.join(limit)).filter(|limit| *limit < 1 << 62);
        Some(MemoryUsage {
            timestamp: now,
            working_set_bytes: working_set.and_then(value),
            available_bytes: limit
                .zip(working_set)
                .and_then(|(limit, working_set)| value(limit.saturating_sub(working_set))),
            usage_bytes: value(usage),
            rss_bytes: flat(resident).and_then(value),
            page_faults: flat("pgfault").and_then(value),
            major_page_faults: flat("pgmajfault").and_then(value),
            ..MemoryUsage::default()
        })
    }
}

/// The traffic of a sandbox that has a network of its own.
fn network(record: &SandboxRecord, now: i64) -> Option<NetworkUsage> {
    record.netns.as_ref()?;
    let text = std::fs::read_to_string(format!("/proc/{}/net/dev", record.pid)).ok()?;
    let mut interfaces = interfaces(&text).into_iter();
    Some(NetworkUsage {
        timestamp: now,
        default_interface: interfaces.next(),
        interfaces: interfaces.collect(),
    })
}

/// The counters of a network interface.
pub struct Interface {
    pub name: String,
    pub received: Traffic,
    pub sent: Traffic,
}

/// One direction of an interface.
#[derive(Clone, Copy)]
pub struct Traffic {
    pub bytes: u64,
    pub packets: u64,
    pub errors: u64,
    pub dropped: u64,
}

/// All interfaces of `/proc/<pid>/net/dev` but the loopback.
pub fn interface_table(table: &str) -> Vec<Interface> {
    let counted = |numbers: &[u64]| Traffic {
        bytes: numbers[0],
        packets: numbers[1],
        errors: numbers[2],
        dropped: numbers[3],
    };
    table
        .lines()
        .filter_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            let numbers: Vec<u64> = numbers
                .split_whitespace()
                .filter_map(|text| text.parse().ok())
                .collect();
            let name = name.trim();
            (numbers.len() >= 12 && name != "lo").then(|| Interface {
                name: name.to_owned(),
                received: counted(&numbers[..4]),
                sent: counted(&numbers[8..12]),
            })
        })
        .collect()
}

fn interfaces(table: &str) -> Vec<NetworkInterfaceUsage> {
    interface_table(table)
        .into_iter()
        .map(|interface| NetworkInterfaceUsage {
            name: interface.name,
            rx_bytes: value(interface.received.bytes),
            rx_errors: value(interface.received.errors),
            tx_bytes: value(interface.sent.bytes),
            tx_errors: value(interface.sent.errors),
        })
        .collect()
}

fn value(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

/// The bytes and inodes that a container has written, those in its image's volumes included.
pub fn written_by(snapshot: &Snapshot) -> Option<(u64, u64)> {
    let (bytes, inodes) = usage(&snapshot.upper())?;
    let (more, most) = usage(&snapshot.volumes())?;
    Some((bytes + more, inodes + most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_counters_are_read_from_the_kernels_table() {
        let table = "Inter-|   Receive\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\n";
        let found = interfaces(table);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "eth0");
        assert_eq!(found[0].tx_errors, value(3));
    }
}
