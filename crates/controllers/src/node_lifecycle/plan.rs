//! Which taints and conditions a node should have. Pure.

use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::meta;

pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// A condition and its status that keep new pods away, with the taint that does it.
const REPELLENT: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    (
        "MemoryPressure",
        "True",
        "node.kubernetes.io/memory-pressure",
    ),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    (
        "NetworkUnavailable",
        "True",
        "node.kubernetes.io/network-unavailable",
    ),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// The conditions that a kubelet reports; they become Unknown when it stops reporting.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The taint that drives pods away from a node of this readiness; none from one that has not said
/// anything yet.
pub fn expelling(ready: Option<&str>) -> Option<&'static str> {
    match ready {
        Some("Unknown") => Some(UNREACHABLE),
        Some("False") => Some(NOT_READY),
        _ => None,
    }
}

/// Whether pods are already evicted, for any of our reasons.
pub fn is_expelling(node: &Node) -> bool {
    taints(node).iter().any(|taint| {
        taint.effect == NO_EXECUTE && [NOT_READY, UNREACHABLE].contains(&taint.key.as_str())
    })
}

/// All taints of the node as they should be: foreign ones stay. `expel` drives pods away if
/// readiness asks for it; a node that is well again is freed in any case, and who leaves one that
/// says nothing stays as it was decided.
pub fn wanted_taints(node: &Node, expel: bool, now: &Time) -> Vec<Taint> {
    let ready = ready_status(node);
    let mut repelling: Vec<&str> = REPELLENT
        .iter()
        .filter(|(kind, status, _)| {
            condition(node, kind).is_some_and(|condition| condition.status == *status)
        })
        .map(|(_, _, taint)| *taint)
        .collect();
    if node
        .spec
        .as_ref()
        .is_some_and(|spec| spec.unschedulable == Some(true))
    {
        repelling.push(UNSCHEDULABLE);
    }
    let expelling = expelling(ready).filter(|_| expel);
    let ours = |taint: &Taint| match taint.effect.as_str() {
        NO_SCHEDULE => {
            taint.key == UNSCHEDULABLE || REPELLENT.iter().any(|(_, _, key)| *key == taint.key)
        }
        NO_EXECUTE => [NOT_READY, UNREACHABLE].contains(&taint.key.as_str()),
        _ => false,
    };
    let right = |taint: &Taint| match taint.effect.as_str() {
        NO_SCHEDULE => repelling.contains(&taint.key.as_str()),
        _ => ready.is_none() || expelling == Some(taint.key.as_str()),
    };
    let mut wanted: Vec<Taint> = taints(node)
        .iter()
        .filter(|taint| !ours(taint) || right(taint))
        .cloned()
        .collect();
    let missing = repelling
        .iter()
        .map(|key| (*key, NO_SCHEDULE))
        .chain(expelling.map(|key| (key, NO_EXECUTE)));
    for (key, effect) in missing {
        if !wanted
            .iter()
            .any(|taint| taint.key == key && taint.effect == effect)
        {
            wanted.push(Taint {
                key: key.to_string(),
                effect: effect.to_string(),
                time_added: Some(now.clone()),
                ..Taint::default()
            });
        }
    }
    wanted
}

/// The conditions of a node that has fallen silent.
pub fn unknown_conditions(node: &Node, now: &Time) -> Vec<NodeCondition> {
    let status = node.status.as_ref();
    let mut conditions = status
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    for kind in REPORTED {
        match conditions
            .iter_mut()
            .find(|condition| condition.type_ == kind)
        {
            Some(condition) if condition.status == "Unknown" => {}
            Some(condition) => {
                condition.status = "Unknown".to_string();
                condition.reason = Some("NodeStatusUnknown".to_string());
                condition.message = Some("Kubelet stopped posting node status.".to_string());
                condition.last_transition_time = Some(now.clone());
            }
            None => conditions.push(NodeCondition {
                type_: kind.to_string(),
                status: "Unknown".to_string(),
                reason: Some("NodeStatusNeverUpdated".to_string()),
                message: Some("Kubelet never posted node status.".to_string()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(now.clone()),
            }),
        }
    }
    conditions
}

pub fn taints(node: &Node) -> &[Taint] {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default()
}

pub fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// `True`, `False` or `Unknown`; nothing while the node has not said anything.
pub fn ready_status(node: &Node) -> Option<&str> {
    condition(node, "Ready").map(|condition| condition.status.as_str())
}

/// Whether the pod's status says that it is ready although its node is lost, so that it is not updated. A
/// node that is not ready by its own word still has a kubelet that speaks for its pods.
pub fn is_unspoken_for(node: &Node, pod: &Pod) -> bool {
    ready_status(node) == Some("Unknown")
        && Some(meta::node_name(pod)) == node.metadata.name.as_deref()
        && semantics::pod::is_ready(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: serde_json::Value, conditions: &[(&str, &str)], cordoned: bool) -> Node {
        let conditions: Vec<serde_json::Value> = conditions
            .iter()
            .map(|(kind, status)| serde_json::json!({"type": kind, "status": status}))
            .collect();
        serde_json::from_value(serde_json::json!({
            "spec": {"taints": taints, "unschedulable": cordoned},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn names(taints: &[Taint]) -> Vec<String> {
        let each = taints.iter();
        each.map(|taint| {
            let key = taint.key.trim_start_matches("node.kubernetes.io/");
            format!("{key}:{}", taint.effect)
        })
        .collect()
    }

    fn now() -> Time {
        Time(jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn taints_follow_conditions_and_foreign_ones_stay() {
        let foreign = serde_json::json!([{"key": "dedicated", "effect": "NoSchedule"}]);
        let lost = node(
            foreign.clone(),
            &[("Ready", "Unknown"), ("DiskPressure", "True")],
            true,
        );
        let wanted = wanted_taints(&lost, true, &now());
        assert_eq!(
            names(&wanted),
            [
                "dedicated:NoSchedule",
                "unreachable:NoSchedule",
                "disk-pressure:NoSchedule",
                "unschedulable:NoSchedule",
                "unreachable:NoExecute"
            ]
        );
        let mut well = node(foreign, &[("Ready", "True")], false);
        well.spec.as_mut().unwrap().taints = Some(wanted);
        assert_eq!(
            names(&wanted_taints(&well, false, &now())),
            ["dedicated:NoSchedule"]
        );
    }

    #[test]
    fn pods_are_evicted_only_when_allowed_but_reasons_may_change() {
        let lost = node(serde_json::json!([]), &[("Ready", "Unknown")], false);
        assert_eq!(
            names(&wanted_taints(&lost, false, &now())),
            ["unreachable:NoSchedule"]
        );
        let before = serde_json::json!([
            {"key": NOT_READY, "effect": "NoSchedule"}, {"key": NOT_READY, "effect": "NoExecute"}]);
        let changed = node(before, &[("Ready", "Unknown")], false);
        assert_eq!(
            names(&wanted_taints(&changed, true, &now())),
            ["unreachable:NoSchedule", "unreachable:NoExecute"]
        );
        assert_eq!(
            names(&wanted_taints(&changed, false, &now())),
            ["unreachable:NoSchedule"]
        );
    }

    #[test]
    fn a_node_that_says_nothing_is_left_as_it_is() {
        let before = serde_json::json!([
            {"key": NOT_READY, "effect": "NoSchedule"}, {"key": NOT_READY, "effect": "NoExecute"}]);
        let new = node(serde_json::json!([]), &[("DiskPressure", "False")], false);
        assert_eq!(ready_status(&new), None);
        assert_eq!(expelling(ready_status(&new)), None);
        assert!(wanted_taints(&new, true, &now()).is_empty());
        let tainted = node(before, &[], false);
        assert_eq!(
            names(&wanted_taints(&tainted, false, &now())),
            ["not-ready:NoExecute"]
        );
    }

    #[test]
    fn only_pods_of_a_lost_node_are_marked_not_ready() {
        let pod = |node: &str, ready: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "spec": {"nodeName": node, "containers": []},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let with = |status: &str| {
            let mut node = node(serde_json::json!([]), &[("Ready", status)], false);
            node.metadata.name = Some("n".to_string());
            node
        };
        for (status, expected) in [("True", false), ("False", false), ("Unknown", true)] {
            assert_eq!(
                is_unspoken_for(&with(status), &pod("n", "True")),
                expected,
                "{status}"
            );
        }
        assert!(!is_unspoken_for(&with("Unknown"), &pod("n", "False")));
        assert!(!is_unspoken_for(&with("Unknown"), &pod("other", "True")));
    }

    #[test]
    fn a_silent_node_is_unknown_in_all_that_it_reported() {
        let silent = node(
            serde_json::json!([]),
            &[("Ready", "True"), ("Custom", "True")],
            false,
        );
        let conditions = unknown_conditions(&silent, &now());
        let status = |kind: &str| {
            let found = conditions.iter().find(|condition| condition.type_ == kind);
            found.map(|condition| (condition.status.as_str(), condition.reason.as_deref()))
        };
        assert_eq!(
            status("Ready"),
            Some(("Unknown", Some("NodeStatusUnknown")))
        );
        assert_eq!(status("Custom"), Some(("True", None)));
        assert_eq!(
            status("PIDPressure"),
            Some(("Unknown", Some("NodeStatusNeverUpdated")))
        );
    }
}
