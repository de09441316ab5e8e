//! The plan, situation by situation.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use serde_json::{Value, json};

use super::{
    plan::*,
    restarts::{may_restart, restarts_failed},
};
use crate::{
    backoff::Backoff,
    image::Image,
    runtime::{ContainerRecord, ContainerState, Observed, Sandbox},
};

const SECOND: i64 = 1_000_000;
const NOW: i64 = 1_000_000 * SECOND;

/// A situation under construction: a running pod with everything ready and nothing started.
struct Scene {
    pod: Pod,
    goal: Goal,
    observed: Observed,
    volumes: Step<()>,
    images: BTreeMap<String, Step<Image>>,
    busy: Busy,
    restarts: BTreeMap<String, Backoff>,
    start_failures: BTreeMap<String, i64>,
    sandbox_retry: Option<i64>,
    unhealthy: BTreeMap<String, KillReason>,
    ended_by_probe: BTreeMap<String, String>,
    started: BTreeSet<String>,
    actual: BTreeMap<String, ResourceRequirements>,
    replacing: BTreeSet<String>,
}

impl Scene {
    fn new(spec: Value) -> Scene {
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}),
        )
        .expect("a pod");
        let spec = pod.spec.clone().expect("spec");
        let names = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .map(|container| container.name.clone());
        let images = names
            .map(|name| (name, Step::Done(Image::default())))
            .collect();
        Scene {
            pod,
            goal: Goal::Run,
            observed: Observed {
                sandboxes: vec![sandbox("s0", 0, true)],
                containers: Vec::new(),
            },
            volumes: Step::Done(()),
            images,
            busy: Busy::default(),
            restarts: BTreeMap::new(),
            start_failures: BTreeMap::new(),
            sandbox_retry: None,
            unhealthy: BTreeMap::new(),
            ended_by_probe: BTreeMap::new(),
            started: BTreeSet::new(),
            actual: BTreeMap::new(),
            replacing: BTreeSet::new(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Scene)) -> Scene {
        change(&mut self);
        self
    }

    fn containers(self, records: &[(&str, &str)]) -> Scene {
        self.with(|scene| {
            for (index, (name, state)) in records.iter().enumerate() {
                scene.observed.put_container(record(name, state, index));
            }
        })
    }

    fn plan(&self) -> Vec<String> {
        let actions = plan(&Situation {
            pod: &self.pod,
            goal: self.goal,
            observed: &self.observed,
            volumes: &self.volumes,
            images: &self.images,
            busy: &self.busy,
            restarts: &self.restarts,
            start_failures: &self.start_failures,
            sandbox_retry: self.sandbox_retry,
            unhealthy: &self.unhealthy,
            ended_by_probe: &self.ended_by_probe,
            started: &self.started,
            actual: &self.actual,
            replacing: &self.replacing,
            resize_retry: None,
            now: NOW,
        });
        actions.iter().map(brief).collect()
    }

    fn expect(&self, expected: &[&str]) {
        assert_eq!(self.plan(), expected);
    }
}

fn brief(action: &Action) -> String {
    match action {
        Action::MountVolumes => "mount".to_owned(),
        Action::CreateSandbox { attempt } => format!("sandbox {attempt}"),
        Action::EnsureImage { container } => format!("image {container}"),
        Action::StartContainer {
            container,
            restart_count,
            ..
        } => format!("start {container} {restart_count}"),
        Action::KillContainer {
            container, reason, ..
        } => format!("kill {container} {reason:?}"),
        Action::BackOff { container, until } => {
            format!("backoff {container} {}", (until - NOW) / SECOND)
        }
        Action::ResizeContainer { id, .. } => format!("resize {id}"),
        Action::RemoveContainer { id, .. } => format!("remove {id}"),
        Action::StopSandbox { id } => format!("stop {id}"),
        Action::RemoveSandbox { id } => format!("remove sandbox {id}"),
        Action::ReleaseVolumes => "release".to_owned(),
        Action::Finish => "finish".to_owned(),
        Action::WakeAt(at) => format!("wake {}", (at - NOW) / SECOND),
    }
}

fn sandbox(id: &str, attempt: u32, ready: bool) -> Sandbox {
    Sandbox {
        id: id.to_owned(),
        ready,
        attempt,
        created_at: i64::from(attempt),
        ips: vec!["10.0.0.2".to_owned()],
    }
}

/// `running`, `created`, `unknown`, or `exit N`; ended five seconds ago, in sandbox `s0`.
fn record(name: &str, state: &str, index: usize) -> ContainerRecord {
    let mut record = ContainerRecord {
        id: format!("{name}{index}"),
        name: name.to_owned(),
        sandbox_id: "s0".to_owned(),
        restart_count: index as i32,
        created_at: index as i64 + 1,
        ..ContainerRecord::default()
    };
    match state {
        "running" => record.state = ContainerState::Running,
        "created" => {}
        "unknown" => record.state = ContainerState::Unknown,
        exit => {
            record.state = ContainerState::Exited;
            record.exit_code = exit.trim_start_matches("exit ").parse().expect("a code");
            record.finished_at = (NOW - 5 * SECOND) * 1000;
        }
    }
    record
}

fn one() -> Value {
    json!({"containers": [{"name": "a"}]})
}

fn with_init() -> Value {
    json!({"initContainers": [{"name": "i1"}, {"name": "i2"}], "containers": [{"name": "a"}, {"name": "b"}]})
}

#[test]
fn a_new_pod_does_everything_at_once() {
    let fresh = |scene: &mut Scene| {
        scene.observed = Observed::default();
        scene.volumes = Step::Idle;
        scene.images.clear();
    };
    Scene::new(one())
        .with(fresh)
        .expect(&["mount", "sandbox 0", "image a"]);
    Scene::new(with_init())
        .with(fresh)
        .expect(&["mount", "sandbox 0", "image i1"]);
    // While all of it is under way there is nothing to add.
    Scene::new(one())
        .with(fresh)
        .with(|scene| {
            scene.volumes = Step::Busy;
            scene.busy.sandbox = true;
            scene.images.insert("a".to_owned(), Step::Busy);
        })
        .expect(&[]);
}

#[test]
fn a_start_needs_sandbox_volumes_and_image() {
    Scene::new(one()).expect(&["start a 0"]);
    Scene::new(one())
        .with(|scene| scene.volumes = Step::Busy)
        .expect(&[]);
    Scene::new(one())
        .with(|scene| scene.images.clear())
        .expect(&["image a"]);
    Scene::new(one())
        .with(|scene| {
            scene.volumes = Step::Failed {
                until: NOW + SECOND,
            }
        })
        .expect(&["wake 1"]);
    Scene::new(one())
        .with(|scene| {
            scene.images.insert(
                "a".to_owned(),
                Step::Failed {
                    until: NOW + 10 * SECOND,
                },
            );
        })
        .expect(&["wake 10"]);
    Scene::new(one())
        .with(|scene| {
            scene.busy.starting.insert("a".to_owned());
        })
        .expect(&[]);
}

#[test]
fn init_containers_run_in_order() {
    let scene = || Scene::new(with_init());
    scene().expect(&["start i1 0"]);
    scene().containers(&[("i1", "running")]).expect(&[]);
    scene()
        .containers(&[("i1", "exit 0")])
        .expect(&["start i2 0"]);
    scene()
        .containers(&[("i1", "exit 0"), ("i2", "exit 0")])
        .expect(&["start a 0", "start b 0"]);
    scene()
        .containers(&[("i1", "exit 1")])
        .expect(&["start i1 1"]);
    // Once an app container exists, init containers are over, even if they were removed.
    scene()
        .containers(&[("a", "running")])
        .expect(&["start b 0"]);
}

#[test]
fn a_failed_init_container_ends_a_pod_that_never_restarts() {
    let mut spec = with_init();
    spec["restartPolicy"] = json!("Never");
    Scene::new(spec)
        .containers(&[("i1", "exit 3")])
        .expect(&["stop s0"]);
}

#[test]
fn restart_policies() {
    let with = |policy: &str| {
        let mut spec = one();
        spec["restartPolicy"] = json!(policy);
        Scene::new(spec)
    };
    with("Always")
        .containers(&[("a", "exit 0")])
        .expect(&["start a 1"]);
    with("OnFailure")
        .containers(&[("a", "exit 1")])
        .expect(&["start a 1"]);
    with("OnFailure")
        .containers(&[("a", "exit 0")])
        .expect(&["stop s0"]);
    with("Never")
        .containers(&[("a", "exit 1")])
        .expect(&["stop s0"]);
    // A finished pod keeps its dead containers and its stopped sandbox, for logs; what its volumes
    // hold is given back, once.
    let finished = with("Never")
        .containers(&[("a", "exit 1")])
        .with(|scene| scene.observed.sandboxes[0].ready = false);
    finished.expect(&["release"]);
    finished
        .with(|scene| scene.busy.released = true)
        .expect(&[]);
}

#[test]
fn rules_of_a_container_come_before_the_policy() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "a", "restartPolicy": "Never",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}]});
    Scene::new(spec.clone())
        .containers(&[("a", "exit 42")])
        .expect(&["start a 1"]);
    Scene::new(spec)
        .containers(&[("a", "exit 1")])
        .expect(&["stop s0"]);
}

#[test]
fn a_crashing_container_waits_for_its_back_off() {
    let mut backoff = Backoff::default();
    backoff.next(NOW - 20 * SECOND, NOW - 20 * SECOND, 300 * SECOND);
    Scene::new(one())
        .containers(&[("a", "exit 1")])
        .with(|scene| {
            scene.restarts.insert("a".to_owned(), backoff);
        })
        .expect(&["backoff a 5", "wake 5"]);
}

/// As upstream restarts them: the wait is counted from the end of the container before the one that
/// the probe ended.
#[test]
fn a_container_that_a_probe_ended_waits_only_if_the_one_before_it_ended_lately() {
    let mut backoff = Backoff::default();
    backoff.next(NOW - 20 * SECOND, NOW - 20 * SECOND, 300 * SECOND);
    let ended = |before: i64| {
        Scene::new(one())
            .containers(&[("a", "exit 1"), ("a", "exit 137")])
            .with(|scene| {
                scene.restarts.insert("a".to_owned(), backoff);
                let latest = scene.observed.latest("a").expect("a record").id.clone();
                for record in &mut scene.observed.containers {
                    if record.id != latest {
                        record.finished_at = (NOW - before * SECOND) * 1000;
                    }
                }
                scene.ended_by_probe.insert("a".to_owned(), latest);
            })
    };
    let started = ended(11).plan();
    assert!(started[0].starts_with("start a"), "{started:?}");
    ended(9).expect(&["backoff a 5", "wake 5"]);
}

#[test]
fn a_refused_container_is_tried_again_later() {
    Scene::new(one())
        .with(|scene| {
            scene
                .start_failures
                .insert("a".to_owned(), NOW + 3 * SECOND);
        })
        .expect(&["wake 3"]);
}

#[test]
fn an_unhealthy_container_is_killed_once() {
    let condemned = Scene::new(one())
        .containers(&[("a", "running")])
        .with(|scene| {
            scene
                .unhealthy
                .insert("a0".to_owned(), KillReason::LivenessProbe);
        });
    condemned.expect(&["kill a LivenessProbe"]);
    condemned
        .with(|scene| {
            scene.busy.killing.insert("a0".to_owned());
        })
        .expect(&[]);
}

#[test]
fn a_container_in_unknown_state_is_killed_and_replaced_under_every_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut spec = with_init();
        spec["restartPolicy"] = json!(policy);
        let lost = |records: &[(&str, &str)]| Scene::new(spec.clone()).containers(records);
        lost(&[("a", "unknown"), ("b", "running")]).expect(&["kill a StateUnknown"]);
        lost(&[("i1", "unknown")]).expect(&["kill i1 StateUnknown"]);
        lost(&[("a", "exit 255"), ("b", "running")])
            .with(|scene| {
                scene.replacing.insert("a".to_owned());
            })
            .expect(&["start a 1"]);
    }
    let only = Scene::new(json!({"restartPolicy": "Never", "containers": [{"name": "a"}]}));
    only.containers(&[("a", "unknown")])
        .expect(&["kill a StateUnknown"]);
}

#[test]
fn a_changed_image_replaces_the_container() {
    Scene::new(one())
        .containers(&[("a", "running")])
        .with(|scene| scene.observed.containers[0].hash = "other".to_owned())
        .expect(&["kill a DefinitionChanged"]);
}

#[test]
fn a_lost_sandbox_is_replaced_and_everything_runs_again() {
    let lost = |scene: &mut Scene| scene.observed.sandboxes[0].ready = false;
    Scene::new(one())
        .containers(&[("a", "exit 137")])
        .with(lost)
        .expect(&["sandbox 1"]);
    Scene::new(one())
        .containers(&[("a", "running")])
        .with(lost)
        .expect(&["kill a SandboxGone"]);
    // In the new sandbox init containers run again, and counts go on.
    Scene::new(with_init())
        .containers(&[("i1", "exit 0"), ("a", "exit 137")])
        .with(lost)
        .with(|scene| scene.observed.put_sandbox(sandbox("s1", 1, true)))
        .expect(&["start i1 1"]);
    Scene::new(one())
        .with(lost)
        .with(|scene| scene.sandbox_retry = Some(NOW + 2 * SECOND))
        .expect(&["wake 2"]);
}

#[test]
fn a_sidecar_starts_before_and_ends_after() {
    let spec = json!({
        "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}],
        "containers": [{"name": "a"}], "restartPolicy": "Never",
    });
    let scene = || Scene::new(spec.clone());
    scene().expect(&["start s 0"]);
    scene().containers(&[("s", "running")]).expect(&[]);
    let started = |scene: &mut Scene| {
        scene.started.insert("s0".to_owned());
    };
    scene()
        .containers(&[("s", "running")])
        .with(started)
        .expect(&["start i 0"]);
    scene()
        .containers(&[("s", "running"), ("i", "exit 0")])
        .with(started)
        .expect(&["start a 0"]);
    scene()
        .containers(&[("s", "exit 1"), ("i", "exit 0"), ("a", "running")])
        .expect(&["start s 1"]);
    scene()
        .containers(&[("s", "running"), ("i", "exit 0"), ("a", "exit 0")])
        .expect(&["kill s PodEnds"]);
    scene()
        .containers(&[("s", "running"), ("a", "running")])
        .with(|scene| scene.goal = Goal::Stop { remove: true })
        // All at once: a sidecar's hook runs while the others end, then the sidecar waits for its turn.
        .expect(&["kill a PodEnds", "kill s PodEnds"]);
}

#[test]
fn one_containers_end_restarts_all_of_them() {
    let spec = json!({
        "restartPolicy": "Never", "initContainers": [{"name": "i"}],
        "containers": [{"name": "a", "restartPolicy": "Never", "restartPolicyRules": [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]},
            {"name": "b"}],
    });
    let scene = |records: &[(&str, &str)]| Scene::new(spec.clone()).containers(records);
    scene(&[("i", "exit 0"), ("a", "exit 42"), ("b", "running")]).expect(&["kill b RestartAll"]);
    // The container whose rule it was is removed last: as long as it is there the reason is known.
    scene(&[("i", "exit 0"), ("a", "exit 42"), ("b", "exit 137")])
        .expect(&["remove b2", "remove i0"]);
    scene(&[("a", "exit 42")]).expect(&["remove a0"]);
    scene(&[]).expect(&["start i 0"]);
    // Another code is an end.
    scene(&[("i", "exit 0"), ("a", "exit 1"), ("b", "exit 0")]).expect(&["stop s0"]);
}

#[test]
fn rules_count_in_addition_to_a_policy_of_the_container() {
    let restarts = |policy: Value, code: i32| {
        let scene = Scene::new(
            json!({"restartPolicy": "Never", "containers": [{"name": "a",
            "restartPolicy": policy, "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 1]}}]}]}),
        );
        let spec = scene.pod.spec.clone().expect("spec");
        may_restart(&scene.pod, &spec.containers[0], code)
    };
    assert!(restarts(json!("Never"), 7));
    assert!(!restarts(json!("Never"), 1));
    assert!(restarts(json!("OnFailure"), 1), "no rule: the policy");
    assert!(!restarts(Value::Null, 7));
}

#[test]
fn a_failed_probe_goes_by_the_policy_alone() {
    let check = |pod: &str, own: Value, expected: bool| {
        let spec =
            json!({"restartPolicy": pod, "containers": [{"name": "a", "restartPolicy": own}]});
        let scene = Scene::new(spec);
        let spec = scene.pod.spec.clone().expect("spec");
        assert_eq!(restarts_failed(&scene.pod, &spec.containers[0]), expected);
    };
    check("Always", Value::Null, true);
    check("Never", Value::Null, false);
    check("Never", json!("OnFailure"), true);
    check("Always", json!("Never"), false);
}

#[test]
fn a_succeeded_container_does_not_run_again_in_a_new_sandbox() {
    let spec = json!({"restartPolicy": "OnFailure", "containers": [{"name": "a"}, {"name": "b"}]});
    Scene::new(spec)
        .containers(&[("a", "exit 0"), ("b", "exit 1")])
        .with(|scene| scene.observed.sandboxes.insert(0, sandbox("s1", 1, true)))
        .expect(&["start b 2", "stop s0"]);
}

#[test]
fn a_container_that_was_lost_is_counted_once() {
    let count = |status: Value| {
        let scene = Scene::new(one()).with(|scene| {
            scene.pod.status = serde_json::from_value(json!({"containerStatuses": [status]})).ok();
            assert!(scene.pod.status.is_some());
        });
        scene.plan()
    };
    let status = |id: Value| {
        json!({"name": "a", "containerID": id, "image": "", "imageID": "", "ready": false,
            "restartCount": 3})
    };
    assert_eq!(count(status(json!("x://1"))), ["start a 4"]);
    assert_eq!(count(status(Value::Null)), ["start a 3"]);
}

#[test]
fn a_hook_holds_back_the_containers_behind_it() {
    let spec = json!({"containers": [
        {"name": "a", "lifecycle": {"postStart": {"sleep": {"seconds": 1}}}}, {"name": "b"}]});
    Scene::new(spec.clone()).expect(&["start a 0"]);
    Scene::new(spec.clone())
        .with(|scene| {
            scene.busy.starting.insert("a".to_owned());
        })
        .expect(&[]);
    Scene::new(spec)
        .containers(&[("a", "running")])
        .expect(&["start b 0"]);
}

#[test]
fn containers_end_before_sandboxes_and_these_before_the_pod() {
    let end = |scene: &mut Scene| scene.goal = Goal::Stop { remove: true };
    let running = || Scene::new(one()).containers(&[("a", "running")]).with(end);
    running().expect(&["kill a PodEnds"]);
    running()
        .with(|scene| {
            scene.busy.killing.insert("a0".to_owned());
        })
        .expect(&[]);
    let dead = || Scene::new(one()).containers(&[("a", "exit 0")]).with(end);
    dead().expect(&["stop s0"]);
    let stopped = || dead().with(|scene| scene.observed.sandboxes[0].ready = false);
    stopped().expect(&["finish"]);
    stopped()
        .with(|scene| scene.busy.finishing = true)
        .expect(&[]);
    // A container still being started is waited for, then killed.
    Scene::new(one())
        .with(end)
        .with(|scene| {
            scene.busy.starting.insert("a".to_owned());
        })
        .expect(&[]);
    // A pod that never got anything is finished at once.
    Scene::new(one())
        .with(end)
        .with(|scene| scene.observed = Observed::default())
        .expect(&["finish"]);
}

#[test]
fn old_containers_are_removed_but_the_last_two() {
    Scene::new(one())
        .containers(&[
            ("a", "exit 1"),
            ("a", "exit 1"),
            ("a", "exit 1"),
            ("a", "running"),
        ])
        .expect(&["remove a1", "remove a0"]);
}

#[test]
fn a_pod_that_ended_in_the_api_stays_ended() {
    Scene::new(one())
        .with(|scene| {
            scene.pod.status = serde_json::from_value(json!({"phase": "Failed"})).ok();
            scene.observed = Observed::default();
        })
        .expect(&["release"]);
}

#[test]
fn a_reboot_goes_on_counting_from_the_api() {
    Scene::new(one())
        .with(|scene| {
            scene.pod.status = serde_json::from_value(json!({"phase": "Running", "containerStatuses": [
                {"name": "a", "restartCount": 4, "containerID": "x://1", "ready": true, "image": "", "imageID": ""}]}))
            .ok();
        })
        .expect(&["start a 5"]);
}

#[test]
fn an_ephemeral_container_starts_once_alongside_the_others() {
    let spec = json!({"containers": [{"name": "a"}], "restartPolicy": "Always",
        "ephemeralContainers": [{"name": "e", "image": "x"}]});
    let image = |scene: &mut Scene| {
        scene
            .images
            .insert("e".to_owned(), Step::Done(Image::default()));
    };
    Scene::new(spec.clone())
        .with(image)
        .containers(&[("a", "running")])
        .expect(&["start e 0"]);
    Scene::new(spec)
        .with(image)
        .containers(&[("a", "running"), ("e", "exit 1")])
        .expect(&[]);
}

#[test]
fn a_resize_changes_limits_or_restarts() {
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "a",
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
        "resources": {"requests": {"cpu": "2", "memory": "2Mi"}}}]});
    let has = |cpu: &str, memory: &str| {
        let actual: ResourceRequirements =
            serde_json::from_value(json!({"requests": {"cpu": cpu, "memory": memory}}))
                .expect("resources");
        move |scene: &mut Scene| {
            scene.actual.insert("a0".to_owned(), actual);
        }
    };
    let scene = || Scene::new(spec.clone()).containers(&[("a", "running")]);
    scene().with(has("2", "2Mi")).expect(&[]);
    scene().with(has("1", "2Mi")).expect(&["resize a0"]);
    scene().with(has("2", "1Mi")).expect(&["kill a Resize"]);
    scene()
        .with(has("1", "2Mi"))
        .with(|scene| {
            scene.busy.resizing.insert("a0".to_owned());
        })
        .expect(&[]);
}
