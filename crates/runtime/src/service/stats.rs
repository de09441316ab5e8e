//! Numbers read from cgroup files: cpu time, memory, processes, and the size of writable layers.

use std::path::Path;

use cri::v1::{
    ContainerAttributes, ContainerStats, CpuUsage, FilesystemIdentifier, FilesystemUsage,
    LinuxPodSandboxStats, MemoryUsage, NetworkInterfaceUsage, NetworkUsage, PodSandboxAttributes,
    PodSandboxStats, ProcessUsage, UInt64Value,
};

use super::state::Runtime;
use crate::{
    cgroups::{read_flat, read_number},
    records::{ContainerRecord, SandboxRecord},
    snapshots::Snapshot,
};

impl Runtime {
    pub fn container_stats(&self, record: &ContainerRecord) -> ContainerStats {
        let now = self.now_nanos();
        let (bytes, inodes) = written_by(&self.snapshot(&record.id));
        ContainerStats {
            attributes: Some(ContainerAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            }),
            cpu: self.cpu(&record.cgroup, now),
            memory: self.memory(&record.cgroup, now),
            writable_layer: Some(FilesystemUsage {
                timestamp: now,
                fs_id: Some(FilesystemIdentifier {
                    mountpoint: self.0.config.root.to_string_lossy().into_owned(),
                }),
                used_bytes: value(bytes),
                inodes_used: value(inodes),
            }),
            ..ContainerStats::default()
        }
    }

    pub fn sandbox_stats(&self, record: &SandboxRecord) -> PodSandboxStats {
        let now = self.now_nanos();
        let parent = record
            .cgroup
            .rsplit_once('/')
            .map_or(record.cgroup.as_str(), |(parent, _)| parent);
        let containers = self
            .containers_of(&record.id)
            .iter()
            .filter(|container| container.started_at != 0 && container.exit.is_none())
            .map(|container| self.container_stats(container))
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
                    process_count: value(self.0.hierarchies.processes(parent).len() as u64),
                }),
                containers,
                ..LinuxPodSandboxStats::default()
            }),
            ..PodSandboxStats::default()
        }
    }

    fn cpu(&self, group: &str, now: i64) -> Option<CpuUsage> {
        let hierarchies = &self.0.hierarchies;
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
        let hierarchies = &self.0.hierarchies;
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
        let flat = |key: &str| read_flat(&stat, key).unwrap_or(0);
        let working_set = usage.saturating_sub(flat(inactive));
        // Values near the top of the range mean "no limit" on v1.
        let limit = read_number(&directory.join(limit)).filter(|limit| *limit < 1 << 62);
        Some(MemoryUsage {
            timestamp: now,
            working_set_bytes: value(working_set),
            available_bytes: limit.and_then(|limit| value(limit.saturating_sub(working_set))),
            usage_bytes: value(usage),
            rss_bytes: value(flat(resident)),
            page_faults: value(flat("pgfault")),
            major_page_faults: value(flat("pgmajfault")),
            ..MemoryUsage::default()
        })
    }
}

/// What went through the interfaces of a sandbox that has a network of its own.
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

/// What an interface has carried.
pub struct Interface {
    pub name: String,
    pub received: Counted,
    pub sent: Counted,
}

#[derive(Clone, Copy)]
pub struct Counted {
    pub bytes: u64,
    pub packets: u64,
    pub errors: u64,
    pub dropped: u64,
}

/// The interfaces in the kernel's table but the loopback.
pub fn interface_table(table: &str) -> Vec<Interface> {
    let counted = |numbers: &[u64]| Counted {
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

/// What a container has written, or holds for it to be written to.
pub fn written_by(snapshot: &Snapshot) -> (u64, u64) {
    let (bytes, inodes) = usage_of(&snapshot.upper());
    let (more, most) = usage_of(&snapshot.volumes());
    (bytes + more, inodes + most)
}

/// Bytes and inodes of a directory tree.
pub fn usage_of(directory: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut inodes) = (0, 0);
    // Without recursion: how deep it is was decided by a container.
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            bytes += metadata.blocks() * 512;
            inodes += 1;
            if metadata.is_dir() {
                open.push(entry.path());
            }
        }
    }
    (bytes, inodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read() {
        let table = "Inter-|   Receive\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\n";
        let found = interfaces(table);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "eth0");
        assert_eq!(found[0].tx_errors, value(3));
    }
}
