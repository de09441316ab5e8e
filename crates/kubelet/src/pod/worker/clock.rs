//! Somebody sets the machine's clock while a pod waits: what was to be tried at a time that now
//! lies a day ahead is tried at once instead.

use tokio::time::Instant;

use super::{Step, Worker};

/// Smaller corrections make no difference that anybody would see.
const JUMP: i64 = 5_000_000;

impl Worker {
    pub(super) fn check_clock(&mut self) {
        let (wall, steady) = (self.now(), Instant::now());
        let Some((wall_before, steady_before)) = self.clocks.replace((wall, steady)) else {
            return;
        };
        let passed = steady.duration_since(steady_before).as_micros() as i64;
        if (wall - wall_before - passed).abs() > JUMP {
            tracing::info!("the clock was set: what waits is tried again");
            self.forget_waits();
        }
    }

    fn forget_waits(&mut self) {
        self.restarts.clear();
        self.pull_backoffs.clear();
        self.start_failures.clear();
        self.sandbox_retry = None;
        self.room_retry = None;
        self.resize_retry = None;
        if matches!(self.volumes, Step::Failed { .. }) {
            self.volumes = Step::Idle;
        }
        for step in self.images.values_mut() {
            if matches!(step, Step::Failed { .. }) {
                *step = Step::Idle;
            }
        }
        // Tokens may be older than they seemed.
        if self.mounted.refresh_at.is_some() {
            self.mounted.refresh_at = Some(self.now());
        }
    }
}
