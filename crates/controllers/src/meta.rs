//! What controllers read from metadata: owners, selectors, readiness.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

/// The owner that controls an object.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// Whether the object with `uid` controls this one.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

/// A reference by which `owner` controls another object.
pub fn owner_reference<K: kube::Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Whether a selector matches labels. An empty selector matches nothing here: workloads must
/// select something.
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.match_labels.as_ref();
    let expressions = selector.match_expressions.as_ref();
    let empty = exact.is_none_or(BTreeMap::is_empty) && expressions.is_none_or(Vec::is_empty);
    !empty && selects_or_all(selector, labels)
}

/// Whether a selector matches labels; an empty one matches everything.
pub fn selects_or_all(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut exact = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    exact.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|expression| {
            let value = labels.get(&expression.key);
            let values = expression.values.as_deref().unwrap_or_default();
            match expression.operator.as_str() {
                "In" => value.is_some_and(|value| values.contains(value)),
                "NotIn" => value.is_none_or(|value| !values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// The status of a pod's condition, e.g. `True`.
pub fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == name)
        .map(|condition| condition.status.as_str())
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == Some("True")
}

pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// A pod that counts as a replica: neither ended nor on its way out.
pub fn is_active(pod: &Pod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && pod.metadata.deletion_timestamp.is_none()
}

/// A pod that has ended for good.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Being deleted, but its containers have not ended.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !is_terminal(pod)
}

/// The node a pod is bound to, or nothing.
pub fn node_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .unwrap_or_default()
}

/// Since when a ready pod has been ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")?
        .last_transition_time
        .as_ref()
        .map(|time| time.0)
}

/// Ready, and for at least `min_ready_seconds`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod)
        && (min_ready_seconds <= 0
            || ready_since(pod).is_some_and(|since| {
                since.as_second() + i64::from(min_ready_seconds) <= now.as_second()
            }))
}

/// When the next of these ready pods will have become available by waiting, if one will.
pub fn next_availability<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    pods.filter(|pod| is_ready(pod))
        .filter_map(ready_since)
        .map(|since| since.as_second() + i64::from(min_ready_seconds) - now.as_second())
        .filter(|seconds| *seconds > 0)
        .min()
        .map(|seconds| Duration::from_secs(seconds as u64))
}

pub fn label<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(name).map(String::as_str)
}

pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Seconds since the epoch; 0 for an object that was never stored.
pub fn created(meta: &ObjectMeta) -> i64 {
    let created = meta.creation_timestamp.as_ref();
    created.map_or(0, |time| time.0.as_second())
}

/// What the server said, without the client's framing.
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_their_operators_say() {
        let labels: BTreeMap<String, String> = [("app".to_string(), "web".to_string())].into();
        let check = |selector: serde_json::Value, expected: bool| {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(selects(&selector, &labels), expected, "{selector:?}");
        };
        check(serde_json::json!({}), false);
        check(serde_json::json!({"matchLabels": {"app": "web"}}), true);
        check(serde_json::json!({"matchLabels": {"app": "db"}}), false);
        for (operator, values, expected) in [
            ("In", vec!["web", "db"], true),
            ("NotIn", vec!["web"], false),
            ("Exists", vec![], true),
            ("DoesNotExist", vec![], false),
        ] {
            check(
                serde_json::json!({"matchExpressions": [
                    {"key": "app", "operator": operator, "values": values}
                ]}),
                expected,
            );
        }
    }
}
