//! When the node is under pressure: thresholds as the configuration writes them, and which of them
//! are met. Pure.

use std::{collections::BTreeMap, time::Duration};

use crate::configuration::{Configuration, duration};

/// What is measured. The order is that in which pressure is relieved: memory before disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    NodeFsAvailable,
    NodeFsInodesFree,
    ImageFsAvailable,
    ImageFsInodesFree,
    PidAvailable,
}

impl Signal {
    fn parse(name: &str) -> Option<Signal> {
        Some(match name {
            "memory.available" => Signal::MemoryAvailable,
            "nodefs.available" => Signal::NodeFsAvailable,
            "nodefs.inodesFree" => Signal::NodeFsInodesFree,
            "imagefs.available" => Signal::ImageFsAvailable,
            "imagefs.inodesFree" => Signal::ImageFsInodesFree,
            "pid.available" => Signal::PidAvailable,
            _ => return None,
        })
    }

    /// The resource that eviction wins back, as messages name it.
    pub fn resource(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "memory",
            Signal::NodeFsAvailable | Signal::ImageFsAvailable => "ephemeral-storage",
            Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => "inodes",
            Signal::PidAvailable => "pids",
        }
    }

    /// The node condition it raises.
    pub fn condition(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "MemoryPressure",
            Signal::PidAvailable => "PIDPressure",
            _ => "DiskPressure",
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub available: i64,
    pub capacity: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threshold {
    pub signal: Signal,
    /// A quantity or a percentage of the capacity.
    pub value: String,
    /// `None`: acts at once, with the least grace.
    pub grace: Option<Duration>,
}

impl Threshold {
    pub fn quantity(&self, capacity: i64) -> Option<i64> {
        amount(&self.value, capacity)
    }
}

pub fn from_configuration(configuration: &Configuration) -> Vec<Threshold> {
    let mut thresholds: Vec<Threshold> = configuration
        .eviction_hard
        .iter()
        .filter_map(|(name, value)| {
            Some(Threshold {
                signal: Signal::parse(name)?,
                value: value.clone(),
                grace: None,
            })
        })
        .collect();
    thresholds.extend(
        configuration
            .eviction_soft
            .iter()
            .filter_map(|(name, value)| {
                let grace = configuration.eviction_soft_grace_period.get(name);
                Some(Threshold {
                    signal: Signal::parse(name)?,
                    value: value.clone(),
                    grace: Some(grace.and_then(|text| duration(text)).unwrap_or_default()),
                })
            }),
    );
    thresholds.sort_by_key(|threshold| (threshold.signal, threshold.grace.is_some()));
    thresholds
}

/// Those that are met right now.
pub fn met<'a>(
    thresholds: &'a [Threshold],
    levels: &BTreeMap<Signal, Level>,
) -> Vec<&'a Threshold> {
    thresholds
        .iter()
        .filter(|threshold| {
            levels.get(&threshold.signal).is_some_and(|level| {
                threshold
                    .quantity(level.capacity)
                    .is_some_and(|quantity| level.available < quantity)
            })
        })
        .collect()
}

/// A quantity, or a percentage of `total`.
pub fn amount(text: &str, total: i64) -> Option<i64> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.parse().ok()?;
            (0.0..=100.0)
                .contains(&percent)
                .then_some((total as f64 * percent / 100.0) as i64)
        }
        None => api::quantity::Quantity::parse(text)
            .ok()
            .map(api::quantity::Quantity::value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_and_percentages_are_compared() {
        let thresholds = from_configuration(&Configuration::default());
        let levels = |memory: i64, disk: i64| {
            BTreeMap::from([
                (
                    Signal::MemoryAvailable,
                    Level {
                        available: memory,
                        capacity: 1 << 30,
                    },
                ),
                (
                    Signal::NodeFsAvailable,
                    Level {
                        available: disk,
                        capacity: 100 << 30,
                    },
                ),
            ])
        };
        assert!(met(&thresholds, &levels(200 << 20, 2 << 30)).is_empty());
        let both = levels(50 << 20, 1 << 20);
        let found = met(&thresholds, &both);
        assert_eq!(found[0].signal, Signal::MemoryAvailable);
        assert_eq!(found[1].signal.condition(), "DiskPressure");
        assert_eq!(amount("10%", 1000), Some(100));
        assert_eq!(amount("120%", 1000), None);
        assert_eq!(amount("1Ki", 5), Some(1024));
    }
}
