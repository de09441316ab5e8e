//! The machine as a whole, from /proc: memory, CPU time, processes, network.

use std::{fs, path::Path};

use super::{
    NetworkSample,
    pressure::{self, Stall},
};

/// A figure that cannot be read is `None`: unknown, which is not the same as zero.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub memory_total: Option<u64>,
    /// The memory that programs could still get: free memory and caches that can be dropped.
    pub memory_available: Option<u64>,
    pub memory_free: Option<u64>,
    /// Of processes, not of files.
    pub memory_anonymous: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    pub swap_total: Option<u64>,
    pub swap_free: Option<u64>,
    pub cpu_stall: Option<Stall>,
    pub memory_stall: Option<Stall>,
    pub io_stall: Option<Stall>,
    /// Nanoseconds of CPU time since boot.
    pub cpu_total: Option<u64>,
    pub processes: Option<u64>,
    pub max_processes: Option<u64>,
    pub network: Vec<NetworkSample>,
    /// Seconds since the epoch.
    pub boot_time: Option<i64>,
}

pub fn read() -> Machine {
    read_below(Path::new("/proc"))
}

/// `proc` is where the kernel's files are, `/proc` outside tests.
fn read_below(proc: &Path) -> Machine {
    let text = |path: &str| fs::read_to_string(proc.join(path)).unwrap_or_default();
    let (meminfo, stat) = (text("meminfo"), text("stat"));
    let number = |path: &str| text(path).trim().parse::<u64>().ok();
    let threads = text("loadavg");
    let vmstat = text("vmstat");
    let counted = |name: &str| {
        let mut lines = vmstat.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok())
    };
    let limits = [
        number("sys/kernel/pid_max"),
        number("sys/kernel/threads-max"),
    ];
    Machine {
        memory_total: bytes(&meminfo, "MemTotal:"),
        memory_available: bytes(&meminfo, "MemAvailable:"),
        memory_free: bytes(&meminfo, "MemFree:"),
        memory_anonymous: bytes(&meminfo, "AnonPages:"),
        page_faults: counted("pgfault"),
        major_page_faults: counted("pgmajfault"),
        swap_total: bytes(&meminfo, "SwapTotal:"),
        swap_free: bytes(&meminfo, "SwapFree:"),
        cpu_stall: pressure::read(proc, "cpu"),
        memory_stall: pressure::read(proc, "memory"),
        io_stall: pressure::read(proc, "io"),
        cpu_total: cpu_nanos(&stat),
        processes: running(&threads),
        max_processes: limits.into_iter().flatten().min(),
        network: interfaces(&text("net/dev")),
        boot_time: stat
            .lines()
            .find_map(|line| line.strip_prefix("btime "))
            .and_then(|time| time.trim().parse().ok()),
    }
}

/// Whether the machine swaps anywhere.
pub fn has_swap() -> std::io::Result<bool> {
    match fs::read_to_string("/proc/swaps") {
        // The first line names the columns.
        Ok(swaps) => Ok(swaps.lines().skip(1).any(|line| !line.trim().is_empty())),
        // A kernel without swap has no such file.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Machine {
    /// The memory that programs use and that cannot be reclaimed.
    pub fn memory_used(&self) -> Option<u64> {
        Some(self.memory_total?.saturating_sub(self.memory_available?))
    }

    /// The memory in use, caches included.
    pub fn memory_usage(&self) -> Option<u64> {
        Some(self.memory_total?.saturating_sub(self.memory_free?))
    }

    pub fn swap_used(&self) -> Option<u64> {
        Some(self.swap_total?.saturating_sub(self.swap_free?))
    }
}

fn bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// User, nice, system, irq, softirq and steal; the kernel counts hundredths of a second.
fn cpu_nanos(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Option<Vec<u64>> = line
        .split_whitespace()
        .map(|text| text.parse().ok())
        .collect();
    let ticks = ticks?;
    let busy: u64 = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|index| ticks.get(*index))
        .sum();
    busy.checked_mul(10_000_000)
}

/// `0.1 0.2 0.3 2/345 678`: 345 threads are there.
fn running(loadavg: &str) -> Option<u64> {
    let pair = loadavg.split_whitespace().nth(3)?;
    pair.split_once('/')?.1.parse().ok()
}

pub fn interfaces(text: &str) -> Vec<NetworkSample> {
    text.lines()
        .filter_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            let numbers: Vec<u64> = numbers
                .split_whitespace()
                .filter_map(|text| text.parse().ok())
                .collect();
            let name = name.trim();
            (numbers.len() >= 11 && name != "lo").then(|| NetworkSample {
                interface: name.to_owned(),
                received: Some(numbers[0]),
                receive_errors: Some(numbers[2]),
                sent: Some(numbers[8]),
                send_errors: Some(numbers[10]),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(
            bytes("MemTotal: 5 kB\nMemAvailable:  7 kB\n", "MemAvailable:"),
            Some(7 * 1024)
        );
        assert_eq!(
            cpu_nanos("cpu  1 2 3 100 50 4 5 6 0 0\ncpu0 9\n"),
            Some(210_000_000)
        );
        let machine = read();
        assert!(machine.page_faults > Some(0) && machine.memory_anonymous > Some(0));
        assert!(machine.memory_free <= machine.memory_total);
        assert!(machine.max_processes > machine.processes);
        assert_eq!(running("0.1 0.2 0.3 2/345 678\n"), Some(345));
        let found = interfaces(
            "Inter-| Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\n",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].received, found[0].sent, found[0].send_errors),
            (Some(10), Some(20), Some(3))
        );
    }

    #[test]
    fn an_unreadable_figure_is_unknown_and_not_zero() {
        let nothing = tempfile::tempdir().expect("a directory");
        let machine = read_below(nothing.path());
        let figures = [
            machine.memory_total,
            machine.memory_available,
            machine.memory_used(),
            machine.swap_used(),
            machine.page_faults,
            machine.cpu_total,
            machine.processes,
            machine.max_processes,
        ];
        assert_eq!(figures, [None; 8]);
        assert_eq!(machine.boot_time, None);
        // A file that is cut off, and one with a line that is no number.
        let meminfo = nothing.path().join("meminfo");
        fs::write(&meminfo, "MemTotal: 8 kB\nMemAvailable: much kB\n").expect("written");
        let machine = read_below(nothing.path());
        assert_eq!(machine.memory_total, Some(8 * 1024));
        assert_eq!(machine.memory_available, None);
        assert_eq!(machine.memory_used(), None);
    }
}
