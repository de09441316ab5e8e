//! Nodes score higher where the pod leaves cpu and memory taken in similar shares.

use std::sync::Arc;

use super::node_resources_fit::is_usual;
use crate::{
    NodeInfo, PodInfo, Snapshot,
    configuration::BalancedAllocationArguments,
    framework::{MAX_SCORE, NodeScore, Plugin, Points, PreScore},
};

/// By default of cpu and memory.
pub struct NodeResourcesBalancedAllocation {
    resources: Vec<String>,
}

impl Default for NodeResourcesBalancedAllocation {
    fn default() -> NodeResourcesBalancedAllocation {
        NodeResourcesBalancedAllocation::new(BalancedAllocationArguments::default())
    }
}

impl NodeResourcesBalancedAllocation {
    pub fn new(arguments: BalancedAllocationArguments) -> NodeResourcesBalancedAllocation {
        let resources = arguments.resources.into_iter();
        NodeResourcesBalancedAllocation {
            resources: resources.map(|resource| resource.name).collect(),
        }
    }

    /// A hundred less the standard deviation of the shares that are taken.
    fn balance(&self, pod: &PodInfo, node: &NodeInfo, with_pod: bool) -> i64 {
        let shares = self.resources.iter().filter_map(|name| {
            let (asked, capacity) = (pod.requests.get(name), node.allocatable.get(name));
            if capacity == 0 || (!is_usual(name) && asked == 0) {
                return None;
            }
            let taken = node.requested.get(name) + if with_pod { asked } else { 0 };
            Some((taken as f64 / capacity as f64).min(1.0))
        });
        let shares: Vec<f64> = shares.collect();
        let deviation = match shares.as_slice() {
            [] | [_] => 0.0,
            // Half the distance: simpler, and not off by a rounding error.
            [one, other] => ((one - other) / 2.0).abs(),
            several => {
                let count = several.len() as f64;
                let mean = several.iter().sum::<f64>() / count;
                let squares = several.iter().map(|share| (share - mean) * (share - mean));
                (squares.sum::<f64>() / count).sqrt()
            }
        };
        ((1.0 - deviation) * MAX_SCORE as f64) as i64
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            pre_score: Some(self.clone()),
            score: Some(self),
            ..Points::default()
        }
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        pod.requests.write_shape(key);
        true
    }
}

impl PreScore for NodeResourcesBalancedAllocation {
    /// A pod that asks for none of them changes no balance.
    fn pre_score(&self, pod: &PodInfo, _: &Snapshot) -> bool {
        let mut resources = self.resources.iter();
        resources.any(|name| pod.requests.get(name) != 0)
    }
}

impl NodeScore for NodeResourcesBalancedAllocation {
    /// More than 75 if the pod improves the balance, less if it makes it worse.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let change = self.balance(pod, node, true) - self.balance(pod, node, false);
        MAX_SCORE / 2 + (MAX_SCORE / 2 + change) / 2
    }
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
            let plugin = NodeResourcesBalancedAllocation::default();
            let says = plugin.pre_score(&asking, &Snapshot::default());
            assert_eq!(says, asked != "{}");
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
