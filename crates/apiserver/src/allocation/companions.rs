//! The IPAddress object of each Service address, written in the transaction that writes the
//! Service: an address and its record cannot come apart, and two servers cannot give it twice.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use api::{Resource, Status, Value, catalogue};
use bytes::Bytes;
use store::{Compare, Operation, Transaction};

use super::taken_by;
use crate::server::{Server, store_failure};

pub(crate) const FAMILY_LABEL: &str = "ipaddress.kubernetes.io/ip-family";
pub(crate) const MANAGED_BY_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
pub(crate) const MANAGED_BY: &str = "ipallocator.k8s.io";

/// What else a write of a Service compares and does; nothing for other kinds.
#[derive(Default)]
pub(crate) struct Companions {
    pub compare: Vec<Compare>,
    pub then: Vec<Operation>,
}

/// `old` and `new` are the object before and after the write, if it is there at all.
pub(crate) fn companions(
    server: &Server,
    resource: &Resource,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Companions {
    let mut companions = Companions::default();
    if !(resource.group.is_empty() && resource.kind == "Service") {
        return companions;
    }
    let Some(addresses) = catalogue::find("networking.k8s.io", "v1", "ipaddresses") else {
        return companions;
    };
    let of = |service: Option<&Value>| -> BTreeSet<Ipv4Addr> {
        service
            .map(|service| taken_by(service).addresses)
            .unwrap_or_default()
    };
    let (before, after) = (of(old), of(new));
    for address in before.difference(&after) {
        let key = Server::store_key(addresses, "", &address.to_string());
        companions.then.push(Operation::Delete { key });
    }
    if let Some(service) = new {
        for address in after.difference(&before) {
            let key = Server::store_key(addresses, "", &address.to_string());
            companions.compare.push(Compare::ModRevision {
                key: key.clone(),
                revision: 0,
            });
            let object = record(server, addresses, *address, service);
            companions.then.push(Operation::Put {
                key,
                value: Bytes::from(object.to_json()),
                lease: None,
            });
        }
    }
    companions
}

/// Writes the records of Services that have none: those of a store older than the records.
pub(crate) async fn repair(server: &Server) -> Result<(), Status> {
    let (Some(services), Some(addresses)) = (
        catalogue::find("", "v1", "services"),
        catalogue::find("networking.k8s.io", "v1", "ipaddresses"),
    ) else {
        return Ok(());
    };
    server.catch_up().await?;
    let known = server.cache.snapshot(server.kind(addresses)?).entries;
    let entries = server.cache.snapshot(server.kind(services)?).entries;
    for (_, entry) in &entries {
        let service = entry.object()?;
        let missing = taken_by(&service).addresses.into_iter();
        for address in missing.filter(|address| !known.contains_key(address.to_string().as_str())) {
            let key = Server::store_key(addresses, "", &address.to_string());
            let object = record(server, addresses, address, &service);
            let put = Operation::Put {
                key: key.clone(),
                value: Bytes::from(object.to_json()),
                lease: None,
            };
            // Somebody else's record is as good.
            server
                .store
                .transact(Transaction {
                    compare: vec![Compare::ModRevision { key, revision: 0 }],
                    then: vec![put],
                })
                .await
                .map_err(store_failure)?;
        }
    }
    Ok(())
}

fn record(server: &Server, resource: &Resource, address: Ipv4Addr, service: &Value) -> Value {
    let mut object = api::document!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {
            "name": address.to_string(),
            "uid": server.environment.uuid(),
            "generation": 1,
            "creationTimestamp": server.timestamp(),
        },
        "spec": {"parentRef": {
            "group": "",
            "resource": "services",
            "namespace": service.str_at(&["metadata", "namespace"]),
            "name": service.str_at(&["metadata", "name"]),
        }},
    });
    object.set(&["metadata", "labels", FAMILY_LABEL], "IPv4");
    object.set(&["metadata", "labels", MANAGED_BY_LABEL], MANAGED_BY);
    object
}
