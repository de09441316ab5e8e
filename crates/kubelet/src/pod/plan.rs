//! Decides what to do next for one pod. Pure. `plan(situation) -> actions` is asked again after every
//! event; the worker runs the actions as tasks and asks again with their results.
//! Independent steps (volumes, image, sandbox) are planned together, so they run side by side.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use semantics::pod::is_sidecar;

use super::{
    resize,
    restarts::{asks_for_all, has_completed, init_and_app, may_restart, restarting_all},
};
use crate::{
    backoff::Backoff,
    image::Image,
    pod_spec::{self, definition_hash},
    runtime::{ContainerRecord, ContainerState, Observed, Sandbox},
};

/// Dead containers that are kept per name besides the present one: the one that `lastState` and
/// `logs --previous` show.
const DEAD_KEPT: usize = 1;

/// The state of one prerequisite of a container's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Step<T> {
    #[default]
    Idle,
    Busy,
    Done(T),
    /// It failed; not again before this time (microseconds).
    Failed {
        until: i64,
    },
}

/// The goal of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Run,
    /// End everything. `remove`: also remove everything from the node.
    Stop {
        remove: bool,
    },
}

/// Tasks under way, which must not be planned a second time.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    pub sandbox: bool,
    /// Containers being created and started, by name.
    pub starting: BTreeSet<String>,
    /// Containers being killed, by id.
    pub killing: BTreeSet<String>,
    /// Dead containers and sandboxes being removed, by id.
    pub removing: BTreeSet<String>,
    /// Sandboxes being stopped, by id.
    pub stopping: BTreeSet<String>,
    pub finishing: bool,
    /// The volumes of a pod that has ended are being given back, or were.
    pub released: bool,
    /// Containers whose limits are being changed, by id.
    pub resizing: BTreeSet<String>,
}

/// Everything the plan looks at.
pub struct Situation<'a> {
    pub pod: &'a Pod,
    pub goal: Goal,
    pub observed: &'a Observed,
    pub volumes: &'a Step<()>,
    /// By container name.
    pub images: &'a BTreeMap<String, Step<Image>>,
    pub busy: &'a Busy,
    /// Restart backoff by container name.
    pub restarts: &'a BTreeMap<String, Backoff>,
    /// Containers whose creation or start failed, by name, and when to try again.
    pub start_failures: &'a BTreeMap<String, i64>,
    /// When the sandbox may be tried again after a failure.
    pub sandbox_retry: Option<i64>,
    /// Running containers that a probe condemned, by id.
    pub unhealthy: &'a BTreeMap<String, KillReason>,
    /// The last container of each name that a probe ended, as long as nothing was decided about the
    /// one after it: name and id.
    pub ended_by_probe: &'a BTreeMap<String, String>,
    /// Running containers that have started (startup probe passed or none), by id.
    pub started: &'a BTreeSet<String>,
    /// What running containers have of cpu and memory, by id.
    pub actual: &'a BTreeMap<String, ResourceRequirements>,
    /// Containers that were killed to be replaced, regardless of their restart policy, by name.
    pub replacing: &'a BTreeSet<String>,
    /// When a change of limits that failed may be tried again.
    pub resize_retry: Option<i64>,
    pub now: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// The pod is terminated.
    PodEnds,
    LivenessProbe,
    StartupProbe,
    DefinitionChanged,
    /// The runtime does not know its state: it may still run.
    StateUnknown,
    /// Its new resources need a new container.
    Resize,
    /// Its sandbox is gone; it cannot live on.
    SandboxGone,
    /// Another container has ended whose rule restarts all containers.
    RestartAll,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    MountVolumes,
    CreateSandbox {
        attempt: u32,
    },
    EnsureImage {
        container: String,
    },
    StartContainer {
        container: String,
        image: Image,
        restart_count: i32,
    },
    KillContainer {
        id: String,
        container: String,
        reason: KillReason,
    },
    /// Gives a running container the limits it was granted.
    ResizeContainer {
        id: String,
        container: String,
    },
    /// A restart has to wait: show CrashLoopBackOff.
    BackOff {
        container: String,
        until: i64,
    },
    RemoveContainer {
        id: String,
        /// Its log is removed with the pod, not with the container.
        keep_log: bool,
    },
    StopSandbox {
        id: String,
    },
    RemoveSandbox {
        id: String,
    },
    /// Nothing runs any more, though the object stays: unmount the pod's volumes.
    ReleaseVolumes,
    /// Nothing runs any more: write the last status and clean up.
    Finish,
    /// Ask again at this time.
    WakeAt(i64),
}

/// The next actions. Empty when there is nothing to do but wait for an event.
pub fn plan(situation: &Situation<'_>) -> Vec<Action> {
    let mut actions = Vec::new();
    match situation.goal {
        Goal::Stop { remove } => stop(situation, remove, &mut actions),
        Goal::Run
            if situation.replacing.is_empty()
                && has_completed(situation.pod, situation.observed) =>
        {
            stop(situation, false, &mut actions);
            remove_old(situation, &mut actions);
        }
        Goal::Run if restarting_all(situation.pod, situation.observed) => {
            begin_anew(situation, &mut actions);
        }
        Goal::Run => {
            run(situation, &mut actions);
            remove_old(situation, &mut actions);
        }
    }
    actions
}

/// Ends the pod: all its containers, then the sandboxes. A sidecar waits for its turn while it is
/// being killed, after its preStop hook.
fn stop(situation: &Situation<'_>, remove: bool, actions: &mut Vec<Action>) {
    let Situation { observed, busy, .. } = situation;
    let running: Vec<&ContainerRecord> = observed.running().collect();
    for record in &running {
        kill(situation, record, KillReason::PodEnds, actions);
    }
    if !running.is_empty() || !busy.starting.is_empty() || busy.sandbox {
        return;
    }
    let mut stopped = true;
    for sandbox in observed.sandboxes.iter().filter(|sandbox| sandbox.ready) {
        stopped = false;
        if !busy.stopping.contains(&sandbox.id) {
            actions.push(Action::StopSandbox {
                id: sandbox.id.clone(),
            });
        }
    }
    if !stopped || *situation.volumes == Step::Busy {
        return;
    }
    if remove && !busy.finishing {
        actions.push(Action::Finish);
    } else if !remove && !busy.released {
        actions.push(Action::ReleaseVolumes);
    }
}

/// Removes every init and app container, those that asked for it last, so that a kubelet that is
/// killed in between still knows why. With none left the pod starts as it did first.
fn begin_anew(situation: &Situation<'_>, actions: &mut Vec<Action>) {
    let Situation {
        pod,
        observed,
        busy,
        ..
    } = situation;
    let of = |record: &ContainerRecord| init_and_app(pod).find(|one| one.name == record.name);
    let records: Vec<(&ContainerRecord, &Container)> = observed
        .containers
        .iter()
        .filter_map(|record| Some((record, of(record)?)))
        .collect();
    for (record, _) in records.iter().filter(|(record, _)| record.running()) {
        kill(situation, record, KillReason::RestartAll, actions);
    }
    if records.iter().any(|(record, _)| record.running()) || !busy.starting.is_empty() {
        return;
    }
    let (sources, victims): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|(record, container)| asks_for_all(container, record));
    let next = if victims.is_empty() { sources } else { victims };
    for (record, _) in next {
        if !busy.removing.contains(&record.id) {
            actions.push(Action::RemoveContainer {
                id: record.id.clone(),
                keep_log: true,
            });
        }
    }
}

fn run(situation: &Situation<'_>, actions: &mut Vec<Action>) {
    let Situation {
        pod,
        observed,
        busy,
        now,
        ..
    } = situation;
    let Some(spec) = &pod.spec else { return };
    match situation.volumes {
        Step::Idle => actions.push(Action::MountVolumes),
        Step::Failed { until } if now >= until => actions.push(Action::MountVolumes),
        Step::Failed { until } => actions.push(Action::WakeAt(*until)),
        Step::Busy | Step::Done(()) => {}
    }
    let sandbox = observed.ready_sandbox();
    if sandbox.is_none() {
        if observed.running().next().is_some() {
            for record in observed.running() {
                kill(situation, record, KillReason::SandboxGone, actions);
            }
            return;
        }
        let never = spec.restart_policy.as_deref() == Some("Never");
        if never && observed.sandbox().is_some() && !observed.containers.is_empty() {
            // The pod had its one chance; what is left of it ends.
            return;
        }
        if !busy.sandbox {
            match situation.sandbox_retry {
                Some(until) if *now < until => actions.push(Action::WakeAt(until)),
                _ => actions.push(Action::CreateSandbox {
                    attempt: observed.sandbox().map_or(0, |sandbox| sandbox.attempt + 1),
                }),
            }
        }
    }
    for record in observed.running() {
        if let Some(reason) = situation.unhealthy.get(&record.id) {
            kill(situation, record, *reason, actions);
        } else if let Some(container) = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .find(|container| container.name == record.name)
            && !record.hash.is_empty()
            && record.hash != definition_hash(container)
        {
            kill(situation, record, KillReason::DefinitionChanged, actions);
        } else {
            resize(situation, record, actions);
        }
    }
    for container in init_and_app(pod) {
        let latest = sandbox.and_then(|sandbox| observed.latest_in(&container.name, sandbox));
        if let Some(record) = latest
            && record.state == ContainerState::Unknown
            && !busy.starting.contains(&container.name)
        {
            kill(situation, record, KillReason::StateUnknown, actions);
        }
    }
    for container in new_ephemeral(situation, sandbox) {
        if !busy.starting.contains(&container.name) {
            start(situation, &container, sandbox, actions);
        }
    }
    for container in next_containers(situation, sandbox) {
        if busy.starting.contains(&container.name) {
            if has_post_start(container) {
                break;
            }
            continue;
        }
        let may_start_next = start(situation, container, sandbox, actions);
        if !may_start_next {
            break;
        }
    }
}

/// Brings a running container to the resources it was granted.
fn resize(situation: &Situation<'_>, record: &ContainerRecord, actions: &mut Vec<Action>) {
    let Some(actual) = situation.actual.get(&record.id) else {
        return;
    };
    let Some(container) = pod_spec::find_init_or_app(situation.pod, &record.name) else {
        return;
    };
    let changed = resize::changes(container.resources.as_ref(), actual);
    if changed.is_empty() || situation.busy.resizing.contains(&record.id) {
        return;
    }
    if resize::needs_restart(container, &changed) {
        kill(situation, record, KillReason::Resize, actions);
        return;
    }
    match situation.resize_retry {
        Some(until) if situation.now < until => actions.push(Action::WakeAt(until)),
        _ => actions.push(Action::ResizeContainer {
            id: record.id.clone(),
            container: record.name.clone(),
        }),
    }
}

/// Plans one container's start. Returns whether those after it may be planned too: a container
/// with a postStart hook delays the ones behind it, as upstream does.
fn start(
    situation: &Situation<'_>,
    container: &Container,
    sandbox: Option<&Sandbox>,
    actions: &mut Vec<Action>,
) -> bool {
    let name = &container.name;
    let now = situation.now;
    let latest = situation.observed.latest(name);
    if let Some(record) = latest.filter(|record| record.ended()) {
        let wait_since = |record: &ContainerRecord| {
            let backoff = situation.restarts.get(name)?;
            backoff.waits_since(record.finished_at / 1000, now)
        };
        // What a probe ends is replaced at once, unless the one before it ended too lately.
        let by_probe = situation.ended_by_probe.get(name) == Some(&record.id);
        let before = situation.observed.before(record);
        let at_once = by_probe && before.is_none_or(|before| wait_since(before).is_none());
        if let Some(until) = wait_since(record).filter(|_| !at_once) {
            actions.push(Action::BackOff {
                container: name.clone(),
                until,
            });
            actions.push(Action::WakeAt(until));
            return true;
        }
    }
    if let Some(until) = situation
        .start_failures
        .get(name)
        .filter(|until| now < **until)
    {
        actions.push(Action::WakeAt(*until));
        return true;
    }
    match situation.images.get(name).unwrap_or(&Step::Idle) {
        Step::Idle => actions.push(Action::EnsureImage {
            container: name.clone(),
        }),
        Step::Busy => {}
        Step::Failed { until } if now >= *until => actions.push(Action::EnsureImage {
            container: name.clone(),
        }),
        Step::Failed { until } => {
            actions.push(Action::WakeAt(*until));
            return true;
        }
        Step::Done(image) => {
            if sandbox.is_some() && *situation.volumes == Step::Done(()) {
                actions.push(Action::StartContainer {
                    container: name.clone(),
                    image: image.clone(),
                    restart_count: next_restart_count(situation, name),
                });
            }
        }
    }
    !has_post_start(container)
}

/// Ephemeral containers that were never made. They run once, in a sandbox that is there.
fn new_ephemeral(situation: &Situation<'_>, sandbox: Option<&Sandbox>) -> Vec<Container> {
    if sandbox.is_none() {
        return Vec::new();
    }
    let mut containers = pod_spec::ephemeral(situation.pod);
    containers.retain(|container| situation.observed.latest(&container.name).is_none());
    containers
}

/// The containers that should be started now, in order. With no sandbox yet, those that will be
/// first once there is one, so that their images are fetched meanwhile.
fn next_containers<'a>(situation: &Situation<'a>, sandbox: Option<&Sandbox>) -> Vec<&'a Container> {
    let Some(spec) = &situation.pod.spec else {
        return Vec::new();
    };
    let in_sandbox =
        |name: &str| sandbox.and_then(|sandbox| situation.observed.latest_in(name, sandbox));
    let initialised = spec
        .containers
        .iter()
        .any(|container| in_sandbox(&container.name).is_some());
    let mut next = Vec::new();
    for container in spec.init_containers.iter().flatten() {
        let record = in_sandbox(&container.name);
        if is_sidecar(container) {
            match record {
                Some(record) if record.running() => {
                    if !initialised && !situation.started.contains(&record.id) {
                        return next;
                    }
                }
                Some(record) if record.state == ContainerState::Unknown => {
                    if !initialised {
                        return next;
                    }
                }
                _ => {
                    next.push(container);
                    if !initialised {
                        return next;
                    }
                }
            }
        } else if !initialised {
            match record {
                Some(record) if record.state == ContainerState::Exited && record.exit_code == 0 => {
                }
                Some(record) if record.running() || record.state == ContainerState::Unknown => {
                    return next;
                }
                _ => {
                    next.push(container);
                    return next;
                }
            }
        }
    }
    for container in &spec.containers {
        let wanted = match in_sandbox(&container.name) {
            // One that has succeeded does not run again because the sandbox is another.
            None => situation
                .observed
                .latest(&container.name)
                .is_none_or(|record| {
                    record.state != ContainerState::Exited
                        || record.exit_code != 0
                        || may_restart(situation.pod, container, 0)
                }),
            Some(record) => match record.state {
                // What may still run is killed first.
                ContainerState::Running | ContainerState::Unknown => false,
                ContainerState::Created => true,
                ContainerState::Exited => {
                    situation.replacing.contains(&container.name)
                        || may_restart(situation.pod, container, record.exit_code)
                }
            },
        };
        if wanted {
            next.push(container);
        }
    }
    next
}

fn next_restart_count(situation: &Situation<'_>, name: &str) -> i32 {
    if let Some(record) = situation.observed.latest(name) {
        return record.restart_count + 1;
    }
    // The runtime has forgotten it (a reboot): the API remembers.
    let status = situation.pod.status.as_ref();
    status
        .into_iter()
        .flat_map(|status| {
            let apps = status.container_statuses.iter().flatten();
            apps.chain(status.init_container_statuses.iter().flatten())
        })
        .find(|status| status.name == name)
        .map_or(0, |status| match status.container_id {
            Some(_) => status.restart_count + 1,
            // Lost or removed: it was counted then.
            None => status.restart_count,
        })
}

fn kill(
    situation: &Situation<'_>,
    record: &ContainerRecord,
    reason: KillReason,
    actions: &mut Vec<Action>,
) {
    if !situation.busy.killing.contains(&record.id) {
        actions.push(Action::KillContainer {
            id: record.id.clone(),
            container: record.name.clone(),
            reason,
        });
    }
}

/// Removes older dead containers and replaced sandboxes, which nothing shows any more.
fn remove_old(situation: &Situation<'_>, actions: &mut Vec<Action>) {
    let Situation { observed, busy, .. } = situation;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &observed.containers {
        let newer = seen.entry(&record.name).or_default();
        if *newer > DEAD_KEPT && !record.running() && !busy.removing.contains(&record.id) {
            actions.push(Action::RemoveContainer {
                id: record.id.clone(),
                keep_log: false,
            });
        }
        *newer += 1;
    }
    for sandbox in observed.sandboxes.iter().skip(1) {
        let empty = !observed
            .containers
            .iter()
            .any(|record| record.sandbox_id == sandbox.id);
        if sandbox.ready && !busy.stopping.contains(&sandbox.id) {
            actions.push(Action::StopSandbox {
                id: sandbox.id.clone(),
            });
        } else if !sandbox.ready && empty && !busy.removing.contains(&sandbox.id) {
            actions.push(Action::RemoveSandbox {
                id: sandbox.id.clone(),
            });
        }
    }
}

fn has_post_start(container: &Container) -> bool {
    container
        .lifecycle
        .as_ref()
        .is_some_and(|lifecycle| lifecycle.post_start.is_some())
}
