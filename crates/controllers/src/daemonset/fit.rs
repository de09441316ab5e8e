//! Whether a daemon pod belongs on a node: name, required affinity, taints. Pure.

use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
    PodSpec, Toleration,
};
use semantics::{
    node_selector::{NAME_FIELD, accepts_pod},
    toleration::any_tolerates,
};

/// Whether the pods of a DaemonSet belong on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A pod should run there.
    Run,
    /// No new pod, but one that runs may stay.
    Stay,
    Leave,
}

/// `spec` is the template's, with the tolerations every daemon pod gets.
pub fn fit(spec: &PodSpec, node: &Node) -> Fit {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let assigned = spec.node_name.as_deref().unwrap_or_default();
    if !(assigned.is_empty() || assigned == name) || !accepts_pod(spec, node) {
        return Fit::Leave;
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let untolerated = |effect: &str| {
        taints
            .unwrap_or_default()
            .iter()
            .any(|taint| taint.effect == effect && !any_tolerates(tolerations, taint))
    };
    match (untolerated("NoExecute"), untolerated("NoSchedule")) {
        (true, _) => Fit::Leave,
        (false, true) => Fit::Stay,
        (false, false) => Fit::Run,
    }
}

/// The tolerations of every daemon pod: it serves its node also when that node is in trouble.
pub fn add_tolerations(spec: &mut PodSpec) {
    let mut keys = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    if spec.host_network == Some(true) {
        keys.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    let tolerations = spec.tolerations.get_or_insert_default();
    for (key, effect) in keys {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let same = tolerations.iter().position(|one| {
            (&one.key, &one.effect, &one.operator, &one.value)
                == (
                    &toleration.key,
                    &toleration.effect,
                    &toleration.operator,
                    &toleration.value,
                )
        });
        match same {
            Some(index) => tolerations[index] = toleration,
            None => tolerations.push(toleration),
        }
    }
}

/// Binds a pod to its node by affinity; the scheduler does the rest.
pub fn pin(spec: &mut PodSpec, node: &str) {
    let field = NodeSelectorRequirement {
        key: NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let node_affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    let required = &mut node_affinity.required_during_scheduling_ignored_during_execution;
    let required: &mut NodeSelector = required.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_fields = Some(vec![field.clone()]);
    }
}

/// The node a daemon pod is for, also before it is bound.
pub fn target(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|name| !name.is_empty()) {
        return Some(node);
    }
    let required = spec
        .affinity
        .as_ref()?
        .node_affinity
        .as_ref()?
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten())
        .find(|field| field.key == NAME_FIELD && field.operator == "In")
        .and_then(|field| match field.values.as_deref() {
            Some([node]) => Some(node.as_str()),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: serde_json::Value, taints: serde_json::Value) -> Node {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a", "labels": labels}, "spec": {"taints": taints},
        }))
        .unwrap()
    }

    fn spec(fields: serde_json::Value) -> PodSpec {
        let mut object = serde_json::json!({"containers": []});
        object
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let mut spec: PodSpec = serde_json::from_value(object).unwrap();
        add_tolerations(&mut spec);
        spec
    }

    #[test]
    fn taints_keep_new_pods_off_a_node_or_evict_running_ones() {
        let none = serde_json::json!({});
        for (taints, tolerations, expected) in [
            (serde_json::json!([]), serde_json::json!([]), Fit::Run),
            (
                serde_json::json!([{"key": "k", "effect": "NoSchedule"}]),
                serde_json::json!([]),
                Fit::Stay,
            ),
            (
                serde_json::json!([{"key": "k", "effect": "NoExecute"}]),
                serde_json::json!([]),
                Fit::Leave,
            ),
            (
                serde_json::json!([{"key": "k", "value": "v", "effect": "NoExecute"}]),
                serde_json::json!([{"key": "k", "value": "v"}]),
                Fit::Run,
            ),
            (
                serde_json::json!([{"key": "k", "effect": "NoExecute"}]),
                serde_json::json!([{"operator": "Exists"}]),
                Fit::Run,
            ),
            // Without a key the value alone decides.
            (
                serde_json::json!([{"key": "k", "value": "v", "effect": "NoExecute"}]),
                serde_json::json!([{"operator": "Equal", "value": "v"}]),
                Fit::Run,
            ),
            (
                serde_json::json!([
                    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                ]),
                serde_json::json!([]),
                Fit::Run,
            ),
            (
                serde_json::json!([{"key": "k", "effect": "PreferNoSchedule"}]),
                serde_json::json!([]),
                Fit::Run,
            ),
        ] {
            let spec = spec(serde_json::json!({"tolerations": tolerations}));
            assert_eq!(
                fit(&spec, &node(none.clone(), taints.clone())),
                expected,
                "{taints}"
            );
        }
    }

    #[test]
    fn selector_and_required_affinity_must_both_match() {
        let big = node(
            serde_json::json!({"size": "9", "zone": "z1"}),
            serde_json::json!([]),
        );
        let affinity = |operator: &str, values: &[&str]| {
            serde_json::json!({"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "size", "operator": operator, "values": values}]},
                ]},
            }})
        };
        for (fields, expected) in [
            (
                serde_json::json!({"nodeSelector": {"zone": "z1"}}),
                Fit::Run,
            ),
            (
                serde_json::json!({"nodeSelector": {"zone": "z2"}}),
                Fit::Leave,
            ),
            (
                serde_json::json!({"affinity": affinity("Gt", &["8"])}),
                Fit::Run,
            ),
            (
                serde_json::json!({"affinity": affinity("Gt", &["9"])}),
                Fit::Leave,
            ),
            (
                serde_json::json!({"affinity": affinity("Lt", &["10"])}),
                Fit::Run,
            ),
            (
                serde_json::json!({"affinity": affinity("NotIn", &["9"])}),
                Fit::Leave,
            ),
            (serde_json::json!({"nodeName": "b"}), Fit::Leave),
        ] {
            assert_eq!(fit(&spec(fields.clone()), &big), expected, "{fields}");
        }
    }

    #[test]
    fn a_pinned_pod_names_its_node() {
        let mut spec = spec(serde_json::json!({}));
        pin(&mut spec, "b");
        let pod = Pod {
            spec: Some(spec.clone()),
            ..Pod::default()
        };
        assert_eq!(target(&pod), Some("b"));
        let a = node(serde_json::json!({}), serde_json::json!([]));
        assert_eq!(fit(&spec, &a), Fit::Leave);
    }
}
