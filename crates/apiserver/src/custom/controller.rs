//! Follows the stored CustomResourceDefinitions: serves their kinds and writes their status.
//!
//! One task reads the changes in their order and decides; what takes time (reading the objects of a
//! kind, writing a status) is carried out in tasks of its own, a bounded number at a time, one at a time for
//! each definition. Names are taken the moment that they are decided, so that two definitions that
//! come at once do not get the same one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Reason, Resource, Status, Value};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::conditions::{GROUP, PLURAL};
use super::kind::{self, Identity};
use super::names::{Names, UsedNames};
use super::{cleanup, conditions};
use crate::cache::{Change, From, Initial, Requirement, ResourceCache, Watch};
use crate::context::Context;
use crate::registry::{self, Target};
use crate::server::Server;

/// Definitions that are worked on at the same time.
const MOST_AT_ONCE: usize = 64;
/// After a failure that no event follows.
const BACK_OFF: Duration = Duration::from_millis(100);

/// What is served, by the name of the definition.
#[derive(Default)]
pub(crate) struct Known(BTreeMap<String, (Identity, Arc<Resource>)>);

impl Known {
    pub fn insert(&mut self, name: String, identity: Identity, stored: Arc<Resource>) {
        self.0.insert(name, (identity, stored));
    }
}

/// Runs until `stop`, or until the server is gone.
pub(crate) async fn run(server: Weak<Server>, known: Known, stop: CancellationToken) {
    let mut controller = Controller {
        known,
        ..Controller::default()
    };
    loop {
        let Some(strong) = server.upgrade() else {
            return;
        };
        let definitions = strong.cache.named(GROUP, PLURAL);
        let nothing = Requirement::of(std::iter::empty());
        let watch = Watch::begin(&strong.cache, definitions.clone(), From::State, nothing);
        drop(strong);
        let Ok(mut watch) = watch else {
            return;
        };
        controller.begin(&mut watch);
        // Ends when this fell behind: then everything is looked at again.
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            is_over = controller.follow(&server, &definitions, &mut watch) => {
                if is_over {
                    return;
                }
            }
        }
    }
}

#[derive(Default)]
struct Controller {
    known: Known,
    /// The names that definitions have, by group.
    used: BTreeMap<String, UsedNames>,
    /// The names that a definition has, and its group.
    accepted: BTreeMap<String, (String, Names)>,
    /// Those that wait for a name, by group.
    waiting: BTreeMap<String, BTreeSet<String>>,
    queue: VecDeque<String>,
    queued: BTreeSet<String>,
    busy: BTreeSet<String>,
    working: FuturesUnordered<BoxFuture<'static, Finished>>,
}

/// What became of the work on one definition.
struct Finished {
    name: String,
    outcome: Outcome,
}

enum Outcome {
    /// It is served like this, or not at all.
    Served(Option<(Identity, Arc<Resource>)>),
    /// It is to be looked at again, after a while.
    Failed(Status),
}

impl Controller {
    /// Looks at everything that there is.
    fn begin(&mut self, watch: &mut Watch) {
        let none = Initial::Changes(VecDeque::new());
        let initial = std::mem::replace(&mut watch.subscription.initial, none);
        let mut gone: BTreeSet<String> = self.known.0.keys().cloned().collect();
        gone.extend(self.accepted.keys().cloned());
        if let Initial::State(snapshot) = initial {
            for (key, entry) in snapshot.iter() {
                gone.remove(&**key);
                if let Ok(definition) = entry.object() {
                    self.note(key, Some(&definition));
                }
                self.enqueue(key);
            }
        }
        for name in gone {
            self.note(&name, None);
            self.enqueue(&name);
        }
    }

    /// Returns whether the server is gone; false when the changes have to be read anew.
    async fn follow(
        &mut self,
        server: &Weak<Server>,
        definitions: &Arc<ResourceCache>,
        watch: &mut Watch,
    ) -> bool {
        loop {
            if !self.start_work(server, definitions) {
                return true;
            }
            tokio::select! {
                biased;
                Some(finished) = self.working.next(), if !self.working.is_empty() => {
                    self.finish(finished);
                }
                change = watch.subscription.changes.recv() => match change {
                    Some(change) => self.see(&change),
                    None => return false,
                },
            }
        }
    }

    fn see(&mut self, change: &Change) {
        let entry = change.current.as_ref().or(change.previous.as_ref());
        let Some(entry) = entry else {
            return;
        };
        let definition = change
            .current
            .as_ref()
            .and_then(|entry| entry.object().ok());
        self.note(&entry.key, definition.as_ref());
        self.enqueue(&entry.key);
    }

    fn enqueue(&mut self, name: &str) {
        if self.queued.insert(name.to_string()) {
            self.queue.push_back(name.to_string());
        }
    }

    /// Keeps the names that a definition has. Who waits for one that it gives up is looked at again.
    fn note(&mut self, name: &str, definition: Option<&Value>) {
        let names = definition.map(|definition| {
            let group = definition.str_at(&["spec", "group"]).to_string();
            let names = Names::read(definition.at(&["status", "acceptedNames"]));
            (group, names)
        });
        if self.accepted.get(name) == names.as_ref() {
            return;
        }
        if let Some((group, old)) = self.accepted.remove(name) {
            if let Some(used) = self.used.get_mut(&group) {
                used.remove(&old);
                if used.is_empty() {
                    self.used.remove(&group);
                }
            }
            let waiting = self.waiting.remove(&group).unwrap_or_default();
            waiting.iter().for_each(|other| self.enqueue(other));
        }
        if let Some((group, names)) = names {
            self.used_in(&group).add(&names);
            self.accepted.insert(name.to_string(), (group, names));
        }
    }

    fn used_in(&mut self, group: &str) -> &mut UsedNames {
        self.used.entry(group.to_string()).or_insert_with(|| {
            let mut used = UsedNames::default();
            let built_in = api::catalogue::built_in().group(group);
            for resource in built_in.into_iter().flat_map(|group| group.resources()) {
                used.add_built_in(resource);
            }
            used
        })
    }

    /// Begins work on what is queued; false when the server is gone.
    fn start_work(&mut self, server: &Weak<Server>, definitions: &Arc<ResourceCache>) -> bool {
        let mut later = VecDeque::new();
        while self.working.len() < MOST_AT_ONCE
            && let Some(name) = self.queue.pop_front()
        {
            if self.busy.contains(&name) {
                later.push_back(name);
                continue;
            }
            let Some(server) = server.upgrade() else {
                return false;
            };
            self.queued.remove(&name);
            let plan = self.plan(&server, definitions, &name);
            self.busy.insert(name.clone());
            let work = carry_out(server, name, plan);
            self.working.push(Box::pin(work));
        }
        self.queue.append(&mut later);
        true
    }

    fn plan(&mut self, server: &Server, definitions: &ResourceCache, name: &str) -> Plan {
        let known = self.known.0.get(name).cloned();
        let definition = definitions.get(name).and_then(|entry| entry.object().ok());
        let Some(definition) = definition else {
            return Plan {
                known,
                definition: None,
                settled: None,
            };
        };
        let group = definition.str_at(&["spec", "group"]).to_string();
        let now = server.timestamp();
        let mut settled = definition.clone();
        // What an earlier plan took for it and could not write is free again.
        self.note(name, Some(&definition));
        conditions::settle(&mut settled, self.used_in(&group), &now);
        // Taken at once; the write that follows only says so.
        self.note(name, Some(&settled));
        if !conditions::is_true(&settled, conditions::NAMES_ACCEPTED) {
            self.waiting
                .entry(group)
                .or_default()
                .insert(name.to_string());
        }
        Plan {
            known,
            settled: (settled != definition).then(|| settled.clone()),
            definition: Some(settled),
        }
    }

    fn finish(&mut self, Finished { name, outcome }: Finished) {
        self.busy.remove(&name);
        match outcome {
            Outcome::Served(Some((identity, stored))) => self.known.insert(name, identity, stored),
            Outcome::Served(None) => drop(self.known.0.remove(&name)),
            Outcome::Failed(status) => {
                tracing::warn!(name, %status, "a definition is looked at again");
                self.enqueue(&name);
            }
        }
    }
}

/// What is to be done about a definition.
struct Plan {
    known: Option<(Identity, Arc<Resource>)>,
    /// With the status that it should have; `None` if it is gone.
    definition: Option<Value>,
    /// The same, where that is not the status that it has.
    settled: Option<Value>,
}

async fn carry_out(server: Arc<Server>, name: String, plan: Plan) -> Finished {
    let outcome = match serve(&server, &name, &plan).await {
        Ok(served) => {
            let written = match &plan.settled {
                Some(settled) => write_status(&server, &name, settled).await,
                None => Ok(()),
            };
            if let Some(definition) = &plan.definition {
                cleanup::begin_if_due(&server, &name, definition);
            }
            match written {
                Ok(()) => Outcome::Served(served),
                Err(status) => Outcome::Failed(status),
            }
        }
        Err(status) => Outcome::Failed(status),
    };
    if matches!(outcome, Outcome::Failed(_)) {
        tokio::time::sleep(BACK_OFF).await;
    }
    Finished { name, outcome }
}

/// Serves the kind of a definition as it is now, or no more.
async fn serve(
    server: &Server,
    name: &str,
    plan: &Plan,
) -> Result<Option<(Identity, Arc<Resource>)>, Status> {
    let wanted = plan.definition.as_ref().filter(|one| kind::is_served(one));
    let Some(definition) = wanted else {
        if let Some((_, stored)) = &plan.known {
            unserve(server, stored).await?;
        }
        return Ok(None);
    };
    let identity = Identity::of(definition);
    if let Some((known, stored)) = &plan.known
        && *known == identity
    {
        return Ok(Some((identity, stored.clone())));
    }
    let served = match kind::of(definition) {
        Ok(served) => served,
        Err(problem) => {
            tracing::error!(name, %problem, "a definition cannot be served");
            return Ok(plan.known.clone());
        }
    };
    let known = plan.known.as_ref();
    if let Some((_, stored)) = known
        && (&*stored.group, &*stored.plural) != (&*served.group, &*served.plural)
    {
        unserve(server, stored).await?;
    }
    let keeps_cache = known.is_some_and(|(known, _)| known.has_same_objects(&served.identity));
    let stored = (!keeps_cache).then(|| served.stored.clone());
    if !keeps_cache {
        server.converters.forget(&served.identity.uid);
    }
    let place = (served.group.as_str(), served.plural.as_str());
    let replaced = server.kinds.replace(place, served.versions, stored).await;
    replaced.map_err(|problem| Status::internal(environment::chain(&problem)))?;
    let stored = match (keeps_cache, known) {
        (true, Some((_, stored))) => stored.clone(),
        _ => served.stored,
    };
    Ok(Some((served.identity, stored)))
}

async fn unserve(server: &Server, stored: &Arc<Resource>) -> Result<(), Status> {
    let versions: Vec<_> = {
        let kinds = server.kinds.snapshot();
        kinds
            .versions_of(&stored.group, &stored.plural)
            .cloned()
            .collect()
    };
    let removed = server.kinds.remove_all(stored).await;
    removed.map_err(|problem| Status::internal(environment::chain(&problem)))?;
    for resource in versions {
        server.metrics.forget(&resource);
    }
    if let Some(custom) = stored.definition.custom() {
        server.converters.forget(&custom.kind.uid);
    }
    Ok(())
}

/// Writes a status, unless the definition is another one meanwhile: then it is looked at again anyway.
async fn write_status(server: &Arc<Server>, name: &str, settled: &Value) -> Result<(), Status> {
    let context = Context::internal(server);
    let resource = server.cache.resource(GROUP, PLURAL);
    let target = Target {
        is_owned: false,
        ..Target::internal(&resource, "", name, "status")
    };
    let written = registry::update(&context, &target, true, |old| {
        let mut new = old.clone();
        let version = settled.str_at(&["metadata", "resourceVersion"]);
        if !version.is_empty() {
            new.set(&["metadata", "resourceVersion"], version);
        }
        let is_same = |path: &[&str]| old.at(path) == settled.at(path);
        if !is_same(&["metadata", "uid"]) || !is_same(&["metadata", "generation"]) {
            return Err(resource.conflict(name, "the definition is another one"));
        }
        new.set(
            &["status"],
            settled.get("status").cloned().unwrap_or_default(),
        );
        Ok(new)
    });
    match written.await {
        Ok(_) => Ok(()),
        // Somebody changed or deleted it: an event follows.
        Err(status) if matches!(status.reason, Reason::NotFound | Reason::Conflict) => Ok(()),
        Err(status) => Err(status),
    }
}
