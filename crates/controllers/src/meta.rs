//! What controllers read from metadata: owners, selectors, readiness.

use std::collections::BTreeMap;

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
    let exact = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    if selector
        .match_labels
        .as_ref()
        .is_none_or(BTreeMap::is_empty)
        && selector
            .match_expressions
            .as_ref()
            .is_none_or(Vec::is_empty)
    {
        return false;
    }
    exact
        .clone()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.clone().all(|expression| {
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
