//! ServiceCIDR: says of each range that it can be used, and keeps one that is being deleted until
//! no Service has an address that only it covers. The addresses' records are the API server's.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use client::controller::Outcome;
use client::{Informer, ObjectKey, WorkQueue};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::finalizers::{self, Step};
use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error, meta};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Only addresses of Services keep a range; others may have made records of their own.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// An address may be on its way into a range that is being deleted.
const SETTLING: Duration = Duration::from_secs(10);

pub async fn run(config: Config, shutdown: CancellationToken) {
    let ranges = config.informers.of::<ServiceCIDR>();
    let addresses = config.informers.of::<IPAddress>();
    let queue = WorkQueue::new();
    let all_deleting = |ranges: &Informer<ServiceCIDR>| -> Vec<ObjectKey> {
        let deleting = ranges.list().into_iter();
        deleting
            .filter(|range| range.metadata.deletion_timestamp.is_some())
            .map(|range| ObjectKey::of(&*range))
            .collect()
    };
    let feeds = futures::future::join(
        enqueue(&ranges, &queue, {
            let ranges = ranges.clone();
            // Another range may cover what one that goes has covered.
            move |range: &ServiceCIDR| {
                let mut keys = own_key(range);
                keys.extend(all_deleting(&ranges));
                keys
            }
        }),
        enqueue(&addresses, &queue, {
            let ranges = ranges.clone();
            move |_: &IPAddress| all_deleting(&ranges)
        }),
    );
    let reconcile = move |key: ObjectKey| {
        let (config, ranges, addresses) = (config.clone(), ranges.clone(), addresses.clone());
        async move { reconcile(&config, &ranges, &addresses, &key.name).await }
    };
    watching::run("service-cidr", 1, queue, feeds, reconcile, shutdown).await;
}

async fn reconcile(
    config: &Config,
    ranges: &Informer<ServiceCIDR>,
    addresses: &Informer<IPAddress>,
    name: &str,
) -> Result<Outcome, Error> {
    ranges.synced().await;
    addresses.synced().await;
    let Some(range) = ranges.get("", name) else {
        return Ok(Outcome::Done);
    };
    let api: Api<ServiceCIDR> = Api::all(config.client.clone());
    let Some(deleted_at) = &range.metadata.deletion_timestamp else {
        let step = finalizers::step(&*range, FINALIZER, true);
        if step != Step::Keep {
            finalizers::carry_out(&api, &*range, FINALIZER, step).await?;
            return Ok(Outcome::Done);
        }
        let message = "Kubernetes Service CIDR is ready";
        report(config, &api, &range, "True", "", message).await?;
        return Ok(Outcome::Done);
    };
    if !can_go(&range, &ranges.list(), &addresses.list()) {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        report(config, &api, &range, "False", "Terminating", message).await?;
        return Ok(Outcome::Done);
    }
    let age = config.environment.now().as_second() - deleted_at.0.as_second();
    let left = SETTLING.saturating_sub(Duration::from_secs(age.max(0) as u64));
    if !left.is_zero() {
        return Ok(Outcome::After(left));
    }
    let step = finalizers::step(&*range, FINALIZER, false);
    finalizers::carry_out(&api, &*range, FINALIZER, step).await?;
    Ok(Outcome::Done)
}

async fn report(
    config: &Config,
    api: &Api<ServiceCIDR>,
    range: &ServiceCIDR,
    status: &str,
    reason: &str,
    message: &str,
) -> Result<(), Error> {
    let mut updated = range.clone();
    let conditions = updated
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default();
    let known = conditions.iter_mut().find(|known| known.type_ == "Ready");
    match known {
        Some(known)
            if (&*known.status, &*known.reason, &*known.message) == (status, reason, message) =>
        {
            return Ok(());
        }
        _ => conditions.retain(|known| known.type_ != "Ready"),
    }
    conditions.push(Condition {
        type_: "Ready".to_string(),
        status: status.to_string(),
        reason: reason.to_string(),
        message: message.to_string(),
        last_transition_time: Time(config.environment.now()),
        observed_generation: None,
    });
    let name = range.metadata.name.as_deref().unwrap_or_default();
    api.replace_status(name, &PostParams::default(), &updated)
        .await?;
    Ok(())
}

/// Whether every allocated address of a range is covered by another one that stays.
fn can_go(range: &ServiceCIDR, all: &[Arc<ServiceCIDR>], addresses: &[Arc<IPAddress>]) -> bool {
    let own = networks(range);
    let others: Vec<Network> = all
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
        let within =
            |networks: &[Network]| networks.iter().any(|network| contains(*network, address));
        let (label, manager) = MANAGED_BY;
        let is_managed = meta::label(&record.metadata, label) == Some(manager);
        !is_managed || !within(&own) || within(&others)
    })
}

type Network = (IpAddr, u8);

fn networks(range: &ServiceCIDR) -> Vec<Network> {
    let ranges = range.spec.as_ref().and_then(|spec| spec.cidrs.as_ref());
    ranges
        .into_iter()
        .flatten()
        .filter_map(|text| {
            let (address, bits) = text.split_once('/')?;
            Some((address.parse().ok()?, bits.parse().ok()?))
        })
        .collect()
}

/// Whether a Service may have this address of a network: neither its first nor, with IPv4, its last.
fn contains((network, bits): Network, address: IpAddr) -> bool {
    if address == network {
        return false;
    }
    if let IpAddr::V4(address) = address
        && bits < 32
        && u32::from(address) & (u32::MAX >> bits) == u32::MAX >> bits
    {
        return false;
    }
    let shifted = |value: u128, width: u8| {
        value
            .checked_shr(u32::from(width.saturating_sub(bits)))
            .unwrap_or(0)
    };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let value = |address: std::net::Ipv4Addr| u128::from(u32::from(address));
            shifted(value(network), 32) == shifted(value(address), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            shifted(u128::from(network), 128) == shifted(u128::from(address), 128)
        }
        _ => false,
    }
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
    fn a_range_goes_when_nobody_needs_it() {
        let own = range("a", "10.0.0.0/24");
        let all = [
            own.clone(),
            range("b", "10.0.0.0/28"),
            range("v6", "fd00::/112"),
        ];
        assert!(can_go(
            &own,
            &all,
            &[address("10.0.1.1"), address("fd00::5")]
        ));
        assert!(can_go(&own, &all, &[address("10.0.0.9")]));
        assert!(!can_go(&own, &all, &[address("10.0.0.99")]));
        assert!(!can_go(&all[2], &all, &[address("fd00::5")]));
        // The last address of `b` is none that it could give.
        assert!(!can_go(&own, &all, &[address("10.0.0.15")]));
        let mut foreign = (*address("10.0.0.99")).clone();
        foreign.metadata.labels = None;
        assert!(can_go(&own, &all, &[Arc::new(foreign)]));
    }
}
