//! Whether containers that have ended run again, and whether a pod has run to its end. Pure.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Pod};
use semantics::pod::is_sidecar;

use crate::runtime::{ContainerRecord, ContainerState, Observed};

const RESTART_ALL: &str = "RestartAllContainers";

/// Whether the pod has run to its end by itself: every app container ended and none may restart,
/// or an init container failed for good.
pub fn has_completed(pod: &Pod, observed: &Observed) -> bool {
    if semantics::pod::is_terminal(pod) {
        return true;
    }
    let Some(spec) = &pod.spec else { return false };
    if restarting_all(pod, observed) {
        return false;
    }
    let over = |container: &Container| {
        // A container whose state is unknown is started again, regardless of its restart policy.
        observed.latest(&container.name).is_some_and(|record| {
            record.state == ContainerState::Exited && !may_restart(pod, container, record.exit_code)
        })
    };
    let init_failed = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| !is_sidecar(container))
        .any(|container| {
            over(container)
                && observed
                    .latest(&container.name)
                    .is_some_and(|record| record.exit_code != 0)
        });
    init_failed || (!spec.containers.is_empty() && spec.containers.iter().all(over))
}

/// Whether a container that ended with `exit_code` is to run again.
pub fn may_restart(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    let rule = rule_for(container, exit_code).map(|rule| rule.action.as_str());
    if matches!(rule, Some("Restart" | RESTART_ALL)) {
        return true;
    }
    let policy = container
        .restart_policy
        .as_deref()
        .or_else(|| pod.spec.as_ref()?.restart_policy.as_deref())
        .unwrap_or("Always");
    match policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    }
}

/// Whether the container's policy lets it run again after a failure.
pub fn restarts_failed(pod: &Pod, container: &Container) -> bool {
    let own = container.restart_policy.as_deref();
    let policy = own.or_else(|| pod.spec.as_ref()?.restart_policy.as_deref());
    policy != Some("Never")
}

/// The first of the container's own rules that names this exit code. Rules count only if the
/// container has a restart policy of its own.
fn rule_for(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy.as_ref()?;
    container
        .restart_policy_rules
        .iter()
        .flatten()
        .find(|rule| {
            rule.exit_codes.as_ref().is_some_and(|codes| {
                let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
                match codes.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    _ => false,
                }
            })
        })
}

/// Whether a container has a rule that restarts all containers.
pub fn all_may_restart(pod: &Pod) -> bool {
    init_and_app(pod)
        .flat_map(|container| container.restart_policy_rules.iter().flatten())
        .any(|rule| rule.action == RESTART_ALL)
}

/// Whether a container has ended in a way that restarts all containers. It is true until
/// that container's record, the last to go, is removed.
pub fn restarting_all(pod: &Pod, observed: &Observed) -> bool {
    init_and_app(pod).any(|container| {
        let latest = observed.latest(&container.name);
        latest.is_some_and(|record| asks_for_all(container, record))
    })
}

pub fn asks_for_all(container: &Container, record: &ContainerRecord) -> bool {
    record.state == ContainerState::Exited
        && rule_for(container, record.exit_code).is_some_and(|rule| rule.action == RESTART_ALL)
}

/// Init and app containers.
pub fn init_and_app(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
    })
}
