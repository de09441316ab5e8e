//! Back-off: a container that failed waits before it is started again, and shows CrashLoopBackOff.

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
