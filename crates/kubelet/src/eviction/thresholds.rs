//! When the node is under pressure: which thresholds are met, and what can be removed from a
//! starved disk before pods are evicted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    configuration::eviction_thresholds::{Signal, Threshold, amount},
    stats::Layout,
};

/// What can be removed from a starved disk before any pod is evicted.
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

/// What can be removed from the disk that the signal measures without evicting a pod.
pub fn waste(signal: Signal, layout: Layout) -> Waste {
    let disk = signal.condition() == "DiskPressure";
    let (containers, images) = match layout {
        Layout::Shared => (true, true),
        Layout::ImagesApart => (signal.is_of_images(), signal.is_of_images()),
        Layout::ImagesAloneApart => (!signal.is_of_images(), signal.is_of_images()),
    };
    Waste {
        containers: disk && containers,
        images: disk && images,
    }
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
        level.is_some_and(|level| is_met(threshold, level, acted.contains(index)))
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

/// `acted`: it has been acted on and must be left behind by the minimum reclaim.
fn is_met(threshold: &Threshold, level: &Level, acted: bool) -> bool {
    let more = threshold.reclaim.as_ref().filter(|_| acted);
    let more = more
        .and_then(|text| amount(text, level.capacity))
        .unwrap_or(0);
    threshold
        .quantity(level.capacity)
        .is_some_and(|quantity| level.available < quantity.saturating_add(more))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{
        Configuration,
        eviction_thresholds::{from_configuration, parse},
    };

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
    fn invalid_thresholds_are_rejected() {
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
            .map_err(|error| error.to_string())
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
    fn a_relieved_threshold_must_be_exceeded_by_the_minimum_reclaim() {
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
