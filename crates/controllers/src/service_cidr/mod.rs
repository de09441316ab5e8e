//! ServiceCIDR: says of each range that it can be used, and keeps one that is being deleted until
//! no Service has an address that only it covers. The addresses' records are the API server's.

mod plan;

use std::time::Duration;

use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue};
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::finalizers::{self, Step};
use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error};
use plan::can_be_deleted;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
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
) -> Result<Reconciled, Error> {
    ranges.synced().await;
    addresses.synced().await;
    let Some(range) = ranges.get("", name) else {
        return Ok(Reconciled::Done);
    };
    let api: Api<ServiceCIDR> = Api::all(config.client.clone());
    let Some(deleted_at) = &range.metadata.deletion_timestamp else {
        let step = finalizers::step(&*range, FINALIZER, true);
        if step != Step::Keep {
            finalizers::carry_out(&api, &*range, FINALIZER, step).await?;
            return Ok(Reconciled::Done);
        }
        let message = "Kubernetes Service CIDR is ready";
        report(config, &api, &range, "True", "", message).await?;
        return Ok(Reconciled::Done);
    };
    if !can_be_deleted(&range, &ranges.list(), &addresses.list()) {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        report(config, &api, &range, "False", "Terminating", message).await?;
        return Ok(Reconciled::Done);
    }
    let age = config.environment.now().as_second() - deleted_at.0.as_second();
    let left = SETTLING.saturating_sub(Duration::from_secs(age.max(0) as u64));
    if !left.is_zero() {
        return Ok(Reconciled::After(left));
    }
    let step = finalizers::step(&*range, FINALIZER, false);
    finalizers::carry_out(&api, &*range, FINALIZER, step).await?;
    Ok(Reconciled::Done)
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
