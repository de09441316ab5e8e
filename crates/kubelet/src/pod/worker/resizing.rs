//! How a pod's worker carries a resize: asks for the room, changes what runs, settles the pod's
//! cgroup, and tells each step.

use super::*;

/// A resize that found no room asks again after this long, and whenever room is made.
const ROOM_RETRY: i64 = 180 * SECOND;
/// A change that the runtime refused is tried again after this long.
const CHANGE_RETRY: i64 = 10 * SECOND;

impl Worker {
    /// Takes over a new form of the pod, with the resources it was granted before.
    pub(super) fn take_pod(&mut self, desired: Arc<Pod>) {
        self.pod = match resize::as_granted(&desired, &self.pod) {
            Some(granted) => Arc::new(granted),
            None => desired.clone(),
        };
        self.desired = desired;
    }

    /// Asks for the resources the pod wants, if they are not those it has been granted.
    pub(super) fn ask_for_resources(&mut self) {
        if self.stopping() || resize::as_granted(&self.desired, &self.pod).is_none() {
            if self.resize.pending.take().is_some() {
                self.node.admission.withdraw(&self.pod);
            }
            return;
        }
        let now = self.now();
        if let Some(until) = self.room_retry.filter(|until| now < *until)
            && self
                .resize
                .pending
                .as_ref()
                .is_some_and(|pending| pending.generation == self.desired.metadata.generation)
        {
            self.wake(until);
            return;
        }
        let generation = self.desired.metadata.generation;
        match self.node.admission.resize(&self.desired) {
            Ok(()) => {
                self.pod = self.desired.clone();
                self.resize.pending = None;
                self.resize.in_progress = Some(Progress {
                    generation,
                    error: None,
                });
                (self.room_retry, self.resize_retry) = (None, None);
                // They may show what the containers now have.
                self.refresh_volumes = true;
                let message =
                    resize::event_message("Pod resize started", &self.pod, generation, "");
                self.node
                    .telemetry
                    .events
                    .normal(&self.pod, "ResizeStarted", message);
            }
            Err(rejection) => {
                let pending = Pending {
                    reason: "Deferred",
                    message: rejection.message.clone(),
                    generation,
                };
                let news = self.resize.pending.as_ref().is_none_or(|before| {
                    before.generation != generation || before.reason != pending.reason
                });
                if news {
                    let message = resize::event_message(
                        "Pod resize Deferred",
                        &self.desired,
                        generation,
                        &rejection.message,
                    );
                    self.node
                        .telemetry
                        .events
                        .warning(&self.pod, "ResizeDeferred", message);
                }
                self.resize.pending = Some(pending);
                self.room_retry = Some(now + ROOM_RETRY);
                self.wake(now + ROOM_RETRY);
                let (admission, mailbox) = (self.node.admission.clone(), self.mailbox.clone());
                self.watchers.spawn(async move {
                    admission.released().await;
                    mailbox.room();
                });
            }
        }
    }

    /// Changes the limits of one running container.
    pub(super) fn resize_container(&mut self, id: String, container: String) {
        let Some(spec) = find_container(&self.pod, &container).cloned() else {
            return;
        };
        self.busy.resizing.insert(id.clone());
        let (node, pod) = (self.node.clone(), self.pod.clone());
        let limits = self
            .actual
            .get(&id)
            .and_then(|actual| actual.limits.as_ref());
        let present = limits.and_then(|limits| limits.get("memory"));
        let present = present.and_then(crate::resources::whole);
        self.tasks.spawn(async move {
            let resources = spec.resources.clone().unwrap_or_default();
            let result = tasks::resize_container(node, pod, id.clone(), spec, present).await;
            Outcome::Resized {
                id,
                resources,
                result,
            }
        });
    }

    pub(super) fn resized(
        &mut self,
        id: String,
        resources: ResourceRequirements,
        result: Result<(), String>,
    ) {
        self.busy.resizing.remove(&id);
        let generation = self.desired.metadata.generation;
        let progress = self.resize.in_progress.get_or_insert(Progress {
            generation,
            error: None,
        });
        match result {
            Ok(()) => {
                progress.error = None;
                self.actual.insert(id, resources);
            }
            Err(error) => {
                let news = progress.error.as_ref() != Some(&error);
                progress.error = Some(error.clone());
                self.resize_retry = Some(self.now() + CHANGE_RETRY);
                if news {
                    let message =
                        resize::event_message("Pod resize error", &self.pod, generation, &error);
                    self.node
                        .telemetry
                        .events
                        .warning(&self.pod, "ResizeError", message);
                }
            }
        }
    }

    /// Once nothing that runs differs from what was granted, the pod's own cgroup follows and the
    /// resize is over.
    pub(super) fn settle_resize(&mut self) {
        let Some(observed) = &self.observed else {
            return;
        };
        if self.resize.in_progress.is_none() || self.settling || self.stopping() {
            return;
        }
        let differs = observed.running().any(|record| {
            let spec = find_container(&self.pod, &record.name);
            spec.zip(self.actual.get(&record.id))
                .is_some_and(|(spec, actual)| {
                    !resize::changes(spec.resources.as_ref(), actual).is_empty()
                })
        });
        let restarting = !self.busy.starting.is_empty() || !self.replacing.is_empty();
        if differs || restarting || !self.busy.resizing.is_empty() || !self.busy.killing.is_empty()
        {
            return;
        }
        self.settling = true;
        let (node, pod) = (self.node.clone(), self.pod.clone());
        self.tasks.spawn(async move {
            let cgroups = node.cgroups.clone();
            let done = tokio::task::spawn_blocking(move || {
                cgroups.create(&pod).map_err(|error| error.to_string())
            });
            let result = match done.await {
                Ok(result) => result,
                Err(error) => Err(error.to_string()),
            };
            Outcome::Settled(result)
        });
    }

    pub(super) fn settled(&mut self, result: Result<(), String>) {
        self.settling = false;
        match result {
            Ok(()) => {
                let progress = self.resize.in_progress.take().unwrap_or_default();
                let message = resize::event_message(
                    "Pod resize completed",
                    &self.pod,
                    progress.generation,
                    "",
                );
                self.node
                    .telemetry
                    .events
                    .normal(&self.pod, "ResizeCompleted", message);
            }
            Err(error) => {
                tracing::warn!(
                    pod = uid(&self.pod),
                    error,
                    "a pod's cgroup was not resized"
                );
                self.resize.in_progress = None;
            }
        }
    }
}
