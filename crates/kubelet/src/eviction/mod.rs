//! Evicts pods when the node runs short: when that is ([`thresholds`]), which pod is first ([`rank`]),
//! and which pods use more disk than their limits allow ([`storage`]). This file measures and acts.

mod rank;
mod storage;
mod thresholds;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use client::events::Severity;
use environment::Environment;
use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;

use self::thresholds::Level;
use crate::{
    cgroups::Cgroups,
    configuration::eviction_thresholds::{self, Signal, Threshold},
    container_gc,
    image_gc::ImageCollector,
    measures::{Counter, Histogram},
    node_pressure::NodePressure,
    node_settings::NodeSettings,
    pod::termination::Termination,
    pod_spec::is_critical,
    pods::Pods,
    stats::{self, Depth, Layout, Sampler},
    telemetry::Telemetry,
};

const PERIOD: Duration = Duration::from_secs(10);
/// The grace period of a pod when memory or disk are all but used up, in seconds.
const HARD_GRACE: i64 = 1;
/// How long, beyond its grace period, an evicted pod is waited for before the next one is chosen.
const LEAVING: Duration = Duration::from_secs(40);
const LEAVING_POLL: Duration = Duration::from_millis(250);

/// The parts of the kubelet with which eviction measures and acts.
pub struct Eviction {
    pub settings: Arc<NodeSettings>,
    pub telemetry: Telemetry,
    pub environment: Environment,
    pub cri: cri::Client,
    pub cgroups: Cgroups,
    pub sampler: Arc<Sampler>,
    pub images: Arc<ImageCollector>,
    pub pressure: Arc<NodePressure>,
    pub pods: Pods,
}

/// Watches the node until `shutdown`.
pub async fn run(eviction: Eviction, shutdown: CancellationToken) {
    let pods = &eviction.pods;
    let thresholds = eviction_thresholds::from_configuration(&eviction.settings.configuration);
    let transition = eviction.settings.configuration.transition_period();
    let mut met_since: BTreeMap<usize, i64> = BTreeMap::new();
    let mut acted = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    loop {
        let measured = measure(&eviction).await;
        report_unknown(&measured.unknown, &mut unknown);
        let now = eviction.environment.now_micros();
        let met = thresholds::met(&thresholds, &measured.levels, &acted);
        let conditions = met
            .iter()
            .map(|index| thresholds[*index].signal.condition());
        let unknown = thresholds::conditions_of(&thresholds, &measured.unknown);
        eviction
            .pressure
            .observe(conditions, unknown.into_iter(), now, transition);
        acted = due(&thresholds, &met, &mut met_since, now);
        let relief = Relief {
            eviction: &eviction,
            thresholds: &thresholds,
            measured: &measured,
        };
        let mut due = acted.iter().map(|index| &thresholds[*index]);
        let pause = async {
            match relief.relieve(due.next()).await {
                evicted if evicted.is_empty() => tokio::time::sleep(PERIOD).await,
                // How much the node has is known again when they have ended.
                evicted => left(pods, evicted).await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = pause => {}
        }
    }
}

/// Waits until they have ended, though not for ever.
async fn left(pods: &Pods, evicted: Vec<Evicted>) {
    let grace = evicted.iter().map(|one| one.grace).max().unwrap_or(0);
    let limit = LEAVING + Duration::from_secs(u64::try_from(grace).unwrap_or(0)) * 3 / 2;
    let gone = async {
        while !evicted.iter().all(|one| pods.end_is_reported(&one.uid)) {
            tokio::time::sleep(LEAVING_POLL).await;
        }
    };
    if tokio::time::timeout(limit, gone).await.is_err() {
        tracing::warn!("evicted pods take long to end");
    }
}

/// The met thresholds that must be acted on now: hard ones at once, soft ones after their grace
/// period.
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

/// Logs once which figures cannot be read, and once when they can be again.
fn report_unknown(unknown: &BTreeSet<Signal>, reported: &mut BTreeSet<Signal>) {
    if unknown == reported {
        return;
    }
    let names: Vec<&str> = unknown.iter().map(|signal| signal.name()).collect();
    match names.is_empty() {
        true => tracing::info!("all eviction signals can be read again"),
        false => tracing::warn!(
            signals = names.join(", "),
            "eviction signals cannot be read: conditions stay as they are, and no pod is evicted for them"
        ),
    }
    reported.clone_from(unknown);
}

/// How much the node has left.
struct Measured {
    levels: BTreeMap<Signal, Level>,
    /// The signals that could not be measured. One that this machine does not have is in neither.
    unknown: BTreeSet<Signal>,
    layout: Layout,
}

async fn measure(eviction: &Eviction) -> Measured {
    let cgroups = eviction.cgroups.clone();
    let read = tokio::task::spawn_blocking(move || {
        let of_pods = cgroups.working_set();
        (stats::read_machine(), of_pods)
    });
    let (read, found) = tokio::join!(read, eviction.sampler.file_systems());
    let (machine, of_pods) = read.unwrap_or_default();
    let settings = &eviction.settings;
    let reserved = settings.configuration.reserved_milli("memory") / 1000;
    judge(
        &machine,
        of_pods,
        settings.capacity.memory - reserved,
        &found,
    )
}

/// `of_pods` is the memory that pods use, `theirs` how much they may have.
fn judge(
    machine: &stats::Machine,
    of_pods: Option<i64>,
    theirs: i64,
    found: &stats::FileSystems,
) -> Measured {
    let level = |available: u64, capacity: u64| Level {
        available: available as i64,
        capacity: capacity as i64,
    };
    let memory = machine.memory_available.zip(machine.memory_total);
    let processes = machine.processes.zip(machine.max_processes);
    let mut figures = vec![
        (
            Signal::MemoryAvailable,
            memory.map(|(available, total)| level(available, total)),
        ),
        (
            Signal::PidAvailable,
            processes.map(|(running, most)| level(most.saturating_sub(running), most)),
        ),
        (
            Signal::AllocatableMemory,
            of_pods.map(|used| Level {
                available: theirs - used,
                capacity: theirs,
            }),
        ),
    ];
    for (space, bytes, inodes) in [
        (
            found.node,
            Signal::NodeFsAvailable,
            Signal::NodeFsInodesFree,
        ),
        (
            found.images,
            Signal::ImageFsAvailable,
            Signal::ImageFsInodesFree,
        ),
    ] {
        // A file system without a capacity of its own gives no signal.
        let space = space.filter(|space| space.capacity > 0);
        figures.push((
            bytes,
            space.map(|space| level(space.available, space.capacity)),
        ));
        // Some file systems make inodes as they need them and count none.
        if space.is_none_or(|space| space.inodes > 0) {
            figures.push((
                inodes,
                space.map(|space| level(space.inodes_free, space.inodes)),
            ));
        }
    }
    let unknown = figures.iter().filter(|(_, level)| level.is_none());
    Measured {
        unknown: unknown.map(|(signal, _)| *signal).collect(),
        levels: figures
            .into_iter()
            .filter_map(|(signal, level)| Some((signal, level?)))
            .collect(),
        layout: found.layout,
    }
}

/// A pod that was evicted and has not ended yet.
struct Evicted {
    uid: String,
    grace: i64,
}

/// One round of relief.
struct Relief<'a> {
    eviction: &'a Eviction,
    thresholds: &'a [Threshold],
    measured: &'a Measured,
}

impl Relief<'_> {
    /// Evicts pods that use more than they may; if there are none, relieves `starved`.
    async fn relieve(&self, starved: Option<&Threshold>) -> Vec<Evicted> {
        let mut running = self.eviction.pods.not_ending();
        running.retain(|pod| is_active(pod));
        let isolation = self
            .eviction
            .settings
            .configuration
            .local_storage_capacity_isolation;
        let is_limited = |pod: &Pod| isolation && storage::is_limited(pod) && !is_critical(pod);
        let needs_disk = starved.is_some_and(|one| one.signal.condition() == "DiskPressure");
        // Nothing is starved and no pod has a limit: there is nothing to measure.
        if starved.is_none() && !running.iter().any(|pod| is_limited(pod)) {
            return Vec::new();
        }
        let depth = |pod: &Pod| match needs_disk || is_limited(pod) {
            true => Depth::Deep,
            false => Depth::Shallow,
        };
        let collected = self.eviction.environment.now_micros();
        let samples = match self.eviction.sampler.collect(&running, depth).await {
            Ok(samples) => samples,
            Err(status) => {
                tracing::warn!(%status, "the pods' use of resources could not be read");
                return Vec::new();
            }
        };
        let sample_of = |pod: &Pod| {
            let mut samples = samples.iter();
            samples.find(|sample| pod.metadata.uid.as_deref() == Some(&sample.uid))
        };
        let mut evicted = Vec::new();
        for pod in running.iter().filter(|pod| is_limited(pod)) {
            let excess = sample_of(pod)
                .and_then(|sample| storage::excess(pod, sample, self.measured.layout));
            if let Some(excess) = excess {
                let reason = rank::Reason {
                    message: excess.message,
                    annotations: BTreeMap::new(),
                };
                evicted.push(self.evict(pod, excess.signal, reason, HARD_GRACE, false));
            }
        }
        if !evicted.is_empty() {
            return evicted;
        }
        let Some(threshold) = starved else {
            return Vec::new();
        };
        tracing::warn!(signal = ?threshold.signal, "the node runs short");
        self.eviction.telemetry.events.node(
            &self.eviction.settings.node_name,
            Severity::Warning,
            "EvictionThresholdMet",
            format!("Attempting to reclaim {}", threshold.signal.resource()),
        );
        if self.reclaim(threshold.signal).await {
            tracing::info!("pressure was relieved without evicting pods");
            return Vec::new();
        }
        let candidates = running
            .iter()
            .filter(|pod| !is_critical(pod))
            .map(|pod| (pod.clone(), sample_of(pod).cloned()))
            .collect();
        let ranked = rank::order(candidates, threshold.signal, self.measured.layout);
        let Some((victim, sample)) = ranked.first() else {
            tracing::warn!("there is no pod that could be evicted");
            return Vec::new();
        };
        let level = self.measured.levels.get(&threshold.signal);
        let reason = rank::reason(victim, sample.as_ref(), threshold, level);
        let longest = self
            .eviction
            .settings
            .configuration
            .eviction_max_pod_grace_period;
        let grace = match threshold.grace {
            None => HARD_GRACE,
            Some(_) => longest.max(HARD_GRACE),
        };
        let signal = threshold.signal.name();
        let (measures, now) = (
            &self.eviction.telemetry.measures,
            self.eviction.environment.now_micros(),
        );
        measures.span(Histogram::EvictionStatsAge, &[signal], collected, now);
        vec![self.evict(victim, signal, reason, grace, true)]
    }

    /// Removes dead containers and unused images from a starved disk. Returns whether that was enough.
    async fn reclaim(&self, signal: Signal) -> bool {
        let waste = thresholds::waste(signal, self.measured.layout);
        if waste.containers {
            container_gc::remove_ended(&self.eviction.cri, &self.eviction.pods).await;
        }
        if waste.images {
            self.eviction.images.free_unused().await;
        }
        if !(waste.containers || waste.images) {
            return false;
        }
        let again = measure(self.eviction).await;
        let all = (0..self.thresholds.len()).collect();
        // Where that is unknown, the next round decides: no pod is evicted on a guess.
        thresholds::met(self.thresholds, &again.levels, &all).is_empty()
    }

    fn evict(
        &self,
        pod: &Pod,
        signal: &str,
        reason: rank::Reason,
        grace: i64,
        disruption: bool,
    ) -> Evicted {
        let rank::Reason {
            message,
            annotations,
        } = reason;
        let events = &self.eviction.telemetry.events;
        events.warning_annotated(pod, "Evicted", &message, annotations);
        self.eviction
            .telemetry
            .measures
            .count(Counter::Evictions, &[signal]);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let termination = Termination {
            reason: "Evicted".to_owned(),
            message,
            disruption,
            grace: Some(grace),
            ..Termination::default()
        };
        self.eviction.pods.end(&uid, termination);
        Evicted { uid, grace }
    }
}

fn is_active(pod: &Pod) -> bool {
    semantics::pod::is_active(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_thresholds_wait_and_start_again_when_interrupted() {
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
    fn what_cannot_be_read_meets_no_threshold() {
        let thresholds = eviction_thresholds::from_configuration(&Default::default());
        assert!(!thresholds.is_empty());
        let found = stats::FileSystems::default();
        let measured = judge(&stats::Machine::default(), None, 1 << 30, &found);
        assert!(measured.levels.is_empty());
        let met = thresholds::met(&thresholds, &measured.levels, &BTreeSet::new());
        assert!(met.is_empty());
        let unknown = thresholds::conditions_of(&thresholds, &measured.unknown);
        assert!(unknown.contains("MemoryPressure") && unknown.contains("DiskPressure"));

        // The same machine when it really has nothing left.
        let machine = stats::Machine {
            memory_available: Some(0),
            memory_total: Some(1 << 30),
            ..stats::Machine::default()
        };
        let measured = judge(&machine, None, 1 << 30, &found);
        let met = thresholds::met(&thresholds, &measured.levels, &BTreeSet::new());
        assert_eq!(met.len(), 1);
        assert!(!measured.unknown.contains(&Signal::MemoryAvailable));
    }
}
