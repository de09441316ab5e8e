//! Where the `kubernetes` Service leads: to this server, or to all that live when several share a
//! store. Each of those keeps a record with a short life, as upstream's do, so that both can see
//! who is there.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use store::{KeyRange, Operation, RangeRequest, Transaction};
use tokio_util::sync::CancellationToken;

use super::ensure;
use crate::context::Context;
use crate::registry::{Target, update};
use crate::server::Server;
use crate::storage::store_failure;

/// The records: a key per server, named after its address.
const RECORDS: &str = "/registry/masterleases/";
/// A server that says nothing for this long is taken to be gone.
const LIFE: Duration = Duration::from_secs(15);
const RENEWAL: Duration = Duration::from_secs(10);

/// Points the `kubernetes` Service at the servers that live, also when addresses have changed.
pub(crate) async fn publish(server: &Arc<Server>) -> Result<(), Status> {
    // Of no use to pods, and not valid in Endpoints.
    if server.advertise.ip().is_loopback() {
        return Ok(());
    }
    let own = server.advertise.ip();
    if !server.shares_store {
        return lead_to(server, &BTreeSet::from([own])).await;
    }
    record(server, own).await?;
    lead_to(server, &recorded(server).await?).await
}

/// Keeps this server's record, and notices servers that come and go.
pub(crate) async fn keep(server: Weak<Server>, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RENEWAL) => {}
        }
        let Some(server) = server.upgrade() else {
            return;
        };
        if let Err(problem) = publish(&server).await {
            tracing::warn!(%problem, "the kubernetes Service could not be kept up to date");
        }
    }
}

/// Takes this server out: it is about to stop.
pub(crate) async fn leave(server: &Arc<Server>) -> Result<(), Status> {
    let own = server.advertise.ip();
    if !server.shares_store || own.is_loopback() {
        return Ok(());
    }
    write(server, Operation::Delete { key: key_of(own) }).await?;
    let others = recorded(server).await?;
    // The last one out leaves its address: there is no other.
    if others.is_empty() {
        return Ok(());
    }
    lead_to(server, &others).await
}

fn key_of(address: IpAddr) -> Bytes {
    format!("{RECORDS}{address}").into()
}

async fn record(server: &Arc<Server>, address: IpAddr) -> Result<(), Status> {
    let value = api::document!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {},
        "subsets": [{"addresses": [{"ip": address.to_string()}]}],
    });
    let lease = server.objects.store().grant_lease(LIFE.as_secs()).await;
    let put = Operation::Put {
        key: key_of(address),
        value: value.to_json().into(),
        lease: Some(lease.map_err(store_failure)?),
    };
    write(server, put).await
}

async fn write(server: &Arc<Server>, operation: Operation) -> Result<(), Status> {
    let transaction = Transaction {
        compare: Vec::new(),
        then: vec![operation],
    };
    let written = server.objects.store().transact(transaction).await;
    written.map(drop).map_err(store_failure)
}

async fn recorded(server: &Arc<Server>) -> Result<BTreeSet<IpAddr>, Status> {
    let request = RangeRequest {
        range: KeyRange::prefix(RECORDS),
        revision: None,
        limit: 0,
    };
    let found = server
        .objects
        .store()
        .range(request)
        .await
        .map_err(store_failure)?;
    let names = found.items.iter().filter_map(|item| {
        let name = item.key.strip_prefix(RECORDS.as_bytes())?;
        std::str::from_utf8(name).ok()?.parse().ok()
    });
    Ok(names.collect())
}

/// Writes the Endpoints and the EndpointSlice; what is right already is not written again.
async fn lead_to(server: &Arc<Server>, addresses: &BTreeSet<IpAddr>) -> Result<(), Status> {
    let family = |address: &&IpAddr| address.is_ipv4() == server.advertise.is_ipv4();
    let addresses: Vec<String> = addresses
        .iter()
        .filter(family)
        .map(IpAddr::to_string)
        .collect();
    let port = i64::from(server.advertise.port());
    let ports = api::document!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let mut subset = api::document!({"ports": ports});
    let mut slice = api::document!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": if server.advertise.is_ipv4() { "IPv4" } else { "IPv6" },
        "ports": ports,
    });
    let listed = addresses
        .iter()
        .map(|address| api::document!({"ip": address.clone()}));
    subset.set(&["addresses"], listed.collect::<Vec<_>>());
    let listed = addresses.iter().map(
        |address| api::document!({"addresses": [address.clone()], "conditions": {"ready": true}}),
    );
    slice.set(&["endpoints"], listed.collect::<Vec<_>>());
    let endpoints = api::document!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [subset],
    });
    for (group, plural, object, fields) in [
        ("", "endpoints", endpoints, &["subsets"][..]),
        (
            "discovery.k8s.io",
            "endpointslices",
            slice,
            &["endpoints", "ports"][..],
        ),
    ] {
        ensure(server, group, plural, object.clone()).await?;
        let resource = &server.cache.resource(group, plural);
        let target = Target {
            is_owned: false,
            ..Target::internal(resource, "default", "kubernetes", "")
        };
        update(&Context::internal(server), &target, false, |old| {
            let mut new = old.clone();
            for field in fields {
                if let Some(value) = object.get(field) {
                    new.set(&[field], value.clone());
                }
            }
            Ok(new)
        })
        .await?;
    }
    Ok(())
}
