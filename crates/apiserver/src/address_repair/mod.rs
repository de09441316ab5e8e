//! Keeps the addresses of Services and their IPAddress records together, both ways, as far as
//! somebody else pulls them apart: by hand, by another server on the same etcd, or by a store that
//! is older than the records. What is written is compared with what was looked at, in the same
//! transaction.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Status, Value};
use bytes::Bytes;
use store::{Compare, Operation, Transaction, TransactionResult};
use tokio_util::sync::CancellationToken;

use crate::cache::{ResourceCache, key_of};
use crate::context::Context;
use crate::hops::Hops;
use crate::registry;
use crate::server::Server;
use crate::storage::{store_failure, store_key};
use plan::{Claim, Finding, Record, Step, World};

/// How often it is looked whether anything changed. No request waits for a repair.
const PERIOD: Duration = Duration::from_secs(5);
/// What is recreated takes two passes.
const PASSES: usize = 3;
const CONTROLLER: &str = "ipallocator-repair-controller";

/// What is known of Services and records, read anew only where it changed.
#[derive(Default)]
pub(crate) struct Repair {
    world: World,
    /// The versions of Services, records and ranges at the last pass.
    versions: (u64, u64, u64),
    /// The second in which something is to be looked at again.
    due: Option<i64>,
    /// What was told already and has not changed since.
    told: BTreeSet<Finding>,
}

/// Repairs until `stop`.
pub(crate) async fn keep(server: Weak<Server>, mut repair: Repair, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        let Some(server) = server.upgrade() else {
            return;
        };
        if let Err(problem) = repair.run(&server).await {
            tracing::warn!(%problem, "the records of Service addresses could not be repaired");
        }
    }
}

impl Repair {
    /// Repairs what can be repaired now, if anything changed since the last time.
    pub async fn run(&mut self, server: &Arc<Server>) -> Result<(), Status> {
        for _ in 0..PASSES {
            if !self.look(server) {
                return Ok(());
            }
            let now = server.environment.now().as_second();
            let outcome = self.world.plan(now);
            self.due = outcome.due;
            let mut newest = 0;
            for step in outcome.steps {
                newest = newest.max(self.carry_out(server, &step).await?);
            }
            for finding in outcome.findings.difference(&self.told) {
                tell(server, finding).await?;
            }
            self.told = outcome.findings;
            server.objects.reach(newest).await?;
        }
        Ok(())
    }

    /// Reads what changed; whether there is anything to plan.
    fn look(&mut self, server: &Server) -> bool {
        let cache = &server.cache;
        let services = cache.named("", "services");
        let records = cache.named("networking.k8s.io", "ipaddresses");
        let ranges = cache.named("networking.k8s.io", "servicecidrs");
        let versions = (services.changed(), records.changed(), ranges.changed());
        let now = server.environment.now().as_second();
        if versions == self.versions && self.due.is_none_or(|due| due > now) {
            return false;
        }
        refresh(server, &services, &mut self.world.services, Claim::of);
        refresh(server, &records, &mut self.world.records, Record::of);
        let ranges = cache.snapshot(&ranges);
        let ranges = ranges.iter().filter_map(|(_, entry)| entry.object().ok());
        let texts = ranges.flat_map(|range| {
            let list = range.list_at(&["spec", "cidrs"]).to_vec().into_iter();
            list.filter_map(|text| text.as_str().map(str::to_string))
        });
        let own = server.services.range();
        self.world.ranges = std::iter::once(own)
            .chain(texts)
            .filter_map(|text| plan::network(&text))
            .collect();
        self.versions = versions;
        true
    }

    /// The revision of what was written, if the world still was as it was looked at.
    async fn carry_out(&self, server: &Server, step: &Step) -> Result<u64, Status> {
        let services = &server.cache.resource("", "services");
        let addresses = &server.cache.resource("networking.k8s.io", "ipaddresses");
        let (address, service) = match step {
            Step::Create { address, service } => (address, Some(service)),
            Step::Delete { address, service } => (address, service.as_ref()),
        };
        let key = store_key(addresses, "", &address.to_string());
        let held = self.world.records.get(address.to_string().as_str());
        let mut compare = vec![Compare::ModRevision {
            key: key.clone(),
            revision: held.map_or(0, |(revision, _)| *revision),
        }];
        if let Some((namespace, name)) = service {
            let known = self.world.services.get(key_of(namespace, name).as_str());
            compare.push(Compare::ModRevision {
                key: store_key(services, namespace, name),
                revision: known.map_or(0, |(revision, _)| *revision),
            });
        }
        let operation = match (step, service) {
            (Step::Create { .. }, Some((namespace, name))) => {
                let object = server
                    .services
                    .record(addresses, *address, (namespace, name));
                let value = Bytes::from(object.to_json());
                Operation::Put {
                    key,
                    value,
                    lease: None,
                }
            }
            _ => Operation::Delete { key },
        };
        let transaction = Transaction {
            compare,
            then: vec![operation],
        };
        let result = server.objects.store().transact(transaction).await;
        Ok(match result.map_err(store_failure)? {
            TransactionResult::Committed { revision, .. } => revision,
            TransactionResult::Failed { revision, .. } => revision,
        })
    }
}

/// Brings `known` to what the cache has of a kind; what did not change is not read again.
fn refresh<T>(
    server: &Server,
    kind: &ResourceCache,
    known: &mut BTreeMap<Arc<str>, (u64, T)>,
    read: impl Fn(&Value) -> T,
) {
    let mut now = BTreeMap::new();
    for (key, entry) in server.cache.snapshot(kind).iter() {
        let before = known.remove(key);
        let before = before.filter(|(revision, _)| *revision == entry.revision);
        let found = before.or_else(|| Some((entry.revision, read(&entry.object().ok()?))));
        now.extend(found.map(|found| (key.clone(), found)));
    }
    *known = now;
}

/// Posts an Event about it, as the repair loop of upstream does.
async fn tell(server: &Arc<Server>, finding: &Finding) -> Result<(), Status> {
    let events = &server.cache.resource("", "events");
    let (subject, reason, message) = finding.words();
    tracing::warn!(reason, %message, "a Service address and its record differ");
    let mut involved = match &subject {
        plan::Subject::Service(namespace, name) => {
            api::document!({"apiVersion": "v1", "kind": "Service", "namespace": namespace.clone(),
                "name": name.clone()})
        }
        plan::Subject::Record(address) => {
            api::document!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
                "name": address.to_string()})
        }
    };
    let (kind, key) = match &subject {
        plan::Subject::Service(namespace, name) => {
            (server.cache.named("", "services"), key_of(namespace, name))
        }
        plan::Subject::Record(address) => (
            server.cache.named("networking.k8s.io", "ipaddresses"),
            address.to_string(),
        ),
    };
    if let Some(object) = kind.get(&key).and_then(|entry| entry.object().ok()) {
        involved.set(&["uid"], object.str_at(&["metadata", "uid"]));
    }
    let namespace = match &subject {
        plan::Subject::Service(namespace, _) => namespace.clone(),
        plan::Subject::Record(_) => "default".to_string(),
    };
    let name = involved.str_at(&["name"]).to_string();
    let suffix = server.environment.name_suffix(16);
    let now = server.timestamp();
    let event = api::document!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{name}.{suffix}"), "namespace": namespace.clone()},
        "involvedObject": involved, "reason": reason, "message": message, "type": "Warning",
        "firstTimestamp": now.clone(), "lastTimestamp": now, "count": 1,
        "source": {"component": CONTROLLER}, "reportingComponent": CONTROLLER,
    });
    let mut context = Context::internal(server);
    context.info.namespace = namespace;
    match registry::create(&context, events, event.into(), &mut Hops::none()).await {
        // Its namespace is being deleted, so the event would not be read.
        Err(status) if matches!(status.code(), 403 | 404) => Ok(()),
        result => result.map(drop),
    }
}
