//! The grace periods of pods when the machine shuts down, by priority. Pure.

use std::{sync::Arc, time::Duration};

use environment::go_duration;
use k8s_openapi::api::core::v1::Pod;

use crate::configuration::{Configuration, ShutdownGracePeriod};

const SYSTEM_CRITICAL: i32 = 2_000_000_000;

/// The periods in the order in which they pass, lowest priority first. None: nothing is done.
pub fn periods(configuration: &Configuration) -> Vec<ShutdownGracePeriod> {
    let mut periods = configuration.shutdown_grace_period_by_pod_priority.clone();
    if periods.is_empty() {
        periods = two_periods(configuration);
    }
    periods.sort_by_key(|period| period.priority);
    periods
}

/// The older setting: one period for all pods, the last part of it for critical pods alone.
fn two_periods(configuration: &Configuration) -> Vec<ShutdownGracePeriod> {
    let parse = |text: &str| go_duration::parse_unsigned(text).unwrap_or_default();
    let all = parse(&configuration.shutdown_grace_period);
    let critical = parse(&configuration.shutdown_grace_period_critical_pods);
    if all.is_zero() || critical > all {
        return Vec::new();
    }
    let period = |priority, length: Duration| ShutdownGracePeriod {
        priority,
        shutdown_grace_period_seconds: length.as_secs() as i64,
    };
    vec![period(0, all - critical), period(SYSTEM_CRITICAL, critical)]
}

pub fn total(periods: &[ShutdownGracePeriod]) -> Duration {
    let seconds: i64 = periods
        .iter()
        .map(|period| period.shutdown_grace_period_seconds)
        .sum();
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Each period with the pods that end in it: those of its priority up to the next one's. Pods
/// below the lowest end with it.
pub fn of(
    periods: &[ShutdownGracePeriod],
    pods: Vec<Arc<Pod>>,
) -> Vec<(ShutdownGracePeriod, Vec<Arc<Pod>>)> {
    let mut groups: Vec<_> = periods
        .iter()
        .map(|period| (period.clone(), Vec::new()))
        .collect();
    for pod in pods {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
        let priority = priority.unwrap_or(0);
        let above = periods.partition_point(|period| period.priority <= priority);
        if let Some((_, group)) = groups.get_mut(above.saturating_sub(1)) {
            group.push(pod);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn period(priority: i32, shutdown_grace_period_seconds: i64) -> ShutdownGracePeriod {
        ShutdownGracePeriod {
            priority,
            shutdown_grace_period_seconds,
        }
    }

    fn pod(name: &str, priority: Option<i32>) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"containers": [], "priority": priority},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn two_periods_become_two_priorities() {
        let said = |all: &str, critical: &str| {
            periods(&Configuration {
                shutdown_grace_period: all.to_owned(),
                shutdown_grace_period_critical_pods: critical.to_owned(),
                ..Configuration::default()
            })
        };
        assert_eq!(
            said("30s", "10s"),
            [period(0, 20), period(SYSTEM_CRITICAL, 10)]
        );
        assert_eq!(total(&said("30s", "10s")), Duration::from_secs(30));
        assert!(said("0s", "0s").is_empty());
        assert!(said("5s", "10s").is_empty());
    }

    #[test]
    fn pods_are_terminated_with_the_nearest_priority_below_theirs() {
        let periods = [period(0, 10), period(100, 20), period(1000, 30)];
        let pods = vec![
            pod("none", None),
            pod("below", Some(-5)),
            pod("same", Some(100)),
            pod("between", Some(999)),
            pod("above", Some(5000)),
        ];
        let names: Vec<Vec<String>> = of(&periods, pods)
            .into_iter()
            .map(|(_, pods)| {
                let names = pods.iter().filter_map(|pod| pod.metadata.name.clone());
                names.collect()
            })
            .collect();
        assert_eq!(
            names,
            [
                vec!["none", "below"],
                vec!["same", "between"],
                vec!["above"]
            ]
        );
    }
}
