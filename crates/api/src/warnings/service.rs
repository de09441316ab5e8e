//! Words about services, their endpoints and network policies.

use super::address::{address, range};
use crate::document::Value;
use crate::field::Path;

pub(super) fn check(service: &Value, warnings: &mut Vec<String>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let spec = Path::new("spec");
    let text = |field: &str| service.str_at(&["spec", field]);
    if service.has(&["metadata", "annotations", HINTS]) {
        warnings.push(format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    if !matches!(text("clusterIP"), "" | "None") {
        for (index, ip) in service.list_at(&["spec", "clusterIPs"]).iter().enumerate() {
            let at = spec.child("clusterIPs").index(index);
            address(ip.as_str().unwrap_or_default(), &at, warnings);
        }
    }
    let external = service.list_at(&["spec", "externalIPs"]);
    let headless = text("type") == "ClusterIP" && text("clusterIP") == "None";
    if headless {
        let ignored = |field: &str| format!("spec.{field} is ignored for headless services");
        if !text("loadBalancerIP").is_empty() {
            warnings.push(ignored("loadBalancerIP"));
        }
        if !external.is_empty() {
            warnings.push(ignored("externalIPs"));
        }
        if text("sessionAffinity") != "None" {
            warnings.push(ignored("SessionAffinity"));
        }
    }
    for (index, ip) in external.iter().enumerate() {
        let at = spec.child("externalIPs").index(index);
        address(ip.as_str().unwrap_or_default(), &at, warnings);
    }
    let by_name = text("type") == "ExternalName";
    if !external.is_empty() && !headless && !by_name {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_string(),
        );
    }
    address(
        text("loadBalancerIP"),
        &spec.child("loadBalancerIP"),
        warnings,
    );
    let ranges = service.list_at(&["spec", "loadBalancerSourceRanges"]);
    for (index, one) in ranges.iter().enumerate() {
        let at = spec.child("loadBalancerSourceRanges").index(index);
        range(one.as_str().unwrap_or_default(), &at, warnings);
    }
    if by_name && !external.is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_string());
    }
    if !by_name && !text("externalName").is_empty() {
        warnings.push(
            "spec.externalName is ignored when spec.type is not \"ExternalName\"".to_string(),
        );
    }
    if text("trafficDistribution") == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .to_string(),
        );
    }
}

pub(super) fn endpoints(object: &Value, warnings: &mut Vec<String>) {
    const BY: &str = "endpoints.kubernetes.io/managed-by";
    if object.str_at(&["metadata", "labels", BY]) == "endpoint-controller" {
        return;
    }
    for (index, subset) in object.list_at(&["subsets"]).iter().enumerate() {
        for list in ["addresses", "notReadyAddresses"] {
            for (inner, one) in subset.list_at(&[list]).iter().enumerate() {
                let at = Path::new("subsets").index(index).child(list).index(inner);
                address(one.str_at(&["ip"]), &at.child("ip"), warnings);
            }
        }
    }
}

pub(super) fn slice(object: &Value, is_new: bool, warnings: &mut Vec<String>) {
    const BY: &str = "endpointslice.kubernetes.io/managed-by";
    if is_new && object.str_at(&["addressType"]) == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_string());
    }
    let by = object.str_at(&["metadata", "labels", BY]);
    if matches!(
        by,
        "endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io"
    ) {
        return;
    }
    for (index, endpoint) in object.list_at(&["endpoints"]).iter().enumerate() {
        for (inner, one) in endpoint.list_at(&["addresses"]).iter().enumerate() {
            let at = Path::new("endpoints")
                .index(index)
                .child("addresses")
                .index(inner);
            address(one.as_str().unwrap_or_default(), &at, warnings);
        }
    }
}

pub(super) fn policy(object: &Value, warnings: &mut Vec<String>) {
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in object.list_at(&["spec", rules]).iter().enumerate() {
            for (inner, peer) in rule.list_at(&[peers]).iter().enumerate() {
                let Some(block) = peer.get("ipBlock") else {
                    continue;
                };
                let at = Path::new("spec").child(rules).index(index);
                let at = at.child(peers).index(inner).child("ipBlock");
                range(block.str_at(&["cidr"]), &at.child("cidr"), warnings);
                for (index, except) in block.list_at(&["except"]).iter().enumerate() {
                    let at = at.child("except").index(index);
                    range(except.as_str().unwrap_or_default(), &at, warnings);
                }
            }
        }
    }
}

/// The addresses that a load balancer reports.
pub(super) fn balancer(object: &Value, warnings: &mut Vec<String>) {
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let ingress = object.list_at(&["status", "loadBalancer", "ingress"]);
    for (index, one) in ingress.iter().enumerate() {
        address(one.str_at(&["ip"]), &path.index(index), warnings);
    }
}
