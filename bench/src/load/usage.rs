//! CPU time and memory of processes, read from `/proc`.

use std::time::Duration;

/// `/proc` counts CPU time in hundredths of a second, on every architecture we build for.
const TICK: Duration = Duration::from_millis(10);

/// The sum of user and system time of the processes. Processes that have ended count nothing.
pub fn cpu_time(processes: &[u32]) -> Duration {
    let ticks: u32 = processes
        .iter()
        .filter_map(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            // The name in brackets may contain anything; utime and stime are fields 14 and 15.
            let (_, rest) = stat.rsplit_once(')')?;
            let fields: Vec<&str> = rest.split_whitespace().collect();
            let field = |number: usize| fields.get(number - 3)?.parse::<u32>().ok();
            Some(field(14)? + field(15)?)
        })
        .sum();
    TICK * ticks
}

/// The process and its descendants.
pub fn family(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        let path = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        found.extend(
            children
                .split_whitespace()
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    found
}

/// The sum of the proportional set sizes, in MB.
pub fn memory(processes: &[u32]) -> f64 {
    let kilobytes: u64 = processes
        .iter()
        .filter_map(|process| {
            let path = format!("/proc/{process}/smaps_rollup");
            let rollup = std::fs::read_to_string(path).ok()?;
            let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum();
    kilobytes as f64 / 1024.0
}
