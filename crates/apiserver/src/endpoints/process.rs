//! What the kernel says about this process, for `/metrics`. Where it says nothing, the numbers are 0.

/// The clock ticks of a second, as the kernel tells them to every program.
const TICKS: f64 = 100.0;
/// The size of a page on all machines that are served.
const PAGE: f64 = 4096.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub cpu_seconds: f64,
    pub start_seconds: f64,
    pub resident_bytes: f64,
    pub virtual_bytes: f64,
    pub open_files: f64,
    pub most_files: f64,
}

impl Process {
    pub async fn read() -> Process {
        let text = |path: &'static str| async move {
            tokio::fs::read_to_string(path).await.unwrap_or_default()
        };
        let mut process = Process::parse(
            &text("/proc/self/stat").await,
            &text("/proc/stat").await,
            &text("/proc/self/limits").await,
        );
        if let Ok(mut entries) = tokio::fs::read_dir("/proc/self/fd").await {
            while let Ok(Some(_)) = entries.next_entry().await {
                process.open_files += 1.0;
            }
        }
        process
    }

    fn parse(own: &str, machine: &str, limits: &str) -> Process {
        // The name of the command, in parentheses, may contain spaces.
        let fields = own.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<f64> = fields
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        // Numbered as in proc(5), where the state is the third.
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0.0);
        let named = |text: &str, name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|line| line.split_whitespace().next());
            value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
        };
        Process {
            cpu_seconds: (field(14) + field(15)) / TICKS,
            start_seconds: named(machine, "btime ") + field(22) / TICKS,
            resident_bytes: field(24) * PAGE,
            virtual_bytes: field(23),
            open_files: 0.0,
            most_files: named(limits, "Max open files"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_understood() {
        let own = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 4 0 500 8192 2 0";
        let machine = "cpu 1 2\nbtime 1000\n";
        let limits = "Limit  Soft Hard Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(
            Process::parse(own, machine, limits),
            Process {
                cpu_seconds: 2.0,
                start_seconds: 1005.0,
                resident_bytes: 8192.0,
                virtual_bytes: 8192.0,
                open_files: 0.0,
                most_files: 1024.0,
            }
        );
        assert_eq!(Process::parse("", "", ""), Process::default());
    }
}
