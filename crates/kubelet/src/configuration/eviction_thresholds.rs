//! Eviction thresholds as the configuration writes them (`evictionHard`, `evictionSoft`). Pure.

use std::{collections::BTreeMap, time::Duration};

use environment::go_duration::parse_unsigned as duration;

use super::Configuration;

/// A figure that is measured. The order is that in which pressure is relieved: memory before disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    /// The memory left to pods of what they may use, without the part reserved for the machine.
    AllocatableMemory,
    NodeFsAvailable,
    NodeFsInodesFree,
    ImageFsAvailable,
    ImageFsInodesFree,
    PidAvailable,
}

impl Signal {
    pub fn parse(name: &str) -> Option<Signal> {
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

    /// The node condition it raises.
    pub fn condition(self) -> &'static str {
        match self {
            Signal::MemoryAvailable | Signal::AllocatableMemory => "MemoryPressure",
            Signal::PidAvailable => "PIDPressure",
            _ => "DiskPressure",
        }
    }
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
}

/// All thresholds of a configuration that has been checked.
pub fn from_configuration(configuration: &Configuration) -> Vec<Threshold> {
    parse(configuration).unwrap_or_default()
}

/// A threshold that is invalid, in upstream's wording.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidThreshold(String);

/// All thresholds of the configuration, or what is wrong with them.
pub fn parse(configuration: &Configuration) -> Result<Vec<Threshold>, InvalidThreshold> {
    read(configuration).map_err(InvalidThreshold)
}

fn read(configuration: &Configuration) -> Result<Vec<Threshold>, String> {
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
