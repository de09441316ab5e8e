//! Whether the pod belongs on this node: operating system, node selector and affinity, host ports,
//! NoExecute taints. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration,
};

use super::Rejection;
use crate::pod_spec::is_static;

const OS_LABEL: &str = "kubernetes.io/os";
const ANY_ADDRESS: &str = "0.0.0.0";

/// Rejections that no preemption could remedy, checked before the rest.
pub(super) fn check_system(pod: &Pod, node: Option<&Node>) -> Vec<Rejection> {
    let labels = pod.metadata.labels.as_ref();
    if labels
        .and_then(|labels| labels.get(OS_LABEL))
        .is_some_and(|os| os != "linux")
    {
        return vec![Rejection::new(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )];
    }
    let os = pod.spec.as_ref().and_then(|spec| spec.os.as_ref());
    if os.is_some_and(|os| os.name != "linux") {
        return vec![Rejection::new(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        )];
    }
    let strict = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref())
        .and_then(|context| context.supplemental_groups_policy.as_deref())
        == Some("Strict");
    let supported = node
        .and_then(|node| node.status.as_ref()?.features.as_ref())
        .is_none_or(|features| features.supplemental_groups_policy == Some(true));
    if strict && !supported {
        return vec![Rejection::new(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        )];
    }
    Vec::new()
}

pub(super) fn check(
    pod: &Pod,
    others: &[&Arc<Pod>],
    node: Option<&Node>,
    node_name: &str,
) -> Vec<Rejection> {
    let mut rejections = Vec::new();
    if node.is_some_and(|node| !matches_node(pod, node)) {
        rejections.push(Rejection::predicate(
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    let wanted = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    if wanted.is_some_and(|wanted| !wanted.is_empty() && wanted != node_name) {
        rejections.push(Rejection::predicate(
            "NodeName",
            "node(s) didn't match the requested node name",
        ));
    }
    let taken: Vec<HostPort> = others.iter().flat_map(|other| host_ports(other)).collect();
    if host_ports(pod)
        .iter()
        .any(|port| taken.iter().any(|other| port.conflicts(other)))
    {
        rejections.push(Rejection::predicate(
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
        ));
    }
    let taints = node
        .and_then(|node| node.spec.as_ref()?.taints.as_deref())
        .unwrap_or_default();
    let untolerated = taints
        .iter()
        .filter(|taint| taint.effect == "NoExecute")
        .any(|taint| !tolerated(pod, taint));
    if untolerated && !is_static(pod) {
        rejections.push(Rejection::predicate(
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
        ));
    }
    rejections
}

pub(super) fn tolerated(pod: &Pod, taint: &Taint) -> bool {
    let spec = pod.spec.as_ref();
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
    let mut tolerations = tolerations.unwrap_or_default().iter();
    tolerations.any(|one| tolerates(one, taint))
}

fn matches_node(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    selected && required.is_none_or(|required| selects(required, node))
}

/// A term without any expression matches nothing.
/// Whether one of the selector's terms is true of the node.
pub fn selects(selector: &NodeSelector, node: &Node) -> bool {
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| matches_term(term, labels, name))
}

fn matches_term(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label =
        |one: &NodeSelectorRequirement| satisfied(one, labels.get(&one.key).map(String::as_str));
    let by_field =
        |one: &NodeSelectorRequirement| one.key == "metadata.name" && satisfied(one, Some(name));
    expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn satisfied(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|one| one == value));
    let compare = |test: fn(&i64, &i64) -> bool| {
        let found = value.and_then(|value| value.parse::<i64>().ok());
        let bound = values.first().and_then(|value| value.parse::<i64>().ok());
        found.zip(bound).is_some_and(|(a, b)| test(&a, &b))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        "Equal" | "" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        _ => false,
    }
}

struct HostPort {
    address: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    fn conflicts(&self, other: &HostPort) -> bool {
        let same_address = self.address == other.address
            || self.address == ANY_ADDRESS
            || other.address == ANY_ADDRESS;
        same_address && self.protocol == other.protocol && self.port == other.port
    }
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| crate::resources::is_sidecar(container));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(HostPort {
                address: port
                    .host_ip
                    .clone()
                    .filter(|address| !address.is_empty())
                    .unwrap_or_else(|| ANY_ADDRESS.to_owned()),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                port: port.host_port.filter(|port| *port > 0)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn reasons(spec: Value, others: &[Value]) -> Vec<String> {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"disk": "ssd", "cpus": "8"}},
            "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"},
                {"key": "soft", "effect": "NoSchedule"}]},
        }))
        .expect("a node");
        let pod = |spec: &Value| -> Arc<Pod> {
            let mut spec = spec.clone();
            if spec.get("containers").is_none() {
                spec["containers"] = json!([]);
            }
            Arc::new(serde_json::from_value(json!({"spec": spec})).expect("a pod"))
        };
        let others: Vec<Arc<Pod>> = others.iter().map(pod).collect();
        let others: Vec<&Arc<Pod>> = others.iter().collect();
        check(&pod(&spec), &others, Some(&node), "n1")
            .into_iter()
            .map(|rejection| rejection.reason)
            .collect()
    }

    const TOLERATED: &str = r#"[{"key": "k", "operator": "Equal", "value": "v"}]"#;

    fn tolerated(mut spec: Value) -> Value {
        spec["tolerations"] = serde_json::from_str(TOLERATED).expect("tolerations");
        spec
    }

    #[test]
    fn selectors_affinity_and_taints_decide() {
        assert_eq!(reasons(json!({}), &[]), ["TaintToleration"]);
        assert!(reasons(tolerated(json!({"nodeSelector": {"disk": "ssd"}})), &[]).is_empty());
        assert_eq!(
            reasons(tolerated(json!({"nodeSelector": {"disk": "hdd"}})), &[]),
            ["NodeAffinity"]
        );
        let affinity = |key: &str, operator: &str, value: &str| {
            tolerated(json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": operator, "values": [value]}]}]}}}}))
        };
        assert!(reasons(affinity("cpus", "Gt", "4"), &[]).is_empty());
        assert_eq!(reasons(affinity("cpus", "Lt", "4"), &[]), ["NodeAffinity"]);
        assert!(reasons(affinity("zone", "NotIn", "a"), &[]).is_empty());
        assert_eq!(
            reasons(tolerated(json!({"nodeName": "n2"})), &[]),
            ["NodeName"]
        );
    }

    #[test]
    fn a_host_port_is_used_by_one_pod() {
        let ports = |address: &str, protocol: &str| {
            tolerated(json!({"containers": [{"name": "c", "ports": [
                {"containerPort": 1, "hostPort": 80, "hostIP": address, "protocol": protocol}]}]}))
        };
        let first = ports("127.0.0.1", "TCP");
        assert_eq!(
            reasons(ports("", "TCP"), std::slice::from_ref(&first)),
            ["NodePorts"]
        );
        assert!(reasons(ports("127.0.0.2", "TCP"), std::slice::from_ref(&first)).is_empty());
        assert!(reasons(ports("127.0.0.1", "UDP"), std::slice::from_ref(&first)).is_empty());
    }
}
