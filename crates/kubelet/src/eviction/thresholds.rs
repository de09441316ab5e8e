//! When the node is under pressure: thresholds as the configuration writes them, and which of them
//! are met. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::configuration::{Configuration, duration};

/// What is measured. The order is that in which pressure is relieved: memory before disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    /// What is left to pods of the memory that is theirs, the machine's own part set aside.
    AllocatableMemory,
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

    /// As the configuration and metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            Signal::MemoryAvailable => "memory.available",
            Signal::AllocatableMemory => "allocatableMemory.available",
            Signal::NodeFsAvailable => "nodefs.available",
            Signal::NodeFsInodesFree => "nodefs.inodesFree",
            Signal::ImageFsAvailable => "imagefs.available",
            Signal::ImageFsInodesFree => "imagefs.inodesFree",
            Signal::PidAvailable => "pid.available",
        }
    }

    /// The resource that eviction wins back, as messages name it.
    pub fn resource(self) -> &'static str {
        match self {
            Signal::MemoryAvailable | Signal::AllocatableMemory => "memory",
            Signal::NodeFsAvailable | Signal::ImageFsAvailable => "ephemeral-storage",
            Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => "inodes",
            Signal::PidAvailable => "pids",
        }
    }

    /// The node condition it raises.
    pub fn condition(self) -> &'static str {
        match self {
            Signal::MemoryAvailable | Signal::AllocatableMemory => "MemoryPressure",
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
    /// How much more must be free before it counts as no longer met; a quantity or a percentage.
    pub reclaim: Option<String>,
}

impl Threshold {
    pub fn quantity(&self, capacity: i64) -> Option<i64> {
        amount(&self.value, capacity)
    }

    /// `acted`: it has been acted on and must be left behind by the minimum reclaim.
    fn is_met(&self, level: &Level, acted: bool) -> bool {
        let more = self.reclaim.as_ref().filter(|_| acted);
        let more = more
            .and_then(|text| amount(text, level.capacity))
            .unwrap_or(0);
        self.quantity(level.capacity)
            .is_some_and(|quantity| level.available < quantity.saturating_add(more))
    }
}

pub fn from_configuration(configuration: &Configuration) -> Vec<Threshold> {
    let reclaim = |name: &String| configuration.eviction_minimum_reclaim.get(name).cloned();
    let mut thresholds: Vec<Threshold> = configuration
        .eviction_hard
        .iter()
        .filter_map(|(name, value)| {
            Some(Threshold {
                signal: Signal::parse(name)?,
                value: value.clone(),
                grace: None,
                reclaim: reclaim(name),
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
                    reclaim: reclaim(name),
                })
            }),
    );
    let of_pods = thresholds
        .iter()
        .find(|threshold| threshold.signal == Signal::MemoryAvailable && threshold.grace.is_none())
        .map(|threshold| Threshold {
            signal: Signal::AllocatableMemory,
            ..threshold.clone()
        });
    thresholds.extend(of_pods);
    thresholds.sort_by_key(|threshold| (threshold.signal, threshold.grace.is_some()));
    thresholds
}

/// The places of those that are met right now. `acted`: the places of those acted on last time.
pub fn met(
    thresholds: &[Threshold],
    levels: &BTreeMap<Signal, Level>,
    acted: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let all = thresholds.iter().enumerate();
    all.filter(|(index, threshold)| {
        let level = levels.get(&threshold.signal);
        level.is_some_and(|level| threshold.is_met(level, acted.contains(index)))
    })
    .map(|(index, _)| index)
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
        let met = |memory: i64, disk: i64| -> Vec<Signal> {
            let met = met(&thresholds, &levels(memory, disk), &BTreeSet::new());
            met.into_iter()
                .map(|index| thresholds[index].signal)
                .collect()
        };
        assert!(met(200 << 20, 2 << 30).is_empty());
        let found = met(50 << 20, 1 << 20);
        assert_eq!(found[0], Signal::MemoryAvailable);
        assert_eq!(found[1].condition(), "DiskPressure");
        assert_eq!(amount("10%", 1000), Some(100));
        assert_eq!(amount("120%", 1000), None);
        assert_eq!(amount("1Ki", 5), Some(1024));
    }

    #[test]
    fn what_was_acted_on_is_left_behind_by_the_minimum_reclaim() {
        let thresholds = [Threshold {
            signal: Signal::NodeFsAvailable,
            value: "100".to_owned(),
            grace: None,
            reclaim: Some("50".to_owned()),
        }];
        let met = |available: i64, acted: &[usize]| {
            let level = Level {
                available,
                capacity: 1000,
            };
            let levels = BTreeMap::from([(Signal::NodeFsAvailable, level)]);
            !met(&thresholds, &levels, &acted.iter().copied().collect()).is_empty()
        };
        assert!(!met(120, &[]));
        assert!(met(120, &[0]));
        assert!(!met(150, &[0]));
    }
}
