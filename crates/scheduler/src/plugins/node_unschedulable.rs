//! A cordoned node takes only pods that tolerate its being unschedulable.

use std::sync::Arc;

use semantics::toleration::tolerates_parts;

use super::taint_toleration::write_tolerations;
use crate::{
    NodeInfo, PodInfo,
    framework::{ClusterEvent, Filter, Plugin, Points},
};

const REASON: &str = "node(s) were unschedulable";

pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            filter: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => passes(pod, node),
            ClusterEvent::NodeChanged { old, new } => {
                let spec = old.spec.as_ref();
                let was = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
                was && passes(pod, new)
            }
            _ => false,
        }
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        write_tolerations(pod, key);
        true
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String> {
        match passes(pod, node) {
            true => Vec::new(),
            false => vec![REASON.to_owned()],
        }
    }
}

/// The taint that a cordoned node is taken to have.
const TAINT: (&str, &str) = ("node.kubernetes.io/unschedulable", "NoSchedule");

fn passes(pod: &PodInfo, node: &NodeInfo) -> bool {
    let mut tolerations = pod.tolerations().iter();
    !node.is_unschedulable() || tolerations.any(|one| tolerates_parts(one, TAINT.0, "", TAINT.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, pod};

    #[test]
    fn a_cordoned_node_wants_the_toleration() {
        let check = |cordoned: bool, tolerations: &str, expected: bool| {
            let mut info = NodeInfo::new("n1");
            let spec = format!(r#"{{"unschedulable":{cordoned}}}"#);
            info.set_node(node("n1", &spec, "{}"));
            let pod = pod(
                "web",
                &format!(r#"{{"containers":[],"tolerations":{tolerations}}}"#),
            );
            let passes = NodeUnschedulable.filter(&pod, &info).is_empty();
            assert_eq!(passes, expected, "{cordoned} {tolerations}");
        };
        check(false, "[]", true);
        check(true, "[]", false);
        check(true, r#"[{"operator":"Exists"}]"#, true);
        let toleration = r#"[{"key":"node.kubernetes.io/unschedulable","operator":"Exists","effect":"NoSchedule"}]"#;
        check(true, toleration, true);
        check(true, &toleration.replace("NoSchedule", "NoExecute"), false);
    }
}
