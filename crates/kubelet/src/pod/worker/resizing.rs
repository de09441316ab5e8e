//! The resize of a pod's resources in place: what was asked for, what was granted, and what the
//! running containers have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};

use crate::{
    pod::resize::{self, Pending, Progress},
    pod_spec::find_init_or_app,
    resources,
    runtime::Observed,
};

const SECOND: i64 = 1_000_000;
/// A resize that found no room is tried again after this time, and whenever room is made.
const ROOM_RETRY: i64 = 180 * SECOND;
/// A change that the runtime refused is tried again after this time.
const CHANGE_RETRY: i64 = 10 * SECOND;

#[derive(Default)]
pub(super) struct Resizing {
    state: resize::State,
    /// When a resize without room is tried again.
    room_retry: Option<i64>,
    /// When a failed change of limits is tried again.
    change_retry: Option<i64>,
    /// The pod's cgroup is being changed.
    settling: bool,
    /// What running containers have of cpu and memory, by id.
    actual: BTreeMap<String, ResourceRequirements>,
}

impl Resizing {
    pub fn state(&self) -> &resize::State {
        &self.state
    }

    pub fn actual(&self) -> &BTreeMap<String, ResourceRequirements> {
        &self.actual
    }

    pub fn change_retry(&self) -> Option<i64> {
        self.change_retry
    }

    /// The container runs with these resources.
    pub fn started_with(&mut self, id: String, resources: ResourceRequirements) {
        self.actual.insert(id, resources);
    }

    pub fn forget(&mut self, id: &str) {
        self.actual.remove(id);
    }

    /// The memory limit that a running container has.
    pub fn memory_limit(&self, id: &str) -> Option<i64> {
        let limits = self.actual.get(id)?.limits.as_ref()?;
        resources::whole(limits.get("memory")?)
    }

    /// No resize is wanted any more. Returns whether one waited for room.
    pub fn withdraw(&mut self) -> bool {
        self.state.pending.take().is_some()
    }

    /// Room was made: a resize that waits for it is tried again.
    pub fn room_was_made(&mut self) {
        self.room_retry = None;
    }

    /// Until when a resize of this generation waits for room.
    pub fn waits_until(&self, generation: Option<i64>, now: i64) -> Option<i64> {
        let pending = self.state.pending.as_ref()?;
        let until = self.room_retry.filter(|until| now < *until)?;
        (pending.generation == generation).then_some(until)
    }

    pub fn granted(&mut self, generation: Option<i64>) {
        self.state.pending = None;
        self.state.in_progress = Some(Progress {
            generation,
            error: None,
        });
        (self.room_retry, self.change_retry) = (None, None);
    }

    /// There is no room. Returns until when the resize waits, and whether that was known before.
    pub fn deferred(&mut self, generation: Option<i64>, message: String, now: i64) -> (i64, bool) {
        let pending = Pending {
            reason: "Deferred",
            message,
            generation,
        };
        let was_known = self.state.pending.as_ref().is_some_and(|before| {
            before.generation == generation && before.reason == pending.reason
        });
        self.state.pending = Some(pending);
        let until = now + ROOM_RETRY;
        self.room_retry = Some(until);
        (until, was_known)
    }

    /// A running container has its new limits.
    pub fn changed(
        &mut self,
        generation: Option<i64>,
        id: String,
        resources: ResourceRequirements,
    ) {
        self.progress(generation).error = None;
        self.actual.insert(id, resources);
    }

    /// The limits of a running container could not be changed. Returns whether the error is a new one.
    pub fn change_failed(&mut self, generation: Option<i64>, error: String, now: i64) -> bool {
        self.change_retry = Some(now + CHANGE_RETRY);
        let progress = self.progress(generation);
        let is_new = progress.error.as_ref() != Some(&error);
        progress.error = Some(error);
        is_new
    }

    /// Whether everything that runs has what was granted, so that the pod's cgroup can follow.
    pub fn can_settle(&self, pod: &Pod, observed: &Observed) -> bool {
        let differs = |record: &crate::runtime::ContainerRecord| {
            let spec = find_init_or_app(pod, &record.name);
            let both = spec.zip(self.actual.get(&record.id));
            both.is_some_and(|(spec, actual)| {
                !resize::changes(spec.resources.as_ref(), actual).is_empty()
            })
        };
        self.state.in_progress.is_some() && !self.settling && !observed.running().any(differs)
    }

    pub fn settle_begins(&mut self) {
        self.settling = true;
    }

    /// The pod's cgroup was changed, or could not be. Returns the resize that is over.
    pub fn settled(&mut self) -> Option<Progress> {
        self.settling = false;
        self.state.in_progress.take()
    }

    /// The clock was set: what waits for a time is tried again.
    pub fn forget_waits(&mut self) {
        self.room_retry = None;
        self.change_retry = None;
    }

    fn progress(&mut self, generation: Option<i64>) -> &mut Progress {
        self.state.in_progress.get_or_insert(Progress {
            generation,
            error: None,
        })
    }
}
