//! Back-off: a container that failed waits before it is started again and shows CrashLoopBackOff, or
//! ImagePullBackOff if its image could not be pulled.

use client::events::Severity;

use crate::{
    pod::{status::Waiting, worker::Worker},
    pod_spec::format_pod,
};

pub(super) fn begin(worker: &mut Worker, container: &str, until: i64) {
    worker.starts.replaced(container);
    worker.probing.decided(container);
    worker.attempts.run_again_at(container, until);
    let Some(backoff) = worker.starts.restarts().get(container) else {
        return;
    };
    let pod = format_pod(worker.pod());
    let waiting = Waiting {
        reason: "CrashLoopBackOff".to_owned(),
        message: format!(
            "back-off {} restarting failed container={container} pod={pod}",
            backoff.text()
        ),
    };
    if worker.starts.show_waiting(container, waiting) {
        worker.services.telemetry.events.container(
            worker.pod(),
            container,
            Severity::Warning,
            "BackOff",
            format!("Back-off restarting failed container {container} in pod {pod}"),
        );
    }
}

/// A failed pull is first shown as what it was, later as waiting for the next try.
pub fn show_pull_backoffs(worker: &mut Worker) {
    let (due, later) = worker.images.new_backoffs(worker.now());
    let (pod, events) = (worker.forms.granted(), &worker.services.telemetry.events);
    for (container, failure) in due {
        let message = format!("Back-off pulling image \"{}\"", failure.image);
        events.container(pod, &container, Severity::Normal, "BackOff", &message);
        let error = "Error: ImagePullBackOff";
        events.container(pod, &container, Severity::Warning, "Failed", error);
        let waiting = Waiting {
            reason: "ImagePullBackOff".to_owned(),
            message: format!("{message}: {}: {}", failure.reason, failure.message),
        };
        worker.starts.show_waiting(&container, waiting);
    }
    for at in later {
        worker.wake.no_later_than(at);
    }
}
