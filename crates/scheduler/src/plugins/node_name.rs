//! A pod that names its node runs there only.

use std::sync::Arc;

use crate::{
    NodeInfo, PodInfo,
    framework::{ClusterEvent, Filter, Plugin, Points},
};

const REASON: &str = "node(s) didn't match the requested node name";

pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            filter: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        matches!(event, ClusterEvent::NodeAdded(node) if matches(pod, node))
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        let wanted = pod.spec().and_then(|spec| spec.node_name.as_deref());
        key.push_str(wanted.unwrap_or_default());
        key.push('\n');
        true
    }
}

impl Filter for NodeName {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String> {
        match matches(pod, node) {
            true => Vec::new(),
            false => vec![REASON.to_owned()],
        }
    }
}

fn matches(pod: &PodInfo, node: &NodeInfo) -> bool {
    let wanted = pod.spec().and_then(|spec| spec.node_name.as_deref());
    wanted.is_none_or(|wanted| wanted.is_empty() || wanted == node.name)
}
