//! Node IPAM: gives each node that has none a /24 of the cluster's pod range, outside the ranges of
//! Services. A node that was invited gets the range of its invitation, and no other node does. Nodes
//! that bring a range keep it, and it is never given twice.

mod plan;

use std::sync::Arc;

use client::controller::Reconciled;
use client::events::Recorder;
use client::{Change, Informer, ObjectKey, WorkQueue, retry};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, Reconciler};
use crate::written::CATCH_UP;
use crate::{Config, Error};
use plan::{Holder, NODE_BITS, Pool};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let Some(text) = config.pod_range.as_deref() else {
        return shutdown.cancelled().await;
    };
    let range = text.parse::<Ipv4Net>().ok();
    let Some(range) = range.filter(|range| range.prefix_len() <= NODE_BITS) else {
        tracing::error!(
            range = text,
            "nodes get no pod ranges: the cluster's range is no IPv4 range of a /{NODE_BITS} or more"
        );
        return shutdown.cancelled().await;
    };
    let nodes = config.informers.of::<Node>();
    let service_ranges = config.informers.of::<ServiceCIDR>();
    let queue = WorkQueue::new();
    let known = Arc::new(Mutex::new(Known {
        pool: Pool::new(range),
        nodes_are_listed: false,
        service_ranges_are_listed: false,
    }));
    let feeds = futures::future::join(
        follow_service_ranges(service_ranges, known.clone()),
        follow_nodes(nodes.clone(), known.clone(), queue.clone()),
    );
    let controller = Controller {
        events: config.events("cidrAllocator"),
        config,
        nodes,
        known,
    };
    // One worker: two nodes must not choose the same range.
    watching::run("node-ipam", 1, queue, feeds, controller, shutdown).await;
}

/// Which ranges are taken, as far as our caches show.
struct Known {
    pool: Pool,
    nodes_are_listed: bool,
    service_ranges_are_listed: bool,
}

/// Takes in what nodes have, and enqueues each of them after that.
async fn follow_nodes(
    nodes: Informer<Node>,
    known: Arc<Mutex<Known>>,
    queue: WorkQueue<ObjectKey>,
) {
    let mut changes = nodes.subscribe();
    loop {
        let (node, has) = match changes.next().await {
            Change::Added(node) | Change::Modified { new: node, .. } => {
                let has = ranges(&node);
                (node, has)
            }
            Change::Deleted(node) => (node, Vec::new()),
            Change::Resynced => {
                known.lock().nodes_are_listed = true;
                continue;
            }
        };
        let key = ObjectKey::of(&*node);
        known.lock().pool.set(Holder::Node(key.name.clone()), has);
        queue.add(key);
    }
}

async fn follow_service_ranges(service_ranges: Informer<ServiceCIDR>, known: Arc<Mutex<Known>>) {
    let mut changes = service_ranges.subscribe();
    loop {
        let (object, is_there) = match changes.next().await {
            Change::Added(object) | Change::Modified { new: object, .. } => (object, true),
            Change::Deleted(object) => (object, false),
            Change::Resynced => {
                known.lock().service_ranges_are_listed = true;
                continue;
            }
        };
        let spec = object.spec.as_ref().filter(|_| is_there);
        let texts = spec
            .into_iter()
            .flat_map(|spec| spec.cidrs.iter().flatten());
        let has = texts.filter_map(|text| text.parse().ok()).collect();
        let name = object.metadata.name.clone().unwrap_or_default();
        known.lock().pool.set(Holder::Services(name), has);
    }
}

struct Controller {
    config: Config,
    events: Recorder,
    nodes: Informer<Node>,
    known: Arc<Mutex<Known>>,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        let name = key.name.as_str();
        let promised = Holder::Promised(name.to_owned());
        let Some(node) = self.nodes.get("", name) else {
            self.known.lock().pool.remove(&promised);
            return Ok(Reconciled::Done);
        };
        if !ranges(&node).is_empty() {
            return Ok(Reconciled::Done);
        }
        let invitations = self.invitations()?;
        let free = {
            let mut known = self.known.lock();
            if !known.nodes_are_listed || !known.service_ranges_are_listed {
                return Ok(Reconciled::After(CATCH_UP));
            }
            known.pool.remove(&promised);
            let free = known.pool.give(name, &invitations);
            known.pool.set(promised, Vec::from_iter(free));
            free
        };
        let Some(free) = free else {
            let message = format!("Node {name} status is now: CIDRNotAvailable");
            self.events.normal(&*node, "CIDRNotAvailable", message);
            return Ok(Reconciled::Done);
        };
        let text = free.to_string();
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
            _ => Ok(Reconciled::Done),
        }
    }
}

impl Controller {
    /// The ranges of invitations, by node.
    fn invitations(&self) -> Result<Vec<(String, Ipv4Net)>, Error> {
        let Some(reserved) = &self.config.reserved_pod_ranges else {
            return Ok(Vec::new());
        };
        let all = reserved().map_err(Error::PodRanges)?;
        let all = all.into_iter();
        Ok(all
            .filter_map(|(node, text)| Some((node, text.parse().ok()?)))
            .collect())
    }
}

fn ranges(node: &Node) -> Vec<Ipv4Net> {
    let spec = node.spec.as_ref();
    let many = spec
        .and_then(|spec| spec.pod_cidrs.clone())
        .unwrap_or_default();
    let single = spec.and_then(|spec| spec.pod_cidr.clone());
    many.iter()
        .chain(&single)
        .filter_map(|text| text.parse().ok())
        .collect()
}
