//! The phase of a pod from the states of its containers. Pure.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use semantics::pod::is_sidecar;

use super::restarts::may_restart;

/// The reason of a container that ended and waits because another one's end restarts all of them.
pub(super) const RESTARTING_ALL: &str = "RestartingAllContainers";

/// `terminal`: nothing of the pod runs or will run again.
pub fn of(
    pod: &Pod,
    init: &[ContainerStatus],
    apps: &[ContainerStatus],
    terminal: bool,
) -> &'static str {
    let Some(spec) = &pod.spec else {
        return "Pending";
    };
    let mut pending_init = false;
    let mut pending_sidecars = false;
    let (mut running, mut waiting, mut unknown) = (0, 0, 0);
    for container in spec.init_containers.iter().flatten() {
        let Some(status) = find(init, &container.name) else {
            if is_sidecar(container) {
                unknown += 1;
            } else {
                pending_init = true;
            }
            continue;
        };
        if is_sidecar(container) {
            if is_running(status) {
                running += 1;
                pending_sidecars |= status.started != Some(true);
            } else if !has_ended(status) && exit_before(status).is_none() {
                waiting += 1;
                pending_sidecars = true;
            }
        } else {
            match exit(status) {
                Some(0) => {}
                Some(code) => {
                    if !restarts(pod, container, status, code) {
                        return "Failed";
                    }
                }
                None => pending_init = true,
            }
        }
    }
    let (mut stopped, mut stopped_for_good, mut succeeded) = (0, 0, 0);
    let mut initialised = false;
    for container in &spec.containers {
        match find(apps, &container.name) {
            None => unknown += 1,
            Some(status) if is_running(status) => {
                running += 1;
                initialised = true;
            }
            Some(status) => match exit(status) {
                Some(code) => {
                    initialised = true;
                    stopped += 1;
                    stopped_for_good += i32::from(!restarts(pod, container, status, code));
                    succeeded += i32::from(code == 0 && has_ended(status));
                }
                None => waiting += 1,
            },
        }
    }
    if pending_init || (pending_sidecars && !initialised) || waiting > 0 {
        // A pod that is over while parts of it never ran has failed.
        return if terminal { "Failed" } else { "Pending" };
    }
    if running > 0 && unknown == 0 {
        return "Running";
    }
    if running == 0 && stopped > 0 && unknown == 0 {
        if !terminal && stopped != stopped_for_good {
            return "Running";
        }
        return if stopped == succeeded {
            "Succeeded"
        } else {
            "Failed"
        };
    }
    "Pending"
}

fn restarts(pod: &Pod, container: &Container, status: &ContainerStatus, exit_code: i32) -> bool {
    may_restart(pod, container, exit_code) || began_again(status)
}

/// It was removed so that all containers are restarted.
fn began_again(status: &ContainerStatus) -> bool {
    let last = if has_ended(status) {
        &status.state
    } else {
        &status.last_state
    };
    let terminated = last.as_ref().and_then(|state| state.terminated.as_ref());
    terminated.and_then(|ended| ended.reason.as_deref()) == Some(RESTARTING_ALL)
}

fn find<'a>(statuses: &'a [ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|status| status.name == name)
}

fn is_running(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some())
}

fn has_ended(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.terminated.is_some())
}

/// The exit code of the present container, or of the one before while it waits to run again.
fn exit(status: &ContainerStatus) -> Option<i32> {
    let state = status.state.as_ref()?;
    if let Some(terminated) = &state.terminated {
        return Some(terminated.exit_code);
    }
    if state.running.is_some() {
        return None;
    }
    exit_before(status)
}

fn exit_before(status: &ContainerStatus) -> Option<i32> {
    let last = status.last_state.as_ref()?;
    last.terminated
        .as_ref()
        .map(|terminated| terminated.exit_code)
}
