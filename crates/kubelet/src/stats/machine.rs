//! The machine as a whole, from /proc: memory, CPU time, processes, network.

use std::fs;

use super::{
    NetworkSample,
    pressure::{self, Stall},
};

#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub memory_total: u64,
    /// What programs could still have: free memory and caches that can be dropped.
    pub memory_available: u64,
    pub memory_free: u64,
    /// Of processes, not of files.
    pub memory_anonymous: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    pub swap_total: u64,
    pub swap_free: u64,
    pub cpu_stall: Option<Stall>,
    pub memory_stall: Option<Stall>,
    pub io_stall: Option<Stall>,
    /// Nanoseconds of CPU time since boot.
    pub cpu_total: u64,
    pub processes: u64,
    pub max_processes: u64,
    pub network: Vec<NetworkSample>,
    /// Seconds since the epoch.
    pub boot_time: i64,
}

pub fn read() -> Machine {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (meminfo, stat) = (text("/proc/meminfo"), text("/proc/stat"));
    let number = |path: &str| text(path).trim().parse::<u64>().unwrap_or(0);
    let threads = text("/proc/loadavg");
    let vmstat = text("/proc/vmstat");
    let counted = |name: &str| {
        let mut lines = vmstat.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    Machine {
        memory_total: kilobytes(&meminfo, "MemTotal:") * 1024,
        memory_available: kilobytes(&meminfo, "MemAvailable:") * 1024,
        memory_free: kilobytes(&meminfo, "MemFree:") * 1024,
        memory_anonymous: kilobytes(&meminfo, "AnonPages:") * 1024,
        page_faults: counted("pgfault"),
        major_page_faults: counted("pgmajfault"),
        swap_total: kilobytes(&meminfo, "SwapTotal:") * 1024,
        swap_free: kilobytes(&meminfo, "SwapFree:") * 1024,
        cpu_stall: pressure::read("cpu"),
        memory_stall: pressure::read("memory"),
        io_stall: pressure::read("io"),
        cpu_total: cpu_nanos(&stat),
        processes: running(&threads),
        max_processes: number("/proc/sys/kernel/pid_max")
            .min(number("/proc/sys/kernel/threads-max").max(1)),
        network: interfaces(&text("/proc/net/dev")),
        boot_time: stat
            .lines()
            .find_map(|line| line.strip_prefix("btime "))
            .and_then(|time| time.trim().parse().ok())
            .unwrap_or(0),
    }
}

/// Whether the machine swaps anywhere.
pub fn has_swap() -> bool {
    // The first line names the columns.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().skip(1).any(|line| !line.trim().is_empty())
}

impl Machine {
    /// What programs hold and could not be taken from them.
    pub fn memory_used(&self) -> u64 {
        self.memory_total.saturating_sub(self.memory_available)
    }

    pub fn swap_used(&self) -> u64 {
        self.swap_total.saturating_sub(self.swap_free)
    }
}

fn kilobytes(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// User, nice, system, irq, softirq and steal; the kernel counts hundredths of a second.
fn cpu_nanos(stat: &str) -> u64 {
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix("cpu ")) else {
        return 0;
    };
    let ticks: Vec<u64> = line
        .split_whitespace()
        .filter_map(|text| text.parse().ok())
        .collect();
    let busy: u64 = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|index| ticks.get(*index))
        .sum();
    busy * 10_000_000
}

/// `0.1 0.2 0.3 2/345 678`: 345 threads are there.
fn running(loadavg: &str) -> u64 {
    loadavg
        .split_whitespace()
        .nth(3)
        .and_then(|pair| pair.split_once('/')?.1.parse().ok())
        .unwrap_or(0)
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
                received: numbers[0],
                receive_errors: numbers[2],
                sent: numbers[8],
                send_errors: numbers[10],
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
            kilobytes("MemTotal: 5 kB\nMemAvailable:  7 kB\n", "MemAvailable:"),
            7
        );
        assert_eq!(
            cpu_nanos("cpu  1 2 3 100 50 4 5 6 0 0\ncpu0 9\n"),
            210_000_000
        );
        let machine = read();
        assert!(machine.page_faults > 0 && machine.memory_anonymous > 0);
        assert!(machine.memory_free <= machine.memory_total);
        assert_eq!(running("0.1 0.2 0.3 2/345 678\n"), 345);
        let found = interfaces(
            "Inter-| Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\n",
        );
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].received, found[0].sent, found[0].send_errors),
            (10, 20, 3)
        );
    }
}
