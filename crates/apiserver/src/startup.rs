//! What a server does once at its start, and how far it has come: health checks ask.

use std::sync::atomic::{AtomicU32, Ordering};

/// One thing that is done at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Everything has been read from the store.
    Storage,
    /// The cache has caught up with what the start itself wrote.
    Synced,
    Namespaces,
    Roles,
    PriorityClasses,
    ServiceRange,
    /// Every address of a Service has its record.
    ServiceAddresses,
    /// The `kubernetes` Service leads here.
    Endpoints,
    /// Every group version that is served here has its APIService.
    ApiServices,
}

/// The stages that are done.
#[derive(Default)]
pub(crate) struct Startup(AtomicU32);

impl Startup {
    pub fn finish(&self, stage: Stage) {
        self.0.fetch_or(1 << stage as u32, Ordering::Release);
    }

    pub fn is_done(&self, stage: Stage) -> bool {
        self.0.load(Ordering::Acquire) & (1 << stage as u32) != 0
    }
}
