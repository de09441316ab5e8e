//! What users of Services should know.

use crate::document::Value;
use crate::field::Path;
use crate::strategy::addresses::{address_warnings, range_warnings};

pub fn service(service: &Value) -> Vec<String> {
    let spec = Path::new("spec");
    let text = |name: &str| service.str_at(&["spec", name]);
    let mut warnings = Vec::new();
    if service.has(&[
        "metadata",
        "annotations",
        "service.kubernetes.io/topology-aware-hints",
    ]) {
        warnings.push("annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead".to_string());
    }
    let addresses = |name: &str, warnings: &mut Vec<String>| {
        for (index, one) in service.list_at(&["spec", name]).iter().enumerate() {
            let one = one.as_str().unwrap_or_default();
            warnings.extend(address_warnings(one, &spec.child(name).index(index)));
        }
    };
    if !matches!(text("clusterIP"), "" | "None") {
        addresses("clusterIPs", &mut warnings);
    }
    let external = service.list_at(&["spec", "externalIPs"]);
    let headless = text("type") == "ClusterIP" && text("clusterIP") == "None";
    let by_name = text("type") == "ExternalName";
    if headless {
        if !text("loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".to_string());
        }
        if !external.is_empty() {
            warnings.push("spec.externalIPs is ignored for headless services".to_string());
        }
        if text("sessionAffinity") != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_string());
        }
    }
    addresses("externalIPs", &mut warnings);
    if !external.is_empty() && !headless && !by_name {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_string(),
        );
    }
    let balancer = text("loadBalancerIP");
    if !balancer.is_empty() {
        warnings.extend(address_warnings(balancer, &spec.child("loadBalancerIP")));
    }
    let ranges = service.list_at(&["spec", "loadBalancerSourceRanges"]);
    for (index, one) in ranges.iter().enumerate() {
        let at = spec.child("loadBalancerSourceRanges").index(index);
        let one = one.as_str().unwrap_or_default();
        warnings.extend(range_warnings(one, &at));
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
    warnings
}
