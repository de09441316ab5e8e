//! A pod fits where what it asks for is left; among those, emptier nodes score higher.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Node;

use crate::{
    NodeInfo, PodInfo, Resources, Snapshot,
    configuration::{FitArguments, MOST, RATIO, ResourceSpec},
    framework::{ClusterEvent, Filter, MAX_SCORE, NodeScore, Plugin, Points},
};

/// By default the emptier node is better, by cpu and memory.
pub struct NodeResourcesFit {
    ignored: BTreeSet<String>,
    ignored_groups: BTreeSet<String>,
    strategy: Strategy,
    resources: Vec<ResourceSpec>,
}

enum Strategy {
    Least,
    Most,
    /// Points of a broken line, from the share in use to a score, both in hundredths.
    Ratio(Vec<(i64, i64)>),
}

impl Default for NodeResourcesFit {
    fn default() -> NodeResourcesFit {
        NodeResourcesFit::new(FitArguments::default())
    }
}

impl NodeResourcesFit {
    pub fn new(arguments: FitArguments) -> NodeResourcesFit {
        let given = arguments.scoring_strategy.unwrap_or_default();
        let ratio = given.requested_to_capacity_ratio.unwrap_or_default();
        let strategy = match given.kind.as_str() {
            MOST => Strategy::Most,
            RATIO => {
                let points = ratio.shape.iter();
                // The file counts to ten.
                let points =
                    points.map(|point| (i64::from(point.utilization), i64::from(point.score) * 10));
                Strategy::Ratio(points.collect())
            }
            _ => Strategy::Least,
        };
        NodeResourcesFit {
            ignored: arguments.ignored_resources.into_iter().collect(),
            ignored_groups: arguments.ignored_resource_groups.into_iter().collect(),
            strategy,
            resources: given.resources,
        }
    }

    /// Whether others look after this resource.
    fn ignores(&self, name: &str) -> bool {
        let group = name.split_once('/').map(|(group, _)| group);
        self.ignored.contains(name) || group.is_some_and(|g| self.ignored_groups.contains(g))
    }

    fn short_of<'a>(&self, pod: &'a PodInfo, node: &NodeInfo, held: &Resources) -> Vec<&'a str> {
        let mut names = short_of(&pod.requests, &node.allocatable, held);
        names.retain(|name| !name.contains('/') || !self.ignores(name));
        names
    }

    fn fits(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        (node.pods.len() as i64) < node.allowed_pods
            && self.short_of(pod, node, &node.requested).is_empty()
    }

    fn fits_when_empty(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        node.allowed_pods > 0 && self.short_of(pod, node, &Resources::default()).is_empty()
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            filter: Some(self.clone()),
            score: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            // A node on which the pod would not fit even empty cannot help.
            ClusterEvent::NodeAdded(node) => self.fits_when_empty(pod, node),
            ClusterEvent::NodeChanged { old, new } => {
                // Most changes of a node are heartbeats.
                let allocatable =
                    |node: &Node| node.status.as_ref().and_then(|s| s.allocatable.clone());
                if new
                    .node
                    .as_ref()
                    .is_some_and(|new| allocatable(new) == allocatable(old))
                {
                    return false;
                }
                let mut before = NodeInfo::new(&new.name);
                before.set_node((*old).clone().into());
                has_grown(&before, new) && self.fits_when_empty(pod, new)
            }
            // On the other nodes nothing has changed.
            ClusterEvent::PodRemoved { node, .. } | ClusterEvent::PodShrank { node } => {
                node.is_none_or(|node| self.fits(pod, node))
            }
            _ => false,
        }
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        pod.requests.write_shape(key);
        pod.requests_for_score.write_shape(key);
        true
    }
}

impl Filter for NodeResourcesFit {
    /// Not if the whole node would be too little.
    fn resolvable(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        self.short_of(pod, node, &Resources::default()).is_empty()
    }

    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String> {
        let mut reasons = Vec::new();
        if node.pods.len() as i64 + 1 > node.allowed_pods {
            reasons.push("Too many pods".to_owned());
        }
        reasons.extend(
            self.short_of(pod, node, &node.requested)
                .into_iter()
                .map(|name| format!("Insufficient {name}")),
        );
        reasons
    }
}

impl NodeScore for NodeResourcesFit {
    /// The weighted mean of what the strategy says to each resource.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let (asked, held) = (&pod.requests_for_score, &node.requested_for_score);
        let (mut sum, mut weights) = (0, 0);
        for ResourceSpec { name, weight } in &self.resources {
            let capacity = node.allocatable.get(name);
            // A less usual resource that the pod does not request does not count.
            if capacity == 0 || (!is_usual(name) && asked.get(name) == 0) {
                continue;
            }
            let taken = asked.get(name) + held.get(name);
            let score = match &self.strategy {
                Strategy::Least => share((capacity - taken).max(0), capacity),
                Strategy::Most => share(taken.min(capacity), capacity),
                Strategy::Ratio(points) => {
                    let used = match taken > capacity {
                        true => MAX_SCORE,
                        false => share(taken, capacity),
                    };
                    let score = on_broken_line(points, used);
                    if score <= 0 {
                        continue;
                    }
                    score
                }
            };
            sum += score * weight;
            weights += weight;
        }
        match (&self.strategy, weights) {
            (_, 0) => 0,
            (Strategy::Ratio(_), weights) => (sum as f64 / weights as f64).round() as i64,
            (_, weights) => sum / weights,
        }
    }
}

/// Of these every pod takes something, said or not.
pub(crate) fn is_usual(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
}

/// In hundredths; in 128 bits, since a large machine has many bytes.
fn share(part: i64, whole: i64) -> i64 {
    (i128::from(part) * i128::from(MAX_SCORE) / i128::from(whole)) as i64
}

/// The score at `used`, straight between two points and level beyond the first and the last.
fn on_broken_line(points: &[(i64, i64)], used: i64) -> i64 {
    let mut before: Option<(i64, i64)> = None;
    for &(at, score) in points {
        if used <= at {
            return match before {
                None => score,
                Some((from, low)) => low + (score - low) * (used - from) / (at - from),
            };
        }
        before = Some((at, score));
    }
    before.map_or(0, |(_, score)| score)
}

/// The names of the resources of which too little is left.
fn short_of<'a>(asked: &'a Resources, allocatable: &Resources, held: &Resources) -> Vec<&'a str> {
    let lacks = |asked: i64, allocatable: i64, held: i64| asked > 0 && asked > allocatable - held;
    let mut names = Vec::new();
    if lacks(asked.milli_cpu, allocatable.milli_cpu, held.milli_cpu) {
        names.push("cpu");
    }
    if lacks(asked.memory, allocatable.memory, held.memory) {
        names.push("memory");
    }
    if lacks(
        asked.ephemeral_storage,
        allocatable.ephemeral_storage,
        held.ephemeral_storage,
    ) {
        names.push("ephemeral-storage");
    }
    for (name, amount) in &asked.scalars {
        let of = |resources: &Resources| resources.scalars.get(name).copied().unwrap_or(0);
        if lacks(*amount, of(allocatable), of(held)) {
            names.push(name);
        }
    }
    names
}

fn has_grown(old: &NodeInfo, new: &NodeInfo) -> bool {
    let (a, b) = (&old.allocatable, &new.allocatable);
    let scalar_grown = b.scalars.iter().any(|(name, amount)| {
        let before = a.scalars.get(name).copied().unwrap_or(0);
        *amount > before
    });
    new.allowed_pods > old.allowed_pods
        || b.milli_cpu > a.milli_cpu
        || b.memory > a.memory
        || b.ephemeral_storage > a.ephemeral_storage
        || scalar_grown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, pod, pod_asking};

    fn info(allocatable: &str) -> NodeInfo {
        let mut info = NodeInfo::new("n1");
        info.set_node(node(
            "n1",
            "{}",
            &format!(r#"{{"allocatable":{allocatable}}}"#),
        ));
        info
    }

    fn asking(requests: &str) -> std::sync::Arc<PodInfo> {
        let spec = r#"{"containers":[{"name":"c","resources":{"requests":REQUESTS}}]}"#;
        pod("web", &spec.replace("REQUESTS", requests))
    }

    fn check(allocatable: &str, held: &str, asked: &str, expected: &[&str]) {
        let mut info = info(allocatable);
        let spec = r#"{"containers":[{"name":"c","resources":{"requests":REQUESTS}}]}"#;
        info.add_pod(pod("held", &spec.replace("REQUESTS", held)));
        let reasons = NodeResourcesFit::default().filter(&asking(asked), &info);
        assert_eq!(reasons, expected, "{asked} on {allocatable} with {held}");
    }

    #[test]
    fn each_resource_is_counted() {
        let node = r#"{"cpu":"2","memory":"1Gi","ephemeral-storage":"10Gi","pods":"10","example.com/gpu":"2"}"#;
        check(node, "{}", "{}", &[]);
        check(node, r#"{"cpu":"1500m"}"#, r#"{"cpu":"500m"}"#, &[]);
        check(
            node,
            r#"{"cpu":"1500m"}"#,
            r#"{"cpu":"501m"}"#,
            &["Insufficient cpu"],
        );
        check(
            node,
            r#"{"memory":"1Gi"}"#,
            r#"{"memory":"1"}"#,
            &["Insufficient memory"],
        );
        check(
            node,
            r#"{"ephemeral-storage":"9Gi"}"#,
            r#"{"ephemeral-storage":"2Gi"}"#,
            &["Insufficient ephemeral-storage"],
        );
        check(
            node,
            r#"{"example.com/gpu":"1"}"#,
            r#"{"example.com/gpu":"1"}"#,
            &[],
        );
        check(
            node,
            r#"{"example.com/gpu":"1"}"#,
            r#"{"example.com/gpu":"2"}"#,
            &["Insufficient example.com/gpu"],
        );
        check(
            node,
            "{}",
            r#"{"example.com/other":"1"}"#,
            &["Insufficient example.com/other"],
        );
        check(
            node,
            r#"{"cpu":"2","memory":"1Gi"}"#,
            r#"{"cpu":"1","memory":"1Gi"}"#,
            &["Insufficient cpu", "Insufficient memory"],
        );
        // An overcommitted node still takes pods that ask for nothing.
        check(node, r#"{"cpu":"5"}"#, "{}", &[]);
    }

    #[test]
    fn the_number_of_pods_is_limited() {
        check(r#"{"pods":"1"}"#, "{}", "{}", &["Too many pods"]);
        check("{}", "{}", "{}", &["Too many pods"]);
        check(
            r#"{"pods":"1","cpu":"1"}"#,
            r#"{"cpu":"1"}"#,
            r#"{"cpu":"1"}"#,
            &["Too many pods", "Insufficient cpu"],
        );
    }

    #[test]
    fn emptier_nodes_score_higher() {
        let snapshot = Snapshot::default();
        let score = |allocatable: &str, held: &str| {
            let mut info = info(allocatable);
            info.add_pod(asking(held));
            NodeResourcesFit::default().score(
                &asking(r#"{"cpu":"1","memory":"1Gi"}"#),
                &info,
                &snapshot,
            )
        };
        // cpu 2 of 4 taken, memory 2 of 4: half is free.
        assert_eq!(
            score(
                r#"{"cpu":"4","memory":"4Gi"}"#,
                r#"{"cpu":"1","memory":"1Gi"}"#
            ),
            50
        );
        // cpu 1/10 taken, memory 9/10.
        assert_eq!(
            score(
                r#"{"cpu":"10","memory":"10Gi"}"#,
                r#"{"cpu":"0","memory":"8Gi"}"#
            ),
            50
        );
        assert_eq!(
            score(
                r#"{"cpu":"1","memory":"1Gi"}"#,
                r#"{"cpu":"1","memory":"1Gi"}"#
            ),
            0
        );
        assert_eq!(score("{}", "{}"), 0);
    }

    #[test]
    fn only_growth_that_could_suffice_wakes_a_pod() {
        let pod = pod_asking("web", "2");
        let change = |before: &str, after: &str| {
            let old = info(before).node.expect("a node");
            let new = info(after);
            let event = ClusterEvent::NodeChanged {
                old: &old,
                new: &new,
            };
            NodeResourcesFit::default().may_help(&event, &pod)
        };
        let cpu = |cpu: u32| format!(r#"{{"cpu":"{cpu}","pods":"9"}}"#);
        assert!(change(&cpu(1), &cpu(2)));
        assert!(!change(&cpu(2), &cpu(2)));
        assert!(!change(&cpu(3), &cpu(2)));
        assert!(!change(&cpu(0), &cpu(1)));
        assert!(
            NodeResourcesFit::default().may_help(&ClusterEvent::NodeAdded(&info(&cpu(2))), &pod)
        );
        assert!(
            !NodeResourcesFit::default().may_help(&ClusterEvent::NodeAdded(&info(&cpu(1))), &pod)
        );
    }

    #[test]
    fn a_broken_line_is_level_beyond_its_ends() {
        let line = [(20, 0), (40, 100), (80, 50)];
        let scores = [0, 20, 30, 40, 60, 80, 100].map(|used| on_broken_line(&line, used));
        assert_eq!(scores, [0, 0, 50, 100, 75, 50, 50]);
        assert_eq!(on_broken_line(&[], 5), 0);
    }

    #[test]
    fn resources_are_weighed_and_may_be_left_to_others() {
        let arguments = serde_json::from_str(
            r#"{"ignoredResourceGroups":["example.com"],"scoringStrategy":{"type":"MostAllocated","resources":[{"name":"cpu","weight":3},{"name":"memory","weight":1},{"name":"x.com/y","weight":9}]}}"#,
        );
        let plugin = NodeResourcesFit::new(arguments.expect("arguments"));
        let node = info(r#"{"cpu":"10","memory":"10Gi","pods":"9","x.com/y":"1"}"#);
        let asking = |requests: &str| {
            pod(
                "web",
                &format!(
                    r#"{{"containers":[{{"name":"c","resources":{{"requests":{requests}}}}}]}}"#
                ),
            )
        };
        let some = asking(r#"{"cpu":"5","memory":"1Gi","example.com/z":"1"}"#);
        assert!(plugin.filter(&some, &node).is_empty());
        let default = NodeResourcesFit::default();
        assert_eq!(default.filter(&some, &node), ["Insufficient example.com/z"]);
        let snapshot = Snapshot::default();
        assert_eq!(plugin.score(&some, &node, &snapshot), (3 * 50 + 10) / 4);
        let whole = asking(r#"{"cpu":"5","memory":"1Gi","x.com/y":"1"}"#);
        let expected = (3 * 50 + 10 + 9 * 100) / 13;
        assert_eq!(plugin.score(&whole, &node, &snapshot), expected);
    }
}
