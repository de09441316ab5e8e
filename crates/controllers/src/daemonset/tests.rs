//! Random histories of a DaemonSet against a world without I/O: nodes come, go and are tainted,
//! templates change, pods start, fail and end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::plan::{Observed, plan, status};
use super::{HASH_LABEL, fit, new_pod};
use crate::meta;

struct World {
    set: DaemonSet,
    nodes: BTreeMap<String, Arc<Node>>,
    pods: BTreeMap<String, Pod>,
    hash: String,
    made: i64,
}

fn node(name: &str, taint: Option<&str>) -> Arc<Node> {
    let taints = taint.map(|effect| serde_json::json!([{"key": "k", "effect": effect}]));
    Arc::new(
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": name}, "spec": {"taints": taints},
        }))
        .unwrap(),
    )
}

fn set(strategy: serde_json::Value) -> DaemonSet {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "agent", "namespace": "ns", "uid": "set", "generation": 4},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "updateStrategy": strategy,
            "template": {"metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }))
    .unwrap()
}

impl World {
    fn new(strategy: serde_json::Value, nodes: usize) -> World {
        let nodes = (0..nodes).map(|index| format!("n{index}"));
        World {
            set: set(strategy),
            nodes: nodes
                .map(|name| (name.clone(), node(&name, None)))
                .collect(),
            pods: BTreeMap::new(),
            hash: "one".to_owned(),
            made: 0,
        }
    }

    fn round(&mut self) -> bool {
        let nodes: Vec<Arc<Node>> = self.nodes.values().cloned().collect();
        let pods: Vec<Arc<Pod>> = self.pods.values().cloned().map(Arc::new).collect();
        let plan = plan(&self.observed(&nodes, &pods), &|_| Duration::ZERO);
        let idle = plan.create.is_empty() && plan.delete.is_empty();
        for node in plan.create {
            let mut pod = new_pod(&self.set, &self.hash, &node);
            self.made += 1;
            let name = format!("agent-{}", self.made);
            pod.metadata.uid = Some(name.clone());
            pod.metadata.name = Some(name.clone());
            pod.metadata.creation_timestamp = Timestamp::from_second(self.made).ok().map(Time);
            pod.status.get_or_insert_default().phase = Some("Pending".to_owned());
            self.pods.insert(name, pod);
        }
        for pod in plan.delete {
            let pod = self
                .pods
                .get_mut(pod.metadata.name.as_ref().unwrap())
                .unwrap();
            pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        }
        idle
    }

    fn observed<'a>(&'a self, nodes: &'a [Arc<Node>], pods: &'a [Arc<Pod>]) -> Observed<'a> {
        Observed {
            set: &self.set,
            nodes,
            pods,
            hash: &self.hash,
            now: Timestamp::from_second(1_000_000).unwrap(),
        }
    }

    fn start(&mut self, name: &str) {
        let pod = self.pods.get_mut(name).unwrap();
        let node = fit::target(pod).unwrap_or_default().to_owned();
        if semantics::pod::phase(pod) == "Pending" && self.nodes.contains_key(&node) {
            pod.spec.as_mut().unwrap().node_name = Some(node);
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
                pod.status =
                    serde_json::from_value(serde_json::json!({"phase": "Failed"})).unwrap();
            }
            _ => {}
        }
    }

    fn edit(&mut self, random: &mut StdRng) {
        let name = format!("n{}", random.random_range(0..6));
        match random.random_range(0..4) {
            0 => self.hash = ["one", "two"][random.random_range(0..2)].to_owned(),
            1 => {
                self.nodes.remove(&name);
                // What ran there is collected with it.
                self.pods.retain(|_, pod| meta::node_name(pod) != name);
            }
            2 => {
                self.nodes.insert(name.clone(), node(&name, None));
            }
            _ => {
                let effect = ["NoSchedule", "NoExecute"][random.random_range(0..2)];
                self.nodes.insert(name.clone(), node(&name, Some(effect)));
            }
        }
    }

    /// Nodes with an available pod.
    fn served(&self) -> usize {
        let available = |pod: &&Pod| {
            pod.metadata.deletion_timestamp.is_none()
                && semantics::pod::phase(pod) == "Running"
                && semantics::pod::is_ready(pod)
        };
        let nodes = self
            .pods
            .values()
            .filter(available)
            .filter_map(|pod| fit::target(pod));
        nodes.collect::<std::collections::BTreeSet<_>>().len()
    }

    fn settle(&mut self) {
        for _ in 0..100 {
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
fn histories_converge_to_one_pod_per_fitting_node() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let strategy = match seed % 3 {
            0 => {
                serde_json::json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
            }
            1 => serde_json::json!({"type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}),
            _ => serde_json::json!({"type": "OnDelete"}),
        };
        let mut world = World::new(strategy, 4);
        for _ in 0..80 {
            if random.random_ratio(1, 8) {
                world.edit(&mut random);
            }
            world.disturb(&mut random, true);
            world.round();
        }
        world.settle();
        let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in world.pods.values() {
            by_node
                .entry(fit::target(pod).unwrap())
                .or_default()
                .push(pod);
        }
        for (name, node) in &world.nodes {
            let pods = by_node.remove(name.as_str()).unwrap_or_default();
            let effect = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            match effect.map(|taints| taints[0].effect.as_str()) {
                None => assert_eq!(pods.len(), 1, "seed {seed}: {name}"),
                Some("NoExecute") => assert!(pods.is_empty(), "seed {seed}: {name}"),
                Some(_) => assert!(pods.len() <= 1, "seed {seed}: {name}"),
            }
            for pod in pods {
                let current = meta::label(&pod.metadata, HASH_LABEL) == Some(&world.hash);
                let tainted = effect.is_some();
                assert!(
                    current || tainted || seed % 3 == 2,
                    "seed {seed}: {name} is outdated"
                );
            }
        }
        assert!(by_node.is_empty(), "seed {seed}: pods for no node");
        assert!(world.round(), "seed {seed}: it does not come to rest");
    }
}

#[test]
fn an_update_keeps_to_its_limits() {
    for seed in 0..30 {
        let mut random = StdRng::seed_from_u64(seed);
        let (unavailable, surge) = if seed % 2 == 0 {
            (random.random_range(1..4), 0)
        } else {
            (0, random.random_range(1..4))
        };
        let strategy = serde_json::json!({"type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}});
        let mut world = World::new(strategy, 6);
        world.settle();
        assert_eq!(world.served(), 6);
        world.hash = "two".to_owned();
        for _ in 0..200 {
            world.round();
            let served = world.served();
            assert!(
                served >= 6 - unavailable,
                "seed {seed}: only {served} nodes are served"
            );
            let staying = world.pods.values();
            let staying = staying.filter(|pod| pod.metadata.deletion_timestamp.is_none());
            assert!(staying.count() <= 6 + surge, "seed {seed}: too many pods");
            world.disturb(&mut random, false);
        }
        world.settle();
        let current = |pod: &Pod| meta::label(&pod.metadata, HASH_LABEL) == Some("two");
        assert!(world.pods.values().all(current), "seed {seed}");
    }
}

#[test]
fn the_status_counts_nodes() {
    let mut world = World::new(serde_json::json!({"type": "OnDelete"}), 3);
    world.settle();
    world
        .nodes
        .insert("n0".to_owned(), node("n0", Some("NoSchedule")));
    world.hash = "two".to_owned();
    let nodes: Vec<Arc<Node>> = world.nodes.values().cloned().collect();
    let pods: Vec<Arc<Pod>> = world.pods.values().cloned().map(Arc::new).collect();
    let status = status(&world.observed(&nodes, &pods), 0);
    assert_eq!(status.desired_number_scheduled, 2);
    assert_eq!(status.current_number_scheduled, 2);
    assert_eq!(status.number_misscheduled, 1);
    assert_eq!(status.number_ready, 2);
    assert_eq!(status.number_available, Some(2));
    assert_eq!(status.updated_number_scheduled, None);
    assert_eq!(status.observed_generation, Some(4));
}
