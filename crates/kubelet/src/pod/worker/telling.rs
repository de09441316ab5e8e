//! What a pod's worker tells: its status, why containers wait, and which probes run.

use super::*;

impl Worker {
    pub(super) fn show_crash_loop(&mut self, container: &str, until: i64) {
        self.run_again_at(container, until);
        let Some(backoff) = self.restarts.get(container) else {
            return;
        };
        let pod = format_pod(&self.pod);
        let waiting = Waiting {
            reason: "CrashLoopBackOff".to_owned(),
            message: format!(
                "back-off {} restarting failed container={container} pod={pod}",
                backoff.text()
            ),
        };
        if self.waiting.get(container) != Some(&waiting) {
            self.waiting.insert(container.to_owned(), waiting);
            self.node.telemetry.events.container(
                &self.pod,
                container,
                Severity::Warning,
                "BackOff",
                format!("Back-off restarting failed container {container} in pod {pod}"),
            );
        }
    }

    /// A failed pull is first shown as what it was, later as waiting for the next try.
    pub(super) fn show_pull_backoffs(&mut self) {
        let now = self.now();
        let mut wakes = Vec::new();
        for (container, failed) in &mut self.pull_failures {
            if failed.announced || !failed.failure.was_pulled {
                continue;
            }
            if now < failed.backoff_from {
                wakes.push(failed.backoff_from);
                continue;
            }
            failed.announced = true;
            let message = format!("Back-off pulling image \"{}\"", failed.failure.image);
            self.node.telemetry.events.container(
                &self.pod,
                container,
                Severity::Normal,
                "BackOff",
                &message,
            );
            self.node.telemetry.events.container(
                &self.pod,
                container,
                Severity::Warning,
                "Failed",
                "Error: ImagePullBackOff",
            );
            let waiting = Waiting {
                reason: "ImagePullBackOff".to_owned(),
                message: format!(
                    "{message}: {}: {}",
                    failed.failure.reason, failed.failure.message
                ),
            };
            self.waiting.insert(container.clone(), waiting);
        }
        for at in wakes {
            self.wake(at);
        }
    }

    /// Running containers that count as started.
    pub(super) fn started(&self, observed: &Observed) -> BTreeSet<String> {
        observed
            .running()
            .filter(|record| {
                let probed = find_container(&self.pod, &record.name)
                    .is_some_and(|spec| spec.startup_probe.is_some());
                !probed || self.startup_passed.contains(&record.id)
            })
            .map(|record| record.id.clone())
            .collect()
    }

    pub(super) fn ready(
        &self,
        observed: &Observed,
        started: &BTreeSet<String>,
    ) -> BTreeSet<String> {
        observed
            .running()
            .filter(|record| started.contains(&record.id))
            .filter(|record| {
                let probed = find_container(&self.pod, &record.name)
                    .is_some_and(|spec| spec.readiness_probe.is_some());
                !probed || self.readiness_passed.contains(&record.id)
            })
            .map(|record| record.id.clone())
            .collect()
    }

    /// Begins the probes that running containers have and ends those of containers that are gone.
    pub(super) fn match_probes(&mut self) {
        let Some(observed) = &self.observed else {
            return;
        };
        let Some(sandbox) = observed.sandbox() else {
            return;
        };
        let started = self.started(observed);
        let stopping = self.stopping();
        let mut wanted: BTreeMap<(String, probes::Kind), &ContainerRecord> = BTreeMap::new();
        for record in observed.running() {
            let Some(spec) = find_container(&self.pod, &record.name) else {
                continue;
            };
            for kind in [
                probes::Kind::Startup,
                probes::Kind::Readiness,
                probes::Kind::Liveness,
            ] {
                let turn = match kind {
                    probes::Kind::Startup => !stopping && !started.contains(&record.id),
                    probes::Kind::Readiness => started.contains(&record.id),
                    probes::Kind::Liveness => !stopping && started.contains(&record.id),
                };
                if turn && kind.of(spec).is_some() {
                    wanted.insert((record.id.clone(), kind), record);
                }
            }
        }
        self.probes.retain(|key, stop| {
            let keep = wanted.contains_key(key);
            if !keep {
                stop.cancel();
            }
            keep
        });
        for (key, record) in wanted {
            if self.probes.contains_key(&key) {
                continue;
            }
            let Some(spec) = find_container(&self.pod, &record.name) else {
                continue;
            };
            let stop = CancellationToken::new();
            let target = probes::Target {
                pod: self.pod.clone(),
                container: spec.clone(),
                container_id: record.id.clone(),
                pod_ip: tasks::pod_ips(&self.node, &self.pod, sandbox)
                    .first()
                    .cloned()
                    .unwrap_or_default(),
                started_at: record.started_at / 1000,
                now: self.now(),
                passed: self.readiness_passed.contains(&record.id),
            };
            let mailbox = self.mailbox.clone();
            tokio::spawn(probes::run(
                self.node.cri.clone(),
                self.node.telemetry.events.clone(),
                self.node.probe_counts.clone(),
                key.1,
                target,
                move |result| mailbox.probe_result(result),
                stop.clone(),
            ));
            self.probes.insert(key, stop);
        }
    }

    pub(super) fn compute(&mut self) -> PodStatus {
        let nothing = Observed::default();
        let observed = self.observed.as_ref().unwrap_or(&nothing);
        let started = self.started(observed);
        let ready = self.ready(observed, &started);
        let over = self.stopping() || self.finished(observed);
        let idle = self.observed.is_some()
            && observed.running().next().is_none()
            && self.busy.starting.is_empty()
            && !self.busy.sandbox;
        let empty = PodStatus::default();
        let previous = self
            .status
            .as_ref()
            .or(self.pod.status.as_ref())
            .unwrap_or(&empty);
        let status = status::compute(&status::Input {
            pod: &self.pod,
            observed,
            waiting: &self.waiting,
            started: &started,
            ready: &ready,
            runtime_name: &self.node.settings.runtime_name,
            host_ip: &self.node.settings.host_ip,
            previous,
            terminal: over && idle,
            termination: self.termination.as_ref(),
            replacing: &self.replacing,
            actual: &self.actual,
            resize: &self.resize,
            now: self.node.environment.now(),
        });
        self.status = Some(status.clone());
        status
    }

    /// The API has another mirror of this static pod, or none.
    pub(super) fn take_mirror(&mut self, mirror: Option<Arc<Pod>>) {
        let uid_of = |pod: &Option<Arc<Pod>>| pod.as_ref().map(|pod| uid(pod));
        let another = uid_of(&mirror) != uid_of(&self.mirror);
        self.mirror = mirror;
        match &self.mirror {
            Some(mirror) if another => {
                self.written_version = status_writer::version(mirror);
                let status = mirror.status.as_ref();
                self.written = status.map_or(Value::Null, status_writer::to_value);
            }
            Some(_) => self.check_written(),
            None => self.written = Value::Null,
        }
    }

    /// Others write statuses too (a node that was thought dead has its pods marked unready): what
    /// they made of ours is told again. What we wrote ourselves comes back in the version that we
    /// know, and costs no comparison.
    pub(super) fn check_written(&mut self) {
        let shown = match pod_spec::is_static(&self.desired) {
            true => self.mirror.as_ref(),
            false => Some(&self.desired),
        };
        let Some(shown) = shown else {
            return;
        };
        let version = status_writer::version(shown);
        // The answer to what is being written decides which came later.
        if self.writing || version <= self.written_version {
            return;
        }
        self.written_version = version;
        let (Some(api), Some(ours)) = (&shown.status, &self.status) else {
            return;
        };
        if overwritten::differs(api, ours) {
            self.written = status_writer::to_value(api);
        }
    }

    /// Where the API shows this pod: as itself, or as a static pod's mirror.
    fn shown_as(&self) -> Option<Arc<Pod>> {
        match pod_spec::is_static(&self.pod) {
            true => self.mirror.clone(),
            false => Some(self.pod.clone()),
        }
    }

    /// Writes the status if it differs from what the API has.
    pub(super) fn tell(&mut self) {
        if self.removed || self.busy.finishing || self.observed.is_none() {
            return;
        }
        let status = self.compute();
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            self.node.admission.release(&uid(&self.pod));
        }
        let value = status_writer::to_value(&status);
        let Some(shown) = self.shown_as() else {
            return;
        };
        if self.writing || value == self.written || self.can_wait(&value) {
            return;
        }
        self.writing = true;
        self.held_back = None;
        let patch = status_writer::patch(&uid(&shown), &self.written, &value);
        let uid = uid(&self.pod);
        let first_running = !self.told_running && status.phase.as_deref() == Some("Running");
        let is_ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let first_ready = !self.told_ready && is_ready && !first_running;
        self.told_running |= first_running;
        // The phase is Running too while every container waits to be started again.
        let runs = status.container_statuses.iter().flatten().any(|container| {
            let state = container.state.as_ref();
            state.is_some_and(|state| state.running.is_some())
        });
        let first_run = !self.traced_running && self.told_running && runs;
        self.traced_running |= first_run;
        self.told_ready |= is_ready;
        let (node, computed) = (self.node.clone(), self.now());
        self.tasks.spawn(async move {
            let start = node.telemetry.spans.now();
            let bytes = patch.to_string().len() as u64;
            let result = status_writer::write(&node.client, &shown, patch).await;
            if result.is_ok() && first_run {
                node.telemetry.spans.record_bytes(
                    &uid,
                    Hop::Status,
                    "status Running",
                    start,
                    bytes,
                );
            }
            if result.is_ok() && first_ready {
                node.telemetry
                    .spans
                    .record(&uid, Hop::After, "status Ready", computed, start);
            }
            if matches!(result, Err(status_writer::Error::Api(_))) {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Outcome::StatusWritten {
                value,
                told: Told {
                    computed,
                    first_running,
                },
                result: result.map(|pod| status_writer::version(&pod)),
            }
        });
    }

    /// While a container is being started, details are told together with the start: it is some
    /// milliseconds away. Should it take longer, they are told without it.
    fn can_wait(&mut self, value: &Value) -> bool {
        let details = status_writer::essence(value) == status_writer::essence(&self.written);
        if self.busy.starting.is_empty() || self.stopping() || !details {
            return false;
        }
        let now = self.now();
        let until = *self.held_back.get_or_insert(now) + SECOND;
        if now < until {
            self.wake(until);
        }
        now < until
    }
}
