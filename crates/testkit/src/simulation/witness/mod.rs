//! The witness of a simulation: reads every event of the store in order, and checks it against what
//! Kubernetes guarantees at any moment, not only in the end: surge and availability of Deployments,
//! the number of a ReplicaSet's pods, the order of StatefulSets, one pod per node of a DaemonSet, one
//! completion per index of a Job.
//!
//! Controllers act on the version of an object that they have seen. A change is therefore correct if
//! it is so for any version that is not older than `status.observedGeneration`.

mod deployments;
mod jobs;
mod pods;
mod sets;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use store::embedded::Embedded;
use store::{Event, KeyRange, RangeRequest, Store, WatchItem};

use crate::simulation::violation::Violation;
use pods::Pod;

/// Collects violations. Clones are the same witness.
#[derive(Clone, Default)]
pub struct Witness {
    account: Arc<Mutex<Account>>,
}

#[derive(Default)]
pub struct Account {
    /// The newest revision that was read.
    revision: u64,
    /// How often history was compacted before it could be read.
    pub gaps: u32,
    violations: Vec<String>,
    /// The number of checked changes.
    judged: u64,
    state: State,
}

/// The objects that are checked, by UID.
#[derive(Default)]
struct State {
    deployments: BTreeMap<String, deployments::Deployment>,
    replica_sets: BTreeMap<String, deployments::ReplicaSet>,
    stateful_sets: BTreeMap<String, sets::StatefulSet>,
    daemon_sets: BTreeMap<String, sets::DaemonSet>,
    jobs: BTreeMap<String, jobs::Job>,
    pods: BTreeMap<String, Pod>,
}

impl Witness {
    /// Follows a server's store until it ends. Called again after each restart.
    pub fn follow(&self, store: Arc<Embedded>) {
        let witness = self.clone();
        tokio::spawn(async move {
            // The store of a crashed server ends the stream. The next one continues from there.
            if let Err(error) = witness.read(&store).await {
                tracing::debug!(%error, "the witness waits for the next server");
            }
        });
    }

    async fn read(&self, store: &Embedded) -> Result<(), store::Error> {
        loop {
            let from = self.account.lock().revision + 1;
            let everything = KeyRange::prefix("");
            let mut events = match store.watch(everything.clone(), from).await {
                Ok(events) => events,
                Err(store::Error::Compacted { .. }) => {
                    let request = RangeRequest {
                        range: everything,
                        revision: None,
                        limit: 0,
                    };
                    let now = store.range(request).await?;
                    let values = now.items.iter().map(|item| &item.value[..]);
                    self.account.lock().rebase(now.revision, values);
                    continue;
                }
                Err(error) => return Err(error),
            };
            while let Some(item) = events.next().await {
                match item {
                    Ok(WatchItem::Events { revision, events }) => {
                        let mut account = self.account.lock();
                        for event in &events {
                            account.observe(revision, event);
                        }
                        account.revision = revision;
                    }
                    Ok(WatchItem::Progress { .. }) => {}
                    Err(store::Error::SlowWatcher) => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// The first violation and the number of all, if there was one.
    pub fn check(&self) -> Result<(), Violation> {
        let account = self.account.lock();
        match account.violations.first() {
            Some(first) => Err(Violation::new(format!(
                "{first} (of {})",
                account.violations.len()
            ))),
            None if account.judged == 0 => Err(Violation::new("the witness checked no change")),
            None => Ok(()),
        }
    }

    /// The number of checked changes.
    pub fn judged(&self) -> u64 {
        self.account.lock().judged
    }
}

impl Account {
    fn observe(&mut self, revision: u64, event: &Event) {
        let (old, new) = match event {
            Event::Put { item, previous } => (previous.as_ref(), Some(item)),
            Event::Delete { previous, .. } => (previous.as_ref(), None),
        };
        let value = |item: Option<&store::KeyValue>| {
            item.and_then(|item| serde_json::from_slice(&item.value).ok())
        };
        let (old, new): (Option<Value>, Option<Value>) = (value(old), value(new));
        let kind = new
            .as_ref()
            .or(old.as_ref())
            .map(|value| text(value, "/kind"));
        if kind.is_some_and(|kind| KINDS.contains(&kind)) {
            self.judged += 1;
        }
        if let Err(problem) = self.state.change(old.as_ref(), new.as_ref()) {
            let violation = format!("at revision {revision}: {problem}");
            tracing::info!("{violation}");
            self.violations.push(violation);
        }
    }

    /// Starts again from the current objects, without checking how they came about.
    fn rebase<'a>(&mut self, revision: u64, values: impl Iterator<Item = &'a [u8]>) {
        self.gaps += 1;
        self.revision = revision;
        self.state = State::default();
        let values: Vec<Value> = values
            .filter_map(|value| serde_json::from_slice(value).ok())
            .collect();
        // Owners come before their dependents.
        for kind in KINDS {
            for value in values.iter().filter(|value| text(value, "/kind") == *kind) {
                // The changes that led to this state are unknown and cannot be checked.
                let _ = self.state.change(None, Some(value));
            }
        }
        for deployment in self.state.deployments.values_mut() {
            deployment.disrupted = true;
        }
        for set in self.state.stateful_sets.values_mut() {
            set.disrupted = true;
        }
    }
}

const KINDS: &[&str] = &[
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "Pod",
];

impl State {
    /// Applies one change of one object. Returns an error if it violates a guarantee.
    fn change(&mut self, old: Option<&Value>, new: Option<&Value>) -> Result<(), Violation> {
        let Some(object) = new.or(old) else {
            return Ok(());
        };
        let uid = text(object, "/metadata/uid").to_owned();
        match text(object, "/kind") {
            "Deployment" => self.deployment_changed(uid, new),
            "ReplicaSet" => self.replica_set_changed(uid, new),
            "StatefulSet" => self.stateful_set_changed(uid, new),
            "DaemonSet" => self.daemon_set_changed(uid, new),
            "Job" => self.job_changed(uid, new),
            "Pod" => self.pod_changed(uid, new),
            _ => Ok(()),
        }
    }
}

/// The versions of an object that its controller may still use.
struct Versions<T> {
    known: Vec<(i64, T)>,
}

impl<T> Default for Versions<T> {
    fn default() -> Versions<T> {
        Versions { known: Vec::new() }
    }
}

impl<T> Versions<T> {
    /// Adds the version of `object`, and drops versions older than the observed generation.
    fn add(&mut self, object: &Value, make: impl FnOnce() -> T) {
        let generation = number(object, "/metadata/generation");
        if self
            .known
            .last()
            .is_none_or(|(last, _)| *last != generation)
        {
            self.known.push((generation, make()));
        }
        let observed = number(object, "/status/observedGeneration");
        let newest = self.known.last().map_or(0, |(last, _)| *last);
        self.known
            .retain(|(known, _)| *known >= observed || *known == newest);
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.known.iter().map(|(_, version)| version)
    }

    fn newest(&self) -> Option<&T> {
        self.known.last().map(|(_, version)| version)
    }
}

/// Whether the object exists and is not being deleted.
fn lives(object: &Value) -> bool {
    text(object, "/metadata/deletionTimestamp").is_empty()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The UID of the controller of that kind.
fn owner<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let owners = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)?;
    let owner = owners
        .iter()
        .find(|owner| owner["controller"] == true && text(owner, "/kind") == kind)?;
    owner["uid"].as_str()
}
