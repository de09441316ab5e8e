//! The worker of one pod: it gathers events, asks `plan` what to do, begins the actions, and writes
//! the status the moment it changes. One per pod, all in parallel.
//!
//! The loop: 1. something happens (messages in the mailbox, a task ends, a time is reached); 2. the
//! worker's knowledge is updated; 3. the plan is asked and its actions are begun as tasks; 4. probes
//! are matched with the running containers; 5. the status is computed and, if it differs from the one
//! that the API has, written. Nothing in the loop waits for a task.
//!
//! Each part of what a worker knows is a type of its own with private fields, in a file of its own;
//! [`actions`] has one file for each thing that a worker does.

mod actions;
mod attempts;
mod forms;
mod image_state;
mod probing;
mod reporting;
mod resizing;
mod runtime_events;
mod runtime_view;
mod sandbox_state;
mod start_state;
mod tasks;
mod timing;
mod turns;
mod volume_state;
mod wake;
mod watches;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::task::JoinError;

use self::{
    attempts::Attempts, forms::PodForms, image_state::ImageState, probing::Probing,
    reporting::Reporting, resizing::Resizing, runtime_view::RuntimeView,
    sandbox_state::SandboxState, start_state::StartState, tasks::TaskResult, tasks::Tasks,
    timing::Timing, turns::Turns, volume_state::VolumeState, wake::Wake, watches::Watches,
};
use super::{
    lifecycle::Lifecycle,
    mailbox::{Mailbox, Messages},
    plan::{self, Action, Goal, Situation},
    restarts,
    services::PodServices,
    status,
    termination::Termination,
};
use crate::{
    pod_spec::uid,
    runtime::{Observed, ReportedSandbox},
};

const SECOND: i64 = 1_000_000;
/// The grace period of a pod that names none, in seconds.
const DEFAULT_GRACE: i64 = 30;

pub struct Worker {
    services: Arc<PodServices>,
    mailbox: Arc<Mailbox>,
    lifecycle: Lifecycle,
    /// Why the node ends the pod, if it does.
    termination: Option<Termination>,
    forms: PodForms,
    tasks: Tasks,
    runtime: RuntimeView,
    watches: Watches,
    volumes: VolumeState,
    images: ImageState,
    sandbox: SandboxState,
    starts: StartState,
    turns: Turns,
    resizing: Resizing,
    probing: Probing,
    reporting: Reporting,
    timing: Timing,
    attempts: Attempts,
    wake: Wake,
}

impl Worker {
    /// `received`: when the pod reached this node, in microseconds.
    pub fn new(
        services: Arc<PodServices>,
        mailbox: Arc<Mailbox>,
        pod: Arc<Pod>,
        received: i64,
    ) -> Worker {
        let telemetry = &services.telemetry;
        let mut worker = Worker {
            reporting: Reporting::new(&pod),
            timing: Timing::new(telemetry.measures.clone(), received),
            attempts: Attempts::new(telemetry.spans.clone(), &pod),
            services,
            mailbox,
            lifecycle: Lifecycle::Running,
            termination: None,
            forms: PodForms::new(pod),
            tasks: Tasks::new(),
            runtime: RuntimeView::new(),
            watches: Watches::default(),
            volumes: VolumeState::default(),
            images: ImageState::default(),
            sandbox: SandboxState::default(),
            starts: StartState::default(),
            turns: Turns::new(),
            resizing: Resizing::default(),
            probing: Probing::default(),
            wake: Wake::default(),
        };
        worker.check_deletion();
        worker.restore();
        worker
    }

    /// A worker for what is left of a pod that the API no longer has: it only ends it.
    pub fn orphaned(services: Arc<PodServices>, mailbox: Arc<Mailbox>, pod: Arc<Pod>) -> Worker {
        let received = services.environment.now_micros();
        let mut worker = Worker::new(services, mailbox, pod, received);
        worker.lifecycle.advance(Lifecycle::Deleted);
        worker
    }

    /// A worker for a pod that this node does not admit: it only reports that.
    pub fn rejected(
        services: Arc<PodServices>,
        mailbox: Arc<Mailbox>,
        pod: Arc<Pod>,
        termination: Termination,
    ) -> Worker {
        let received = services.environment.now_micros();
        let mut worker = Worker::new(services, mailbox, pod, received);
        worker.end(termination);
        worker
    }

    /// Runs until the pod is gone from the node.
    pub async fn run(mut self) {
        if !self.is_ending() {
            self.hold_objects();
        }
        loop {
            self.step();
            if self.lifecycle == Lifecycle::Finished {
                break;
            }
            let pause = self.wake.at().map(|at| {
                let micros = (at - self.now()).max(0) as u64;
                tokio::time::sleep(Duration::from_micros(micros))
            });
            let reached = async {
                match pause {
                    Some(pause) => pause.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.mailbox.wait() => {}
                Some(result) = self.tasks.next() => self.apply(result),
                () = reached => {}
            }
            while let Some(result) = self.tasks.try_next() {
                self.apply(result);
            }
            let messages = self.mailbox.take_messages();
            self.receive(messages);
        }
        self.probing.stop_all();
    }

    /// The pod with the resources that it was granted.
    fn pod(&self) -> &Arc<Pod> {
        self.forms.granted()
    }

    fn now(&self) -> i64 {
        self.services.environment.now_micros()
    }

    /// Whether the pod is to end, for any reason.
    fn is_ending(&self) -> bool {
        self.lifecycle > Lifecycle::Running
    }

    /// Whether the pod has run to its end by itself.
    fn has_completed(&self, observed: &Observed) -> bool {
        self.starts.replacing().is_empty() && restarts::has_completed(self.pod(), observed)
    }

    /// The node ends the pod. The first reason counts.
    fn end(&mut self, termination: Termination) {
        self.termination.get_or_insert(termination);
        self.lifecycle.advance(Lifecycle::Ending);
    }

    fn check_deletion(&mut self) {
        if self.pod().metadata.deletion_timestamp.is_some() {
            self.lifecycle.advance(Lifecycle::Terminating);
        }
    }

    /// Restores what an earlier kubelet reported. It counts until it is known anew.
    fn restore(&mut self) {
        let pod = self.pod().clone();
        let Some(status) = &pod.status else {
            return;
        };
        self.forms.restore_granted(status);
        let statuses = status
            .container_statuses
            .iter()
            .flatten()
            .chain(status.init_container_statuses.iter().flatten());
        for status in statuses {
            let id = status.container_id.as_deref().unwrap_or_default();
            let Some((_, id)) = id.split_once("://") else {
                continue;
            };
            if let Some(resources) = &status.resources {
                self.resizing.started_with(id.to_owned(), resources.clone());
            }
            self.probing.restore(id, status);
        }
        self.timing.restore(status);
        self.reporting.restore(status);
    }

    /// Watches the ConfigMaps and Secrets that the pod refers to.
    fn hold_objects(&mut self) {
        let held = self.services.objects.referred_to_by(self.pod());
        self.watches.hold(held, &self.mailbox);
    }

    /// Takes over everything that came since the worker last looked.
    fn receive(&mut self, messages: Messages) {
        if let Some(pod) = messages.pod {
            self.update(pod);
        }
        if let Some(mirror) = messages.mirror {
            let is_another = self.forms.set_mirror(mirror);
            match self.forms.mirror() {
                Some(_) if !is_another => self.compare_written(),
                mirror => self.reporting.shown_on(mirror.map(AsRef::as_ref)),
            }
        }
        if let Some(termination) = messages.end {
            self.end(termination);
        }
        if messages.room {
            self.resizing.room_was_made();
        }
        if messages.deleted {
            self.lifecycle.advance(Lifecycle::Deleted);
        }
        let mut reported = messages.reported.iter();
        if messages.runtime || reported.any(|seen| self.is_new(seen)) {
            self.runtime.read_again();
        }
        if messages.objects {
            self.volumes.want_refresh();
            self.starts.retry_failed();
        }
        for ((id, kind), passed) in messages.probe_results {
            self.probing.result(id, kind, passed);
        }
    }

    fn update(&mut self, pod: Arc<Pod>) {
        self.timing.updated();
        let before = self.pod().clone();
        if before.metadata.labels != pod.metadata.labels
            || before.metadata.annotations != pod.metadata.annotations
        {
            self.volumes.want_refresh();
            self.starts.retry_failed();
        }
        let ephemeral = |pod: &Pod| {
            let spec = pod.spec.as_ref();
            spec.and_then(|spec| Some(spec.ephemeral_containers.as_ref()?.len()))
        };
        let has_more_containers = ephemeral(&before) != ephemeral(&pod);
        self.forms.update(pod);
        self.check_deletion();
        self.compare_written();
        if has_more_containers && !self.is_ending() {
            self.hold_objects();
        }
    }

    fn is_new(&self, reported: &ReportedSandbox) -> bool {
        match self.runtime.observed() {
            None => true,
            Some(observed) => runtime_events::is_new(observed, self.tasks.busy(), reported),
        }
    }

    fn apply(&mut self, result: Result<TaskResult, JoinError>) {
        match result {
            Ok(apply) => apply(self),
            Err(error) if error.is_panic() => {
                tracing::error!(pod = uid(self.pod()), %error, "a task of a pod failed");
            }
            Err(_) => {}
        }
    }

    /// One round: plan, act, probe, write the status.
    fn step(&mut self) {
        self.wake.clear();
        let now = self.now();
        if self.wake.clock_was_set(now) {
            tracing::info!("the clock was set: what waits is tried again");
            self.forget_waits(now);
        }
        actions::observe_pod::begin_if_due(self);
        self.check_deadline();
        if self.is_ending() {
            self.stop_preparing();
        }
        if self.runtime.observed().is_some() {
            // First: what is decided about a container that ended is recorded with its end.
            self.count_ends();
            actions::request_resize::begin_if_due(self);
            actions::refresh_volumes::begin_if_due(self);
            actions::back_off::show_pull_backoffs(self);
            for action in self.plan() {
                actions::begin(self, action);
            }
            if let Some(observed) = self.runtime.observed() {
                self.turns.publish(observed, self.tasks.busy());
            }
            actions::settle_resize::begin_if_due(self);
            actions::run_probes::begin_and_end(self);
        }
        actions::write_status::begin_if_due(self);
        let is_ending = self.is_ending();
        self.timing.round(self.tasks.is_empty(), is_ending);
    }

    fn plan(&self) -> Vec<Action> {
        let Some(observed) = self.runtime.observed() else {
            return Vec::new();
        };
        plan::plan(&Situation {
            pod: self.pod(),
            goal: match self.lifecycle {
                Lifecycle::Running => Goal::Run,
                Lifecycle::Ending => Goal::Stop { remove: false },
                _ => Goal::Stop { remove: true },
            },
            observed,
            volumes: self.volumes.step(),
            images: self.images.steps(),
            busy: self.tasks.busy(),
            restarts: self.starts.restarts(),
            start_failures: self.starts.failures(),
            sandbox_retry: self.sandbox.retry(),
            unhealthy: self.probing.unhealthy(),
            ended_by_probe: self.probing.ended_by_probe(),
            started: &self.probing.started(self.pod(), observed),
            actual: self.resizing.actual(),
            replacing: self.starts.replacing(),
            resize_retry: self.resizing.change_retry(),
            now: self.now(),
        })
    }

    /// Somebody has set the machine's clock: what was to be tried at a time that may now be a day
    /// ahead is tried at once instead.
    fn forget_waits(&mut self, now: i64) {
        self.starts.forget_waits();
        self.images.forget_waits();
        self.sandbox.forget_waits();
        self.resizing.forget_waits();
        self.volumes.forget_waits(now);
    }

    /// The pod is to end: pulls and mounts stop, and kills that would take longer than is now
    /// allowed are begun again.
    fn stop_preparing(&mut self) {
        self.tasks.end_pod(self.grace_period(None));
        self.images.pulls_aborted();
        self.volumes.preparation_aborted();
        self.starts.replace_nothing();
        self.watches.end();
    }

    /// The seconds that a container gets to end. The node may give less than the pod asks for.
    fn grace_period(&self, probe: Option<i64>) -> i64 {
        let own = own_grace_period(self.pod(), probe);
        let limit = self.termination.as_ref().and_then(|why| why.grace);
        let grace = limit.map_or(own, |limit| own.min(limit));
        // However short the grace period of a pod that ends, its hooks get one second.
        grace.max(i64::from(self.is_ending()))
    }

    /// After kills have ended or the pod was read: which containers still have to be replaced or
    /// killed.
    fn settle_kills(&mut self) {
        let Some(observed) = self.runtime.observed() else {
            return;
        };
        let killing = &self.tasks.busy().killing;
        // One that could not be killed, and runs after all, is not replaced.
        self.starts.retain_replacing(|name| {
            let latest = observed.latest(name);
            latest.is_none_or(|record| !record.running() || killing.contains(&record.id))
        });
        self.probing.settle(observed, killing);
    }

    fn count_ends(&mut self) {
        let Some(observed) = self.runtime.observed() else {
            return;
        };
        let ended = self.timing.count_ends(self.forms.granted(), observed);
        if self.is_ending() {
            return;
        }
        for record in ended {
            self.attempts.run_ended(self.forms.granted(), &record);
        }
    }

    /// Ends the pod when its activeDeadlineSeconds have passed.
    fn check_deadline(&mut self) {
        let spec = self.pod().spec.as_ref();
        let Some(seconds) = spec.and_then(|spec| spec.active_deadline_seconds) else {
            return;
        };
        let status = self.reporting.status();
        let Some(started) = status.and_then(|status| status.start_time.as_ref()) else {
            return;
        };
        let deadline = started.0.as_microsecond() + seconds * SECOND;
        if self.now() < deadline {
            self.wake.no_later_than(deadline);
            return;
        }
        let observed = self.runtime.observed();
        let has_completed = observed.is_some_and(|observed| self.has_completed(observed));
        if self.termination.is_some() || has_completed {
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline";
        let events = &self.services.telemetry.events;
        events.normal(self.pod(), "DeadlineExceeded", message);
        self.end(Termination {
            reason: "DeadlineExceeded".to_owned(),
            message: message.to_owned(),
            ..Termination::default()
        });
    }

    fn compute_status(&mut self) -> PodStatus {
        let nothing = Observed::default();
        let known = self.runtime.observed();
        let observed = known.unwrap_or(&nothing);
        let pod = self.pod();
        let started = self.probing.started(pod, observed);
        let ready = self.probing.ready(pod, observed, &started);
        let busy = self.tasks.busy();
        let is_idle = known.is_some()
            && observed.running().next().is_none()
            && busy.starting.is_empty()
            && !busy.sandbox;
        let empty = PodStatus::default();
        let previous = self.reporting.status().or(pod.status.as_ref());
        let status = status::compute(&status::Input {
            pod,
            observed,
            waiting: self.starts.waiting(),
            started: &started,
            ready: &ready,
            runtime_name: &self.services.settings.runtime_name,
            host_ip: &self.services.settings.host_ip,
            previous: previous.unwrap_or(&empty),
            terminal: (self.is_ending() || self.has_completed(observed)) && is_idle,
            termination: self.termination.as_ref(),
            replacing: self.starts.replacing(),
            actual: self.resizing.actual(),
            resize: self.resizing.state(),
            now: self.services.environment.now(),
        });
        self.reporting.computed(status.clone());
        status
    }

    /// Compares the status that the API shows with ours: others may have overwritten it.
    fn compare_written(&mut self) {
        if let Some(shown) = self.forms.shown() {
            self.reporting.compare_with(shown);
        }
    }
}

/// The grace period that the pod itself asks for, in seconds. `probe`: that of the probe that failed.
fn own_grace_period(pod: &Pod, probe: Option<i64>) -> i64 {
    pod.metadata
        .deletion_grace_period_seconds
        .filter(|_| pod.metadata.deletion_timestamp.is_some())
        .or(probe)
        .or_else(|| pod.spec.as_ref()?.termination_grace_period_seconds)
        .unwrap_or(DEFAULT_GRACE)
        .max(0)
}
