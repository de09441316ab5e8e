//! Writes the status if it differs from the one that the API has.

use std::time::Duration;

use environment::chain;
use serde_json::Value;
use trace::Hop;

use crate::{
    pod::{
        lifecycle::Lifecycle,
        status_writer::{self, Error},
        worker::{Worker, reporting::Firsts},
    },
    pod_spec::uid,
};

/// Pause after a status that could not be written.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A status that was sent to the API, and what came of it.
struct Written {
    value: Value,
    /// When the status was computed, in microseconds.
    computed: i64,
    firsts: Firsts,
    /// The resource version that the API gave it.
    result: Result<u64, Error>,
}

pub fn begin_if_due(worker: &mut Worker) {
    let is_over = worker.lifecycle >= Lifecycle::Deleted || worker.tasks.busy().finishing;
    if is_over || worker.runtime.observed().is_none() {
        return;
    }
    let status = worker.compute_status();
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        worker.services.admission.release(&uid(worker.pod()));
    }
    let value = status_writer::to_value(&status);
    let Some(shown) = worker.forms.shown().cloned() else {
        return;
    };
    if !worker.reporting.must_write(&value) || is_held_back(worker, &value) {
        return;
    }
    let patch = status_writer::patch(&uid(&shown), worker.reporting.written(), &value);
    let firsts = worker.reporting.writing_begins(&status);
    let (services, uid, computed) = (worker.services.clone(), uid(worker.pod()), worker.now());
    let work = async move {
        let spans = &services.telemetry.spans;
        let start = spans.now();
        let bytes = patch.to_string().len() as u64;
        let result = status_writer::write(&services.client, &shown, patch).await;
        if result.is_ok() && firsts.run {
            spans.record_bytes(&uid, Hop::Status, "status Running", start, bytes);
        }
        if result.is_ok() && firsts.ready {
            spans.record(&uid, Hop::After, "status Ready", computed, start);
        }
        if matches!(result, Err(Error::Api(_))) {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        Written {
            value,
            computed,
            firsts,
            result: result.map(|pod| status_writer::version(&pod)),
        }
    };
    worker.tasks.spawn(work, ended);
}

/// Details wait for a container that is being started, but not long.
fn is_held_back(worker: &mut Worker, value: &Value) -> bool {
    if worker.tasks.busy().starting.is_empty() || worker.is_ending() {
        return false;
    }
    let now = worker.now();
    let until = worker.reporting.hold_back(value, now);
    if let Some(until) = until {
        worker.wake.no_later_than(until);
    }
    until.is_some()
}

fn ended(worker: &mut Worker, written: Written) {
    let Written {
        value,
        computed,
        firsts,
        result,
    } = written;
    match result {
        Ok(version) => {
            worker.reporting.writing_succeeded(value, Some(version));
            let (pod, now) = (worker.pod().clone(), worker.now());
            let status = worker.reporting.status();
            worker
                .timing
                .status_written(&pod, status, computed, firsts.running, now);
            worker.compare_written();
        }
        // The watch will deliver what became of it.
        Err(Error::Gone) => worker.reporting.writing_succeeded(value, None),
        Err(error) => {
            worker.reporting.writing_failed();
            tracing::warn!(
                pod = uid(worker.pod()), error = %chain(&error), "a status was not written, it is tried again"
            );
        }
    }
}
