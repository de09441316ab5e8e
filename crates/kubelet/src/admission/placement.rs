//! Whether the pod belongs on this node: operating system, node selector and affinity, host ports,
//! NoExecute taints. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use semantics::{
    host_port::{HostPort, host_ports},
    node_selector::accepts_pod,
    toleration::any_tolerates,
};

use super::Rejection;
use crate::pod_spec::is_static;

const OS_LABEL: &str = "kubernetes.io/os";

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
    let spec = pod.spec.as_ref();
    if let (Some(spec), Some(node)) = (spec, node)
        && !accepts_pod(spec, node)
    {
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
    let ports = |pod: &Pod| pod.spec.as_ref().map(host_ports).unwrap_or_default();
    let taken: Vec<HostPort> = others.iter().flat_map(|other| ports(other)).collect();
    if ports(pod)
        .iter()
        .any(|port| taken.iter().any(|other| port.conflicts_with(other)))
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
    any_tolerates(tolerations.unwrap_or_default(), taint)
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
        let keyless = json!({"tolerations": [{"operator": "Equal", "value": "v"}]});
        assert!(reasons(keyless, &[]).is_empty());
        let several = tolerated(json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "cpus", "operator": "Gt", "values": ["4", "5"]}]}]}}}}));
        assert_eq!(reasons(several, &[]), ["NodeAffinity"]);
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
