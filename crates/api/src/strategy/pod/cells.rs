//! The table row of a Pod: readiness, status, restarts.

use std::collections::BTreeMap;

use crate::age::{age, object_age};
use crate::document::Value;

pub fn cells(pod: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let summary = summarise(pod);
    let restarts = match summary.last_restart {
        Some(time) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, age(&time, now))
        }
        _ => summary.restarts.to_string(),
    };
    let or_none = |text: &str| match text {
        "" => "<none>".to_string(),
        text => text.to_string(),
    };
    let address = pod.list_at(&["status", "podIPs"]).first();
    let address = address.map_or("", |entry| entry.str_at(&["ip"]));
    vec![
        pod.str_at(&["metadata", "name"]).into(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        object_age(pod, now).into(),
        or_none(address).into(),
        or_none(pod.str_at(&["spec", "nodeName"])).into(),
        or_none(pod.str_at(&["status", "nominatedNodeName"])).into(),
        readiness_gates(pod).into(),
    ]
}

/// The cells of a Pod's table row.
pub struct Summary {
    pub ready: usize,
    pub total: usize,
    /// e.g. `Running`, `Init:0/1`, `CrashLoopBackOff`.
    pub reason: String,
    pub restarts: i64,
    /// When a container last ended before it was restarted.
    pub last_restart: Option<String>,
}

/// Works out the summary from spec and status.
pub fn summarise(pod: &Value) -> Summary {
    let phase = pod.str_at(&["status", "phase"]);
    let mut reason = match pod.str_at(&["status", "reason"]) {
        "" => phase.to_string(),
        reason => reason.to_string(),
    };
    let conditions = pod.list_at(&["status", "conditions"]);
    let gated = |condition: &&Value| {
        condition.str_at(&["type"]) == "PodScheduled"
            && condition.str_at(&["reason"]) == "SchedulingGated"
    };
    if conditions.iter().find(gated).is_some() {
        reason = "SchedulingGated".to_string();
    }

    let init = Initialisation::of(pod);
    let mut summary = Summary {
        ready: init.ready,
        total: pod.list_at(&["spec", "containers"]).len() + init.sidecars,
        reason: init.reason.clone().unwrap_or(reason),
        restarts: init.restarts,
        last_restart: init.last_restart.clone(),
    };
    if init.reason.is_none() || is_true(conditions, "Initialized") {
        summary.restarts = init.sidecar_restarts;
        summary.last_restart = init.last_sidecar_restart;
        containers(pod, &mut summary);
    }
    if pod.has(&["metadata", "deletionTimestamp"]) {
        if pod.str_at(&["status", "reason"]) == "NodeLost" {
            summary.reason = "Unknown".to_string();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            summary.reason = "Terminating".to_string();
        }
    }
    summary
}

#[derive(Default)]
struct Initialisation {
    /// The status of a Pod that is still initializing.
    reason: Option<String>,
    ready: usize,
    sidecars: usize,
    restarts: i64,
    last_restart: Option<String>,
    sidecar_restarts: i64,
    last_sidecar_restart: Option<String>,
}

impl Initialisation {
    fn of(pod: &Value) -> Initialisation {
        let specs = pod.list_at(&["spec", "initContainers"]);
        let is_sidecar = |spec: &Value| spec.str_at(&["restartPolicy"]) == "Always";
        let mut init = Initialisation {
            sidecars: specs.iter().filter(|spec| is_sidecar(spec)).count(),
            ..Initialisation::default()
        };
        let statuses = pod.list_at(&["status", "initContainerStatuses"]);
        let mut by_name: BTreeMap<&str, &Value> = BTreeMap::new();
        for spec in specs {
            by_name.entry(spec.str_at(&["name"])).or_insert(spec);
        }
        for (index, status) in statuses.iter().enumerate() {
            let name = status.str_at(&["name"]);
            let sidecar = by_name.get(name).is_some_and(|spec| is_sidecar(spec));
            let count = status.i64_at(&["restartCount"]).unwrap_or(0);
            init.restarts += count;
            later(&mut init.last_restart, status);
            if sidecar {
                init.sidecar_restarts += count;
                later(&mut init.last_sidecar_restart, status);
            }
            let terminated = status.at(&["state", "terminated"]);
            let waiting = status.str_at(&["state", "waiting", "reason"]);
            if terminated.is_some_and(|end| end.i64_at(&["exitCode"]).unwrap_or(0) == 0) {
                continue;
            }
            if sidecar && status.bool_at(&["started"]) {
                init.ready += usize::from(status.bool_at(&["ready"]));
                continue;
            }
            init.reason = Some(match terminated {
                Some(terminated) => format!("Init:{}", termination_word(terminated)),
                None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", specs.len()),
            });
            break;
        }
        init
    }
}

fn containers(pod: &Value, summary: &mut Summary) {
    let mut running = false;
    let mut error = None;
    for status in pod.list_at(&["status", "containerStatuses"]).iter().rev() {
        summary.restarts += status.i64_at(&["restartCount"]).unwrap_or(0);
        later(&mut summary.last_restart, status);
        let waiting = status.str_at(&["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            summary.reason = waiting.to_string();
        } else if let Some(terminated) = status.at(&["state", "terminated"]) {
            summary.reason = termination_word(terminated);
            if terminated.i64_at(&["exitCode"]).unwrap_or(0) != 0 {
                error = Some(summary.reason.clone());
            }
        } else if status.bool_at(&["ready"]) && status.has(&["state", "running"]) {
            running = true;
            summary.ready += 1;
        }
    }
    // A finished container does not make the Pod look finished while another one runs.
    if summary.reason == "Completed" {
        if running && is_true(pod.list_at(&["status", "conditions"]), "Ready") {
            summary.reason = "Running".to_string();
        } else if let Some(error) = error {
            summary.reason = error;
        } else if running {
            summary.reason = "NotReady".to_string();
        }
    }
}

fn termination_word(terminated: &Value) -> String {
    match terminated.str_at(&["reason"]) {
        "" => match terminated.i64_at(&["signal"]).unwrap_or(0) {
            0 => format!("ExitCode:{}", terminated.i64_at(&["exitCode"]).unwrap_or(0)),
            signal => format!("Signal:{signal}"),
        },
        reason => reason.to_string(),
    }
}

/// Keeps the later of a time and the end of the container's previous run.
fn later(last: &mut Option<String>, status: &Value) {
    let finished = status.str_at(&["lastState", "terminated", "finishedAt"]);
    if !finished.is_empty() && last.as_deref().is_none_or(|last| last < finished) {
        *last = Some(finished.to_string());
    }
}

fn is_true(conditions: &[Value], kind: &str) -> bool {
    conditions.iter().any(|condition| {
        condition.str_at(&["type"]) == kind && condition.str_at(&["status"]) == "True"
    })
}

fn readiness_gates(pod: &Value) -> String {
    let gates = pod.list_at(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_string();
    }
    let conditions = pod.list_at(&["status", "conditions"]);
    let open = gates
        .iter()
        .filter(|gate| is_true(conditions, gate.str_at(&["conditionType"])))
        .count();
    format!("{open}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn check(pod: Value, expected: &[&str]) {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let cells = cells(&pod, now);
        let texts: Vec<&str> = cells[1..4].iter().filter_map(Value::as_str).collect();
        assert_eq!(texts, expected, "{pod}");
    }

    #[test]
    fn the_status_cell_shows_kubectls_reasons() {
        let spec = document!({"containers": [{"name": "a"}, {"name": "b"}]});
        check(
            document!({"spec": spec, "status": {"phase": "Pending"}}),
            &["0/2", "Pending", "0"],
        );
        check(
            document!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}},
                {"name": "b", "ready": false, "restartCount": 3,
                 "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                 "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:00Z"}}},
            ]}}),
            &["1/2", "CrashLoopBackOff", "3 (60s ago)"],
        );
        check(
            document!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:59:00Z"},
                "spec": spec, "status": {"phase": "Running", "containerStatuses": [
                    {"name": "a", "ready": true, "state": {"running": {}}},
                ]},
            }),
            &["1/2", "Terminating", "0"],
        );
        check(
            document!({"spec": {"containers": [{"name": "a"}]}, "status": {
                "phase": "Succeeded",
                "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
            }}),
            &["0/1", "Completed", "0"],
        );
        check(
            document!({"spec": {"containers": [{"name": "a"}]}, "status": {
                "phase": "Failed",
                "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 2}}}],
            }}),
            &["0/1", "ExitCode:2", "0"],
        );
    }

    #[test]
    fn the_status_cell_shows_the_progress_of_init_containers() {
        let spec = document!({
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "a"}],
        });
        check(
            document!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"running": {}}},
                {"name": "s", "state": {"waiting": {"reason": "PodInitializing"}}},
            ]}}),
            &["0/2", "Init:0/2", "0"],
        );
        check(
            document!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "restartCount": 1, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
            ]}}),
            &["0/2", "Init:Error", "1"],
        );
        check(
            document!({"spec": spec, "status": {
                "phase": "Running",
                "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                    {"name": "s", "started": true, "ready": true, "state": {"running": {}}},
                ],
                "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}}],
            }}),
            &["2/2", "Running", "0"],
        );
    }
}
