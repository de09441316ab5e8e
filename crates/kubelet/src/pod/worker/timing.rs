//! Measures a pod's worker, for `/metrics`.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::time::Instant;

use crate::{
    measures::{Counter, Histogram, Measures},
    pod::measuring::{Startup, container_kind, has_started},
    runtime::{ContainerRecord, Observed},
};

pub(super) struct Timing {
    measures: Arc<Measures>,
    /// When the pod reached this node, in microseconds.
    received: i64,
    /// The pod had begun to run before this worker.
    known_before: bool,
    startup: Startup,
    /// Ids of ended containers that have been counted; `None` before the first look.
    counted_ends: Option<BTreeSet<String>>,
    round: Option<Round>,
    /// The kind of the next round: create, update or sync.
    next_round: &'static str,
}

/// Work that has begun and not yet come to rest.
struct Round {
    began: Instant,
    kind: &'static str,
}

impl Timing {
    pub fn new(measures: Arc<Measures>, received: i64) -> Timing {
        Timing {
            measures,
            received,
            known_before: false,
            startup: Startup::default(),
            counted_ends: None,
            round: None,
            next_round: "create",
        }
    }

    pub fn received(&self) -> i64 {
        self.received
    }

    /// The pod's start was measured by an earlier kubelet, if it has begun.
    pub fn restore(&mut self, status: &PodStatus) {
        self.known_before = status.start_time.is_some();
        self.startup.is_recorded = self.known_before;
    }

    /// The next round is for an update of the pod.
    pub fn updated(&mut self) {
        self.next_round = "update";
    }

    /// The time during which an image was pulled does not count as the node's.
    pub fn pulled(&mut self, from: i64, to: i64) {
        self.startup.pulled(from, to);
    }

    /// A round lasts from the first task of a worker at rest until none is left: what a turn of
    /// upstream's sync loop does for one pod.
    pub fn round(&mut self, is_idle: bool, is_ending: bool) {
        match &self.round {
            Some(round) if is_idle => {
                let took = round.began.elapsed();
                self.measures
                    .time(Histogram::PodWorkerDuration, &[round.kind], took);
                self.round = None;
            }
            None if !is_idle => {
                let kind = match is_ending {
                    true => "kill",
                    false => self.next_round,
                };
                self.next_round = "sync";
                self.round = Some(Round {
                    began: Instant::now(),
                    kind,
                });
            }
            _ => {}
        }
    }

    /// A status that was computed at `computed` has been written. `first_running`: it is the first one
    /// that says that the pod runs.
    pub fn status_written(
        &mut self,
        pod: &Pod,
        status: Option<&PodStatus>,
        computed: i64,
        first_running: bool,
        now: i64,
    ) {
        let measures = &self.measures;
        measures.span(Histogram::PodStatusSyncDuration, &[], computed, now);
        if first_running {
            measures.span(Histogram::PodStartDuration, &[], self.received, now);
        }
        if let Some(status) = status
            && !self.startup.is_recorded
            && has_started(pod, status)
        {
            self.startup.record(measures, pod, status, now);
        }
    }

    /// Counts the containers that have ended since the last look, and returns them. Those do not count
    /// that had ended before this kubelet first looked.
    pub fn count_ends(&mut self, pod: &Pod, observed: &Observed) -> Vec<ContainerRecord> {
        let ended = || observed.containers.iter().filter(|record| record.ended());
        let known_before = self.known_before;
        let counted = self.counted_ends.get_or_insert_with(|| {
            let before = ended().filter(|_| known_before);
            before.map(|record| record.id.clone()).collect()
        });
        let mut new = Vec::new();
        for record in ended() {
            if !counted.contains(&record.id) {
                counted.insert(record.id.clone());
                let kind = container_kind(pod, &record.name);
                let code = record.exit_code.to_string();
                let labels = [kind, &code, &record.reason];
                self.measures.count(Counter::TerminatedContainers, &labels);
                new.push(record.clone());
            }
        }
        if counted.len() > observed.containers.len() {
            counted.retain(|id| observed.containers.iter().any(|record| record.id == *id));
        }
        new
    }
}
