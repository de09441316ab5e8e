//! The lifetime of reflectors: they end when the last handle on any of them is dropped.

use tokio_util::sync::{CancellationToken, DropGuard};

/// Every handle on a reflector's cache keeps one of these alive. Its drop ends the reflectors.
pub(crate) struct ReflectorLifetime {
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl ReflectorLifetime {
    pub(crate) fn new() -> ReflectorLifetime {
        ReflectorLifetime::of(CancellationToken::new())
    }

    /// A lifetime that also ends with another one.
    pub(crate) fn within(outer: &ReflectorLifetime) -> ReflectorLifetime {
        ReflectorLifetime::of(outer.stop.child_token())
    }

    /// Cancelled at the end of the lifetime.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub(crate) fn end(&self) {
        self.stop.cancel();
    }

    fn of(stop: CancellationToken) -> ReflectorLifetime {
        ReflectorLifetime {
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        }
    }
}
