//! The end of a definition: all of its instances are deleted, then its finalizer goes, and it with it.
//!
//! Begun for every definition that is being deleted, as often as one is seen; only one at a time works
//! on the same definition. Instances that have finalizers of their own are waited for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Reason, Resource, Status, Value};

use super::conditions::{self, Condition, ESTABLISHED, FINALIZER, GROUP, PLURAL};
use crate::cache::{From, Requirement, Watch};
use crate::context::Context;
use crate::registry::{self, DeleteOptions, Target};
use crate::server::Server;

/// How long instances are waited for before the definition says so. They are waited for further.
const PATIENCE: Duration = Duration::from_secs(60);
const BACK_OFF: Duration = Duration::from_secs(1);

/// Begins to delete the instances of a definition that is being deleted.
pub(super) fn begin_if_due(server: &Arc<Server>, name: &str, definition: &Value) {
    let is_due = definition.has(&["metadata", "deletionTimestamp"]) && has_finalizer(definition);
    let uid = definition.str_at(&["metadata", "uid"]).to_string();
    if !is_due || !server.cleanups.lock().insert(uid.clone()) {
        return;
    }
    let weak = Arc::downgrade(server);
    let cleanup = Cleanup {
        name: name.to_string(),
        uid: uid.clone(),
    };
    let stop = server.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = cleanup.run(&weak) => {}
        }
        if let Some(server) = weak.upgrade() {
            server.cleanups.lock().remove(&uid);
        }
    });
}

fn has_finalizer(definition: &Value) -> bool {
    let finalizers = definition.list_at(&["metadata", "finalizers"]);
    finalizers.iter().any(|one| one.as_str() == Some(FINALIZER))
}

struct Cleanup {
    name: String,
    uid: String,
}

/// What is left to be done.
enum Step {
    /// The definition is gone, or is no longer the same one.
    Over,
    Again,
    /// Instances are there; they are waited for until they change.
    Wait,
}

impl Cleanup {
    async fn run(&self, server: &Weak<Server>) {
        loop {
            let Some(strong) = server.upgrade() else {
                return;
            };
            let step = self.step(&strong).await;
            drop(strong);
            match step {
                Ok(Step::Over) => return,
                Ok(Step::Again) => {}
                Ok(Step::Wait) => tokio::time::sleep(BACK_OFF).await,
                Err(status) => {
                    tracing::warn!(name = self.name, %status, "instances are deleted again");
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
        }
    }

    async fn step(&self, server: &Arc<Server>) -> Result<Step, Status> {
        let definitions = server.cache.named(GROUP, PLURAL);
        let Some(entry) = definitions.get(&self.name) else {
            return Ok(Step::Over);
        };
        let definition = entry.object()?;
        if definition.str_at(&["metadata", "uid"]) != self.uid || !has_finalizer(&definition) {
            return Ok(Step::Over);
        }
        let progress = Condition::terminating(
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
        self.write(server, &progress, false).await?;
        if !conditions::is_true(&definition, ESTABLISHED) {
            let never = Condition::terminating(
                "False",
                "NeverEstablished",
                "resource was never established",
            );
            self.write(server, &never, true).await?;
            return Ok(Step::Over);
        }
        let names = &definition;
        let group = names.str_at(&["spec", "group"]);
        let plural = names.str_at(&["status", "acceptedNames", "plural"]);
        let Some(kind) = server.cache.find(group, plural) else {
            return Ok(Step::Wait);
        };
        let resource = kind.resource.clone();
        server.objects.catch_up().await?;
        if let Err(problem) = delete_all(server, &resource).await {
            let failed = Condition::terminating(
                "True",
                "InstanceDeletionFailed",
                format!("could not issue all deletes: {}", problem.message),
            );
            self.write(server, &failed, false).await?;
            return Err(problem);
        }
        if !wait_until_empty(server, &resource).await {
            let remaining = Condition::terminating(
                "True",
                "InstanceDeletionCheck",
                "could not confirm zero CustomResources remaining: context deadline exceeded",
            );
            self.write(server, &remaining, false).await?;
            return Ok(Step::Again);
        }
        let completed = Condition::terminating(
            "False",
            "InstanceDeletionCompleted",
            "removed all instances",
        );
        self.write(server, &completed, true).await?;
        Ok(Step::Over)
    }

    /// Writes a condition, and with it takes out the finalizer.
    async fn write(
        &self,
        server: &Arc<Server>,
        condition: &Condition,
        is_last: bool,
    ) -> Result<(), Status> {
        let context = Context::internal(server);
        let resource = server.cache.resource(GROUP, PLURAL);
        let target = Target {
            is_owned: false,
            ..Target::internal(&resource, "", &self.name, "status")
        };
        let now = server.timestamp();
        let written = registry::update_past_rules(&context, &target, false, |old| {
            let mut new = old.clone();
            if old.str_at(&["metadata", "uid"]) != self.uid {
                return Ok(new);
            }
            condition.set(&mut new, &now);
            let list = new.at_mut(&["metadata", "finalizers"]);
            if let (true, Some(finalizers)) = (is_last, list.and_then(Value::as_array_mut)) {
                finalizers.retain(|one| one.as_str() != Some(FINALIZER));
                if finalizers.is_empty() {
                    new.remove(&["metadata", "finalizers"]);
                }
            }
            Ok(new)
        });
        match written.await {
            Ok(_) => Ok(()),
            Err(status) if status.reason == Reason::NotFound => Ok(()),
            Err(status) => Err(status),
        }
    }
}

/// Deletes every instance; those with finalizers are marked.
async fn delete_all(server: &Arc<Server>, resource: &Arc<Resource>) -> Result<(), Status> {
    let Some(kind) = server.cache.of(resource) else {
        return Ok(());
    };
    let context = Context::internal(server);
    let snapshot = server.cache.snapshot(&kind);
    let options = DeleteOptions::default();
    for (_, entry) in snapshot.iter() {
        let place = (entry.namespace(), entry.name());
        match registry::delete(&context, resource, place, &options).await {
            Ok(_) => {}
            Err(status) if status.reason == Reason::NotFound => {}
            Err(status) => return Err(status),
        }
    }
    Ok(())
}

/// Waits until no instance is left, but not for ever.
async fn wait_until_empty(server: &Arc<Server>, resource: &Arc<Resource>) -> bool {
    let deadline = tokio::time::sleep(PATIENCE);
    tokio::pin!(deadline);
    loop {
        let Some(kind) = server.cache.of(resource) else {
            return true;
        };
        let nothing = Requirement::of(std::iter::empty());
        let from = From::After(server.cache.applied());
        let Ok(mut watch) = Watch::begin(&server.cache, kind.clone(), from, nothing) else {
            continue;
        };
        // What was deleted may not have come through the feed yet.
        if server.objects.catch_up().await.is_ok() && kind.len() == 0 {
            return true;
        }
        tokio::select! {
            biased;
            () = &mut deadline => return false,
            change = watch.subscription.changes.recv() => {
                if change.is_none() {
                    // The kind was read anew.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}
