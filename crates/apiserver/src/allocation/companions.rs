//! The IPAddress object of each Service address, written in the transaction that writes the
//! Service: we never write one without the other, and two servers cannot give an address twice.
//! What others do to either is `address_repair`'s.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use api::{Resource, Value};
use bytes::Bytes;
use store::{Compare, Operation};

use super::{ServiceAllocator, taken_by};
use crate::storage::{seconds_text, store_key};

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
    services: &ServiceAllocator,
    resource: &Resource,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Companions {
    let mut companions = Companions::default();
    if !(resource.group.is_empty() && resource.kind == "Service") {
        return companions;
    }
    let addresses = &services.cache.resource("networking.k8s.io", "ipaddresses");
    let of = |service: Option<&Value>| -> BTreeSet<Ipv4Addr> {
        service
            .map(|service| taken_by(service).addresses)
            .unwrap_or_default()
    };
    let (before, after) = (of(old), of(new));
    for address in before.difference(&after) {
        let key = store_key(addresses, "", &address.to_string());
        companions.then.push(Operation::Delete { key });
    }
    if let Some(service) = new {
        for address in after.difference(&before) {
            let key = store_key(addresses, "", &address.to_string());
            companions.compare.push(Compare::ModRevision {
                key: key.clone(),
                revision: 0,
            });
            let name = (
                service.str_at(&["metadata", "namespace"]),
                service.str_at(&["metadata", "name"]),
            );
            let object = services.record(addresses, (*address).into(), name);
            companions.then.push(Operation::Put {
                key,
                value: Bytes::from(object.to_json()),
                lease: None,
            });
        }
    }
    companions
}

impl ServiceAllocator {
    /// The IPAddress of an address that the Service of that namespace and name has.
    pub(crate) fn record(
        &self,
        resource: &Resource,
        address: IpAddr,
        (namespace, name): (&str, &str),
    ) -> Value {
        let mut object = api::document!({
            "apiVersion": resource.api_version(),
            "kind": &*resource.kind,
            "metadata": {
                "name": address.to_string(),
                "uid": self.environment.uuid(),
                "generation": 1,
                "creationTimestamp": seconds_text(self.environment.now()),
            },
            "spec": {"parentRef": {
                "group": "",
                "resource": "services",
                "namespace": namespace,
                "name": name,
            }},
        });
        let family = match address {
            IpAddr::V4(_) => "IPv4",
            IpAddr::V6(_) => "IPv6",
        };
        object.set(&["metadata", "labels", FAMILY_LABEL], family);
        object.set(&["metadata", "labels", MANAGED_BY_LABEL], MANAGED_BY);
        object
    }
}
