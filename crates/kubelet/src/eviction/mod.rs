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
    container_gc, image_gc,
    measures::{Counter, Histogram},
    node_context::NodeContext,
    pod::status::Verdict,
    pods::Pods,
    stats::{self, Depth, Layout},
};

const PERIOD: Duration = Duration::from_secs(10);
/// What a pod gets when memory or disk are all but gone.
const HARD_GRACE: i64 = 1;
/// How long, beyond its grace, an evicted pod is waited for before the next one is chosen.
const LEAVING: Duration = Duration::from_secs(40);
const LEAVING_POLL: Duration = Duration::from_millis(250);

/// Which pressures the node is under, for its conditions.
#[derive(Default)]
pub struct Pressure(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// When each condition was last seen, in microseconds.
    last: BTreeMap<&'static str, i64>,
    /// Those that held when the node was last looked at.
    now: Vec<&'static str>,
}

impl Pressure {
    /// As of the last look at the node.
    pub fn now(&self) -> Vec<&'static str> {
        self.0.lock().now.clone()
    }

    /// A look at the node found `met`; what was found less than `transition` ago still holds. What
    /// is `unknown` stays as it was.
    fn look(
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

/// Watches the node until `shutdown`.
pub async fn run(node: Arc<NodeContext>, pods: Pods, shutdown: CancellationToken) {
    let thresholds = thresholds::from_configuration(&node.configuration);
    let transition = node.configuration.transition_period();
    let mut met_since: BTreeMap<usize, i64> = BTreeMap::new();
    let mut acted = BTreeSet::new();
    let mut unknown = BTreeSet::new();
    loop {
        let measured = measure(&node).await;
        report_unknown(&measured.unknown, &mut unknown);
        let now = node.environment.now_micros();
        let met = thresholds::met(&thresholds, &measured.levels, &acted);
        let conditions = met
            .iter()
            .map(|index| thresholds[*index].signal.condition());
        let unknown = thresholds::conditions_of(&thresholds, &measured.unknown);
        node.pressure
            .look(conditions, unknown.into_iter(), now, transition);
        acted = due(&thresholds, &met, &mut met_since, now);
        let relief = Relief {
            node: &node,
            pods: &pods,
            thresholds: &thresholds,
            measured: &measured,
        };
        let mut due = acted.iter().map(|index| &thresholds[*index]);
        let pause = async {
            match relief.relieve(due.next()).await {
                evicted if evicted.is_empty() => tokio::time::sleep(PERIOD).await,
                // What the node has is known again when they have left.
                evicted => left(&pods, evicted).await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = pause => {}
        }
    }
}

/// Waits until they have left, though not for ever.
async fn left(pods: &Pods, evicted: Vec<Evicted>) {
    let grace = evicted.iter().map(|one| one.grace).max().unwrap_or(0);
    let limit = LEAVING + Duration::from_secs(u64::try_from(grace).unwrap_or(0)) * 3 / 2;
    let gone = async {
        while !evicted.iter().all(|one| pods.told_end(&one.uid)) {
            tokio::time::sleep(LEAVING_POLL).await;
        }
    };
    if tokio::time::timeout(limit, gone).await.is_err() {
        tracing::warn!("evicted pods take long to leave");
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

/// Says once which figures cannot be read, and once when they can be again.
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

/// What the node has left.
struct Measured {
    levels: BTreeMap<Signal, Level>,
    /// What could not be measured. A signal that this machine does not have is in neither.
    unknown: BTreeSet<Signal>,
    layout: Layout,
}

async fn measure(node: &Arc<NodeContext>) -> Measured {
    let cgroups = node.cgroups.clone();
    let read = tokio::task::spawn_blocking(move || {
        let of_pods = cgroups.working_set();
        (stats::read_machine(), of_pods)
    });
    let (read, found) = tokio::join!(read, stats::file_systems(node));
    let (machine, of_pods) = read.unwrap_or_default();
    let reserved = node.configuration.reserved_milli("memory") / 1000;
    judge(&machine, of_pods, node.capacity.memory - reserved, &found)
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
        // A file system without any room of its own tells nothing.
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

/// A pod that was told to leave.
struct Evicted {
    uid: String,
    grace: i64,
}

/// One round of relief.
struct Relief<'a> {
    node: &'a Arc<NodeContext>,
    pods: &'a Pods,
    thresholds: &'a [Threshold],
    measured: &'a Measured,
}

impl Relief<'_> {
    /// Ends pods that hold more than they may, else does something about `starved`, if anything is.
    async fn relieve(&self, starved: Option<&Threshold>) -> Vec<Evicted> {
        let mut running = self.pods.not_ending();
        running.retain(|pod| is_active(pod));
        let isolation = self.node.configuration.local_storage_capacity_isolation;
        let is_limited = |pod: &Pod| isolation && storage::is_limited(pod) && !is_critical(pod);
        let needs_disk = starved.is_some_and(|one| one.signal.condition() == "DiskPressure");
        // Nothing to relieve and nobody with a limit: nothing to measure.
        if starved.is_none() && !running.iter().any(|pod| is_limited(pod)) {
            return Vec::new();
        }
        let depth = |pod: &Pod| match needs_disk || is_limited(pod) {
            true => Depth::Deep,
            false => Depth::Shallow,
        };
        let collected = self.node.environment.now_micros();
        let samples = match stats::collect(self.node, &running, depth).await {
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
        self.node.events.node(
            &self.node.node_name,
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
        let longest = self.node.configuration.eviction_max_pod_grace_period;
        let grace = match threshold.grace {
            None => HARD_GRACE,
            Some(_) => longest.max(HARD_GRACE),
        };
        let signal = threshold.signal.name();
        let (measures, now) = (&self.node.measures, self.node.environment.now_micros());
        measures.span(Histogram::EvictionStatsAge, &[signal], collected, now);
        vec![self.evict(victim, signal, reason, grace, true)]
    }

    /// Removes what nobody needs from a starved disk. Returns whether that was enough.
    async fn reclaim(&self, signal: Signal) -> bool {
        let waste = signal.waste(self.measured.layout);
        if waste.containers {
            container_gc::remove_ended(self.node, self.pods).await;
        }
        if waste.images {
            image_gc::free_unused(self.node).await;
        }
        if !(waste.containers || waste.images) {
            return false;
        }
        let again = measure(self.node).await;
        let all = (0..self.thresholds.len()).collect();
        // Where that cannot be told, the next round tells it: nobody is evicted on a guess.
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
        let events = &self.node.events;
        events.warning_annotated(pod, "Evicted", &message, annotations);
        self.node.measures.count(Counter::Evictions, &[signal]);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let verdict = Verdict {
            reason: "Evicted".to_owned(),
            message,
            disruption,
            grace: Some(grace),
            ..Verdict::default()
        };
        self.pods.end(&uid, verdict);
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
        let none = || std::iter::empty();
        pressure.look(none(), none(), 0, period);
        assert!(pressure.now().is_empty());
        pressure.look(["MemoryPressure"].into_iter(), none(), 10, period);
        pressure.look(none(), none(), 299_000_000, period);
        assert_eq!(pressure.now(), ["MemoryPressure"]);
        pressure.look(none(), none(), 301_000_000, period);
        assert!(pressure.now().is_empty());
        // The clock was set back meanwhile.
        pressure.look(["MemoryPressure"].into_iter(), none(), 500_000_000, period);
        pressure.look(none(), none(), 10, period);
        assert!(pressure.now().is_empty());
    }

    #[test]
    fn a_node_condition_stays_as_it_was_while_its_figure_cannot_be_read() {
        let pressure = Pressure::default();
        let period = Duration::from_secs(1);
        let none = || std::iter::empty();
        let memory = || ["MemoryPressure"].into_iter();
        pressure.look(none(), memory(), 0, period);
        assert!(pressure.now().is_empty(), "unknown is no pressure");
        pressure.look(memory(), none(), 1_000_000, period);
        for second in 2..100 {
            pressure.look(none(), memory(), second * 1_000_000, period);
            assert_eq!(pressure.now(), ["MemoryPressure"]);
        }
        pressure.look(none(), none(), 101_000_000, period);
        assert!(pressure.now().is_empty(), "known to be over");
    }

    #[test]
    fn what_cannot_be_read_meets_no_threshold() {
        let thresholds = thresholds::from_configuration(&Default::default());
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
