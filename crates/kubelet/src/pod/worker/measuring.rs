//! What a pod's worker measures of itself, for `/metrics`.

use super::*;
use crate::{
    measures::{Counter, Histogram},
    pod::measuring::has_started,
};

/// Work that has begun and not yet come to rest.
pub(super) struct Round {
    began: tokio::time::Instant,
    kind: &'static str,
}

impl Worker {
    /// A round lasts from the first task of a worker at rest until none is left: what a turn of
    /// upstream's sync loop does for one pod.
    pub(super) fn time_round(&mut self) {
        match &self.round {
            Some(round) if self.tasks.is_empty() => {
                let took = round.began.elapsed();
                let measures = &self.node.telemetry.measures;
                measures.time(Histogram::PodWorkerDuration, &[round.kind], took);
                self.round = None;
            }
            None if !self.tasks.is_empty() => {
                let kind = match self.stopping() {
                    true => "kill",
                    false => self.next_round,
                };
                self.next_round = "sync";
                self.round = Some(Round {
                    began: tokio::time::Instant::now(),
                    kind,
                });
            }
            _ => {}
        }
    }

    /// The API was told `status`. `first_running`: that the pod runs, for the first time.
    pub(super) fn measure_status(&mut self, told: Told) {
        let (measures, now) = (self.node.telemetry.measures.clone(), self.now());
        measures.span(Histogram::PodStatusSyncDuration, &[], told.computed, now);
        if told.first_running {
            measures.span(Histogram::PodStartDuration, &[], self.received, now);
        }
        if let Some(status) = &self.status
            && !self.startup.told
            && has_started(&self.pod, status)
        {
            self.startup.tell(&measures, &self.pod, status, now);
        }
    }

    /// Counts the containers that have ended since the last look, but for those that had ended
    /// before this kubelet first looked.
    pub(super) fn count_ends(&mut self) {
        let Some(observed) = &self.observed else {
            return;
        };
        let ended = observed.containers.iter().filter(|record| record.ended());
        let Some(counted) = &mut self.counted_ends else {
            let before = ended.filter(|_| self.known_before);
            self.counted_ends = Some(before.map(|record| record.id.clone()).collect());
            return self.count_ends();
        };
        let mut new = Vec::new();
        for record in ended {
            if !counted.contains(&record.id) {
                counted.insert(record.id.clone());
                let kind = tasks::kind(&self.pod, &record.name);
                let code = record.exit_code.to_string();
                let labels = [kind, &code, &record.reason];
                let measures = &self.node.telemetry.measures;
                measures.count(Counter::TerminatedContainers, &labels);
                new.push(record.clone());
            }
        }
        if counted.len() > observed.containers.len() {
            counted.retain(|id| observed.containers.iter().any(|record| record.id == *id));
        }
        for record in new {
            self.run_ended(&record);
        }
    }
}

/// What was told of a pod.
pub(super) struct Told {
    /// When the status was computed, in microseconds.
    pub computed: i64,
    pub first_running: bool,
}
