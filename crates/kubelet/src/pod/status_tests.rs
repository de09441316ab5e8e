//! The status, situation by situation.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{status::*, termination::Termination};
use crate::runtime::{ContainerRecord, ContainerState, Observed, Sandbox};

struct Scene {
    pod: Pod,
    observed: Observed,
    waiting: BTreeMap<String, Waiting>,
    ready: BTreeSet<String>,
    terminal: bool,
    previous: PodStatus,
    termination: Option<Termination>,
    replacing: BTreeSet<String>,
    resize: crate::pod::resize::State,
    now: Timestamp,
}

impl Scene {
    fn new(spec: Value) -> Scene {
        Scene {
            pod: serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec,
            }))
            .expect("a pod"),
            observed: Observed {
                sandboxes: vec![Sandbox {
                    id: "s".to_owned(),
                    ready: true,
                    ips: vec!["10.0.0.9".to_owned()],
                    ..Sandbox::default()
                }],
                containers: Vec::new(),
            },
            waiting: BTreeMap::new(),
            ready: BTreeSet::new(),
            terminal: false,
            previous: PodStatus::default(),
            termination: None,
            replacing: BTreeSet::new(),
            resize: Default::default(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn container(mut self, name: &str, count: i32, state: ContainerState, exit_code: i32) -> Scene {
        let id = format!("{name}{count}");
        if state == ContainerState::Running {
            self.ready.insert(id.clone());
        }
        self.observed.put_container(ContainerRecord {
            id,
            name: name.to_owned(),
            restart_count: count,
            state,
            exit_code,
            created_at: i64::from(count) + 1,
            started_at: 1_000_000_000,
            finished_at: 2_000_000_000,
            image: "img".to_owned(),
            image_ref: "sha256:1".to_owned(),
            ..ContainerRecord::default()
        });
        self
    }

    fn waits(mut self, name: &str, reason: &str) -> Scene {
        let waiting = Waiting {
            reason: reason.to_owned(),
            message: "m".to_owned(),
        };
        self.waiting.insert(name.to_owned(), waiting);
        self
    }

    fn compute(&self) -> PodStatus {
        let started: BTreeSet<String> = self
            .observed
            .running()
            .map(|record| record.id.clone())
            .collect();
        compute(&Input {
            pod: &self.pod,
            observed: &self.observed,
            waiting: &self.waiting,
            started: &started,
            ready: &self.ready,
            runtime_name: "coracle",
            host_ip: "192.0.2.1",
            previous: &self.previous,
            terminal: self.terminal,
            termination: self.termination.as_ref(),
            replacing: &self.replacing,
            actual: &BTreeMap::new(),
            resize: &self.resize,
            now: self.now,
        })
    }

    /// `phase | Initialized ContainersReady Ready | state per container`
    fn expect(&self, expected: &str) {
        assert_eq!(brief(&self.compute()), expected);
    }
}

fn brief(status: &PodStatus) -> String {
    let condition = |type_: &str| {
        let mut conditions = status.conditions.iter().flatten();
        let found = conditions.find(|condition| condition.type_ == type_);
        found.map_or(
            "?",
            |condition| if condition.status == "True" { "T" } else { "F" },
        )
    };
    let containers: Vec<String> = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten())
        .map(|container| {
            let state = container.state.clone().unwrap_or_default();
            let shown = if state.running.is_some() {
                "running".to_owned()
            } else if let Some(terminated) = state.terminated {
                format!(
                    "exit {} {}",
                    terminated.exit_code,
                    terminated.reason.unwrap_or_default()
                )
            } else {
                state
                    .waiting
                    .and_then(|waiting| waiting.reason)
                    .unwrap_or_default()
            };
            let last = container
                .last_state
                .as_ref()
                .and_then(|state| state.terminated.as_ref());
            let last = last.map_or(String::new(), |last| format!(" last {}", last.exit_code));
            format!(
                "{}:{shown}{last} #{}",
                container.name, container.restart_count
            )
        })
        .collect();
    format!(
        "{} | {}{}{} | {}",
        status.phase.as_deref().unwrap_or_default(),
        condition("Initialized"),
        condition("ContainersReady"),
        condition("Ready"),
        containers.join(", ")
    )
}

fn one(policy: &str) -> Value {
    json!({"containers": [{"name": "a", "image": "img"}], "restartPolicy": policy})
}

use ContainerState::{Exited, Running};

#[test]
fn a_new_pod_is_pending_until_its_container_runs() {
    let scene = Scene::new(one("Always"));
    scene.expect("Pending | TFF | a:ContainerCreating #0");
    let running = Scene::new(one("Always")).container("a", 0, Running, 0);
    running.expect("Running | TTT | a:running #0");
    let status = running.compute();
    let container = &status.container_statuses.as_ref().expect("statuses")[0];
    assert_eq!(container.container_id.as_deref(), Some("coracle://a0"));
    assert_eq!(container.image_id, "sha256:1");
    assert_eq!((container.ready, container.started), (true, Some(true)));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.9"));
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    let ready = status.conditions.expect("conditions");
    let scheduled = ready
        .iter()
        .find(|condition| condition.type_ == "PodScheduled");
    assert_eq!(scheduled.expect("kept").status, "True");
}

#[test]
fn a_pod_is_pending_while_init_containers_run() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    Scene::new(spec.clone()).expect("Pending | FFF | i:PodInitializing #0, a:PodInitializing #0");
    Scene::new(spec.clone())
        .container("i", 0, Running, 0)
        .expect("Pending | FFF | i:running #0, a:PodInitializing #0");
    Scene::new(spec.clone())
        .container("i", 0, Exited, 0)
        .expect("Pending | TFF | i:exit 0 Completed #0, a:PodInitializing #0");
    Scene::new(spec)
        .container("i", 0, Exited, 0)
        .container("a", 0, Running, 0)
        .expect("Running | TTT | i:exit 0 Completed #0, a:running #0");
}

#[test]
fn containers_that_never_started_stay_waiting() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "i"}, {"name": "j"}],
        "containers": [{"name": "a"}],
    });
    let mut scene = Scene::new(spec.clone()).container("i", 0, Exited, 1);
    scene.terminal = true;
    scene.expect("Failed | FFF | i:exit 1 Error #0, j:PodInitializing #0, a:PodInitializing #0");
    let mut scene = Scene::new(spec)
        .container("i", 0, Exited, 0)
        .container("j", 0, Exited, 0);
    scene.terminal = true;
    let status = scene.compute();
    let app = status.container_statuses.expect("a status")[0].clone();
    assert_eq!(
        app.state
            .and_then(|state| state.terminated?.reason)
            .as_deref(),
        Some("ContainerStatusUnknown")
    );
}

#[test]
fn the_phase_of_ended_containers_follows_the_restart_policy() {
    Scene::new(one("Never"))
        .container("a", 0, Exited, 0)
        .expect("Succeeded | TFF | a:exit 0 Completed #0");
    Scene::new(one("Never"))
        .container("a", 0, Exited, 2)
        .expect("Failed | TFF | a:exit 2 Error #0");
    Scene::new(one("OnFailure"))
        .container("a", 0, Exited, 2)
        .expect("Running | TFF | a:exit 2 Error #0");
    Scene::new(one("Always"))
        .container("a", 0, Exited, 0)
        .expect("Running | TFF | a:exit 0 Completed #0");
}

#[test]
fn waiting_reasons_are_shown_with_what_was_before() {
    Scene::new(one("Always"))
        .container("a", 0, Exited, 1)
        .container("a", 1, Exited, 2)
        .waits("a", "CrashLoopBackOff")
        .expect("Running | TFF | a:CrashLoopBackOff last 2 #1");
    Scene::new(one("Always"))
        .waits("a", "ErrImagePull")
        .expect("Pending | TFF | a:ErrImagePull #0");
    Scene::new(one("Always"))
        .container("a", 0, Exited, 1)
        .container("a", 1, Running, 0)
        .waits("a", "CrashLoopBackOff")
        .expect("Running | TTT | a:running last 1 #1");
}

#[test]
fn readiness_and_its_gates_decide_ready() {
    let mut scene = Scene::new(one("Always")).container("a", 0, Running, 0);
    scene.ready.clear();
    scene.expect("Running | TFF | a:running #0");
    let status = scene.compute();
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    assert_eq!(
        ready.expect("ready").message.as_deref(),
        Some("containers with unready status: [a]")
    );
    let mut spec = one("Always");
    spec["readinessGates"] = json!([{"conditionType": "x/y"}]);
    Scene::new(spec)
        .container("a", 0, Running, 0)
        .expect("Running | TTF | a:running #0");
}

#[test]
fn transition_times_change_only_with_the_condition() {
    let mut scene = Scene::new(one("Always")).container("a", 0, Running, 0);
    scene.previous = scene.compute();
    scene.now = "2030-01-01T00:00:00Z".parse().expect("a time");
    assert_eq!(scene.compute(), scene.previous);
    scene.ready.clear();
    let status = scene.compute();
    let moved: Vec<String> = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| {
            condition
                .last_transition_time
                .as_ref()
                .is_some_and(|time| time.0 == scene.now)
        })
        .map(|condition| condition.type_.clone())
        .collect();
    assert_eq!(moved, ["Ready", "ContainersReady"]);
}

#[test]
fn a_terminal_phase_is_never_left() {
    let mut scene = Scene::new(one("Always")).container("a", 0, Running, 0);
    scene.previous.phase = Some("Failed".to_owned());
    assert_eq!(scene.compute().phase.as_deref(), Some("Failed"));
}

#[test]
fn a_deleted_pod_ends_by_its_exit_codes() {
    let mut scene = Scene::new(one("Always")).container("a", 0, Exited, 0);
    scene.terminal = true;
    scene.expect("Succeeded | TFF | a:exit 0 Completed #0");
    let mut scene = Scene::new(one("Always")).container("a", 0, Exited, 137);
    scene.terminal = true;
    scene.expect("Failed | TFF | a:exit 137 Error #0");
}

#[test]
fn a_container_that_the_runtime_lost_keeps_its_status() {
    let mut scene = Scene::new(one("Always")).container("a", 3, Running, 0);
    scene.previous = scene.compute();
    scene.observed.containers.clear();
    scene.expect("Running | TFF | a:ContainerCreating last 137 #4");
}

#[test]
fn a_container_that_is_replaced_is_shown_as_before() {
    let mut scene = Scene::new(json!({"restartPolicy": "Always", "containers": [{"name": "a"}]}))
        .container("a", 0, ContainerState::Running, 0);
    scene.previous = scene.compute();
    let mut scene = scene.container("a", 0, ContainerState::Exited, 143);
    scene.ready.clear();
    scene.replacing.insert("a".to_owned());
    let status = scene.compute();
    assert!(status.container_statuses.expect("statuses")[0].ready);
    scene.replacing.clear();
    let status = scene.compute();
    assert!(!status.container_statuses.expect("statuses")[0].ready);
}

#[test]
fn a_rejected_pod_has_failed_and_nothing_else() {
    let mut scene = Scene::new(json!({"containers": [{"name": "a"}]}));
    scene.observed = Observed::default();
    scene.termination = Some(Termination {
        reason: "OutOfcpu".to_owned(),
        message: "Pod was rejected: m".to_owned(),
        rejected: true,
        ..Termination::default()
    });
    let status = scene.compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(status.container_statuses, None);
}

#[test]
fn ephemeral_containers_have_statuses_of_their_own() {
    let scene = Scene::new(json!({"containers": [{"name": "a"}],
        "ephemeralContainers": [{"name": "e", "image": "x"}]}))
    .container("a", 0, ContainerState::Running, 0)
    .container("e", 0, ContainerState::Running, 0);
    let status = scene.compute();
    let ephemeral = status.ephemeral_container_statuses.expect("statuses");
    assert!(
        ephemeral[0]
            .state
            .as_ref()
            .is_some_and(|state| state.running.is_some())
    );
    assert!(!ephemeral[0].ready && ephemeral[0].started.is_none());
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

#[test]
fn disruption_and_resize_are_conditions() {
    let mut scene = Scene::new(json!({"containers": [{"name": "a"}]})).container(
        "a",
        0,
        ContainerState::Running,
        0,
    );
    scene.resize.pending = Some(crate::pod::resize::Pending {
        reason: "Deferred",
        message: "m".to_owned(),
        generation: Some(2),
    });
    scene.termination = Some(Termination {
        reason: "Evicted".to_owned(),
        disruption: true,
        ..Termination::default()
    });
    let status = scene.compute();
    assert_eq!(status.phase.as_deref(), Some("Running"), "something runs");
    assert_eq!(status.reason, None);
    scene.terminal = true;
    let status = scene.compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let conditions = status.conditions.expect("conditions");
    let types: Vec<&str> = conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(types[..2], ["DisruptionTarget", "PodResizePending"]);
    assert_eq!(conditions[1].observed_generation, Some(2));
}

#[test]
fn a_created_container_that_did_not_start_shows_its_waiting_reason() {
    let reason = |spec: Value, name: &str| {
        let status = Scene::new(spec)
            .container(name, 0, ContainerState::Created, 0)
            .compute();
        let all = status.init_container_statuses.unwrap_or_default();
        let all = all
            .into_iter()
            .chain(status.container_statuses.unwrap_or_default());
        let found = all.into_iter().find(|status| status.name == name);
        found.and_then(|status| status.state?.waiting?.reason)
    };
    let plain = json!({"containers": [{"name": "a"}]});
    assert_eq!(reason(plain, "a").as_deref(), Some("ContainerCreating"));
    let init = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    assert_eq!(reason(init, "i").as_deref(), Some("PodInitializing"));
}

#[test]
fn a_restart_of_all_containers_is_a_condition() {
    let mut scene = Scene::new(json!({"restartPolicy": "Never", "containers": [
        {"name": "a", "restartPolicy": "Never", "restartPolicyRules": [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]},
        {"name": "b"}]}));
    let restarting = |status: &PodStatus| {
        let mut conditions = status.conditions.iter().flatten();
        let found = conditions.find(|condition| condition.type_ == "AllContainersRestarting");
        found.map(|condition| condition.status == "True")
    };
    scene = scene
        .container("a", 0, ContainerState::Running, 0)
        .container("b", 0, ContainerState::Running, 0);
    scene.previous = scene.compute();
    assert_eq!(restarting(&scene.previous), Some(false));
    scene = scene.container("a", 0, ContainerState::Exited, 42);
    scene.previous = scene.compute();
    assert_eq!(restarting(&scene.previous), Some(true));
    assert_eq!(scene.previous.phase.as_deref(), Some("Running"));

    // Removed, first the one and then the other.
    scene
        .observed
        .containers
        .retain(|record| record.name == "a");
    scene.previous = scene.compute();
    assert_eq!(restarting(&scene.previous), Some(true));
    scene.observed.containers.clear();
    scene.previous = scene.compute();
    assert_eq!(restarting(&scene.previous), Some(false));
    for _ in 0..2 {
        scene.previous = scene.compute();
        assert_eq!(scene.previous.phase.as_deref(), Some("Running"));
        for status in scene.previous.container_statuses.iter().flatten() {
            let waiting = status.state.clone().and_then(|state| state.waiting);
            let reason = waiting.and_then(|waiting| waiting.reason);
            assert_eq!(reason.as_deref(), Some("RestartingAllContainers"));
            assert_eq!(status.restart_count, 1);
        }
    }
    scene = scene
        .container("a", 1, ContainerState::Running, 0)
        .container("b", 1, ContainerState::Running, 0);
    let status = scene.compute();
    for status in status.container_statuses.iter().flatten() {
        let last = status.last_state.clone().and_then(|state| state.terminated);
        let last = last.expect("a last state");
        assert_eq!(
            (last.exit_code, last.reason.as_deref()),
            (137, Some("RestartingAllContainers"))
        );
        assert_eq!(status.restart_count, 1);
    }
}

#[test]
fn termination_messages_share_one_limit() {
    let containers: Vec<Value> = (0..24).map(|n| json!({"name": format!("c{n}")})).collect();
    let mut scene = Scene::new(json!({"restartPolicy": "Never", "containers": containers}));
    scene = scene.container("c0", 0, ContainerState::Exited, 1);
    scene.observed.containers[0].message = "é".repeat(2000);
    let status = scene.compute();
    let first = status.container_statuses.expect("statuses").remove(0);
    let ended = first.state.and_then(|state| state.terminated);
    let message = ended.and_then(|ended| ended.message).expect("a message");
    assert_eq!(message.len(), 512);
}
