//! The conditions the kubelet owns. Pure. Conditions of others are kept as they are.

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use semantics::pod::is_sidecar;

use super::{resize, termination::Termination};

/// The conditions that are shown only while they are true, besides [`OWNED`].
const PASSING: [&str; 3] = [DISRUPTION, RESIZE_PENDING, RESIZE_IN_PROGRESS];
const DISRUPTION: &str = "DisruptionTarget";
const RESIZE_PENDING: &str = "PodResizePending";
const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
pub(super) const RESTARTING_ALL: &str = "AllContainersRestarting";

const OWNED: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

pub struct Input<'a> {
    pub pod: &'a Pod,
    pub previous: &'a PodStatus,
    /// Init and app containers.
    pub statuses: &'a [ContainerStatus],
    pub phase: &'a str,
    pub sandbox_ready: bool,
    pub disruption: Option<&'a Termination>,
    pub resize: &'a resize::State,
    /// Whether all containers are being removed to be restarted; `None` where that cannot happen.
    pub restarting_all: Option<bool>,
    pub now: Timestamp,
}

/// One condition before it is compared with its past.
struct Finding {
    ok: bool,
    reason: &'static str,
    message: String,
}

impl Finding {
    fn new(ok: bool) -> Finding {
        Finding {
            ok,
            reason: "",
            message: String::new(),
        }
    }

    fn because(reason: &'static str, message: String) -> Finding {
        Finding {
            ok: false,
            reason,
            message,
        }
    }
}

pub fn compute(input: &Input<'_>) -> Vec<PodCondition> {
    let api_status = input.pod.status.as_ref();
    let foreign = api_status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
        .iter()
        .filter(|condition| {
            let type_ = condition.type_.as_str();
            // Others announce disruptions too.
            let ours =
                PASSING.contains(&type_) && (type_ != DISRUPTION || input.disruption.is_some());
            let restarting = type_ == RESTARTING_ALL && input.restarting_all.is_some();
            !OWNED.contains(&type_) && !ours && !restarting
        })
        .cloned();
    let mut conditions: Vec<PodCondition> = foreign.collect();
    if let Some(termination) = input.disruption {
        let finding = Finding {
            reason: "TerminationByKubelet",
            message: match termination.reason.as_str() {
                "Preempting" => {
                    "Pod was preempted by Kubelet to accommodate a critical pod.".to_owned()
                }
                _ => termination.message.clone(),
            },
            ..Finding::new(true)
        };
        conditions.push(dated(input, DISRUPTION, finding));
    }
    if let Some(pending) = &input.resize.pending {
        let finding = Finding {
            reason: pending.reason,
            message: pending.message.clone(),
            ..Finding::new(true)
        };
        let mut condition = dated(input, RESIZE_PENDING, finding);
        condition.observed_generation = pending.generation;
        conditions.push(condition);
    }
    if let Some(progress) = &input.resize.in_progress {
        let mut finding = Finding::new(true);
        if let Some(error) = &progress.error {
            finding.reason = "Error";
            finding.message = error.clone();
        }
        let mut condition = dated(input, RESIZE_IN_PROGRESS, finding);
        condition.observed_generation = progress.generation;
        conditions.push(condition);
    }
    let ready = ready(input, &conditions);
    let findings = [
        Finding::new(input.sandbox_ready),
        initialized(input),
        ready,
        containers_ready(input),
        Finding::new(true),
    ];
    if let Some(restarting) = input.restarting_all {
        let finding = match (input.phase, restarting) {
            ("Succeeded", _) => Finding::because("PodCompleted", String::new()),
            ("Failed", _) => Finding::because("PodFailed", String::new()),
            (_, false) => Finding::new(false),
            (_, true) => Finding {
                reason: "RestartAllContainersStarted",
                message: "container exited with restart policy rule".to_owned(),
                ..Finding::new(true)
            },
        };
        conditions.push(dated(input, RESTARTING_ALL, finding));
    }
    for (type_, finding) in OWNED.into_iter().zip(findings) {
        conditions.push(dated(input, type_, finding));
    }
    conditions
}

fn containers_ready(input: &Input<'_>) -> Finding {
    match input.phase {
        "Succeeded" => return Finding::because("PodCompleted", String::new()),
        "Failed" => return Finding::because("PodFailed", String::new()),
        _ => {}
    }
    let spec = input.pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| {
        let sidecars = spec.init_containers.iter().flatten();
        sidecars
            .filter(|container| is_sidecar(container))
            .chain(&spec.containers)
    });
    let message = unready("unready", containers, input, |status, _| status.ready);
    if message.is_empty() {
        Finding::new(true)
    } else {
        Finding::because("ContainersNotReady", message)
    }
}

fn ready(input: &Input<'_>, foreign: &[PodCondition]) -> Finding {
    let containers = containers_ready(input);
    if !containers.ok {
        return containers;
    }
    let gates = input
        .pod
        .spec
        .as_ref()
        .and_then(|spec| spec.readiness_gates.as_deref())
        .unwrap_or_default();
    let messages: Vec<String> = gates
        .iter()
        .filter_map(|gate| {
            let type_ = &gate.condition_type;
            match foreign.iter().find(|condition| condition.type_ == *type_) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate \"{type_}\" does not exist."
                )),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{type_}\" is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if messages.is_empty() {
        Finding::new(true)
    } else {
        Finding::because("ReadinessGatesNotReady", messages.join(", "))
    }
}

fn initialized(input: &Input<'_>) -> Finding {
    let Some(spec) = &input.pod.spec else {
        return Finding::new(true);
    };
    if input.phase == "Succeeded" {
        return Finding {
            reason: "PodCompleted",
            ..Finding::new(true)
        };
    }
    // Once an app container has started the pod stays initialized, no matter what its sidecars do.
    let app_started = spec.containers.iter().any(|container| {
        find(input.statuses, &container.name).is_some_and(|status| {
            let ran = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
                state
                    .as_ref()
                    .is_some_and(|state| state.running.is_some() || state.terminated.is_some())
            };
            status.container_id.is_some() && (ran(&status.state) || ran(&status.last_state))
        })
    });
    let message = unready(
        "incomplete",
        spec.init_containers.iter().flatten(),
        input,
        |status, container| {
            if is_sidecar(container) {
                status.started == Some(true)
            } else {
                status.ready
            }
        },
    );
    if app_started || message.is_empty() {
        Finding::new(true)
    } else {
        Finding::because("ContainersNotInitialized", message)
    }
}

fn unready<'a>(
    word: &str,
    containers: impl Iterator<Item = &'a Container>,
    input: &Input<'_>,
    good: impl Fn(&ContainerStatus, &Container) -> bool,
) -> String {
    let (mut unknown, mut bad) = (Vec::new(), Vec::new());
    for container in containers {
        match find(input.statuses, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !good(status, container) => bad.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    let mut messages = Vec::new();
    if !unknown.is_empty() {
        messages.push(format!(
            "containers with unknown status: [{}]",
            unknown.join(" ")
        ));
    }
    if !bad.is_empty() {
        messages.push(format!(
            "containers with {word} status: [{}]",
            bad.join(" ")
        ));
    }
    messages.join(", ")
}

fn find<'a>(statuses: &'a [ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|status| status.name == name)
}

fn dated(input: &Input<'_>, type_: &str, finding: Finding) -> PodCondition {
    let status = if finding.ok { "True" } else { "False" };
    let past = |pod_status: Option<&PodStatus>| -> Option<PodCondition> {
        let conditions = pod_status?.conditions.as_ref()?;
        conditions
            .iter()
            .find(|condition| condition.type_ == type_)
            .cloned()
    };
    let before = past(Some(input.previous)).or_else(|| past(input.pod.status.as_ref()));
    let last_transition_time = before
        .filter(|before| before.status == status)
        .and_then(|before| before.last_transition_time)
        .unwrap_or(Time(input.now));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: text(finding.reason),
        message: text(&finding.message),
        last_transition_time: Some(last_transition_time),
        observed_generation: input.pod.metadata.generation,
        ..PodCondition::default()
    }
}
