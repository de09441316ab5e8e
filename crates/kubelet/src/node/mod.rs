//! The node itself: what it has ([`Capacity`]), how it is registered and kept current
//! ([`registration`]), and that it lives ([`lease`]).

pub mod lease;
pub mod registration;

use std::{collections::BTreeMap, path::Path};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const MAX_PODS: i64 = 110;
/// Kept free for the machine itself: upstream's default eviction threshold.
const RESERVED_MEMORY: i64 = 100 << 20;

/// What the machine has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub milli_cpu: i64,
    pub memory: i64,
    pub storage: i64,
}

impl Capacity {
    /// Reads the machine; `root` is where pods' files live.
    pub fn read(root: &Path) -> Capacity {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let storage = nix::sys::statvfs::statvfs(root)
            .map(|found| found.blocks() as i64 * found.fragment_size() as i64)
            .unwrap_or(0);
        Capacity {
            milli_cpu: cpus as i64 * 1000,
            memory: total_memory(&meminfo).unwrap_or(0),
            storage,
        }
    }

    pub fn allocatable_memory(&self) -> i64 {
        (self.memory - RESERVED_MEMORY).max(0)
    }

    pub fn allocatable_storage(&self) -> i64 {
        self.storage / 10 * 9
    }

    pub fn quantities(&self) -> BTreeMap<String, Quantity> {
        quantities(
            self.milli_cpu / 1000,
            format!("{}Ki", self.memory / 1024),
            format!("{}Ki", self.storage / 1024),
        )
    }

    pub fn allocatable_quantities(&self) -> BTreeMap<String, Quantity> {
        quantities(
            self.milli_cpu / 1000,
            format!("{}Ki", self.allocatable_memory() / 1024),
            self.allocatable_storage().to_string(),
        )
    }
}

fn quantities(cpus: i64, memory: String, storage: String) -> BTreeMap<String, Quantity> {
    [
        ("cpu", cpus.to_string()),
        ("memory", memory),
        ("ephemeral-storage", storage),
        ("pods", MAX_PODS.to_string()),
        ("hugepages-1Gi", "0".to_owned()),
        ("hugepages-2Mi", "0".to_owned()),
    ]
    .into_iter()
    .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
    .collect()
}

fn total_memory(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kilobytes: i64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        assert_eq!(
            total_memory("MemTotal:  2048 kB\nMemFree: 1 kB\n"),
            Some(2 << 20)
        );
    }
}
