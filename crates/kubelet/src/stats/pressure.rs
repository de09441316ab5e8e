//! Pressure stall information: how long work has waited for a resource, from the kernel's own files
//! or from the runtime. Pure but for [`read`].

use std::path::Path;

use cri::v1;
use serde_json::{Value, json};

/// Waiting of some tasks, and of all that were not idle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    pub some: Share,
    pub full: Share,
}

/// Shares of the last 10, 60 and 300 seconds in percent, and the total in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    pub total: u64,
    pub averages: [f64; 3],
}

/// The machine's own; `None` where the kernel does not report it.
pub fn read(proc: &Path, resource: &str) -> Option<Stall> {
    parse(&std::fs::read_to_string(proc.join("pressure").join(resource)).ok()?)
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=123` and the same with `full`.
fn parse(text: &str) -> Option<Stall> {
    let line = |kind: &str| {
        let mut line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let mut share = Share::default();
        line = line.trim();
        for (index, key) in ["avg10=", "avg60=", "avg300="].into_iter().enumerate() {
            let mut words = line.split_whitespace();
            let value = words.find_map(|word| word.strip_prefix(key))?;
            share.averages[index] = value.parse().ok()?;
        }
        let mut words = line.split_whitespace();
        let total: u64 = words
            .find_map(|word| word.strip_prefix("total="))?
            .parse()
            .ok()?;
        // The kernel counts microseconds.
        share.total = total.saturating_mul(1000);
        Some(share)
    };
    Some(Stall {
        some: line("some")?,
        // Old kernels have none for the CPU.
        full: line("full").unwrap_or_default(),
    })
}

impl From<v1::PsiStats> for Stall {
    fn from(reported: v1::PsiStats) -> Stall {
        let share = |data: Option<v1::PsiData>| {
            data.map_or_else(Share::default, |data| Share {
                total: data.total,
                averages: [data.avg10, data.avg60, data.avg300],
            })
        };
        Stall {
            some: share(reported.some),
            full: share(reported.full),
        }
    }
}

impl Stall {
    pub fn to_json(self) -> Value {
        let share = |share: Share| {
            let [ten, sixty, longest] = share.averages;
            json!({"total": share.total, "avg10": ten, "avg60": sixty, "avg300": longest})
        };
        json!({"full": share(self.full), "some": share(self.some)})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=12\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=3\n";
        let found = parse(text).expect("figures");
        assert_eq!(found.some.averages, [1.5, 0.25, 0.0]);
        assert_eq!((found.some.total, found.full.total), (12_000, 3_000));
        assert_eq!(found.to_json()["full"]["avg10"], 0.5);
        assert_eq!(parse("some avg10=x\n"), None);
    }
}
