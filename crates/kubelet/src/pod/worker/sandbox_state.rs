//! Failed attempts to create the pod's sandbox.

const SECOND: i64 = 1_000_000;
const LAST_RETRY: i64 = 10 * SECOND;

#[derive(Default)]
pub(super) struct SandboxState {
    retry: Option<i64>,
    failures: u32,
}

impl SandboxState {
    /// When the sandbox may be tried again after a failure.
    pub fn retry(&self) -> Option<i64> {
        self.retry
    }

    pub fn created(&mut self) {
        *self = SandboxState::default();
    }

    /// Returns when it is tried again.
    pub fn failed(&mut self, now: i64) -> i64 {
        let delay = SECOND << self.failures.min(4);
        self.failures += 1;
        let retry = now + delay.min(LAST_RETRY);
        self.retry = Some(retry);
        retry
    }

    /// The clock was set: the sandbox is tried again at once.
    pub fn forget_waits(&mut self) {
        self.retry = None;
    }
}
