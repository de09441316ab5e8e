//! This process: the time, memory and files it has taken. Blocking.

/// Clock ticks per second, the same on every Linux.
const TICKS: f64 = 100.0;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    pub cpu_seconds: f64,
    pub resident: u64,
    pub virtual_size: u64,
    pub open_files: usize,
    pub max_files: u64,
    pub threads: u64,
    /// Seconds since the epoch.
    pub started: f64,
}

/// Zeros for what cannot be read.
pub fn read() -> Process {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let stat = text("/proc/self/stat");
    // The name in brackets may hold anything.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let fields: Vec<u64> = after
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // Counted from the field after the name, which is the third.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
    let machine = text("/proc/stat");
    let boot = machine
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|seconds| seconds.trim().parse::<f64>().ok())
        .unwrap_or(0.0);
    let limits = text("/proc/self/limits");
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let max_files = files.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    Process {
        cpu_seconds: (field(14) + field(15)) as f64 / TICKS,
        threads: field(20),
        started: boot + field(22) as f64 / TICKS,
        virtual_size: field(23),
        resident: field(24) * page_size(),
        open_files: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        max_files: max_files.unwrap_or(0),
    }
}

fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let size = size.ok().flatten();
    size.and_then(|size| u64::try_from(size).ok())
        .unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_files_and_threads() {
        let process = read();
        assert!(process.resident > 100_000, "{process:?}");
        assert!(process.virtual_size >= process.resident, "{process:?}");
        assert!(
            process.open_files >= 3 && process.threads >= 1,
            "{process:?}"
        );
        assert!(process.started > 1e9, "{process:?}");
    }
}
