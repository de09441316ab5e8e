//! The worker of one pod: it gathers events, asks `plan` what to do, starts the tasks, and writes
//! the status the moment it changes. One per pod, all in parallel.
//!
//! The loop: 1. something happens (news in the mailbox, a task's outcome, a time is reached);
//! 2. the worker's knowledge is updated; 3. the plan is asked and its actions begun as tasks;
//! 4. probes are matched with the running containers; 5. the status is computed and, if it
//! differs from what the API has, written. Nothing in the loop waits for a task.

mod attempts;
mod clock;
mod measuring;
mod outcomes;
mod resizing;
mod sightings;
mod telling;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use client::events::Severity;
use k8s_openapi::api::core::v1::{Pod, PodStatus, ResourceRequirements};
use serde_json::Value;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use trace::Hop;

use self::{
    attempts::Attempts,
    measuring::{Round, Told},
};
use super::{
    mailbox::{Mailbox, News},
    measuring::Startup,
    overwritten,
    plan::{self, Action, Busy, Goal, KillReason, Situation, Step},
    resize::{self, Pending, Progress},
    services::PodServices,
    status::{self, Waiting},
    status_writer,
    tasks::{self, Kill, Start, StartFailure, Turn},
    termination::Termination,
};
use crate::{
    backoff::{self, Backoff},
    images::{self, Image},
    pod_spec::{self, find_lasting as find_container, format_pod, uid},
    probes,
    resources::is_sidecar,
    runtime::{self, ContainerRecord, Observed, Sandbox},
    volumes::{self, HeldObjects, Mounted},
};

const SECOND: i64 = 1_000_000;
/// When a container whose configuration was refused is tried again, unless something changes.
const START_RETRY: i64 = 10 * SECOND;
const FIRST_MOUNT_RETRY: i64 = SECOND / 2;
const LAST_MOUNT_RETRY: i64 = 122 * SECOND;
/// When a volume that was not brought up to date is tried again, unless what it shows changes.
const REFRESH_RETRY: i64 = 60 * SECOND;
/// Steps as the timeline names them.
const VOLUMES: &str = "volumes";
const SANDBOX: &str = "RunPodSandbox";

/// What a task came back with.
enum Outcome {
    Observed {
        epoch: u64,
        observed: Result<Observed, tonic::Status>,
    },
    Volumes(Mounted, Vec<volumes::Failure>),
    Refreshed(Mounted, Vec<volumes::Failure>),
    Sandbox(Result<Sandbox, String>),
    Image {
        container: String,
        result: Result<Image, images::PullFailure>,
    },
    Started {
        container: String,
        result: Result<ContainerRecord, StartFailure>,
        /// With which it was started.
        resources: ResourceRequirements,
    },
    Resized {
        id: String,
        resources: ResourceRequirements,
        result: Result<(), String>,
    },
    /// The pod's cgroup has the limits of a resize.
    Settled(Result<(), String>),
    Killed {
        id: String,
        record: Option<ContainerRecord>,
    },
    Removed {
        id: String,
        done: bool,
    },
    SandboxStopped {
        id: String,
        done: bool,
    },
    SandboxRemoved {
        id: String,
        done: bool,
    },
    StatusWritten {
        value: Value,
        told: Told,
        /// The version that the API gave it.
        result: Result<u64, status_writer::Error>,
    },
    /// What the volumes held is given back, or not yet.
    Released(bool),
    Finished,
}

/// A pull that failed and how it is shown.
struct ShownPullFailure {
    failure: images::PullFailure,
    /// From here on it is shown as a backoff.
    backoff_from: i64,
    announced: bool,
}

pub struct Worker {
    node: Arc<PodServices>,
    mailbox: Arc<Mailbox>,
    /// As the API has it, but with the resources this node granted.
    pod: Arc<Pod>,
    /// As the API has it.
    desired: Arc<Pod>,
    /// What the API has of it, should it be a static pod.
    mirror: Option<Arc<Pod>>,
    /// The API no longer has the pod.
    removed: bool,
    tasks: JoinSet<Outcome>,

    /// `None` until the runtime has been read once.
    observed: Option<Observed>,
    /// Counts own changes: an observation begun before one is stale after it.
    epoch: u64,
    observing: bool,
    look_again: bool,

    held: HeldObjects,
    watchers: JoinSet<()>,
    volumes: Step<()>,
    mounted: Mounted,
    mount_failures: u32,
    refresh_volumes: bool,
    /// One refresh at a time: two would take each other's files away.
    refreshing: bool,
    images: BTreeMap<String, Step<Image>>,
    pull_failures: BTreeMap<String, ShownPullFailure>,
    pull_backoffs: BTreeMap<String, Backoff>,
    restarts: BTreeMap<String, Backoff>,
    start_failures: BTreeMap<String, i64>,
    sandbox_retry: Option<i64>,
    sandbox_failures: u32,
    busy: Busy,
    /// Tasks that end early when the pod is to end.
    abort_on_stop: Vec<AbortHandle>,
    /// Cancelled when the pod is to end.
    ending: CancellationToken,
    kills: BTreeMap<String, (AbortHandle, i64)>,
    /// Names of the containers that run, for sidecars that end after the others.
    alive: watch::Sender<BTreeSet<String>>,

    resize: resize::State,
    /// When a resize without room asks again.
    room_retry: Option<i64>,
    /// When a failed change of limits is tried again.
    resize_retry: Option<i64>,
    settling: bool,
    /// What running containers have of cpu and memory, by id.
    actual: BTreeMap<String, ResourceRequirements>,
    /// Containers killed to make way for a new one of themselves, by name.
    replacing: BTreeSet<String>,

    probes: BTreeMap<(String, probes::Kind), CancellationToken>,
    /// Containers whose startup probe has passed, by id.
    startup_passed: BTreeSet<String>,
    /// Containers whose readiness probe says yes, by id.
    readiness_passed: BTreeSet<String>,
    unhealthy: BTreeMap<String, KillReason>,
    /// See [`plan::Situation`].
    ended_by_probe: BTreeMap<String, String>,

    waiting: BTreeMap<String, Waiting>,
    termination: Option<Termination>,
    status: Option<PodStatus>,
    /// What the API has.
    written: Value,
    /// The version in which the API has it.
    written_version: u64,
    writing: bool,
    /// Since when a status is held back.
    held_back: Option<i64>,
    told_running: bool,
    /// The timeline has that a container runs.
    traced_running: bool,
    told_ready: bool,
    received: i64,
    /// This pod had begun to run before this worker.
    known_before: bool,
    startup: Startup,
    /// Ids of ended containers that have been counted; `None` before the first look.
    counted_ends: Option<BTreeSet<String>>,
    round: Option<Round>,
    attempts: Attempts,
    /// What the next round is for.
    next_round: &'static str,
    wake_at: Option<i64>,
    /// Wall and steady clock when last looked at.
    clocks: Option<(i64, tokio::time::Instant)>,
    done: bool,
}

impl Worker {
    /// `received`: when the pod reached this node, in microseconds.
    pub fn new(
        node: Arc<PodServices>,
        mailbox: Arc<Mailbox>,
        pod: Arc<Pod>,
        received: i64,
    ) -> Worker {
        let mut worker = Worker {
            node,
            mailbox,
            written: pod
                .status
                .as_ref()
                .map(status_writer::to_value)
                .unwrap_or(Value::Null),
            written_version: status_writer::version(&pod),
            desired: pod.clone(),
            pod,
            mirror: None,
            removed: false,
            tasks: JoinSet::new(),
            observed: None,
            epoch: 0,
            observing: false,
            look_again: true,
            held: HeldObjects::default(),
            watchers: JoinSet::new(),
            volumes: Step::Idle,
            mounted: Mounted::default(),
            mount_failures: 0,
            refresh_volumes: false,
            refreshing: false,
            images: BTreeMap::new(),
            pull_failures: BTreeMap::new(),
            pull_backoffs: BTreeMap::new(),
            restarts: BTreeMap::new(),
            start_failures: BTreeMap::new(),
            sandbox_retry: None,
            sandbox_failures: 0,
            busy: Busy::default(),
            abort_on_stop: Vec::new(),
            ending: CancellationToken::new(),
            kills: BTreeMap::new(),
            alive: watch::Sender::new(BTreeSet::new()),
            resize: resize::State::default(),
            room_retry: None,
            resize_retry: None,
            settling: false,
            actual: BTreeMap::new(),
            replacing: BTreeSet::new(),
            probes: BTreeMap::new(),
            startup_passed: BTreeSet::new(),
            readiness_passed: BTreeSet::new(),
            unhealthy: BTreeMap::new(),
            ended_by_probe: BTreeMap::new(),
            waiting: BTreeMap::new(),
            termination: None,
            status: None,
            writing: false,
            held_back: None,
            told_running: false,
            traced_running: false,
            told_ready: false,
            received,
            known_before: false,
            startup: Startup::default(),
            counted_ends: None,
            round: None,
            attempts: Attempts::default(),
            next_round: "create",
            wake_at: None,
            clocks: None,
            done: false,
        };
        worker.remember();
        worker
    }

    /// A worker for what is left of a pod that the API no longer has: it only ends it.
    pub fn orphaned(node: Arc<PodServices>, mailbox: Arc<Mailbox>, pod: Arc<Pod>) -> Worker {
        let received = node.environment.now_micros();
        Worker {
            removed: true,
            ..Worker::new(node, mailbox, pod, received)
        }
    }

    /// A worker for a pod that this node does not take: it only says so.
    pub fn rejected(
        node: Arc<PodServices>,
        mailbox: Arc<Mailbox>,
        pod: Arc<Pod>,
        termination: Termination,
    ) -> Worker {
        let received = node.environment.now_micros();
        Worker {
            termination: Some(termination),
            ..Worker::new(node, mailbox, pod, received)
        }
    }

    /// Runs until the pod is gone from the node.
    pub async fn run(mut self) {
        if !self.stopping() {
            self.hold_objects();
        }
        loop {
            self.step();
            if self.done {
                break;
            }
            let pause = self.wake_at.map(|at| {
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
                Some(outcome) = self.tasks.join_next() => self.take(outcome),
                () = reached => {}
            }
            while let Some(outcome) = self.tasks.try_join_next() {
                self.take(outcome);
            }
            let news = self.mailbox.take();
            self.hear(news);
        }
        for stop in self.probes.values() {
            stop.cancel();
        }
    }

    fn now(&self) -> i64 {
        self.node.environment.now_micros()
    }

    fn goal(&self) -> Goal {
        if self.removed || self.pod.metadata.deletion_timestamp.is_some() {
            Goal::Stop { remove: true }
        } else if self.termination.is_some() {
            Goal::Stop { remove: false }
        } else {
            Goal::Run
        }
    }

    /// Whether the pod has run to its end by itself.
    fn finished(&self, observed: &Observed) -> bool {
        self.replacing.is_empty() && plan::finished(&self.pod, observed)
    }

    fn stopping(&self) -> bool {
        self.goal() != Goal::Run
    }

    /// What probes said before this kubelet started is believed until they speak again.
    fn remember(&mut self) {
        let pod = self.pod.clone();
        let Some(status) = &pod.status else {
            return;
        };
        let statuses = status
            .container_statuses
            .iter()
            .flatten()
            .chain(status.init_container_statuses.iter().flatten());
        if let Some(granted) = resize::from_status(&self.pod, status) {
            self.pod = Arc::new(granted);
        }
        for status in statuses {
            let id = status.container_id.as_deref().unwrap_or_default();
            let Some((_, id)) = id.split_once("://") else {
                continue;
            };
            if let Some(resources) = &status.resources {
                self.actual.insert(id.to_owned(), resources.clone());
            }
            if status.started == Some(true) {
                self.startup_passed.insert(id.to_owned());
            }
            if status.ready {
                self.readiness_passed.insert(id.to_owned());
            }
        }
        self.known_before = status.start_time.is_some();
        self.startup.told = self.known_before;
        self.told_running = status.phase.as_deref() == Some("Running");
        self.traced_running = self.told_running;
        self.told_ready = self.told_running;
    }

    /// Takes hold of the ConfigMaps and Secrets the pod refers to, and watches them.
    fn hold_objects(&mut self) {
        self.held = self.node.objects.referred_to_by(&self.pod);
        for held in self.held.config_maps.values() {
            let (mut changes, mailbox) = (held.subscribe(), self.mailbox.clone());
            self.watchers.spawn(async move {
                loop {
                    changes.next().await;
                    mailbox.objects_changed();
                }
            });
        }
        for held in self.held.secrets.values() {
            let (mut changes, mailbox) = (held.subscribe(), self.mailbox.clone());
            self.watchers.spawn(async move {
                loop {
                    changes.next().await;
                    mailbox.objects_changed();
                }
            });
        }
    }

    fn hear(&mut self, news: News) {
        if let Some(pod) = news.pod {
            self.next_round = "update";
            let metadata_changed = self.pod.metadata.labels != pod.metadata.labels
                || self.pod.metadata.annotations != pod.metadata.annotations;
            self.refresh_volumes |= metadata_changed;
            if metadata_changed {
                self.start_failures.clear();
            }
            let ephemeral = |pod: &Pod| {
                let spec = pod.spec.as_ref();
                spec.and_then(|spec| Some(spec.ephemeral_containers.as_ref()?.len()))
            };
            let more_containers = ephemeral(&self.pod) != ephemeral(&pod);
            self.take_pod(pod);
            self.check_written();
            if more_containers && !self.stopping() {
                self.hold_objects();
            }
        }
        if let Some(mirror) = news.mirror {
            self.take_mirror(mirror);
        }
        if let Some(termination) = news.end
            && self.termination.is_none()
        {
            self.termination = Some(termination);
        }
        if news.room {
            self.room_retry = None;
        }
        self.removed |= news.removed;
        self.look_again |= news.runtime || news.sightings.iter().any(|seen| self.is_news(seen));
        if news.objects {
            self.refresh_volumes = true;
            self.start_failures.clear();
        }
        for ((id, kind), good) in news.probe_results {
            match (kind, good) {
                (probes::Kind::Startup, true) => {
                    self.startup_passed.insert(id);
                }
                (probes::Kind::Startup, false) => {
                    self.unhealthy.insert(id, KillReason::StartupProbe);
                }
                (probes::Kind::Readiness, true) => {
                    self.readiness_passed.insert(id);
                }
                (probes::Kind::Readiness, false) => {
                    self.readiness_passed.remove(&id);
                }
                (probes::Kind::Liveness, true) => {}
                (probes::Kind::Liveness, false) => {
                    self.unhealthy.insert(id, KillReason::LivenessProbe);
                }
            }
        }
    }

    /// One round: plan, act, probe, tell.
    fn step(&mut self) {
        self.wake_at = None;
        self.check_clock();
        if self.look_again && !self.observing {
            self.look_again = false;
            self.observing = true;
            let (node, pod, epoch) = (self.node.clone(), self.pod.clone(), self.epoch);
            self.tasks.spawn(async move {
                let observed = tasks::observe_pod(node, pod).await;
                Outcome::Observed { epoch, observed }
            });
        }
        self.check_deadline();
        if self.stopping() {
            self.let_go();
        }
        if self.observed.is_some() {
            // First: what is decided about a container that ended is told with its end.
            self.count_ends();
            self.ask_for_resources();
            self.refresh();
            self.show_pull_backoffs();
            for action in self.plan() {
                self.act(action);
            }
            self.tell_alive();
            self.settle_resize();
            self.match_probes();
        }
        self.tell();
        self.time_round();
    }

    fn plan(&self) -> Vec<Action> {
        let Some(observed) = &self.observed else {
            return Vec::new();
        };
        let started = self.started(observed);
        plan::plan(&Situation {
            pod: &self.pod,
            goal: self.goal(),
            observed,
            volumes: &self.volumes,
            images: &self.images,
            busy: &self.busy,
            restarts: &self.restarts,
            start_failures: &self.start_failures,
            sandbox_retry: self.sandbox_retry,
            unhealthy: &self.unhealthy,
            ended_by_probe: &self.ended_by_probe,
            started: &started,
            actual: &self.actual,
            replacing: &self.replacing,
            resize_retry: self.resize_retry,
            now: self.now(),
        })
    }

    fn act(&mut self, action: Action) {
        let (node, pod, now) = (self.node.clone(), self.pod.clone(), self.now());
        match action {
            Action::MountVolumes => self.mount_volumes(),
            Action::CreateSandbox { attempt } => {
                self.busy.sandbox = true;
                self.attempt_begins(SANDBOX);
                if attempt > 0 {
                    node.telemetry.events.normal(
                        &pod,
                        "SandboxChanged",
                        "Pod sandbox changed, it will be killed and re-created.",
                    );
                }
                self.tasks.spawn(async move {
                    Outcome::Sandbox(tasks::create_sandbox(node, pod, attempt, now).await)
                });
            }
            Action::EnsureImage { container } => {
                let Some(spec) = pod_spec::find(&self.pod, &container) else {
                    return;
                };
                self.images.insert(container.clone(), Step::Busy);
                self.attempt_begins(format!("EnsureImage {container}"));
                let (held, received) = (self.held.clone(), self.received);
                let handle = self.tasks.spawn(async move {
                    let result =
                        tasks::ensure_image(node, pod, spec, held, received.max(now)).await;
                    Outcome::Image { container, result }
                });
                self.abort_on_stop.retain(|handle| !handle.is_finished());
                self.abort_on_stop.push(handle);
            }
            Action::StartContainer {
                container,
                image,
                restart_count,
            } => self.start(container, image, restart_count),
            Action::KillContainer {
                id,
                container,
                reason,
            } => self.kill(id, container, reason),
            Action::ResizeContainer { id, container } => self.resize_container(id, container),
            Action::BackOff { container, until } => {
                self.replacing.remove(&container);
                self.ended_by_probe.remove(&container);
                self.show_crash_loop(&container, until);
            }
            Action::RemoveContainer { id, keep_log } => {
                self.busy.removing.insert(id.clone());
                let log = self
                    .observed
                    .iter()
                    .flat_map(|observed| &observed.containers)
                    .find(|record| record.id == id && !keep_log)
                    .map(|record| record.log_path.clone())
                    .unwrap_or_default();
                self.tasks.spawn(async move {
                    let done = runtime::remove_container(&node.cri, id.clone(), log).await;
                    Outcome::Removed { id, done }
                });
            }
            Action::StopSandbox { id } => {
                self.busy.stopping.insert(id.clone());
                let uid = uid(&pod);
                self.tasks.spawn(async move {
                    let done = tasks::stop_sandbox(node, uid, id.clone()).await;
                    Outcome::SandboxStopped { id, done }
                });
            }
            Action::RemoveSandbox { id } => {
                self.busy.removing.insert(id.clone());
                self.tasks.spawn(async move {
                    let done = runtime::remove_sandbox(&node.cri, id.clone()).await;
                    Outcome::SandboxRemoved { id, done }
                });
            }
            // A refresh that is under way would make them anew.
            Action::ReleaseVolumes if self.refreshing => {}
            Action::ReleaseVolumes => {
                self.busy.released = true;
                self.volumes = Step::Idle;
                self.mounted = Mounted::default();
                self.tasks.spawn(async move {
                    Outcome::Released(tasks::release_volumes(&node, &uid(&pod)).await)
                });
            }
            Action::Finish => self.finish(),
            Action::WakeAt(at) => self.wake(at),
        }
    }

    fn mount_volumes(&mut self) {
        self.volumes = Step::Busy;
        self.refresh_volumes = false;
        self.attempt_begins(VOLUMES);
        let (node, pod, held) = (self.node.clone(), self.pod.clone(), self.held.clone());
        let wanted = self.now();
        let handle = self.tasks.spawn(async move {
            let start = node.telemetry.spans.now();
            let facts = node.settings.facts(Vec::new());
            let nothing = Mounted::default();
            let (mounted, failures) = node.volumes.set_up(&pod, &facts, &held, nothing).await;
            if failures.is_empty() {
                node.telemetry
                    .spans
                    .record(&uid(&pod), Hop::Node, VOLUMES, wanted, start);
            }
            Outcome::Volumes(mounted, failures)
        });
        self.abort_on_stop.push(handle);
    }

    /// Brings volumes up to date when what they show has changed or a token grows old.
    fn refresh(&mut self) {
        if self.stopping() {
            return;
        }
        let now = self.now();
        let due = self.mounted.refresh_at.is_some_and(|at| now >= at);
        match self.volumes {
            Step::Failed { .. } if self.refresh_volumes => self.mount_volumes(),
            Step::Done(()) if (self.refresh_volumes || due) && !self.refreshing => {
                self.refresh_volumes = false;
                self.refreshing = true;
                // Containers may start meanwhile: what is mounted stays mounted.
                let (node, pod, held) = (self.node.clone(), self.pod.clone(), self.held.clone());
                self.mounted.refresh_at = Some(now + REFRESH_RETRY);
                let mounted = self.mounted.clone();
                let handle = self.tasks.spawn(async move {
                    let facts = node.settings.facts(Vec::new());
                    let refreshed = node.volumes.set_up(&pod, &facts, &held, mounted);
                    let (mounted, failures) = refreshed.await;
                    Outcome::Refreshed(mounted, failures)
                });
                self.abort_on_stop.push(handle);
            }
            _ => {}
        }
        if let Some(at) = self.mounted.refresh_at {
            self.wake(at);
        }
    }

    fn start(&mut self, container: String, image: Image, restart_count: i32) {
        let Some(spec) = pod_spec::find(&self.pod, &container) else {
            return;
        };
        let Some(observed) = &self.observed else {
            return;
        };
        let Some(sandbox) = observed.ready_sandbox().cloned() else {
            return;
        };
        let now = self.now();
        let by_probe = self.ended_by_probe.remove(&container);
        let cause = match observed.latest(&container).filter(|record| record.ended()) {
            Some(record) if by_probe.as_ref() == Some(&record.id) => observed.before(record),
            latest => latest,
        };
        if let Some(record) = cause {
            let backoff = self.restarts.entry(container.clone()).or_default();
            let longest = self.node.settings.configuration.longest_restart_pause();
            backoff.next(record.finished_at / 1000, now, longest);
        }
        self.busy.starting.insert(container.clone());
        let resources = spec.resources.clone().unwrap_or_default();
        let target_id = pod_spec::target(&self.pod, &container)
            .and_then(|target| observed.latest(target))
            .map(|record| record.id.clone());
        let start = Start {
            pod: self.pod.clone(),
            container: spec,
            image,
            restart_count,
            sandbox,
            mounted: self.mounted.clone(),
            held: self.held.clone(),
            target_id,
            wanted: now,
            stop: self.ending.clone(),
        };
        let node = self.node.clone();
        self.attempt_begins(format!("StartContainer {container}"));
        self.tasks.spawn(async move {
            let result = tasks::start_container(node, start).await;
            Outcome::Started {
                container,
                result,
                resources,
            }
        });
    }

    fn kill(&mut self, id: String, container: String, reason: KillReason) {
        let Some(observed) = &self.observed else {
            return;
        };
        let Some(record) = observed.containers.iter().find(|record| record.id == id) else {
            return;
        };
        let spec = find_container(&self.pod, &container);
        // It still runs: its policy counts, not its rules about exit codes.
        let restarts = reason == KillReason::DefinitionChanged
            || spec.is_some_and(|spec| plan::restarts_failed(&self.pod, spec));
        let cause = match reason {
            KillReason::PodEnds | KillReason::SandboxGone | KillReason::RestartAll => None,
            KillReason::LivenessProbe => Some("failed liveness probe"),
            KillReason::StartupProbe => Some("failed startup probe"),
            KillReason::DefinitionChanged => Some("definition changed"),
            KillReason::Resize => Some("resize requires restart"),
            KillReason::StateUnknown => None,
        };
        let message = match cause {
            None if reason == KillReason::RestartAll => "killing".to_owned(),
            None if reason == KillReason::StateUnknown => {
                "Container is in \"unknown\" state, try killing it before restart".to_owned()
            }
            None => format!("Stopping container {container}"),
            Some(cause) if reason == KillReason::Resize => format!("Container {container} {cause}"),
            Some(cause) if restarts => format!("Container {container} {cause}, will be restarted"),
            Some(cause) => format!("Container {container} {cause}"),
        };
        if reason == KillReason::StateUnknown {
            self.replacing.insert(container.clone());
        }
        if matches!(reason, KillReason::DefinitionChanged | KillReason::Resize) {
            self.replacing.insert(container.clone());
            // A new definition starts with a clean slate.
            self.restarts.remove(&container);
        }
        let probe_grace = match reason {
            KillReason::LivenessProbe => spec.and_then(|spec| spec.liveness_probe.as_ref()),
            KillReason::StartupProbe => spec.and_then(|spec| spec.startup_probe.as_ref()),
            _ => None,
        };
        let probe_grace = probe_grace.and_then(|probe| probe.termination_grace_period_seconds);
        let turn = (reason == KillReason::PodEnds).then(|| self.turn(&container));
        let kill = Kill {
            turn: turn.flatten(),
            pod: self.pod.clone(),
            id: id.clone(),
            sandbox_id: record.sandbox_id.clone(),
            container,
            message,
            grace: match reason {
                KillReason::RestartAll => 0,
                _ => self.grace(probe_grace),
            },
            pod_ip: observed
                .sandbox()
                .and_then(|sandbox| {
                    tasks::pod_ips(&self.node, &self.pod, sandbox)
                        .first()
                        .cloned()
                })
                .unwrap_or_default(),
        };
        self.busy.killing.insert(id.clone());
        let (node, grace) = (self.node.clone(), kill.grace);
        let for_task = id.clone();
        let handle = self.tasks.spawn(async move {
            let record = tasks::kill_container(node, kill).await;
            Outcome::Killed {
                id: for_task,
                record,
            }
        });
        self.kills.insert(id, (handle, grace));
    }

    /// Whom a container waits for when the pod ends: a sidecar for the app containers and for the
    /// sidecars that came after it.
    fn turn(&self, container: &str) -> Option<Turn> {
        let spec = self.pod.spec.as_ref()?;
        let sidecars = || {
            let init = spec.init_containers.iter().flatten();
            init.filter(|container| is_sidecar(container))
        };
        if !sidecars().any(|one| one.name == container) {
            return None;
        }
        let later = sidecars().skip_while(|one| one.name != container).skip(1);
        let others = spec.containers.iter().chain(later);
        let turn = Turn {
            after: others.map(|one| one.name.clone()).collect(),
            alive: self.alive.subscribe(),
        };
        self.tell_alive();
        Some(turn)
    }

    /// Tells those that wait for their turn who still runs.
    fn tell_alive(&self) {
        let Some(observed) = &self.observed else {
            return;
        };
        if self.alive.receiver_count() == 0 {
            return;
        }
        let running = observed.running().map(|record| record.name.clone());
        let alive: BTreeSet<String> = running.chain(self.busy.starting.iter().cloned()).collect();
        self.alive.send_if_modified(|known| {
            let changed = *known != alive;
            *known = alive;
            changed
        });
    }

    /// The pod is to end: pulls and mounts stop, and kills that would take longer than is now
    /// allowed are begun anew.
    fn let_go(&mut self) {
        self.ending.cancel();
        for handle in self.abort_on_stop.drain(..) {
            handle.abort();
        }
        for step in self.images.values_mut() {
            if *step == Step::Busy {
                *step = Step::Idle;
            }
        }
        if self.volumes == Step::Busy {
            self.volumes = Step::Idle;
        }
        self.replacing.clear();
        let grace = self.grace(None);
        let overdue: Vec<String> = self
            .kills
            .iter()
            .filter(|(_, (_, allowed))| grace < *allowed)
            .map(|(id, _)| id.clone())
            .collect();
        for id in overdue {
            if let Some((handle, _)) = self.kills.remove(&id) {
                handle.abort();
                self.busy.killing.remove(&id);
            }
        }
        self.watchers.abort_all();
    }

    /// The seconds a container gets: a termination may leave less than the pod asked for.
    fn grace(&self, probe: Option<i64>) -> i64 {
        let grace = tasks::grace(&self.pod, probe);
        let termination = self
            .termination
            .as_ref()
            .and_then(|termination| termination.grace);
        let grace = termination.map_or(grace, |limit| grace.min(limit));
        // However hasty the end of a pod, its hooks get their second.
        grace.max(i64::from(self.stopping()))
    }

    fn finish(&mut self) {
        self.busy.finishing = true;
        let sandboxes = self
            .observed
            .iter()
            .flat_map(|observed| observed.sandboxes.iter().rev())
            .map(|sandbox| sandbox.id.clone())
            .collect();
        let last = (!self.removed).then(|| (self.compute(), self.written.clone()));
        let (node, pod) = (self.node.clone(), self.pod.clone());
        self.tasks.spawn(async move {
            tasks::finish(node, pod, sandboxes, last).await;
            Outcome::Finished
        });
    }

    fn check_deadline(&mut self) {
        let Some(seconds) = self
            .pod
            .spec
            .as_ref()
            .and_then(|s| s.active_deadline_seconds)
        else {
            return;
        };
        let started = self
            .status
            .as_ref()
            .and_then(|status| status.start_time.as_ref());
        let Some(started) = started.map(|time| time.0.as_microsecond()) else {
            return;
        };
        let deadline = started + seconds * SECOND;
        if self.now() < deadline {
            self.wake(deadline);
        } else if self.termination.is_none()
            && !self
                .observed
                .as_ref()
                .is_some_and(|observed| self.finished(observed))
        {
            let message = "Pod was active on the node longer than the specified deadline";
            self.node
                .telemetry
                .events
                .normal(&self.pod, "DeadlineExceeded", message);
            self.termination = Some(Termination {
                reason: "DeadlineExceeded".to_owned(),
                message: message.to_owned(),
                ..Termination::default()
            });
        }
    }

    fn wake(&mut self, at: i64) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}
