//! The machine's CPUs, memory and disk, and how much of them pods may use.

use std::{collections::BTreeMap, path::Path};

use api::quantity::{Format, Quantity as Quantity64};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::configuration::{Configuration, eviction_thresholds};

/// Upstream's default.
const MAX_PODS: i64 = 110;

/// The machine's resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub milli_cpu: i64,
    pub memory: i64,
    pub storage: i64,
    /// 0 means upstream's default.
    pub max_pods: i64,
    /// The part that is not for pods: reserved for the machine, and kept free by eviction.
    pub reserved_milli_cpu: i64,
    pub reserved_memory: i64,
    pub reserved_storage: i64,
    /// Whether pods cannot request storage.
    pub without_storage: bool,
    /// Bytes of huge pages, by the resource's name.
    pub huge_pages: BTreeMap<String, i64>,
}

impl Capacity {
    /// Reads the machine; `root` is where pods' files live. A node must not register with less than
    /// it has because a figure could not be read.
    pub fn read(root: &Path, configuration: &Configuration) -> std::io::Result<Capacity> {
        let cpus = usize::from(std::thread::available_parallelism()?);
        let meminfo = std::fs::read_to_string("/proc/meminfo")?;
        let found = nix::sys::statvfs::statvfs(root)?;
        let storage = found.blocks() as i64 * found.fragment_size() as i64;
        let memory = total_memory(&meminfo)
            .ok_or_else(|| std::io::Error::other("/proc/meminfo has no MemTotal"))?;
        let kept_free = |signal: &str, total: i64| {
            configuration
                .eviction_hard
                .get(signal)
                .and_then(|text| eviction_thresholds::amount(text, total))
                .unwrap_or(0)
        };
        let max_pods = match configuration.pods_per_core {
            per_core if per_core > 0 => configuration.max_pods.min(per_core * cpus as i64),
            _ => configuration.max_pods,
        };
        Ok(Capacity {
            milli_cpu: cpus as i64 * 1000,
            memory,
            storage,
            max_pods,
            without_storage: !configuration.local_storage_capacity_isolation,
            huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages"))?,
            reserved_milli_cpu: configuration.reserved_milli("cpu"),
            reserved_memory: configuration.reserved_milli("memory") / 1000
                + kept_free("memory.available", memory),
            reserved_storage: configuration.reserved_milli("ephemeral-storage") / 1000
                + kept_free("nodefs.available", storage),
        })
    }

    pub fn pods(&self) -> i64 {
        match self.max_pods {
            0 => MAX_PODS,
            pods => pods,
        }
    }

    pub fn allocatable_milli_cpu(&self) -> i64 {
        (self.milli_cpu - self.reserved_milli_cpu).max(0)
    }

    pub fn allocatable_memory(&self) -> i64 {
        // Huge pages are taken out of the memory that others can have.
        let huge: i64 = self.huge_pages.values().sum();
        (self.memory - self.reserved_memory - huge).max(0)
    }

    pub fn allocatable_storage(&self) -> i64 {
        (self.storage - self.reserved_storage).max(0)
    }

    pub fn quantities(&self) -> BTreeMap<String, Quantity> {
        self.amounts(
            self.milli_cpu,
            format!("{}Ki", self.memory / 1024),
            format!("{}Ki", self.storage / 1024),
        )
    }

    pub fn allocatable_quantities(&self) -> BTreeMap<String, Quantity> {
        self.amounts(
            self.allocatable_milli_cpu(),
            format!("{}Ki", self.allocatable_memory() / 1024),
            self.allocatable_storage().to_string(),
        )
    }

    fn amounts(
        &self,
        milli_cpu: i64,
        memory: String,
        storage: String,
    ) -> BTreeMap<String, Quantity> {
        let cpu = match milli_cpu % 1000 {
            0 => (milli_cpu / 1000).to_string(),
            _ => format!("{milli_cpu}m"),
        };
        [
            ("cpu", cpu),
            ("memory", memory),
            ("ephemeral-storage", storage),
            ("pods", self.pods().to_string()),
        ]
        .into_iter()
        .filter(|(name, _)| !self.without_storage || *name != "ephemeral-storage")
        .map(|(name, amount)| (name.to_owned(), Quantity(amount)))
        .chain(self.huge_pages.iter().map(|(name, bytes)| {
            let amount = Quantity64::from_units(*bytes, Format::BinarySi);
            (name.clone(), Quantity(amount.to_string()))
        }))
        .collect()
    }
}

/// The sizes of huge pages that the kernel knows, and how many bytes of each are set aside.
fn huge_pages(directory: &Path) -> std::io::Result<BTreeMap<String, i64>> {
    let entries = match std::fs::read_dir(directory) {
        // A kernel without huge pages.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kilobytes = name
            .strip_prefix("hugepages-")
            .and_then(|name| name.strip_suffix("kB")?.parse::<i64>().ok());
        let Some(size) = kilobytes.and_then(|kilobytes| kilobytes.checked_mul(1024)) else {
            continue;
        };
        let path = entry.path().join("nr_hugepages");
        let count = std::fs::read_to_string(&path)?;
        let bytes = count.trim().parse().ok();
        let bytes = bytes.and_then(|count: i64| size.checked_mul(count));
        let bytes = bytes.ok_or_else(|| {
            std::io::Error::other(format!("{} does not contain a number", path.display()))
        })?;
        let size = Quantity64::from_units(size, Format::BinarySi);
        found.insert(format!("hugepages-{size}"), bytes);
    }
    Ok(found)
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

    #[test]
    fn a_machine_that_cannot_be_read_has_no_capacity_to_register() {
        let configuration = Configuration::default();
        let nowhere = Path::new("/not/there");
        assert!(Capacity::read(nowhere, &configuration).is_err());
        let directory = tempfile::tempdir().expect("a directory");
        let capacity = Capacity::read(directory.path(), &configuration).expect("readable");
        assert!(capacity.memory > 0 && capacity.storage > 0 && capacity.milli_cpu > 0);
        assert_eq!(huge_pages(nowhere).expect("none"), BTreeMap::new());
        // A count that cannot be read.
        let pages = directory.path().join("hugepages-2048kB");
        std::fs::create_dir_all(pages.join("nr_hugepages")).expect("made");
        assert!(huge_pages(directory.path()).is_err());
    }

    #[test]
    fn huge_pages_are_counted_and_subtracted_from_memory() {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, count) in [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "0\n")] {
            std::fs::create_dir(directory.path().join(name)).expect("made");
            let file = directory.path().join(name).join("nr_hugepages");
            std::fs::write(file, count).expect("written");
        }
        let capacity = Capacity {
            memory: 8 << 20,
            huge_pages: huge_pages(directory.path()).expect("readable"),
            ..Capacity::default()
        };
        let amounts = capacity.quantities();
        assert_eq!(amounts["hugepages-2Mi"].0, "6Mi");
        assert_eq!(amounts["hugepages-1Gi"].0, "0");
        assert_eq!(capacity.allocatable_memory(), 2 << 20);
    }
}
