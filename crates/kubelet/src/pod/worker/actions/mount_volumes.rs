//! Sets up the pod's volumes.

use trace::Hop;

use crate::{
    pod::worker::Worker,
    pod_spec::uid,
    volumes::{Mounted, VolumeFailure},
};

/// The step as the timeline names it.
const STEP: &str = "volumes";

pub fn begin(worker: &mut Worker) {
    worker.volumes.mount_begins();
    worker.attempts.begins(STEP);
    let (services, pod) = (worker.services.clone(), worker.pod().clone());
    let (held, wanted) = (worker.watches.held(), worker.now());
    let work = async move {
        let spans = &services.telemetry.spans;
        let start = spans.now();
        let facts = services.settings.facts(Vec::new());
        let nothing = Mounted::default();
        let (mounted, failures) = services.volumes.set_up(&pod, &facts, &held, nothing).await;
        if failures.is_empty() {
            spans.record(&uid(&pod), Hop::Node, STEP, wanted, start);
        }
        (mounted, failures)
    };
    worker.tasks.spawn_preparation(work, ended);
}

fn ended(worker: &mut Worker, (mounted, failures): (Mounted, Vec<VolumeFailure>)) {
    if failures.is_empty() {
        worker.volumes.mount_succeeded(mounted);
        worker.attempts.succeeded(STEP);
        return;
    }
    let until = worker.volumes.mount_failed(worker.now());
    report_failures(worker, &failures);
    let errors: Vec<String> = failures.iter().map(ToString::to_string).collect();
    worker
        .attempts
        .failed(STEP, &errors.join("; "), Some(until));
}

/// An event for each volume that failed.
pub(super) fn report_failures(worker: &Worker, failures: &[VolumeFailure]) {
    for failure in failures {
        worker.services.telemetry.events.warning(
            worker.pod(),
            failure.reason(),
            failure.to_string(),
        );
    }
}
