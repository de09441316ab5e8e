//! This process: the time, memory and files it has taken. Blocking.

/// Clock ticks per second, the same on every Linux.
const TICKS: f64 = 100.0;

/// A figure that cannot be read is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    pub cpu_seconds: Option<f64>,
    pub resident: Option<u64>,
    pub virtual_size: Option<u64>,
    pub open_files: Option<usize>,
    pub max_files: Option<u64>,
    pub threads: Option<u64>,
    /// Seconds since the epoch.
    pub started: Option<f64>,
}

pub fn read() -> Process {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let stat = text("/proc/self/stat");
    // The name in brackets may hold anything.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let fields: Vec<Option<u64>> = after
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect();
    // Counted from the field after the name, which is the third.
    let field = |number: usize| fields.get(number - 3).copied().flatten();
    let ticks = |number: usize| Some(field(number)? as f64 / TICKS);
    let machine = text("/proc/stat");
    let boot = machine
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|seconds| seconds.trim().parse::<f64>().ok());
    let limits = text("/proc/self/limits");
    let files = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    Process {
        cpu_seconds: ticks(14).zip(ticks(15)).map(|(user, system)| user + system),
        threads: field(20),
        started: boot.zip(ticks(22)).map(|(boot, since)| boot + since),
        virtual_size: field(23),
        resident: field(24).map(|pages| pages * page_size()),
        open_files: std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
        max_files: files.and_then(|rest| rest.split_whitespace().next()?.parse().ok()),
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
        assert!(process.resident > Some(100_000), "{process:?}");
        assert!(process.virtual_size >= process.resident, "{process:?}");
        assert!(
            process.open_files >= Some(3) && process.threads >= Some(1),
            "{process:?}"
        );
        assert!(process.started > Some(1e9), "{process:?}");
    }
}
