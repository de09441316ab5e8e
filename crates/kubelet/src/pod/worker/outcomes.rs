//! What a pod's worker learns from its tasks' outcomes.

use super::*;

impl Worker {
    pub(super) fn take(&mut self, outcome: Result<Outcome, tokio::task::JoinError>) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(pod = uid(&self.pod), %error, "a task of a pod failed");
                }
                return;
            }
        };
        let now = self.now();
        match outcome {
            Outcome::Observed { epoch, observed } => {
                self.observing = false;
                match observed {
                    Ok(observed) if epoch == self.epoch => {
                        self.observed = Some(observed);
                        self.settle_kills();
                    }
                    _ => self.look_again = true,
                }
            }
            Outcome::Volumes(mounted, failures) if failures.is_empty() => {
                self.mounted = mounted;
                self.mount_failures = 0;
                self.volumes = Step::Done(());
                self.attempt_succeeded(VOLUMES);
            }
            Outcome::Volumes(_, failures) => {
                let shift = self.mount_failures.min(8);
                self.mount_failures += 1;
                let delay = (FIRST_MOUNT_RETRY << shift).min(LAST_MOUNT_RETRY);
                self.volumes = Step::Failed { until: now + delay };
                self.tell_mount_failures(&failures);
                let errors: Vec<String> = failures.iter().map(ToString::to_string).collect();
                self.attempt_failed(VOLUMES, &errors.join("; "), Some(now + delay));
            }
            // A source that is gone leaves the files as they are.
            Outcome::Refreshed(mounted, failures) => {
                self.refreshing = false;
                self.mounted = mounted;
                if !failures.is_empty() {
                    let again = Some(now + REFRESH_RETRY);
                    self.mounted.refresh_at = volumes::earlier(self.mounted.refresh_at, again);
                    self.tell_mount_failures(&failures);
                }
            }
            Outcome::Sandbox(result) => {
                self.busy.sandbox = false;
                self.epoch += 1;
                match result {
                    Ok(sandbox) => {
                        self.sandbox_failures = 0;
                        self.sandbox_retry = None;
                        self.attempt_succeeded(SANDBOX);
                        if let Some(observed) = &mut self.observed {
                            observed.put_sandbox(sandbox);
                        }
                    }
                    Err(error) => {
                        let delay = SECOND << self.sandbox_failures.min(4);
                        self.sandbox_failures += 1;
                        self.sandbox_retry = Some(now + delay.min(10 * SECOND));
                        self.attempt_failed(SANDBOX, &error, self.sandbox_retry);
                        self.look_again = true;
                    }
                }
            }
            Outcome::Image { container, result } => self.image_outcome(container, result, now),
            Outcome::Resized {
                id,
                resources,
                result,
            } => self.resized(id, resources, result),
            Outcome::Settled(result) => self.settled(result),
            Outcome::Started {
                container,
                result,
                resources,
            } => {
                self.busy.starting.remove(&container);
                self.replacing.remove(&container);
                self.images.remove(&container);
                self.epoch += 1;
                let record = match result {
                    Ok(record) => {
                        for step in ["CreateContainer", "StartContainer", "PostStart"] {
                            self.attempt_succeeded(&format!("{step} {container}"));
                        }
                        self.waiting.remove(&container);
                        self.start_failures.remove(&container);
                        self.actual.insert(record.id.clone(), resources);
                        Some(record)
                    }
                    Err(failure) => {
                        self.start_failed(&container, &failure);
                        let waiting = Waiting {
                            reason: failure.reason.to_owned(),
                            message: failure.message,
                        };
                        self.waiting.insert(container.clone(), waiting);
                        self.start_failures.insert(container, now + START_RETRY);
                        self.look_again = true;
                        failure.record
                    }
                };
                if let (Some(observed), Some(record)) = (&mut self.observed, record) {
                    // It may have ended since, and that may be known already.
                    let mut known = observed.containers.iter();
                    if !known.any(|known| known.id == record.id && known.ended()) {
                        observed.put_container(record);
                    }
                }
            }
            Outcome::Killed { id, record } => {
                self.busy.killing.remove(&id);
                self.kills.remove(&id);
                self.epoch += 1;
                if let (Some(observed), Some(record)) = (&mut self.observed, record) {
                    observed.put_container(record);
                } else {
                    self.look_again = true;
                }
                self.settle_kills();
            }
            Outcome::Removed { id, done } => {
                self.busy.removing.remove(&id);
                self.epoch += 1;
                self.actual.remove(&id);
                if let Some(observed) = self.observed.as_mut().filter(|_| done) {
                    observed.containers.retain(|record| record.id != id);
                }
            }
            Outcome::SandboxStopped { id, done } => {
                self.busy.stopping.remove(&id);
                self.epoch += 1;
                if let Some(observed) = self.observed.as_mut().filter(|_| done) {
                    for sandbox in &mut observed.sandboxes {
                        sandbox.ready &= sandbox.id != id;
                    }
                }
            }
            Outcome::SandboxRemoved { id, done } => {
                self.busy.removing.remove(&id);
                self.epoch += 1;
                if let Some(observed) = self.observed.as_mut().filter(|_| done) {
                    observed.sandboxes.retain(|sandbox| sandbox.id != id);
                }
            }
            Outcome::StatusWritten {
                value,
                told,
                result,
            } => {
                self.writing = false;
                match result {
                    Ok(version) => {
                        self.written = value;
                        self.written_version = version;
                        self.measure_status(told);
                        self.check_written();
                    }
                    // The watch will tell what became of it.
                    Err(status_writer::Error::Gone) => self.written = value,
                    Err(error) => tracing::warn!(
                        pod = uid(&self.pod), %error, "a status was not written, it is tried again"
                    ),
                }
            }
            Outcome::Released(done) => self.busy.released = done,
            Outcome::Finished => self.done = true,
        }
    }

    fn tell_mount_failures(&self, failures: &[volumes::Failure]) {
        for failure in failures {
            self.node
                .telemetry
                .events
                .warning(&self.pod, failure.reason(), failure.to_string());
        }
    }

    /// What a probe condemned stays condemned until it has ended, however often the runtime fails
    /// to stop it.
    fn settle_kills(&mut self) {
        let Some(observed) = &self.observed else {
            return;
        };
        let killing = &self.busy.killing;
        // One that could not be killed, and runs after all, makes way for nobody.
        self.replacing.retain(|name| {
            let latest = observed.latest(name);
            latest.is_none_or(|record| !record.running() || killing.contains(&record.id))
        });
        let (over, condemned) = std::mem::take(&mut self.unhealthy)
            .into_iter()
            .partition(|(id, _)| !killing.contains(id) && !observed.runs(id));
        self.unhealthy = condemned;
        let over: BTreeMap<String, KillReason> = over;
        for id in over.into_keys() {
            if let Some(record) = observed.containers.iter().find(|record| record.id == id) {
                self.ended_by_probe.insert(record.name.clone(), id);
            }
        }
    }

    pub(super) fn image_outcome(
        &mut self,
        container: String,
        result: Result<Image, images::PullFailure>,
        now: i64,
    ) {
        match result {
            Ok(image) => {
                if let Some((from, to)) = image.pulled {
                    self.startup.pulled(from, to);
                }
                self.attempt_succeeded(&format!("EnsureImage {container}"));
                self.pull_failures.remove(&container);
                self.pull_backoffs.remove(&container);
                if self
                    .start_failures
                    .get(&container)
                    .is_none_or(|until| now >= *until)
                {
                    self.waiting.remove(&container);
                }
                self.images.insert(container, Step::Done(image));
            }
            Err(failure) => {
                self.replacing.remove(&container);
                let backoff = self.pull_backoffs.entry(container.clone()).or_default();
                backoff.next(now, now, backoff::MAXIMUM);
                let until = backoff.until();
                self.images
                    .insert(container.clone(), Step::Failed { until });
                self.attempt_failed(
                    &format!("EnsureImage {container}"),
                    &format!("{}: {}", failure.reason, failure.message),
                    Some(until),
                );
                self.waiting.insert(
                    container.clone(),
                    Waiting {
                        reason: failure.reason.to_owned(),
                        message: failure.message.clone(),
                    },
                );
                self.pull_failures.insert(
                    container,
                    ShownPullFailure {
                        failure,
                        backoff_from: now + (until - now) / 2,
                        announced: false,
                    },
                );
            }
        }
    }
}
