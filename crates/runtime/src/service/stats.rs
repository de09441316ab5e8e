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
        let used = written_by(&self.snapshot(&record.id));
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
                    process_count: self.0.hierarchies.count_processes(parent).and_then(value),
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

/// Bytes and inodes of what a container has written, its image's volumes included.
pub fn written_by(snapshot: &Snapshot) -> Option<(u64, u64)> {
    let (bytes, inodes) = usage_of(&snapshot.upper())?;
    let (more, most) = usage_of(&snapshot.volumes())?;
    Some((bytes + more, inodes + most))
}

/// Bytes and inodes of a directory tree, of which one directory at a time is open: its depth is the
/// container's choice. `None` if it could not be read for want of something this process needs.
pub fn usage_of(directory: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut inodes) = (0, 0);
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if is_own_fault(&error) => return None,
            Err(_) => continue,
        };
        for entry in entries {
            let found = entry.and_then(|entry| Ok((entry.metadata()?, entry.path())));
            let (metadata, path) = match found {
                Ok(found) => found,
                Err(error) if is_own_fault(&error) => return None,
                Err(_) => continue,
            };
            bytes += metadata.blocks() * 512;
            inodes += 1;
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    Some((bytes, inodes))
}

/// Whether another attempt may succeed. Anything else (files come and go while we look) lies with
/// the file.
fn is_own_fault(error: &std::io::Error) -> bool {
    use nix::errno::Errno::{EIO, EMFILE, ENFILE, ENOMEM};
    let code = error.raw_os_error().map(nix::errno::Errno::from_raw);
    matches!(code, Some(EMFILE | ENFILE | ENOMEM | EIO))
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

    #[test]
    fn a_tree_is_measured_however_deep_it_is() {
        let root = tempfile::tempdir().expect("a directory");
        let mut path = root.path().to_path_buf();
        for _ in 0..1500 {
            path.push("d");
        }
        std::fs::create_dir_all(&path).expect("made");
        std::fs::write(path.join("f"), vec![1; 10_000]).expect("written");
        let (bytes, inodes) = usage_of(root.path()).expect("readable");
        assert_eq!(inodes, 1501);
        assert!(bytes >= 10_000, "{bytes}");
        assert_eq!(usage_of(&root.path().join("missing")), Some((0, 0)));
        let error = std::io::Error::from_raw_os_error;
        assert!(is_own_fault(&error(nix::errno::Errno::EMFILE as i32)));
        assert!(!is_own_fault(&error(nix::errno::Errno::ENOENT as i32)));
    }
}
