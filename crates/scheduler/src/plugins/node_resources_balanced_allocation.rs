//! Nodes score higher where the pod leaves cpu and memory taken in similar shares.

use crate::{
    NodeInfo, PodInfo, Snapshot,
    framework::{MAX_SCORE, NodeScore, Plugin},
};

pub struct NodeResourcesBalancedAllocation;

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        pod.requests.write_shape(key);
        true
    }
}

impl NodeScore for NodeResourcesBalancedAllocation {
    /// A pod that asks for neither changes no balance.
    fn pre_score(&self, pod: &PodInfo) -> bool {
        pod.requests.milli_cpu != 0 || pod.requests.memory != 0
    }

    /// More than 75 if the pod improves the balance, less if it makes it worse.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let (cpu, memory) = (node.requested.milli_cpu, node.requested.memory);
        let asked = &pod.requests;
        let after = balance(cpu + asked.milli_cpu, memory + asked.memory, node);
        let change = after - balance(cpu, memory, node);
        MAX_SCORE / 2 + (MAX_SCORE / 2 + change) / 2
    }
}

/// A hundred less the standard deviation of the shares that are taken.
fn balance(milli_cpu: i64, memory: i64, node: &NodeInfo) -> i64 {
    let share = |requested: i64, allocatable: i64| match allocatable {
        0 => None,
        _ => Some((requested as f64 / allocatable as f64).min(1.0)),
    };
    let cpu = share(milli_cpu, node.allocatable.milli_cpu);
    let memory = share(memory, node.allocatable.memory);
    let deviation = match (cpu, memory) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, pod};

    #[test]
    fn balance_is_better_than_imbalance() {
        let score = |held: &str, asked: &str| {
            let of = |name: &str, requests: &str| {
                let spec = format!(
                    r#"{{"containers":[{{"name":"c","resources":{{"requests":{requests}}}}}]}}"#
                );
                pod(name, &spec)
            };
            let mut info = NodeInfo::new("n1");
            let room = r#"{"allocatable":{"cpu":"10","memory":"10Gi"}}"#;
            info.set_node(node("n1", "{}", room));
            info.add_pod(of("held", held));
            let asking = of("web", asked);
            let plugin = NodeResourcesBalancedAllocation;
            assert_eq!(plugin.pre_score(&asking), asked != "{}");
            plugin.score(&asking, &info, &Snapshot::default())
        };
        assert_eq!(score("{}", r#"{"cpu":"1","memory":"1Gi"}"#), 75);
        // 20 % against nothing: a deviation of 10 %.
        assert_eq!(score("{}", r#"{"cpu":"2"}"#), 70);
        // The pod brings the balance back.
        assert_eq!(score(r#"{"cpu":"2"}"#, r#"{"memory":"2Gi"}"#), 80);
        assert_eq!(score("{}", "{}"), 75);
    }
}
