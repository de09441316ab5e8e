//! The status of the pod as the worker computed it last, and as the API has it.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::Value;

use crate::pod::{overwritten, status_writer};

const SECOND: i64 = 1_000_000;

pub(super) struct Reporting {
    /// As last computed.
    status: Option<PodStatus>,
    /// As the API has it.
    written: Value,
    /// The resource version in which the API has it.
    written_version: u64,
    writing: bool,
    /// Since when a status is held back.
    held_back: Option<i64>,
    /// A status with phase Running was written.
    reported_running: bool,
    /// A status that says that the pod is ready was written.
    reported_ready: bool,
    /// The timeline has that a container runs.
    traced_running: bool,
}

/// The facts that a status reports for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Firsts {
    /// The phase is Running.
    pub running: bool,
    /// A container runs.
    pub run: bool,
    /// The pod is ready.
    pub ready: bool,
}

impl Reporting {
    pub fn new(pod: &Pod) -> Reporting {
        let status = pod.status.as_ref();
        Reporting {
            status: None,
            written: status.map_or(Value::Null, status_writer::to_value),
            written_version: status_writer::version(pod),
            writing: false,
            held_back: None,
            reported_running: false,
            reported_ready: false,
            traced_running: false,
        }
    }

    /// An earlier kubelet has reported this status.
    pub fn restore(&mut self, status: &PodStatus) {
        self.reported_running = status.phase.as_deref() == Some("Running");
        self.traced_running = self.reported_running;
        self.reported_ready = self.reported_running;
    }

    pub fn status(&self) -> Option<&PodStatus> {
        self.status.as_ref()
    }

    pub fn computed(&mut self, status: PodStatus) {
        self.status = Some(status);
    }

    /// The status as the API has it.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// Whether `value` has still to be written, and nothing is being written now.
    pub fn must_write(&self, value: &Value) -> bool {
        !self.writing && *value != self.written
    }

    /// While a container is being started, details are written together with its start, which is some
    /// milliseconds away. Should it take longer, they are written without it. Returns until when
    /// `value` waits.
    pub fn hold_back(&mut self, value: &Value, now: i64) -> Option<i64> {
        if status_writer::essence(value) != status_writer::essence(&self.written) {
            return None;
        }
        let until = *self.held_back.get_or_insert(now) + SECOND;
        (now < until).then_some(until)
    }

    /// `status` is being written. Returns what it says for the first time.
    pub fn writing_begins(&mut self, status: &PodStatus) -> Firsts {
        self.writing = true;
        self.held_back = None;
        let running = !self.reported_running && status.phase.as_deref() == Some("Running");
        let is_ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let ready = !self.reported_ready && is_ready && !running;
        self.reported_running |= running;
        // The phase is Running too while every container waits to be started again.
        let runs = status.container_statuses.iter().flatten().any(|container| {
            let state = container.state.as_ref();
            state.is_some_and(|state| state.running.is_some())
        });
        let run = !self.traced_running && self.reported_running && runs;
        self.traced_running |= run;
        self.reported_ready |= is_ready;
        Firsts {
            running,
            run,
            ready,
        }
    }

    /// The API has the status now, in this version; `None` if it has the pod no longer.
    pub fn writing_succeeded(&mut self, value: Value, version: Option<u64>) {
        self.writing = false;
        self.written = value;
        if let Some(version) = version {
            self.written_version = version;
        }
    }

    pub fn writing_failed(&mut self) {
        self.writing = false;
    }

    /// The status is now shown on another object, or on none.
    pub fn shown_on(&mut self, object: Option<&Pod>) {
        let status = object.and_then(|object| object.status.as_ref());
        self.written = status.map_or(Value::Null, status_writer::to_value);
        if let Some(object) = object {
            self.written_version = status_writer::version(object);
        }
    }

    /// Others write statuses too (the pods of a node that was thought dead are marked unready): what
    /// they made of ours is written again. What we wrote ourselves comes back in the version that we
    /// know, and costs no comparison.
    pub fn compare_with(&mut self, shown: &Pod) {
        let version = status_writer::version(shown);
        // The answer to what is being written decides which came later.
        if self.writing || version <= self.written_version {
            return;
        }
        self.written_version = version;
        let (Some(api), Some(ours)) = (&shown.status, &self.status) else {
            return;
        };
        if overwritten::differs(api, ours) {
            self.written = status_writer::to_value(api);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).expect("a status")
    }

    #[test]
    fn details_wait_for_a_second_and_a_new_phase_does_not() {
        let pod = Pod {
            status: Some(status(json!({"phase": "Pending"}))),
            ..Pod::default()
        };
        let mut reporting = Reporting::new(&pod);
        let details = json!({"phase": "Pending", "podIP": "10.0.0.9"});
        assert!(reporting.must_write(&details));
        assert_eq!(reporting.hold_back(&details, 5), Some(5 + SECOND));
        assert_eq!(reporting.hold_back(&details, 5 + SECOND), None);
        let running = json!({"phase": "Running"});
        assert_eq!(reporting.hold_back(&running, 5), None);
    }

    #[test]
    fn running_and_ready_are_reported_once() {
        let mut reporting = Reporting::new(&Pod::default());
        let running = status(
            json!({"phase": "Running", "containerStatuses": [{"name": "a",
            "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {}}}]}),
        );
        let firsts = reporting.writing_begins(&running);
        assert!(firsts.running && firsts.run && !firsts.ready);
        assert!(!reporting.must_write(&json!({})), "one write at a time");
        reporting.writing_failed();
        let mut ready = running;
        ready.conditions = serde_json::from_value(json!([{"type": "Ready", "status": "True"}]))
            .expect("conditions");
        let firsts = reporting.writing_begins(&ready);
        assert!(!firsts.running && !firsts.run && firsts.ready);
        assert_eq!(reporting.writing_begins(&ready), Firsts::default());
    }
}
