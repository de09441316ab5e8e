//! Spans of the pod's timeline: what the kubelet did, when, and how long it waited for its turn.

use environment::Environment;
use trace::{Failure, Hop, Recorder, Span};

/// A step of the kubelet's work that came to nothing. Times are in microseconds.
#[derive(Clone)]
pub struct FailedAttempt {
    pub name: String,
    pub start: i64,
    pub end: i64,
    pub failure: Failure,
}

#[derive(Clone)]
pub struct Spans {
    pub recorder: Recorder,
    pub environment: Environment,
}

impl Spans {
    pub fn now(&self) -> i64 {
        self.environment.now_micros()
    }

    /// Records work that began at `start` and ends now; it had been wanted since `wanted`.
    pub fn record(&self, uid: &str, hop: Hop, name: impl Into<String>, wanted: i64, start: i64) {
        self.recorder.record(
            uid,
            Span {
                hop,
                name: name.into(),
                component: "kubelet".to_owned(),
                start,
                queue_us: (start - wanted).max(0) as u64,
                work_us: (self.now() - start).max(0) as u64,
                bytes: 0,
                failure: None,
            },
        );
    }

    /// Records an attempt that failed.
    pub fn record_failure(&self, uid: &str, failed: FailedAttempt) {
        let FailedAttempt {
            name,
            start,
            end,
            failure,
        } = failed;
        let span = Span {
            hop: Hop::Node,
            name,
            component: "kubelet".to_owned(),
            start,
            queue_us: 0,
            work_us: (end - start).max(0) as u64,
            bytes: 0,
            failure: Some(failure),
        };
        self.recorder.record(uid, span);
    }

    pub fn record_bytes(&self, uid: &str, hop: Hop, name: &str, start: i64, bytes: u64) {
        self.recorder.record(
            uid,
            Span {
                hop,
                name: name.to_owned(),
                component: "kubelet".to_owned(),
                start,
                queue_us: 0,
                work_us: (self.now() - start).max(0) as u64,
                bytes,
                failure: None,
            },
        );
    }
}
