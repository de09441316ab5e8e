//! When the worker looks again without an event, and whether the machine's clock has been set
//! meanwhile.

use tokio::time::Instant;

/// Smaller corrections of the clock make no difference that anybody would see.
const JUMP: i64 = 5_000_000;

#[derive(Default)]
pub(super) struct Wake {
    at: Option<i64>,
    /// Wall clock and steady clock when they were last compared.
    clocks: Option<(i64, Instant)>,
}

impl Wake {
    /// The earliest time asked for.
    pub fn at(&self) -> Option<i64> {
        self.at
    }

    pub fn clear(&mut self) {
        self.at = None;
    }

    /// The worker must look again at this time at the latest.
    pub fn no_later_than(&mut self, at: i64) {
        self.at = Some(self.at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether the wall clock has moved otherwise than the steady clock since the last call.
    pub fn clock_was_set(&mut self, wall: i64) -> bool {
        let steady = Instant::now();
        let Some((wall_before, steady_before)) = self.clocks.replace((wall, steady)) else {
            return false;
        };
        let passed = steady.duration_since(steady_before).as_micros() as i64;
        (wall - wall_before - passed).abs() > JUMP
    }
}
