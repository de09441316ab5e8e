//! Questions about a node that every component asks.
//!
//! Upstream decides in `GetNodeCondition` and `IsNodeReady` (`pkg/util/node`, `pkg/api/v1/node`).

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// The node's condition of this type.
pub fn condition<'a>(node: &'a Node, name: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == name)
}

/// Whether the node's condition `Ready` is `True`.
pub fn is_ready(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_ready_when_its_condition_is_true() {
        for (status, expected) in [("True", true), ("False", false), ("Unknown", false)] {
            let node: Node = serde_json::from_value(serde_json::json!({"status": {"conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": status}]}}))
            .expect("a node");
            assert_eq!(is_ready(&node), expected, "{status}");
        }
        assert!(!is_ready(&Node::default()));
    }
}
