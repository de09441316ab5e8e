//! The pressures that the node is under. Eviction reports them, admission and the Node's conditions
//! read them.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

/// The node conditions about pressure, in the order in which messages name them.
const CONDITIONS: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

/// The pressures that the node is under, as its conditions name them.
#[derive(Default)]
pub struct NodePressure(Mutex<PressureRecord>);

#[derive(Default)]
struct PressureRecord {
    /// When each condition was last seen, in microseconds.
    last: BTreeMap<&'static str, i64>,
    /// The conditions that were true when the node was last looked at.
    now: Vec<&'static str>,
}

impl NodePressure {
    /// The conditions that are true as of the last look at the node.
    pub fn now(&self) -> Vec<&'static str> {
        let seen = self.0.lock();
        CONDITIONS
            .into_iter()
            .filter(|condition| seen.now.contains(condition))
            .collect()
    }

    /// A look at the node found these conditions `met`. One that was found less than `transition` ago
    /// is still true; one that is `unknown` stays as it was.
    pub fn observe(
        &self,
        met: impl Iterator<Item = &'static str>,
        unknown: impl Iterator<Item = &'static str>,
        now: i64,
        transition: Duration,
    ) {
        let mut seen = self.0.lock();
        let unchanged: Vec<&str> = unknown
            .filter(|condition| seen.now.contains(condition))
            .collect();
        for condition in met.chain(unchanged) {
            seen.last.insert(condition, now);
        }
        let transition = transition.as_micros() as i64;
        let holding = seen.last.iter().filter(|(_, last)| {
            // What was seen at a time yet to come was seen before the clock was set.
            (0..transition).contains(&(now - **last))
        });
        seen.now = holding.map(|(condition, _)| *condition).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_lasts_for_the_transition_period() {
        let pressure = NodePressure::default();
        let period = Duration::from_secs(300);
        let none = || std::iter::empty();
        pressure.observe(none(), none(), 0, period);
        assert!(pressure.now().is_empty());
        pressure.observe(["MemoryPressure"].into_iter(), none(), 10, period);
        pressure.observe(none(), none(), 299_000_000, period);
        assert_eq!(pressure.now(), ["MemoryPressure"]);
        pressure.observe(none(), none(), 301_000_000, period);
        assert!(pressure.now().is_empty());
        // The clock was set back meanwhile.
        pressure.observe(["MemoryPressure"].into_iter(), none(), 500_000_000, period);
        pressure.observe(none(), none(), 10, period);
        assert!(pressure.now().is_empty());
    }

    #[test]
    fn a_node_condition_stays_as_it_was_while_its_figure_cannot_be_read() {
        let pressure = NodePressure::default();
        let period = Duration::from_secs(1);
        let none = || std::iter::empty();
        let memory = || ["MemoryPressure"].into_iter();
        pressure.observe(none(), memory(), 0, period);
        assert!(pressure.now().is_empty(), "unknown is no pressure");
        pressure.observe(memory(), none(), 1_000_000, period);
        for second in 2..100 {
            pressure.observe(none(), memory(), second * 1_000_000, period);
            assert_eq!(pressure.now(), ["MemoryPressure"]);
        }
        pressure.observe(none(), none(), 101_000_000, period);
        assert!(pressure.now().is_empty(), "known to be over");
    }
}
