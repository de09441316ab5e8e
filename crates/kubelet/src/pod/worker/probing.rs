//! The probes of the pod's running containers: which run, and what they found.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use tokio_util::sync::CancellationToken;

use crate::{
    pod::plan::KillReason,
    pod_spec::find_init_or_app,
    probes::Kind,
    runtime::{ContainerRecord, Observed},
};

#[derive(Default)]
pub(super) struct Probing {
    /// The probes that run, by container id and kind. Cancelling one ends it.
    running: BTreeMap<(String, Kind), CancellationToken>,
    /// Ids of containers whose startup probe has passed.
    startup_passed: BTreeSet<String>,
    /// Ids of containers whose readiness probe passes.
    readiness_passed: BTreeSet<String>,
    /// The containers that must be killed because a probe failed, by id.
    unhealthy: BTreeMap<String, KillReason>,
    /// See [`crate::pod::plan::Situation`].
    ended_by_probe: BTreeMap<String, String>,
}

impl Probing {
    /// Results that an earlier kubelet reported count until the probes have run again.
    pub fn restore(&mut self, id: &str, status: &ContainerStatus) {
        if status.started == Some(true) {
            self.startup_passed.insert(id.to_owned());
        }
        if status.ready {
            self.readiness_passed.insert(id.to_owned());
        }
    }

    pub fn result(&mut self, id: String, kind: Kind, passed: bool) {
        match (kind, passed) {
            (Kind::Startup, true) => {
                self.startup_passed.insert(id);
            }
            (Kind::Startup, false) => {
                self.unhealthy.insert(id, KillReason::StartupProbe);
            }
            (Kind::Readiness, true) => {
                self.readiness_passed.insert(id);
            }
            (Kind::Readiness, false) => {
                self.readiness_passed.remove(&id);
            }
            (Kind::Liveness, true) => {}
            (Kind::Liveness, false) => {
                self.unhealthy.insert(id, KillReason::LivenessProbe);
            }
        }
    }

    pub fn unhealthy(&self) -> &BTreeMap<String, KillReason> {
        &self.unhealthy
    }

    pub fn ended_by_probe(&self) -> &BTreeMap<String, String> {
        &self.ended_by_probe
    }

    /// It was decided what follows for the container that a probe ended. Returns that one's id.
    pub fn decided(&mut self, container: &str) -> Option<String> {
        self.ended_by_probe.remove(container)
    }

    /// Whether the container's readiness probe passed when it last reported.
    pub fn is_ready(&self, id: &str) -> bool {
        self.readiness_passed.contains(id)
    }

    /// Ids of the running containers that count as started: the startup probe passed, or there is none.
    pub fn started(&self, pod: &Pod, observed: &Observed) -> BTreeSet<String> {
        observed
            .running()
            .filter(|record| {
                let is_probed = find_init_or_app(pod, &record.name)
                    .is_some_and(|spec| spec.startup_probe.is_some());
                !is_probed || self.startup_passed.contains(&record.id)
            })
            .map(|record| record.id.clone())
            .collect()
    }

    /// Ids of those `started` containers that are ready.
    pub fn ready(
        &self,
        pod: &Pod,
        observed: &Observed,
        started: &BTreeSet<String>,
    ) -> BTreeSet<String> {
        observed
            .running()
            .filter(|record| started.contains(&record.id))
            .filter(|record| {
                let is_probed = find_init_or_app(pod, &record.name)
                    .is_some_and(|spec| spec.readiness_probe.is_some());
                !is_probed || self.readiness_passed.contains(&record.id)
            })
            .map(|record| record.id.clone())
            .collect()
    }

    /// Ends the probes that are not `wanted` and returns the wanted ones that do not run yet, each with
    /// the token that will end it.
    pub fn match_with<'a>(
        &mut self,
        wanted: BTreeMap<(String, Kind), &'a ContainerRecord>,
    ) -> Vec<(Kind, &'a ContainerRecord, CancellationToken)> {
        self.running.retain(|key, stop| {
            let keep = wanted.contains_key(key);
            if !keep {
                stop.cancel();
            }
            keep
        });
        let mut new = Vec::new();
        for (key, record) in wanted {
            let kind = key.1;
            if let Entry::Vacant(place) = self.running.entry(key) {
                let stop = place.insert(CancellationToken::new());
                new.push((kind, record, stop.clone()));
            }
        }
        new
    }

    /// A container that a probe condemned stays condemned until it has ended, however often the runtime
    /// fails to stop it.
    pub fn settle(&mut self, observed: &Observed, killing: &BTreeSet<String>) {
        let (ended, condemned): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.unhealthy)
                .into_iter()
                .partition(|(id, _)| !killing.contains(id) && !observed.runs(id));
        self.unhealthy = condemned;
        for id in ended.into_keys() {
            if let Some(record) = observed.containers.iter().find(|record| record.id == id) {
                self.ended_by_probe.insert(record.name.clone(), id);
            }
        }
    }

    pub fn stop_all(&self) {
        for stop in self.running.values() {
            stop.cancel();
        }
    }
}
