//! Whether a range of Service addresses can be deleted. Pure.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};

use crate::meta;

/// Only addresses of Services keep a range; others may have made records of their own.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");

/// Whether every allocated address of a range is covered by another one that stays
/// (`canDeleteCIDR` of upstream's controller).
pub fn can_be_deleted(
    range: &ServiceCIDR,
    all: &[Arc<ServiceCIDR>],
    addresses: &[Arc<IPAddress>],
) -> bool {
    let own = networks(range);
    let others: Vec<IpNet> = all
        .iter()
        .filter(|other| {
            other.metadata.name != range.metadata.name
                && other.metadata.deletion_timestamp.is_none()
        })
        .flat_map(|other| networks(other))
        .collect();
    addresses.iter().all(|record| {
        let name = record.metadata.name.as_deref().unwrap_or_default();
        let Ok(address) = name.parse::<IpAddr>() else {
            return true;
        };
        let within = |networks: &[IpNet]| {
            let mut networks = networks.iter();
            networks.any(|network| has_for_services(*network, address))
        };
        let (label, manager) = MANAGED_BY;
        let is_managed = meta::label(&record.metadata, label) == Some(manager);
        !is_managed || !within(&own) || within(&others)
    })
}

fn networks(range: &ServiceCIDR) -> Vec<IpNet> {
    let ranges = range.spec.as_ref().and_then(|spec| spec.cidrs.as_ref());
    let texts = ranges.into_iter().flatten();
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Whether a Service may have this address of a network: neither its first nor, with IPv4, its last
/// (`PrefixContainsIP`, `pkg/api/servicecidr`).
fn has_for_services(network: IpNet, address: IpAddr) -> bool {
    network.contains(&address)
        && address != network.network()
        && (address.is_ipv6() || address != network.broadcast())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, cidr: &str) -> Arc<ServiceCIDR> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name}, "spec": {"cidrs": [cidr]},
            }))
            .unwrap(),
        )
    }

    fn address(name: &str) -> Arc<IPAddress> {
        let value = serde_json::json!({"metadata": {"name": name, "labels":
                {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
            "spec": {"parentRef": {"resource": "services", "name": "s"}}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_range_can_be_deleted_when_other_ranges_cover_its_addresses() {
        let own = range("a", "10.0.0.0/24");
        let all = [
            own.clone(),
            range("b", "10.0.0.0/28"),
            range("v6", "fd00::/112"),
        ];
        assert!(can_be_deleted(
            &own,
            &all,
            &[address("10.0.1.1"), address("fd00::5")]
        ));
        assert!(can_be_deleted(&own, &all, &[address("10.0.0.9")]));
        assert!(!can_be_deleted(&own, &all, &[address("10.0.0.99")]));
        assert!(!can_be_deleted(&all[2], &all, &[address("fd00::5")]));
        // The last address of `b` is none that it could give.
        assert!(!can_be_deleted(&own, &all, &[address("10.0.0.15")]));
        let mut foreign = (*address("10.0.0.99")).clone();
        foreign.metadata.labels = None;
        assert!(can_be_deleted(&own, &all, &[Arc::new(foreign)]));
    }
}
