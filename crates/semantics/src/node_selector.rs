//! Which nodes a node selector, or a pod by its `nodeSelector` and required node affinity, accepts.
//!
//! Upstream decides in package `nodeaffinity` (`k8s.io/component-helpers/scheduling/corev1`):
//! terms are alternatives, requirements within a term must all hold, an empty term matches no node,
//! and a term with a requirement that cannot be read matches no node either. `Gt` and `Lt` take
//! exactly one whole number; `matchFields` takes `In` and `NotIn` with exactly one value, knows
//! `metadata.name`, and reads every other field as the empty text.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
};

/// The only field of a node that `matchFields` knows.
pub const NAME_FIELD: &str = "metadata.name";

type Labels = BTreeMap<String, String>;

/// Whether the pod's `nodeSelector` and required node affinity accept the node
/// (`RequiredNodeAffinity.Match`).
pub fn accepts_pod(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let mut selected = spec.node_selector.iter().flatten();
    let required = required(spec);
    selected.all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        && required.is_none_or(|required| matches(required, node))
}

/// The pod's required node affinity.
pub fn required(spec: &PodSpec) -> Option<&NodeSelector> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()
}

/// Whether one of the selector's terms matches the node (`LazyErrorNodeSelector.Match`).
pub fn matches(selector: &NodeSelector, node: &Node) -> bool {
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| matches_term(term, node))
}

/// Whether one of the selector's terms matches a node of which only the labels count: so a volume
/// chooses its nodes (`CheckNodeAffinity`, package `volume` of component-helpers).
pub fn matches_labels(selector: &NodeSelector, labels: Option<&Labels>) -> bool {
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| matches_parts(term, labels, ""))
}

/// Whether all requirements of the term hold for the node.
pub fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    matches_parts(term, node.metadata.labels.as_ref(), name)
}

fn matches_parts(term: &NodeSelectorTerm, labels: Option<&Labels>, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions.iter().all(|requirement| {
        let value = labels.and_then(|labels| labels.get(&requirement.key));
        label_matches(requirement, value.map(String::as_str))
    }) && fields
        .iter()
        .all(|requirement| field_matches(requirement, name))
}

fn label_matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = |value: &str| values.iter().any(|listed| listed == value);
    let compare = |holds: fn(i64, i64) -> bool| match (value, values) {
        (Some(value), [bound]) => match (value.parse(), bound.parse()) {
            (Ok(value), Ok(bound)) => holds(value, bound),
            _ => false,
        },
        _ => false,
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(is_listed),
        "NotIn" => !values.is_empty() && !value.is_some_and(is_listed),
        "Exists" => values.is_empty() && value.is_some(),
        "DoesNotExist" => values.is_empty() && value.is_none(),
        "Gt" => compare(|value, bound| value > bound),
        "Lt" => compare(|value, bound| value < bound),
        _ => false,
    }
}

/// A node without a name has no fields, and then the requirement need only be readable.
fn field_matches(requirement: &NodeSelectorRequirement, name: &str) -> bool {
    let actual = match requirement.key.as_str() {
        NAME_FIELD => name,
        _ => "",
    };
    match (requirement.operator.as_str(), requirement.values.as_deref()) {
        ("In", Some([value])) => name.is_empty() || value == actual,
        ("NotIn", Some([value])) => name.is_empty() || value != actual,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node() -> Node {
        let labels = json!({"zone": "a", "disk": "ssd", "cores": "8"});
        serde_json::from_value(json!({"metadata": {"name": "n1", "labels": labels}}))
            .expect("a node")
    }

    fn check(terms: Value, expected: bool) {
        let selector: NodeSelector =
            serde_json::from_value(json!({"nodeSelectorTerms": terms})).expect("a selector");
        assert_eq!(matches(&selector, &node()), expected, "{terms}");
    }

    fn label(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    fn field(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchFields": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn each_operator_on_present_and_absent_labels() {
        for (key, operator, values, expected) in [
            ("zone", "In", &["a", "b"][..], true),
            ("zone", "In", &["b"], false),
            ("none", "In", &["a"], false),
            ("zone", "NotIn", &["b"], true),
            ("zone", "NotIn", &["a"], false),
            ("none", "NotIn", &["a"], true),
            ("zone", "Exists", &[], true),
            ("none", "Exists", &[], false),
            ("zone", "DoesNotExist", &[], false),
            ("none", "DoesNotExist", &[], true),
            ("cores", "Gt", &["7"], true),
            ("cores", "Gt", &["8"], false),
            ("cores", "Lt", &["9"], true),
            ("cores", "Lt", &["8"], false),
            ("zone", "Gt", &["1"], false),
            ("none", "Lt", &["1"], false),
        ] {
            check(json!([label(key, operator, values)]), expected);
        }
    }

    #[test]
    fn a_requirement_that_cannot_be_read_makes_its_term_match_nothing() {
        for (key, operator, values) in [
            ("cores", "Gt", &["1", "2"][..]),
            ("cores", "Gt", &[]),
            ("cores", "Lt", &["ten"]),
            ("zone", "In", &[]),
            ("none", "NotIn", &[]),
            ("zone", "Exists", &["a"]),
            ("none", "DoesNotExist", &["a"]),
            ("zone", "Nonsense", &["a"]),
        ] {
            let unreadable = label(key, operator, values);
            check(json!([unreadable]), false);
            // Other terms are still alternatives.
            check(json!([unreadable, label("zone", "In", &["a"])]), true);
        }
    }

    #[test]
    fn fields_take_one_value_and_know_the_name_only() {
        for (key, operator, values, expected) in [
            (NAME_FIELD, "In", &["n1"][..], true),
            (NAME_FIELD, "In", &["n2"], false),
            (NAME_FIELD, "NotIn", &["n2"], true),
            (NAME_FIELD, "NotIn", &["n1"], false),
            (NAME_FIELD, "In", &["n1", "n2"], false),
            (NAME_FIELD, "NotIn", &["n2", "n3"], false),
            (NAME_FIELD, "Exists", &[], false),
            // Any other field reads as the empty text.
            ("spec.podCIDR", "In", &["x"], false),
            ("spec.podCIDR", "NotIn", &["x"], true),
            ("spec.podCIDR", "In", &[""], true),
        ] {
            check(json!([field(key, operator, values)]), expected);
        }
    }

    #[test]
    fn terms_are_alternatives_and_requirements_are_not() {
        let both = json!({"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a"]},
            {"key": "disk", "operator": "In", "values": ["hdd"]}]});
        check(json!([]), false);
        check(json!([{}]), false);
        check(json!([both]), false);
        check(json!([both, label("disk", "Exists", &[])]), true);
    }

    #[test]
    fn a_pod_needs_its_node_selector_and_its_required_affinity() {
        let required = |terms: Value| {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}})
        };
        for (fields, expected) in [
            (json!({}), true),
            (json!({"nodeSelector": {"zone": "a", "disk": "ssd"}}), true),
            (json!({"nodeSelector": {"zone": "a", "disk": "hdd"}}), false),
            (json!({"nodeSelector": {"absent": ""}}), false),
            (
                json!({"affinity": required(json!([label("zone", "In", &["a"])]))}),
                true,
            ),
            (json!({"affinity": required(json!([]))}), false),
            (
                json!({"nodeSelector": {"zone": "b"},
                    "affinity": required(json!([label("zone", "Exists", &[])]))}),
                false,
            ),
        ] {
            let mut spec = fields.clone();
            spec["containers"] = json!([]);
            let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
            assert_eq!(accepts_pod(&spec, &node()), expected, "{fields}");
        }
    }

    #[test]
    fn a_volume_chooses_nodes_by_labels_alone() {
        let selector: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}],
             "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}))
        .expect("a selector");
        let node = node();
        assert!(matches_labels(&selector, node.metadata.labels.as_ref()));
        assert!(!matches_labels(&selector, None));
        assert!(!matches(&selector, &node));
    }
}
