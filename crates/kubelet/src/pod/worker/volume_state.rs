//! The state of the pod's volumes: mounted, failed, or to be brought up to date.

use crate::{
    pod::plan::Step,
    volumes::{self, Mounted},
};

const SECOND: i64 = 1_000_000;
const FIRST_MOUNT_RETRY: i64 = SECOND / 2;
const LAST_MOUNT_RETRY: i64 = 122 * SECOND;
/// A volume that could not be brought up to date is tried again after this time, unless what it shows
/// changes before.
const REFRESH_RETRY: i64 = 60 * SECOND;

#[derive(Default)]
pub(super) struct VolumeState {
    step: Step<()>,
    mounted: Mounted,
    failures: u32,
    refresh_wanted: bool,
    /// One refresh at a time: two would remove each other's files.
    refreshing: bool,
}

/// The action that is due for volumes that show objects of the API.
pub(super) enum DueRefresh {
    Nothing,
    /// Mounting failed, and what the volumes show has changed: it is tried again at once.
    MountAgain,
    Refresh,
}

impl VolumeState {
    pub fn step(&self) -> &Step<()> {
        &self.step
    }

    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    pub fn is_refreshing(&self) -> bool {
        self.refreshing
    }

    /// What the volumes show has changed.
    pub fn want_refresh(&mut self) {
        self.refresh_wanted = true;
    }

    /// When the volumes must be refreshed at the latest.
    pub fn refresh_at(&self) -> Option<i64> {
        self.mounted.refresh_at
    }

    pub fn due(&self, now: i64) -> DueRefresh {
        let is_old = self.mounted.refresh_at.is_some_and(|at| now >= at);
        match self.step {
            Step::Failed { .. } if self.refresh_wanted => DueRefresh::MountAgain,
            Step::Done(()) if (self.refresh_wanted || is_old) && !self.refreshing => {
                DueRefresh::Refresh
            }
            _ => DueRefresh::Nothing,
        }
    }

    pub fn mount_begins(&mut self) {
        self.step = Step::Busy;
        self.refresh_wanted = false;
    }

    pub fn mount_succeeded(&mut self, mounted: Mounted) {
        self.mounted = mounted;
        self.failures = 0;
        self.step = Step::Done(());
    }

    /// Returns when mounting is tried again.
    pub fn mount_failed(&mut self, now: i64) -> i64 {
        let shift = self.failures.min(8);
        self.failures += 1;
        let until = now + (FIRST_MOUNT_RETRY << shift).min(LAST_MOUNT_RETRY);
        self.step = Step::Failed { until };
        until
    }

    /// Containers may start while the volumes are refreshed: what is mounted stays mounted.
    pub fn refresh_begins(&mut self, now: i64) {
        self.refresh_wanted = false;
        self.refreshing = true;
        self.mounted.refresh_at = Some(now + REFRESH_RETRY);
    }

    pub fn refresh_ended(&mut self, mounted: Mounted, is_complete: bool, now: i64) {
        self.refreshing = false;
        self.mounted = mounted;
        if !is_complete {
            let again = Some(now + REFRESH_RETRY);
            self.mounted.refresh_at = volumes::earlier(self.mounted.refresh_at, again);
        }
    }

    /// The pod has ended: nothing counts as mounted any more.
    pub fn release(&mut self) {
        self.step = Step::Idle;
        self.mounted = Mounted::default();
    }

    /// The task that mounted or refreshed was aborted.
    pub fn preparation_aborted(&mut self) {
        if self.step == Step::Busy {
            self.step = Step::Idle;
        }
        self.refreshing = false;
    }

    /// The clock was set: what waits for a time is tried again, and tokens may be older than they
    /// seemed.
    pub fn forget_waits(&mut self, now: i64) {
        if matches!(self.step, Step::Failed { .. }) {
            self.step = Step::Idle;
        }
        if self.mounted.refresh_at.is_some() {
            self.mounted.refresh_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_mounts_are_tried_again_with_a_growing_delay() {
        let mut volumes = VolumeState::default();
        let mut delay = || volumes.mount_failed(0);
        assert_eq!(delay(), FIRST_MOUNT_RETRY);
        assert_eq!(delay(), 2 * FIRST_MOUNT_RETRY);
        assert_eq!((0..10).map(|_| delay()).last(), Some(LAST_MOUNT_RETRY));
        volumes.mount_succeeded(Mounted::default());
        assert_eq!(volumes.mount_failed(0), FIRST_MOUNT_RETRY);
    }

    #[test]
    fn one_refresh_runs_at_a_time() {
        let mut volumes = VolumeState::default();
        volumes.mount_succeeded(Mounted::default());
        assert!(matches!(volumes.due(0), DueRefresh::Nothing));
        volumes.want_refresh();
        assert!(matches!(volumes.due(0), DueRefresh::Refresh));
        volumes.refresh_begins(0);
        volumes.want_refresh();
        assert!(matches!(volumes.due(0), DueRefresh::Nothing));
        volumes.refresh_ended(Mounted::default(), true, 0);
        assert!(matches!(volumes.due(0), DueRefresh::Refresh));
    }

    #[test]
    fn an_aborted_refresh_does_not_prevent_the_release() {
        let mut volumes = VolumeState::default();
        volumes.mount_succeeded(Mounted::default());
        volumes.want_refresh();
        volumes.refresh_begins(0);
        volumes.preparation_aborted();
        assert!(!volumes.is_refreshing());
    }

    #[test]
    fn a_failed_mount_is_tried_at_once_when_what_it_shows_changes() {
        let mut volumes = VolumeState::default();
        volumes.mount_failed(0);
        assert!(matches!(volumes.due(0), DueRefresh::Nothing));
        volumes.want_refresh();
        assert!(matches!(volumes.due(0), DueRefresh::MountAgain));
    }
}
