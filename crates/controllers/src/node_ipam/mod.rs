//! Node IPAM: gives each node that has none a /24 of the cluster's pod range, outside the ranges of
//! Services. A node that was invited gets the range of its invitation, and nobody else does. Nodes
//! that bring a range keep it, and it is never given twice.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use client::controller::Outcome;
use client::events::Recorder;
use client::{Informer, ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error};

const NODE_BITS: u8 = 24;

pub async fn run(config: Config, shutdown: CancellationToken) {
    let Some(text) = config.pod_range.as_deref() else {
        return shutdown.cancelled().await;
    };
    let Some(range) = parse(text).filter(|(_, bits)| *bits <= NODE_BITS) else {
        tracing::error!(
            range = text,
            "nodes get no pod ranges: the cluster's range is no IPv4 range of a /{NODE_BITS} or more"
        );
        return shutdown.cancelled().await;
    };
    let nodes = config.informers.of::<Node>();
    let service_ranges = config.informers.of::<ServiceCIDR>();
    let queue = WorkQueue::new();
    let feed = enqueue(&nodes, &queue, own_key);
    let controller = Arc::new(Controller {
        events: config.events("cidrAllocator"),
        config,
        nodes,
        service_ranges,
        range,
        given: Mutex::default(),
    });
    let reconcile = move |key: ObjectKey| {
        let controller = controller.clone();
        async move { controller.reconcile(&key.name).await }
    };
    // One worker: two nodes must not choose the same range.
    watching::run("node-ipam", 1, queue, feed, reconcile, shutdown).await;
}

type Range = (Ipv4Addr, u8);

struct Controller {
    config: Config,
    events: Recorder,
    nodes: Informer<Node>,
    service_ranges: Informer<ServiceCIDR>,
    range: Range,
    /// Given in this life; the cache may not show it yet.
    given: Mutex<BTreeSet<(String, Range)>>,
}

impl Controller {
    async fn reconcile(&self, name: &str) -> Result<Outcome, Error> {
        self.nodes.synced().await;
        self.service_ranges.synced().await;
        let Some(node) = self.nodes.get("", name) else {
            self.given.lock().retain(|(owner, _)| owner != name);
            return Ok(Outcome::Done);
        };
        if !ranges(&node).is_empty() {
            return Ok(Outcome::Done);
        }
        let mut taken: Vec<Range> = self
            .nodes
            .list()
            .iter()
            .flat_map(|node| ranges(node))
            .collect();
        taken.extend(
            self.given
                .lock()
                .iter()
                .filter(|(owner, _)| owner != name)
                .map(|(_, range)| *range),
        );
        for range in self.service_ranges.list() {
            let texts = range
                .spec
                .iter()
                .flat_map(|spec| spec.cidrs.iter().flatten());
            taken.extend(texts.filter_map(|text| parse(text)));
        }
        let Some(free) = give(name, self.range, taken, &self.reserved()?) else {
            let message = format!("Node {name} status is now: CIDRNotAvailable");
            self.events.normal(&*node, "CIDRNotAvailable", message);
            return Ok(Outcome::Done);
        };
        self.given.lock().insert((name.to_string(), free));
        let text = format!("{}/{}", free.0, free.1);
        let patch = serde_json::json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"podCIDR": text, "podCIDRs": [text]},
        });
        let nodes: Api<Node> = Api::all(self.config.client.clone());
        match nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Err(error) if !retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

impl Controller {
    /// The ranges of invitations, by node.
    fn reserved(&self) -> Result<Vec<(String, Range)>, Error> {
        let Some(reserved) = &self.config.reserved_pod_ranges else {
            return Ok(Vec::new());
        };
        let all = reserved().map_err(Error::Object)?;
        let all = all.into_iter();
        Ok(all
            .filter_map(|(owner, text)| Some((owner, parse(&text)?)))
            .collect())
    }
}

/// The range of the node's invitation, or else one that is neither taken nor promised to another.
fn give(
    name: &str,
    range: Range,
    mut taken: Vec<Range>,
    reserved: &[(String, Range)],
) -> Option<Range> {
    if let Some((_, own)) = reserved.iter().find(|(owner, _)| owner == name) {
        return Some(*own);
    }
    taken.extend(reserved.iter().map(|(_, range)| *range));
    choose(range, &taken)
}

/// The first free part of `range` that overlaps nothing taken.
fn choose(range: Range, taken: &[Range]) -> Option<Range> {
    let step = 1u32 << (32 - NODE_BITS);
    let count = 1u32 << (NODE_BITS - range.1);
    let first = u32::from(range.0) & mask(range.1);
    (0..count)
        .map(|index| (Ipv4Addr::from(first + index * step), NODE_BITS))
        .find(|candidate| !taken.iter().any(|other| overlap(*candidate, *other)))
}

fn overlap(a: Range, b: Range) -> bool {
    let mask = mask(a.1.min(b.1));
    u32::from(a.0) & mask == u32::from(b.0) & mask
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
}

fn parse(text: &str) -> Option<Range> {
    let (address, bits) = text.split_once('/')?;
    let bits: u8 = bits.parse().ok()?;
    (bits <= 32).then_some((address.parse().ok()?, bits))
}

fn ranges(node: &Node) -> Vec<Range> {
    let spec = node.spec.as_ref();
    let many = spec
        .and_then(|spec| spec.pod_cidrs.clone())
        .unwrap_or_default();
    let single = spec.and_then(|spec| spec.pod_cidr.clone());
    many.iter()
        .chain(&single)
        .filter_map(|text| parse(text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_was_promised_to_a_node_goes_to_no_other() {
        let range = parse("10.244.0.0/16").unwrap();
        let promised = |text: &str, owner: &str| (owner.to_string(), parse(text).unwrap());
        let reserved = [
            promised("10.244.0.0/24", "server"),
            promised("10.244.1.0/24", "invited"),
        ];
        let give = |name: &str| {
            let taken = vec![parse("10.244.2.0/24").unwrap()];
            super::give(name, range, taken, &reserved).map(|(address, _)| address.to_string())
        };
        assert_eq!(give("another").as_deref(), Some("10.244.3.0"));
        assert_eq!(give("invited").as_deref(), Some("10.244.1.0"));
    }

    #[test]
    fn the_first_range_that_overlaps_nothing_is_chosen() {
        let range = parse("10.244.0.0/16").unwrap();
        let check = |taken: &[&str], expected: Option<&str>| {
            let taken: Vec<Range> = taken.iter().map(|text| parse(text).unwrap()).collect();
            let found = choose(range, &taken).map(|(address, _)| address.to_string());
            assert_eq!(found.as_deref(), expected);
        };
        check(&[], Some("10.244.0.0"));
        check(&["10.244.0.0/24", "10.244.2.0/24"], Some("10.244.1.0"));
        check(&["10.244.0.0/23"], Some("10.244.2.0"));
        check(&["10.244.1.128/25", "10.244.0.0/24"], Some("10.244.2.0"));
        check(&["10.244.0.0/16"], None);
        check(&["10.0.0.0/8"], None);
    }
}
