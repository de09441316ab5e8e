//! Random histories of a StatefulSet against a world without I/O: edits, pods that start, fail and
//! end, and rounds of the plan in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::identity;
use super::plan::{Action, Observed, Plan, Revision, plan};
use crate::meta;

struct World {
    set: StatefulSet,
    pods: BTreeMap<String, Pod>,
    claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    current: String,
    update: String,
    next_uid: u32,
}

fn template(image: &str) -> PodTemplateSpec {
    serde_json::from_value(serde_json::json!({
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }))
    .unwrap()
}

fn set(policy: &str, replicas: i32, rolling: serde_json::Value) -> StatefulSet {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "db", "namespace": "ns", "uid": "set", "generation": 1},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "db"}},
            "serviceName": "db", "template": template("v1"), "podManagementPolicy": policy,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
        },
    }))
    .unwrap()
}

impl World {
    fn new(set: StatefulSet) -> World {
        World {
            set,
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            current: "v1".to_owned(),
            update: "v1".to_owned(),
            next_uid: 0,
        }
    }

    fn plan(&self) -> Plan {
        let revision = |name: &str| Revision {
            name: name.to_owned(),
            template: template(name),
        };
        let pods: Vec<Arc<Pod>> = self.pods.values().cloned().map(Arc::new).collect();
        plan(&Observed {
            set: &self.set,
            pods: &pods,
            claims: &|name| self.claims.get(name).cloned(),
            current: &revision(&self.current),
            update: &revision(&self.update),
            collisions: 0,
            now: Timestamp::from_second(1_000_000).unwrap(),
            pause: &|_| std::time::Duration::ZERO,
        })
    }

    /// One round: what is planned happens, and the status is remembered as the server would.
    fn round(&mut self) -> Vec<Action> {
        let plan = self.plan();
        for action in &plan.actions {
            match action {
                Action::Create(pod, claims) => {
                    self.add_claims(claims);
                    let mut pod = (**pod).clone();
                    self.next_uid += 1;
                    pod.metadata.uid = Some(format!("uid-{}", self.next_uid));
                    pod.status.get_or_insert_default().phase = Some("Pending".to_owned());
                    let name = pod.metadata.name.clone().unwrap();
                    assert!(self.pods.insert(name, pod).is_none(), "created twice");
                }
                Action::CreateClaims(_, claims) => self.add_claims(claims),
                Action::Delete(pod) => {
                    let pod = self
                        .pods
                        .get_mut(pod.metadata.name.as_ref().unwrap())
                        .unwrap();
                    pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
                }
                Action::Repair(_) | Action::SetOwners(..) => {}
            }
        }
        self.current = plan.status.current_revision.clone().unwrap();
        self.set.status = Some(plan.status);
        plan.actions
    }

    fn add_claims(&mut self, claims: &[PersistentVolumeClaim]) {
        for claim in claims {
            let name = claim.metadata.name.clone().unwrap();
            self.claims.insert(name, Arc::new(claim.clone()));
        }
    }

    fn start(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).unwrap();
        if semantics::pod::phase(pod) == "Pending" {
            pod.status = serde_json::from_value(serde_json::json!({
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True",
                    "lastTransitionTime": "1970-01-01T00:00:00Z"}],
            }))
            .unwrap();
        }
    }

    fn end(&mut self, name: &str) {
        if self.pods[name].metadata.deletion_timestamp.is_some() {
            self.pods.remove(name);
        }
    }

    /// What nodes and users do by themselves.
    fn disturb(&mut self, random: &mut StdRng, break_pods: bool) {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = &names[random.random_range(0..names.len())];
        match random.random_range(0..8) {
            0..4 => self.start(name),
            4..7 => self.end(name),
            _ if break_pods => {
                let pod = self.pods.get_mut(name).unwrap();
                pod.status.get_or_insert_default().phase = Some("Failed".to_owned());
            }
            _ => {}
        }
    }

    fn is_available(pod: &Pod) -> bool {
        pod.metadata.deletion_timestamp.is_none()
            && semantics::pod::phase(pod) == "Running"
            && semantics::pod::is_ready(pod)
    }

    fn available(&self) -> i32 {
        let pods = self.pods.values();
        pods.filter(|pod| World::is_available(pod)).count() as i32
    }

    fn edit(&mut self, random: &mut StdRng) {
        let spec = self.set.spec.as_mut().unwrap();
        match random.random_range(0..3) {
            0 => spec.replicas = Some(random.random_range(0..6)),
            1 => self.update = format!("v{}", random.random_range(1..4)),
            _ => {
                let rolling = spec.update_strategy.as_mut().unwrap();
                let rolling = rolling.rolling_update.as_mut().unwrap();
                rolling.partition = Some(random.random_range(0..3));
            }
        }
        spec.template = template(&self.update);
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            self.round();
            for name in self.pods.keys().cloned().collect::<Vec<_>>() {
                self.end(&name);
            }
            for name in self.pods.keys().cloned().collect::<Vec<_>>() {
                self.start(&name);
            }
        }
    }
}

#[test]
fn histories_converge_and_respect_the_order() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let policy = ["OrderedReady", "Parallel"][random.random_range(0..2)];
        let mut world = World::new(set(policy, 3, serde_json::json!({"partition": 0})));
        for _ in 0..80 {
            if random.random_ratio(1, 10) {
                world.edit(&mut random);
            }
            world.disturb(&mut random, true);
            let before = world.pods.clone();
            let actions = world.round();
            if policy == "OrderedReady" {
                check_order(&world, &before, &actions, seed);
            }
        }
        world.settle();
        let replicas = identity::replicas(&world.set);
        let names: Vec<String> = world.pods.keys().cloned().collect();
        let expected: Vec<String> = (0..replicas)
            .map(|ordinal| format!("db-{ordinal}"))
            .collect();
        assert_eq!(names, expected, "seed {seed}");
        let partition = world
            .set
            .spec
            .as_ref()
            .unwrap()
            .update_strategy
            .as_ref()
            .unwrap();
        let partition = partition
            .rolling_update
            .as_ref()
            .unwrap()
            .partition
            .unwrap();
        for (name, pod) in &world.pods {
            assert!(World::is_available(pod), "seed {seed}: {name}");
            let ordinal = identity::ordinal(&world.set, pod).unwrap();
            if ordinal >= partition {
                assert_eq!(identity::revision(pod), world.update, "seed {seed}: {name}");
            }
        }
        assert!(
            world.round().is_empty(),
            "seed {seed}: it does not come to rest"
        );
    }
}

/// A pod is created only when all below it are available, and at most one goes at a time.
fn check_order(world: &World, before: &BTreeMap<String, Pod>, actions: &[Action], seed: u64) {
    let mut deletions = 0;
    for action in actions {
        match action {
            Action::Create(pod, _) => {
                let ordinal = identity::ordinal(&world.set, pod).unwrap();
                for below in 0..ordinal {
                    let below = before.get(&identity::pod_name(&world.set, below));
                    let available = below.is_some_and(World::is_available);
                    assert!(available, "seed {seed}: {ordinal} came too early");
                }
            }
            Action::Delete(_) => deletions += 1,
            _ => {}
        }
    }
    assert!(deletions <= 1, "seed {seed}: {deletions} pods went at once");
}

#[test]
fn an_update_makes_no_more_pods_unavailable_than_allowed() {
    for seed in 0..30 {
        let mut random = StdRng::seed_from_u64(seed);
        let limit = random.random_range(1..4);
        let policy = ["OrderedReady", "Parallel"][random.random_range(0..2)];
        let rolling = serde_json::json!({"partition": 0, "maxUnavailable": limit});
        let mut world = World::new(set(policy, 5, rolling));
        world.settle();
        assert_eq!(world.available(), 5);
        world.update = "v2".to_owned();
        world.set.spec.as_mut().unwrap().template = template("v2");
        for _ in 0..200 {
            world.round();
            assert!(
                world.available() >= 5 - limit,
                "seed {seed}: {}",
                world.available()
            );
            world.disturb(&mut random, false);
        }
        world.settle();
        assert!(
            world
                .pods
                .values()
                .all(|pod| identity::revision(pod) == "v2")
        );
        let status = world.set.status.unwrap();
        assert_eq!(status.current_revision.as_deref(), Some("v2"));
        assert_eq!(status.current_replicas, Some(5));
    }
}

#[test]
fn ordinals_begin_at_the_configured_start() {
    let mut late = set("Parallel", 2, serde_json::json!({"partition": 0}));
    late.spec.as_mut().unwrap().ordinals =
        serde_json::from_value(serde_json::json!({"start": 7})).unwrap();
    let mut world = World::new(late);
    world.settle();
    let names: Vec<&String> = world.pods.keys().collect();
    assert_eq!(names, ["db-7", "db-8"]);
    assert!(world.claims.contains_key("data-db-8"));
    let pod = &world.pods["db-7"];
    assert_eq!(
        meta::label(&pod.metadata, identity::POD_INDEX_LABEL),
        Some("7")
    );
    let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
    assert_eq!(
        volume.persistent_volume_claim.as_ref().unwrap().claim_name,
        "data-db-7"
    );
}

#[test]
fn pods_below_the_partition_keep_the_former_template() {
    let mut world = World::new(set("OrderedReady", 3, serde_json::json!({"partition": 2})));
    world.settle();
    world.update = "v2".to_owned();
    world.settle();
    let revisions: Vec<&str> = world.pods.values().map(identity::revision).collect();
    assert_eq!(revisions, ["v1", "v1", "v2"]);
    // One that is lost comes back as it was.
    world.pods.remove("db-0");
    world.settle();
    assert_eq!(identity::revision(&world.pods["db-0"]), "v1");
    assert_eq!(
        world
            .set
            .status
            .as_ref()
            .unwrap()
            .current_revision
            .as_deref(),
        Some("v1")
    );
    assert_eq!(world.set.status.as_ref().unwrap().updated_replicas, Some(1));
}
