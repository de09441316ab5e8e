//! How long a pod may stay on a node with these taints. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use semantics::toleration::tolerates;

#[derive(Debug, PartialEq, Eq)]
pub enum Stay {
    /// No taint asks it to go, or it bears them for ever.
    Unlimited,
    /// It must go at this second (of the epoch), which may be past.
    Until(i64),
}

/// `first_seen` is when we first saw the pod under its taints.
pub fn stay(pod: &Pod, node: &Node, first_seen: Timestamp) -> Stay {
    let taints: Vec<&Taint> = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .filter(|taint| taint.effect == "NoExecute")
        .collect();
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    let mut until: Option<i64> = None;
    for taint in taints {
        let Some(toleration) = tolerations
            .iter()
            .find(|toleration| tolerates(toleration, taint))
        else {
            return Stay::Until(i64::MIN);
        };
        if let Some(seconds) = toleration.toleration_seconds {
            // A controller that takes over counts from when the taint came, not from its start.
            let added = taint.time_added.as_ref().map(|time| time.0);
            let since = added.map_or(first_seen, |added| added.min(first_seen));
            let end = since.as_second().saturating_add(seconds.max(0));
            until = Some(until.map_or(end, |until| until.min(end)));
        }
    }
    until.map_or(Stay::Unlimited, Stay::Until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(taints: serde_json::Value, tolerations: serde_json::Value, expected: Stay) {
        let node: Node =
            serde_json::from_value(serde_json::json!({"spec": {"taints": taints}})).unwrap();
        let pod: Pod = serde_json::from_value(
            serde_json::json!({"spec": {"containers": [], "tolerations": tolerations}}),
        )
        .unwrap();
        let seen = Timestamp::from_second(1000).unwrap();
        assert_eq!(stay(&pod, &node, seen), expected, "{node:?} {pod:?}");
    }

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_every_taint() {
        let taint = serde_json::json!([{"key": "k", "value": "v", "effect": "NoExecute"}]);
        let none = serde_json::json!([]);
        check(none.clone(), none.clone(), Stay::Unlimited);
        check(taint.clone(), none.clone(), Stay::Until(i64::MIN));
        let harmless = serde_json::json!([{"key": "k", "effect": "NoSchedule"}]);
        check(harmless, none, Stay::Unlimited);
        let forever = serde_json::json!([{"key": "k", "value": "v", "effect": "NoExecute"}]);
        check(taint.clone(), forever, Stay::Unlimited);
        let keyless = serde_json::json!([{"operator": "Equal", "value": "v"}]);
        check(taint.clone(), keyless, Stay::Unlimited);
        let other = serde_json::json!([{"key": "k", "value": "w"}]);
        check(taint.clone(), other, Stay::Until(i64::MIN));
        let all = serde_json::json!([{"operator": "Exists", "tolerationSeconds": 5}]);
        check(taint.clone(), all, Stay::Until(1005));
        let several = serde_json::json!([
            {"key": "k", "operator": "Exists", "tolerationSeconds": 60},
            {"key": "l", "operator": "Exists", "tolerationSeconds": 30}]);
        let two = serde_json::json!([
            {"key": "k", "effect": "NoExecute", "timeAdded": "1970-01-01T00:10:00Z"},
            {"key": "l", "effect": "NoExecute"}]);
        check(two, several, Stay::Until(660));
    }
}
