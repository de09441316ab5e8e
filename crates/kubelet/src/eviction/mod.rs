//! Pods leave when the node runs short: when that is ([`thresholds`]), who goes first ([`rank`]),
//! and who holds more disk than it said it would ([`storage`]). This file measures and acts.

mod rank;
mod storage;
pub mod thresholds;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use client::events::Severity;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::thresholds::{Level, Signal, Threshold};
use crate::{
    admission::preemption::is_critical,
    image_gc,
    measures::{Counter, Histogram},
    node_context::NodeContext,
    pod::status::Verdict,
    pods::Pods,
    stats::{self, Depth},
};

const PERIOD: Duration = Duration::from_secs(10);
/// What a pod gets when memory or disk are all but gone.
const HARD_GRACE: i64 = 1;

/// Which pressures the node is under, for its conditions.
#[derive(Default)]
pub struct Pressure {
    /// When each condition was last seen, in microseconds.
    seen: Mutex<BTreeMap<&'static str, i64>>,
}

impl Pressure {
    pub fn under(&self, condition: &str, now: i64, transition: Duration) -> bool {
        let seen = self.seen.lock();
        let last = seen.get(condition);
        let transition = transition.as_micros() as i64;
        // What was seen at a time yet to come was seen before the clock was set.
        last.is_some_and(|last| (0..transition).contains(&(now - last)))
    }

    fn see(&self, condition: &'static str, now: i64) {
        self.seen.lock().insert(condition, now);
    }
}

/// Watches the node until `shutdown`.
pub async fn run(node: Arc<NodeContext>, pods: Pods, shutdown: CancellationToken) {
    let thresholds = thresholds::from_configuration(&node.configuration);
    let mut met_since: BTreeMap<usize, i64> = BTreeMap::new();
    let mut acted = BTreeSet::new();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let levels = measure(&node).await;
        let now = node.environment.now_micros();
        let met = thresholds::met(&thresholds, &levels, &acted);
        for index in &met {
            node.pressure
                .see(thresholds[*index].signal.condition(), now);
        }
        acted = due(&thresholds, &met, &mut met_since, now);
        let due = acted.iter().map(|index| &thresholds[*index]).collect();
        relieve(&node, &pods, due, &levels).await;
    }
}

/// Those of the met thresholds that ask for action now: hard ones at once, soft ones after their
/// grace.
fn due(
    thresholds: &[Threshold],
    met: &BTreeSet<usize>,
    met_since: &mut BTreeMap<usize, i64>,
    now: i64,
) -> BTreeSet<usize> {
    met_since.retain(|index, _| met.contains(index));
    met.iter()
        .copied()
        .filter(|index| {
            let since = met_since.entry(*index).or_insert(now);
            *since = (*since).min(now);
            let since = *since;
            let grace = thresholds[*index].grace.unwrap_or_default();
            now - since >= grace.as_micros() as i64
        })
        .collect()
}

async fn measure(node: &Arc<NodeContext>) -> BTreeMap<Signal, Level> {
    let (root, cgroups) = (node.volumes.pods_root.clone(), node.cgroups.clone());
    let read = tokio::task::spawn_blocking(move || {
        let of_pods = cgroups.working_set();
        (stats::read_machine(), stats::space(&root), of_pods)
    });
    let Ok((machine, space, of_pods)) = read.await else {
        return BTreeMap::new();
    };
    let level = |available: u64, capacity: u64| Level {
        available: available as i64,
        capacity: capacity as i64,
    };
    let disk = level(space.available, space.capacity);
    let inodes = level(space.inodes_free, space.inodes);
    let mut levels = BTreeMap::from([
        (
            Signal::MemoryAvailable,
            level(machine.memory_available, machine.memory_total),
        ),
        (Signal::NodeFsAvailable, disk),
        (Signal::ImageFsAvailable, disk),
        (
            Signal::PidAvailable,
            level(
                machine.max_processes.saturating_sub(machine.processes),
                machine.max_processes,
            ),
        ),
    ]);
    if let Some(of_pods) = of_pods {
        let capacity = node.capacity.memory - node.configuration.reserved_milli("memory") / 1000;
        let level = Level {
            available: capacity - of_pods,
            capacity,
        };
        levels.insert(Signal::AllocatableMemory, level);
    }
    // Some file systems make inodes as they need them and count none.
    if space.inodes > 0 {
        levels.insert(Signal::NodeFsInodesFree, inodes);
        levels.insert(Signal::ImageFsInodesFree, inodes);
    }
    levels
}

async fn relieve(
    node: &Arc<NodeContext>,
    pods: &Pods,
    due: Vec<&Threshold>,
    levels: &BTreeMap<Signal, Level>,
) {
    let running: Vec<Arc<Pod>> = pods
        .list()
        .into_iter()
        .filter(|pod| is_active(pod))
        .collect();
    let under_pressure = due.first().copied();
    let needs_disk =
        under_pressure.is_some_and(|threshold| threshold.signal.condition() == "DiskPressure");
    let depth = |pod: &Pod| {
        if needs_disk || storage::is_limited(pod) {
            Depth::Deep
        } else {
            Depth::Shallow
        }
    };
    // Nothing to relieve and nobody with a limit: nothing to measure.
    if under_pressure.is_none() && !running.iter().any(|pod| storage::is_limited(pod)) {
        return;
    }
    let collected = node.environment.now_micros();
    let samples = match stats::collect(node, &running, depth).await {
        Ok(samples) => samples,
        Err(status) => {
            tracing::warn!(%status, "the pods' use of resources could not be read");
            return;
        }
    };
    for pod in &running {
        let sample = samples
            .iter()
            .find(|sample| pod.metadata.uid.as_deref() == Some(&sample.uid));
        if let Some(excess) = sample.and_then(|sample| storage::excess(pod, sample)) {
            node.measures.count(Counter::Evictions, &[excess.signal]);
            evict(node, pods, pod, excess.message, Some(HARD_GRACE));
        }
    }
    let Some(threshold) = under_pressure else {
        return;
    };
    tracing::warn!(signal = ?threshold.signal, "the node runs short");
    node.events.node(
        &node.node_name,
        Severity::Warning,
        "EvictionThresholdMet",
        format!("Attempting to reclaim {}", threshold.signal.resource()),
    );
    if needs_disk && image_gc::free_everything(node).await > 0 {
        let again = measure(node).await;
        let acted = BTreeSet::from([0]);
        if !thresholds::met(std::slice::from_ref(threshold), &again, &acted).is_empty() {
            tracing::warn!("removing images was not enough");
        } else {
            return;
        }
    }
    let candidates: Vec<(Arc<Pod>, _)> = running
        .into_iter()
        .filter(|pod| !is_critical(pod))
        .filter_map(|pod| {
            let sample = samples
                .iter()
                .find(|sample| pod.metadata.uid.as_deref() == Some(&sample.uid))?;
            Some((pod, sample.clone()))
        })
        .collect();
    let ranked = rank::order(candidates, threshold.signal);
    let Some((victim, sample)) = ranked.first() else {
        tracing::warn!("there is no pod that could be evicted");
        return;
    };
    let message = rank::message(victim, sample, threshold, levels.get(&threshold.signal));
    let grace = match threshold.grace {
        None => HARD_GRACE,
        Some(_) => node
            .configuration
            .eviction_max_pod_grace_period
            .max(HARD_GRACE),
    };
    let signal = [threshold.signal.name()];
    node.measures.count(Counter::Evictions, &signal);
    let now = node.environment.now_micros();
    node.measures
        .span(Histogram::EvictionStatsAge, &signal, collected, now);
    evict(node, pods, victim, message, Some(grace));
}

fn evict(node: &NodeContext, pods: &Pods, pod: &Pod, message: String, grace: Option<i64>) {
    node.events.warning(pod, "Evicted", &message);
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let verdict = Verdict {
        reason: "Evicted".to_owned(),
        message,
        disruption: true,
        grace,
        ..Verdict::default()
    };
    pods.end(&uid, verdict);
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_thresholds_wait_and_start_anew_when_interrupted() {
        let thresholds = [Threshold {
            signal: Signal::MemoryAvailable,
            value: "100".to_owned(),
            grace: Some(Duration::from_secs(30)),
            reclaim: None,
        }];
        let levels = |available: i64| {
            BTreeMap::from([(
                Signal::MemoryAvailable,
                Level {
                    available,
                    capacity: 1000,
                },
            )])
        };
        let mut since = BTreeMap::new();
        let mut at = |available: i64, seconds: i64| {
            let met = thresholds::met(&thresholds, &levels(available), &BTreeSet::new());
            due(&thresholds, &met, &mut since, seconds * 1_000_000).len()
        };
        assert_eq!(at(50, 0), 0);
        assert_eq!(at(50, 29), 0);
        assert_eq!(at(50, 30), 1);
        assert_eq!(at(500, 40), 0);
        assert_eq!(at(50, 50), 0, "counted anew");
        assert_eq!(at(50, 80), 1);
    }

    #[test]
    fn a_condition_lasts_for_the_transition_period() {
        let pressure = Pressure::default();
        let period = Duration::from_secs(300);
        assert!(!pressure.under("MemoryPressure", 0, period));
        pressure.see("MemoryPressure", 10);
        assert!(pressure.under("MemoryPressure", 299_000_000, period));
        assert!(!pressure.under("MemoryPressure", 301_000_000, period));
    }
}
