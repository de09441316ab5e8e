//! A pod fits where what it asks for is left; among those, emptier nodes score higher.

use k8s_openapi::api::core::v1::Node;

use crate::{
    NodeInfo, PodInfo, Resources, Snapshot,
    framework::{ClusterEvent, Filter, MAX_SCORE, NodeScore, Plugin},
};

pub struct NodeResourcesFit;

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            // A node on which the pod would not fit even empty cannot help.
            ClusterEvent::NodeAdded(node) => fits_when_empty(pod, node),
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
                has_grown(&before, new) && fits_when_empty(pod, new)
            }
            // On the other nodes nothing has changed.
            ClusterEvent::PodRemoved { node, .. } => node.is_none_or(|node| fits(pod, node)),
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
        short_of(&pod.requests, &node.allocatable, &Resources::default()).is_empty()
    }

    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String> {
        let mut reasons = Vec::new();
        if node.pods.len() as i64 + 1 > node.allowed_pods {
            reasons.push("Too many pods".to_owned());
        }
        reasons.extend(
            short_of(&pod.requests, &node.allocatable, &node.requested)
                .into_iter()
                .map(|name| format!("Insufficient {name}")),
        );
        reasons
    }
}

impl NodeScore for NodeResourcesFit {
    /// The mean share of cpu and memory that would stay free, in hundredths.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let (asked, held) = (&pod.requests_for_score, &node.requested_for_score);
        let shares = [
            (asked.milli_cpu + held.milli_cpu, node.allocatable.milli_cpu),
            (asked.memory + held.memory, node.allocatable.memory),
        ];
        let shares = shares.into_iter().filter(|(_, capacity)| *capacity > 0);
        let (sum, count) = shares.fold((0, 0), |(sum, count), (taken, capacity)| {
            (sum + free_share(taken, capacity), count + 1)
        });
        if count == 0 { 0 } else { sum / count }
    }
}

fn free_share(taken: i64, capacity: i64) -> i64 {
    if taken > capacity {
        return 0;
    }
    // In 128 bits: a hundred times the bytes of a large machine.
    (i128::from(capacity - taken) * i128::from(MAX_SCORE) / i128::from(capacity)) as i64
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

fn fits(pod: &PodInfo, node: &NodeInfo) -> bool {
    (node.pods.len() as i64) < node.allowed_pods
        && short_of(&pod.requests, &node.allocatable, &node.requested).is_empty()
}

fn fits_when_empty(pod: &PodInfo, node: &NodeInfo) -> bool {
    node.allowed_pods > 0
        && short_of(&pod.requests, &node.allocatable, &Resources::default()).is_empty()
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
        let reasons = NodeResourcesFit.filter(&asking(asked), &info);
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
            NodeResourcesFit.score(&asking(r#"{"cpu":"1","memory":"1Gi"}"#), &info, &snapshot)
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
            NodeResourcesFit.may_help(&event, &pod)
        };
        let cpu = |cpu: u32| format!(r#"{{"cpu":"{cpu}","pods":"9"}}"#);
        assert!(change(&cpu(1), &cpu(2)));
        assert!(!change(&cpu(2), &cpu(2)));
        assert!(!change(&cpu(3), &cpu(2)));
        assert!(!change(&cpu(0), &cpu(1)));
        assert!(NodeResourcesFit.may_help(&ClusterEvent::NodeAdded(&info(&cpu(2))), &pod));
        assert!(!NodeResourcesFit.may_help(&ClusterEvent::NodeAdded(&info(&cpu(1))), &pod));
    }
}
