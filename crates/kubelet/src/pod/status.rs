//! The pod's status, computed from the spec, the runtime's state of it, and the results of probes.
//! Pure.
//! Writing it is `status_writer`'s; the conditions are `conditions`'.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, ContainerUser, HostIP, LinuxContainerUser, Pod,
        PodIP, PodStatus, ResourceRequirements, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use semantics::pod::is_sidecar;

use super::{
    conditions,
    phase::{self, RESTARTING_ALL},
    resize,
    restarts::{self, may_restart},
    termination::Termination,
};
use crate::{
    pod_spec::{self, Role},
    resources::{pod_level, qos_class},
    runtime::{ContainerRecord, ContainerState, Observed},
};

/// The length that the termination messages of all containers may have together; each gets its share.
const MOST_MESSAGES: usize = 12 * 1024;

/// Why a container waits, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: String,
    pub message: String,
}

pub struct Input<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    /// By container name.
    pub waiting: &'a BTreeMap<String, Waiting>,
    /// Ids of running containers that have started.
    pub started: &'a BTreeSet<String>,
    /// Ids of running containers that are ready.
    pub ready: &'a BTreeSet<String>,
    /// The runtime's name, for `containerID`.
    pub runtime_name: &'a str,
    pub host_ip: &'a str,
    /// The status computed or read before this one.
    pub previous: &'a PodStatus,
    /// Nothing of the pod runs or will run again.
    pub terminal: bool,
    pub termination: Option<&'a Termination>,
    /// Containers that are being replaced: they are shown as before until the new one is there.
    pub replacing: &'a BTreeSet<String>,
    /// What running containers have of cpu and memory, by id.
    pub actual: &'a BTreeMap<String, ResourceRequirements>,
    pub resize: &'a resize::State,
    pub now: Timestamp,
}

pub fn compute(input: &Input<'_>) -> PodStatus {
    let Input { pod, previous, .. } = input;
    if let Some(termination) = input.termination.filter(|termination| termination.rejected) {
        return rejected(input, termination);
    }
    let spec = pod_spec::spec(pod);
    let mut init_statuses = statuses(
        input,
        spec.init_containers.as_deref().unwrap_or_default(),
        previous.init_container_statuses.as_deref(),
        Role::Init,
    );
    let mut app_statuses = statuses(
        input,
        &spec.containers,
        previous.container_statuses.as_deref(),
        Role::App,
    );
    let mut ephemeral_statuses = statuses(
        input,
        &pod_spec::ephemeral(pod),
        previous.ephemeral_container_statuses.as_deref(),
        Role::Ephemeral,
    );
    shorten_messages([
        &mut init_statuses,
        &mut app_statuses,
        &mut ephemeral_statuses,
    ]);
    let mut phase = phase::of(pod, &init_statuses, &app_statuses, input.terminal).to_owned();
    let api_phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    for known in [previous.phase.as_deref(), api_phase].into_iter().flatten() {
        // A pod never leaves a terminal phase.
        if matches!(known, "Succeeded" | "Failed") {
            phase = known.to_owned();
        }
    }
    let (mut reason, mut message) = (None, None);
    if previous.phase.as_deref() == Some(&phase) {
        reason = previous.reason.clone();
        message = previous.message.clone();
    }
    // The pod must not be shown as ended while something of it runs.
    let termination = input.termination.filter(|_| input.terminal);
    if let Some(termination) = termination {
        phase = "Failed".to_owned();
        reason = Some(termination.reason.clone());
        message = Some(termination.message.clone());
    }

    let host_network = spec.host_network == Some(true);
    let ips: Vec<String> = if host_network {
        vec![input.host_ip.to_owned()]
    } else {
        let live = input.observed.sandbox().map(|sandbox| sandbox.ips.clone());
        live.filter(|ips| !ips.is_empty()).unwrap_or_else(|| {
            let kept = previous.pod_ips.iter().flatten();
            kept.map(|ip| ip.ip.clone()).collect()
        })
    };
    let mut all = init_statuses.clone();
    all.extend(app_statuses.iter().cloned());
    let conditions = conditions::compute(&conditions::Input {
        pod,
        previous,
        statuses: &all,
        phase: &phase,
        sandbox_ready: input.observed.ready_sandbox().is_some(),
        disruption: termination.filter(|termination| termination.disruption),
        resize: input.resize,
        restarting_all: restarts::all_may_restart(pod).then(|| restarting_all(input)),
        now: input.now,
    });
    PodStatus {
        phase: Some(phase),
        reason,
        message,
        conditions: Some(conditions),
        host_ip: Some(input.host_ip.to_owned()),
        host_ips: Some(vec![HostIP {
            ip: input.host_ip.to_owned(),
        }]),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: previous
            .start_time
            .clone()
            .or_else(|| pod.status.as_ref()?.start_time.clone())
            .or(Some(Time(input.now))),
        init_container_statuses: (!init_statuses.is_empty()).then_some(init_statuses),
        container_statuses: Some(app_statuses),
        ephemeral_container_statuses: (!ephemeral_statuses.is_empty())
            .then_some(ephemeral_statuses),
        resources: pod_level(pod).cloned(),
        allocated_resources: pod_level(pod).and_then(|resources| resources.requests.clone()),
        qos_class: pod
            .status
            .as_ref()
            .and_then(|status| status.qos_class.clone())
            .or_else(|| Some(qos_class(pod).as_str().to_owned())),
        observed_generation: pod.metadata.generation,
        ..(*previous).clone()
    }
}

/// A pod that this node did not take: nothing is known of its containers, and never will be.
fn rejected(input: &Input<'_>, termination: &Termination) -> PodStatus {
    PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(termination.reason.clone()),
        message: Some(termination.message.clone()),
        start_time: input.previous.start_time.clone().or(Some(Time(input.now))),
        observed_generation: input.pod.metadata.generation,
        qos_class: input
            .previous
            .qos_class
            .clone()
            .or_else(|| Some(qos_class(input.pod).as_str().to_owned())),
        ..input.previous.clone()
    }
}

fn statuses(
    input: &Input<'_>,
    containers: &[Container],
    previous: Option<&[ContainerStatus]>,
    role: Role,
) -> Vec<ContainerStatus> {
    containers
        .iter()
        .map(|container| {
            let previous = previous
                .unwrap_or_default()
                .iter()
                .find(|status| status.name == container.name);
            match previous {
                Some(previous) if input.replacing.contains(&container.name) => previous.clone(),
                _ => status(input, container, previous, role),
            }
        })
        .collect()
}

fn status(
    input: &Input<'_>,
    container: &Container,
    previous: Option<&ContainerStatus>,
    role: Role,
) -> ContainerStatus {
    let init = role == Role::Init;
    let mut records = input
        .observed
        .containers
        .iter()
        .filter(|record| record.name == container.name);
    let (current, before) = (records.next(), records.next());
    let mut status = match current {
        Some(record) => from_record(input, container, record),
        None => from_memory(input, container, previous, role),
    };
    if let Some(before) = before {
        status.last_state = Some(state_of(input, before));
    } else if current.is_some()
        && let Some(previous) = previous
        && (previous.container_id.is_none() || previous.container_id == status.container_id)
    {
        status.last_state = previous.last_state.clone();
    }
    // A container that is to run again, and is known to be held up, waits.
    let held = input.waiting.get(&container.name).filter(|_| {
        current.is_none_or(|record| match record.state {
            ContainerState::Running => false,
            ContainerState::Created => true,
            _ => {
                let done = init && !is_sidecar(container) && record.exit_code == 0;
                !done
                    && role != Role::Ephemeral
                    && may_restart(input.pod, container, record.exit_code)
            }
        })
    });
    if let Some(waiting) = held
        && !input.terminal
    {
        if let Some(ApiState {
            terminated: Some(terminated),
            ..
        }) = status.state.take()
        {
            status.last_state = Some(terminated_state(terminated));
        }
        status.state = Some(waiting_state(&waiting.reason, &waiting.message));
    }
    let running = current.filter(|record| record.running());
    let started = running.is_some_and(|record| input.started.contains(&record.id));
    status.started = (role != Role::Ephemeral).then_some(started);
    status.ready = if init && !is_sidecar(container) {
        current
            .is_some_and(|record| record.state == ContainerState::Exited && record.exit_code == 0)
            || (current.is_none() && previous.is_some_and(|previous| previous.ready))
    } else if role == Role::Ephemeral {
        false
    } else {
        running.is_some_and(|record| input.ready.contains(&record.id))
    };
    if status.container_id.is_some() && role != Role::Ephemeral {
        let actual = running.and_then(|record| input.actual.get(&record.id));
        status.resources = actual.cloned().or_else(|| container.resources.clone());
        status.allocated_resources = container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.clone());
    }
    if status.container_id.is_some() {
        status.volume_mounts = mount_statuses(container, current);
    }
    status
}

fn mount_statuses(
    container: &Container,
    record: Option<&ContainerRecord>,
) -> Option<Vec<VolumeMountStatus>> {
    let recursive =
        |path: &String| record.is_some_and(|record| record.recursively_read_only.contains(path));
    let statuses: Vec<VolumeMountStatus> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            // As the runtime reports it, not as the spec asks for it.
            recursive_read_only: (mount.read_only == Some(true)).then(|| {
                match recursive(&mount.mount_path) {
                    true => "Enabled".to_owned(),
                    false => "Disabled".to_owned(),
                }
            }),
            ..VolumeMountStatus::default()
        })
        .collect();
    (!statuses.is_empty()).then_some(statuses)
}

fn from_record(
    input: &Input<'_>,
    container: &Container,
    record: &ContainerRecord,
) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: if record.image.is_empty() {
            container.image.clone().unwrap_or_default()
        } else {
            record.image.clone()
        },
        image_id: record.image_ref.clone(),
        container_id: Some(container_id(input, record)),
        restart_count: record.restart_count,
        state: Some(state_of(input, record)),
        user: record.user.as_ref().map(|user| ContainerUser {
            linux: Some(LinuxContainerUser {
                uid: user.uid,
                gid: user.gid,
                supplemental_groups: Some(user.groups.clone()),
            }),
        }),
        ..ContainerStatus::default()
    }
}

/// The runtime has nothing of this container: it was never created, or it is lost.
fn from_memory(
    input: &Input<'_>,
    container: &Container,
    previous: Option<&ContainerStatus>,
    role: Role,
) -> ContainerStatus {
    let init = role == Role::Init;
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        ..ContainerStatus::default()
    };
    let spec = input.pod.spec.as_ref();
    status.state = Some(waiting_state(default_reason(input), ""));
    if let Some(previous) = previous {
        let state = previous.state.clone().unwrap_or_default();
        let waited = state
            .waiting
            .as_ref()
            .and_then(|waiting| waiting.reason.as_deref());
        if role != Role::Ephemeral
            && ((state.waiting.is_none() && was_restarting_all(input))
                || waited == Some(RESTARTING_ALL))
        {
            return removed(&status, previous, waited.is_none());
        }
        if state.terminated.is_some() {
            return previous.clone();
        }
        status.restart_count = previous.restart_count;
        status.last_state = previous.last_state.clone();
        if state.running.is_some() && !has_terminated(&status.last_state) {
            status.last_state = Some(terminated_state(lost(
                "The container could not be located when the pod was deleted.  The container used to be Running",
            )));
            if input.pod.metadata.deletion_timestamp.is_none() {
                status.restart_count += 1;
            }
        }
    }
    let app_made = spec.is_some_and(|spec| {
        spec.containers
            .iter()
            .any(|app| input.observed.latest(&app.name).is_some())
    });
    if init && !is_sidecar(container) && app_made {
        status.state = Some(terminated_state(ContainerStateTerminated {
            reason: Some("Completed".to_owned()),
            message: Some(
                "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally".to_owned(),
            ),
            ..ContainerStateTerminated::default()
        }));
    } else if input.terminal && had_its_turn(input, &container.name, init) {
        status.state = Some(terminated_state(lost(
            "The container could not be located when the pod was terminated",
        )));
    }
    status
}

/// A container that was removed so that all are restarted. `fresh`: seen so for the first time.
fn removed(status: &ContainerStatus, previous: &ContainerStatus, fresh: bool) -> ContainerStatus {
    let message = "The container is removed because RestartAllContainers in place";
    let mut status = status.clone();
    status.state = Some(waiting_state(RESTARTING_ALL, message));
    status.last_state = Some(terminated_state(ContainerStateTerminated {
        reason: Some(RESTARTING_ALL.to_owned()),
        ..lost(message)
    }));
    status.restart_count = previous.restart_count + i32::from(fresh);
    status
}

/// Whether the containers are being removed so that all are restarted.
fn restarting_all(input: &Input<'_>) -> bool {
    let spec = input.pod.spec.as_ref();
    let mut lasting = spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
    });
    restarts::restarting_all(input.pod, input.observed)
        || (was_restarting_all(input)
            && lasting.any(|container| input.observed.latest(&container.name).is_some()))
}

fn was_restarting_all(input: &Input<'_>) -> bool {
    let conditions = input.previous.conditions.iter().flatten();
    conditions.into_iter().any(|condition| {
        condition.type_ == conditions::RESTARTING_ALL && condition.status == "True"
    })
}

/// The termination messages of the pod's containers share one limit.
fn shorten_messages(lists: [&mut Vec<ContainerStatus>; 3]) {
    let count: usize = lists.iter().map(|list| list.len()).sum();
    let share = MOST_MESSAGES / count.max(1);
    let states = lists.into_iter().flatten().flat_map(|status| {
        let (now, before) = (&mut status.state, &mut status.last_state);
        now.iter_mut().chain(before)
    });
    for terminated in states.filter_map(|state| state.terminated.as_mut()) {
        if let Some(message) = terminated
            .message
            .as_mut()
            .filter(|text| text.len() > share)
        {
            let end = (0..=share).rev().find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or(0));
        }
    }
}

/// Whether a container would have been started: its pod was initialized or, for an init container,
/// a later one has been made. Those that never had their turn go on waiting when the pod ends.
fn had_its_turn(input: &Input<'_>, name: &str, init: bool) -> bool {
    let spec = input.pod.spec.as_ref();
    let all = spec.and_then(|spec| spec.init_containers.as_deref());
    let mut in_order = all.unwrap_or_default().iter();
    let record = |container: &Container| input.observed.latest(&container.name);
    match init {
        true => in_order
            .skip_while(|container| container.name != name)
            .any(|container| record(container).is_some()),
        false => in_order.all(|container| {
            record(container).is_some_and(|record| {
                is_sidecar(container)
                    || (record.state == ContainerState::Exited && record.exit_code == 0)
            })
        }),
    }
}

/// Why a container waits that nothing is known of yet.
fn default_reason(input: &Input<'_>) -> &'static str {
    let spec = input.pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref());
    if init.is_some_and(|init| !init.is_empty()) {
        "PodInitializing"
    } else {
        "ContainerCreating"
    }
}

fn state_of(input: &Input<'_>, record: &ContainerRecord) -> ApiState {
    match record.state {
        ContainerState::Created => waiting_state(default_reason(input), ""),
        ContainerState::Running => ApiState {
            running: Some(ContainerStateRunning {
                started_at: time(record.started_at),
            }),
            ..ApiState::default()
        },
        ContainerState::Exited => terminated_state(ContainerStateTerminated {
            exit_code: record.exit_code,
            reason: Some(record.reason.clone())
                .filter(|reason| !reason.is_empty())
                .or_else(|| {
                    Some(
                        if record.exit_code == 0 {
                            "Completed"
                        } else {
                            "Error"
                        }
                        .to_owned(),
                    )
                }),
            message: Some(record.message.clone()).filter(|message| !message.is_empty()),
            started_at: time(record.started_at),
            finished_at: time(record.finished_at),
            container_id: Some(container_id(input, record)),
            ..ContainerStateTerminated::default()
        }),
        ContainerState::Unknown => terminated_state(lost(
            "The container could not be located when the pod was terminated",
        )),
    }
}

fn container_id(input: &Input<'_>, record: &ContainerRecord) -> String {
    format!("{}://{}", input.runtime_name, record.id)
}

fn lost(message: &str) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".to_owned()),
        message: Some(message.to_owned()),
        ..ContainerStateTerminated::default()
    }
}

fn has_terminated(state: &Option<ApiState>) -> bool {
    state
        .as_ref()
        .is_some_and(|state| state.terminated.is_some())
}

fn waiting_state(reason: &str, message: &str) -> ApiState {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ApiState {
        waiting: Some(ContainerStateWaiting {
            reason: text(reason),
            message: text(message),
        }),
        ..ApiState::default()
    }
}

fn terminated_state(terminated: ContainerStateTerminated) -> ApiState {
    ApiState {
        terminated: Some(terminated),
        ..ApiState::default()
    }
}

fn time(nanos: i64) -> Option<Time> {
    (nanos > 0)
        .then(|| Timestamp::from_nanosecond(nanos.into()).ok())
        .flatten()
        .map(Time)
}
