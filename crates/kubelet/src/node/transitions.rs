//! The events about the node: when its conditions change, when it is cordoned, and when the machine was
//! rebooted. Pure.

use client::events::Severity;
use k8s_openapi::api::core::v1::NodeStatus;

/// Conditions with the reasons of the events for `True` and for anything else.
const REASONS: [(&str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "NodeHasInsufficientMemory",
        "NodeHasSufficientMemory",
    ),
    (
        "DiskPressure",
        "NodeHasDiskPressure",
        "NodeHasNoDiskPressure",
    ),
    (
        "PIDPressure",
        "NodeHasInsufficientPID",
        "NodeHasSufficientPID",
    ),
    ("Ready", "NodeReady", "NodeNotReady"),
];

/// One event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
}

impl NodeEvent {
    fn status(name: &str, reason: &'static str) -> NodeEvent {
        NodeEvent {
            severity: Severity::Normal,
            reason,
            message: format!("Node {name} status is now: {reason}"),
        }
    }
}

/// The events for the change from `before` to `now`.
pub fn between(name: &str, before: Option<&NodeStatus>, now: &NodeStatus) -> Vec<NodeEvent> {
    let condition = |status: &NodeStatus, type_: &str| {
        let mut conditions = status.conditions.iter().flatten();
        let found = conditions.find(|condition| condition.type_ == type_);
        found.map(|condition| condition.status.clone())
    };
    let boot = |status: &NodeStatus| status.node_info.as_ref().map(|info| info.boot_id.clone());
    let (old, new) = (before.and_then(boot), boot(now).unwrap_or_default());
    let rebooted = old.filter(|old| !old.is_empty() && *old != new);
    let rebooted = rebooted.map(|_| NodeEvent {
        severity: Severity::Warning,
        reason: "Rebooted",
        message: format!("Node {name} has been rebooted, boot id: {new}"),
    });
    let changed = REASONS.into_iter().filter_map(|(type_, yes, no)| {
        let status = condition(now, type_)?;
        let same = before.and_then(|before| condition(before, type_)).as_ref() == Some(&status);
        let reason = if status == "True" { yes } else { no };
        (!same).then(|| NodeEvent::status(name, reason))
    });
    rebooted.into_iter().chain(changed).collect()
}

/// The event for a node that was cordoned or uncordoned.
pub fn cordon(name: &str, unschedulable: bool) -> NodeEvent {
    let reason = match unschedulable {
        true => "NodeNotSchedulable",
        false => "NodeSchedulable",
    };
    NodeEvent::status(name, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(boot: &str, ready: &str) -> NodeStatus {
        serde_json::from_value(serde_json::json!({
            "conditions": [{"type": "Ready", "status": ready},
                {"type": "DiskPressure", "status": "False"}],
            "nodeInfo": {"architecture": "", "bootID": boot, "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": ""},
        }))
        .expect("a status")
    }

    #[test]
    fn each_change_of_the_node_becomes_one_event() {
        let reasons = |before: Option<&NodeStatus>, now: &NodeStatus| -> Vec<&str> {
            let events = between("n", before, now);
            events.into_iter().map(|event| event.reason).collect()
        };
        let first = status("1", "True");
        assert_eq!(
            reasons(None, &first),
            ["NodeHasNoDiskPressure", "NodeReady"]
        );
        assert!(reasons(Some(&first), &first).is_empty());
        let later = status("2", "False");
        assert_eq!(reasons(Some(&first), &later), ["Rebooted", "NodeNotReady"]);
        let events = between("n", Some(&first), &later);
        assert_eq!(events[0].message, "Node n has been rebooted, boot id: 2");
        assert_eq!(events[1].message, "Node n status is now: NodeNotReady");
        assert_eq!(cordon("n", true).reason, "NodeNotSchedulable");
    }
}
