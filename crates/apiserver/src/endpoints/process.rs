//! What the kernel says about this process, for `/metrics`. A figure that cannot be read is unknown and
//! is left out there.

/// The clock ticks of a second, as the kernel reports them to every program.
const TICKS: f64 = 100.0;
/// The size of a page on all machines that are served.
const PAGE: f64 = 4096.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    pub cpu_seconds: Option<f64>,
    pub start_seconds: Option<f64>,
    pub resident_bytes: Option<f64>,
    pub virtual_bytes: Option<f64>,
    pub open_files: Option<f64>,
    pub most_files: Option<f64>,
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
        process.open_files = count_open_files().await.ok();
        process
    }

    fn parse(own: &str, machine: &str, limits: &str) -> Process {
        // The name of the command, in parentheses, may contain spaces.
        let fields = own.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // Numbered as in proc(5), where the state is the third.
        let field = |number: usize| -> Option<f64> { fields.get(number - 3)?.parse().ok() };
        let named = |text: &str, name: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let sum = |one: Option<f64>, two: Option<f64>| Some(one? + two?);
        let seconds = |ticks: Option<f64>| ticks.map(|ticks| ticks / TICKS);
        Process {
            cpu_seconds: seconds(sum(field(14), field(15))),
            start_seconds: sum(named(machine, "btime "), seconds(field(22))),
            resident_bytes: field(24).map(|pages| pages * PAGE),
            virtual_bytes: field(23),
            open_files: None,
            most_files: named(limits, "Max open files"),
        }
    }
}

async fn count_open_files() -> std::io::Result<f64> {
    let mut entries = tokio::fs::read_dir("/proc/self/fd").await?;
    let mut count = 0.0;
    while entries.next_entry().await?.is_some() {
        count += 1.0;
    }
    Ok(count)
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
                cpu_seconds: Some(2.0),
                start_seconds: Some(1005.0),
                resident_bytes: Some(8192.0),
                virtual_bytes: Some(8192.0),
                open_files: None,
                most_files: Some(1024.0),
            }
        );
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_not_zero() {
        assert_eq!(Process::parse("", "", ""), Process::default());
        let unreadable = Process::parse("7 (c) S x y", "btime never", "Max open files unlimited");
        assert_eq!(unreadable, Process::default());
    }
}
