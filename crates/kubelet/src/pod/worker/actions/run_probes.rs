//! Runs the probes of the pod's running containers.

use std::collections::BTreeMap;

use super::pod_ips;
use crate::{
    pod::worker::Worker,
    pod_spec::find_init_or_app,
    probes::{self, Kind},
    runtime::ContainerRecord,
};

/// Begins the probes of running containers and ends those of containers that are gone.
pub fn begin_and_end(worker: &mut Worker) {
    let Some(observed) = worker.runtime.observed() else {
        return;
    };
    let Some(sandbox) = observed.sandbox() else {
        return;
    };
    let pod = worker.forms.granted();
    let started = worker.probing.started(pod, observed);
    let is_ending = worker.is_ending();
    let mut wanted: BTreeMap<(String, Kind), &ContainerRecord> = BTreeMap::new();
    for record in observed.running() {
        let Some(spec) = find_init_or_app(pod, &record.name) else {
            continue;
        };
        let is_started = started.contains(&record.id);
        for (kind, is_due) in [
            (Kind::Startup, !is_ending && !is_started),
            (Kind::Readiness, is_started),
            (Kind::Liveness, !is_ending && is_started),
        ] {
            if is_due && kind.of(spec).is_some() {
                wanted.insert((record.id.clone(), kind), record);
            }
        }
    }
    let host_ip = &worker.services.settings.host_ip;
    let now = worker.services.environment.now_micros();
    for (kind, record, stop) in worker.probing.match_with(wanted) {
        let Some(spec) = find_init_or_app(pod, &record.name) else {
            continue;
        };
        let target = probes::Target {
            pod: pod.clone(),
            container: spec.clone(),
            container_id: record.id.clone(),
            pod_ip: pod_ips(host_ip, pod, sandbox)
                .into_iter()
                .next()
                .unwrap_or_default(),
            started_at: record.started_at / 1000,
            now,
            passed: worker.probing.is_ready(&record.id),
        };
        let mailbox = worker.mailbox.clone();
        tokio::spawn(probes::run(
            worker.services.cri.clone(),
            worker.services.telemetry.events.clone(),
            worker.services.probe_counts.clone(),
            kind,
            target,
            move |result| mailbox.probe_result(result),
            stop,
        ));
    }
}
