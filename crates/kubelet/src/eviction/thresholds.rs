//! When the node is under pressure: thresholds as the configuration writes them, and which of them
//! are met. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    configuration::{Configuration, duration},
    stats::Layout,
};

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
            "allocatableMemory.available" => Signal::AllocatableMemory,
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

    pub fn is_of_images(self) -> bool {
        matches!(self, Signal::ImageFsAvailable | Signal::ImageFsInodesFree)
    }

    /// What nobody needs of that which lies on the disk.
    pub fn waste(self, layout: Layout) -> Waste {
        let disk = self.condition() == "DiskPressure";
        let (containers, images) = match layout {
            Layout::Shared => (true, true),
            Layout::ImagesApart => (self.is_of_images(), self.is_of_images()),
            Layout::ImagesAloneApart => (!self.is_of_images(), self.is_of_images()),
        };
        Waste {
            containers: disk && containers,
            images: disk && images,
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

/// What may be removed for a starved disk before any pod must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waste {
    pub containers: bool,
    pub images: bool,
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

/// All that the configuration names; it has been checked.
pub fn from_configuration(configuration: &Configuration) -> Vec<Threshold> {
    parse(configuration).unwrap_or_default()
}

/// All that the configuration names, or what is wrong with it.
pub fn parse(configuration: &Configuration) -> Result<Vec<Threshold>, String> {
    for (name, text) in &configuration.eviction_minimum_reclaim {
        check_reclaim(known(name)?, text)?;
    }
    let mut graces = BTreeMap::new();
    for (name, text) in &configuration.eviction_soft_grace_period {
        let grace = duration(text).ok_or_else(|| format!("{text:?} is not a duration"))?;
        graces.insert(known(name)?, grace);
    }
    let mut thresholds = Vec::new();
    let mut add = |name: &String, value: &String, grace: Option<Duration>| {
        let Some(signal) = Signal::parse(name) else {
            // Upstream overwrites these with those of the file system that containers lie on.
            tracing::warn!(signal = name, "a threshold for containerfs is not used");
            return;
        };
        if value != "0%" && value != "100%" {
            thresholds.push(Threshold {
                signal,
                value: value.clone(),
                grace,
                reclaim: configuration.eviction_minimum_reclaim.get(name).cloned(),
            });
        }
    };
    for (name, value) in &configuration.eviction_hard {
        check_value(known(name)?, value)?;
        add(name, value, None);
    }
    for (name, value) in &configuration.eviction_soft {
        check_value(known(name)?, value)?;
        let grace = graces.get(name.as_str()).copied().ok_or_else(|| {
            format!("grace period must be specified for the soft eviction threshold {name}")
        })?;
        add(name, value, Some(grace));
    }
    let of_pods = thresholds
        .iter()
        .filter(|_| configuration.enforces_allocatable())
        .find(|threshold| threshold.signal == Signal::MemoryAvailable && threshold.grace.is_none())
        .map(|threshold| Threshold {
            signal: Signal::AllocatableMemory,
            ..threshold.clone()
        });
    thresholds.extend(of_pods);
    thresholds.sort_by_key(|threshold| (threshold.signal, threshold.grace.is_some()));
    Ok(thresholds)
}

/// The name, if it is that of a signal.
fn known(name: &str) -> Result<&str, String> {
    let of_containers = ["containerfs.available", "containerfs.inodesFree"];
    match Signal::parse(name).is_some() || of_containers.contains(&name) {
        true => Ok(name),
        false => Err(format!("unsupported eviction signal {name}")),
    }
}

fn check_value(name: &str, text: &str) -> Result<(), String> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent
            .parse()
            .map_err(|_| format!("{name}: {text:?} is not a percentage"))?;
        if percent < 0.0 {
            return Err(format!(
                "eviction percentage threshold {name} must be >= 0%: {text}"
            ));
        }
        if percent.is_nan() || percent > 100.0 {
            return Err(format!(
                "eviction percentage threshold {name} must be <= 100%: {text}"
            ));
        }
        return Ok(());
    }
    match quantity(name, text)? {
        amount if amount > 0 => Ok(()),
        _ => Err(format!(
            "eviction threshold {name} must be positive: {text}"
        )),
    }
}

fn check_reclaim(name: &str, text: &str) -> Result<(), String> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent
            .parse()
            .map_err(|_| format!("{name}: {text:?} is not a percentage"))?;
        return match percent > 0.0 {
            true => Ok(()),
            false => Err(format!(
                "eviction percentage minimum reclaim {name} must be positive: {text}"
            )),
        };
    }
    match quantity(name, text)? {
        amount if amount < 0 => Err(format!(
            "negative eviction minimum reclaim specified for {name}"
        )),
        _ => Ok(()),
    }
}

fn quantity(name: &str, text: &str) -> Result<i64, String> {
    api::quantity::Quantity::parse(text)
        .map(api::quantity::Quantity::value)
        .map_err(|_| format!("{name}: {text:?} is not a quantity"))
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

/// The conditions that thresholds of these signals raise.
pub fn conditions_of(
    thresholds: &[Threshold],
    signals: &BTreeSet<Signal>,
) -> BTreeSet<&'static str> {
    let of = thresholds
        .iter()
        .filter(|threshold| signals.contains(&threshold.signal));
    of.map(|threshold| threshold.signal.condition()).collect()
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
    fn wrong_thresholds_are_refused() {
        let check = |hard: &[(&str, &str)],
                     soft: &[(&str, &str)],
                     grace: &[(&str, &str)],
                     reclaim: &[(&str, &str)]| {
            let map = |pairs: &[(&str, &str)]| {
                let pairs = pairs.iter();
                pairs
                    .map(|(key, value)| (key.to_string(), value.to_string()))
                    .collect()
            };
            parse(&Configuration {
                eviction_hard: map(hard),
                eviction_soft: map(soft),
                eviction_soft_grace_period: map(grace),
                eviction_minimum_reclaim: map(reclaim),
                ..Configuration::default()
            })
        };
        let hard = |name, value| check(&[(name, value)], &[], &[], &[]);
        assert_eq!(
            hard("disk.available", "1Gi"),
            Err("unsupported eviction signal disk.available".to_owned())
        );
        for value in ["lots", "0", "-1Gi", "x%", "-1%", "101%", "NaN%"] {
            assert!(hard("nodefs.available", value).is_err(), "{value}");
        }
        // Ways to switch one off, and one that is another's.
        for value in ["0%", "100%"] {
            assert_eq!(hard("nodefs.available", value), Ok(Vec::new()));
        }
        assert_eq!(hard("containerfs.available", "1Gi"), Ok(Vec::new()));
        let soft = [("memory.available", "1Gi")];
        assert_eq!(
            check(&[], &soft, &[], &[]),
            Err(
                "grace period must be specified for the soft eviction threshold memory.available"
                    .to_owned()
            )
        );
        assert!(check(&[], &soft, &[("memory.available", "soon")], &[]).is_err());
        assert!(
            check(
                &[],
                &soft,
                &[("memory.available", "30s"), ("disk", "1s")],
                &[]
            )
            .is_err()
        );
        assert_eq!(
            check(&[], &soft, &[("memory.available", "30s")], &[]).map(|all| all.len()),
            Ok(1)
        );
        for value in ["-1", "0%", "much"] {
            assert!(
                check(&[], &[], &[], &[("nodefs.available", value)]).is_err(),
                "{value}"
            );
        }
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
