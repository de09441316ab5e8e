//! Deletion of one object: preconditions, admission, grace, finalizers, propagation.
//!
//! An object goes at once unless a grace period or a finalizer keeps it; then it is marked with a
//! deletionTimestamp and goes with the update that removes the last of them.

use std::sync::Arc;

use api::resource::Dependents;
use api::{Resource, Status, Value};

use super::finalizers::{has_finalizers, is_deleting};
use super::guarded_write::{self, Change, Planned};
use super::{DeleteOptions, Target};
use crate::admission::{self, Admitted, Operation};
use crate::cache::CachedObject;
use crate::context::Context;
use crate::storage::seconds_text;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What became of the object.
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Removed(Arc<CachedObject>),
    /// It stays for now, marked.
    Pending(Arc<CachedObject>),
}

pub(crate) async fn delete(
    context: &Context,
    resource: &Arc<Resource>,
    (namespace, name): (&str, &str),
    options: &DeleteOptions,
) -> Result<Deleted, Status> {
    let target = Target {
        resource: api::conversion::storage_of(resource),
        requested: resource,
        namespace,
        name,
        subresource: "",
        is_owned: true,
        dry_run: options.dry_run,
    };
    let change = Deletion {
        context,
        target: &target,
        options,
    };
    let written = guarded_write::write(context, &target, false, change).await?;
    Ok(match written.is_removed {
        true => Deleted::Removed(written.entry),
        false => Deleted::Pending(written.entry),
    })
}

struct Deletion<'a> {
    context: &'a Context,
    target: &'a Target<'a>,
    options: &'a DeleteOptions,
}

impl Change for Deletion<'_> {
    async fn plan(&mut self, old: &Value) -> Result<Planned, Status> {
        let mut object = old.clone();
        check_preconditions(self.target, &object, self.options)?;
        let mut admitted = Admitted {
            context: self.context,
            resource: self.target.requested,
            subresource: "",
            operation: Operation::Delete,
            object: &mut object,
            old: None,
        };
        admission::mutate(&mut admitted).await?;
        let now = self.context.server.environment.now();
        let removes = mark(self.target.resource, &mut object, self.options, now);
        Ok(Planned {
            new: object,
            removes,
        })
    }
}

/// Marks `object` as the options ask, and says whether nothing keeps it.
fn mark(
    resource: &Resource,
    object: &mut Value,
    options: &DeleteOptions,
    now: jiff::Timestamp,
) -> bool {
    let strategy = resource.strategy();
    if is_deleting(object) && strategy.has_finalizers_of_its_own(object) {
        // What it contains is being deleted already.
        return false;
    }
    settle_finalizers(
        object,
        options.propagation.as_deref(),
        strategy.dependents(),
    );
    let asked = options.grace_seconds.map(at_least_a_second);
    let grace = strategy.graceful_delete(object, asked);
    let existing = object
        .at(&["metadata", "deletionGracePeriodSeconds"])
        .and_then(Value::as_i64)
        .map(at_least_a_second);
    let mut remaining = 0;
    match (grace, is_deleting(object)) {
        (None, false) => {
            if has_finalizers(resource, object) {
                set_deletion(object, now, 0);
            }
        }
        (None, true) => {}
        (Some(seconds), false) => {
            set_deletion(object, now, seconds);
            remaining = seconds;
        }
        (Some(_), true) => {
            let before = existing.unwrap_or(0);
            remaining = before;
            if let Some(seconds) = asked
                && seconds < before
            {
                remaining = shorten(object, now, before, seconds);
            }
        }
    }
    if is_deleting(object) {
        strategy.prepare_deleting(object);
    }
    remaining <= 0 && !has_finalizers(resource, object)
}

/// A grace below zero counts as one second.
fn at_least_a_second(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

fn set_deletion(object: &mut Value, now: jiff::Timestamp, seconds: i64) {
    let at = now
        .checked_add(jiff::SignedDuration::from_secs(seconds))
        .unwrap_or(now);
    object.set(&["metadata", "deletionTimestamp"], seconds_text(at));
    object.set(&["metadata", "deletionGracePeriodSeconds"], seconds);
    let generation = object
        .at(&["metadata", "generation"])
        .and_then(Value::as_i64);
    if let Some(generation) = generation.filter(|generation| *generation > 0) {
        object.set(&["metadata", "generation"], generation + 1);
    }
}

/// Moves the deletion nearer, never into the past; returns the grace that is left.
fn shorten(object: &mut Value, now: jiff::Timestamp, before: i64, seconds: i64) -> i64 {
    let stamp: Option<jiff::Timestamp> = object
        .str_at(&["metadata", "deletionTimestamp"])
        .parse()
        .ok();
    let moved = stamp
        .and_then(|stamp| {
            stamp
                .checked_add(jiff::SignedDuration::from_secs(seconds - before))
                .ok()
        })
        .unwrap_or(now);
    let (stamp, seconds) = match moved < now {
        true => (now, seconds.min(1)),
        false => (moved, seconds),
    };
    object.set(&["metadata", "deletionTimestamp"], seconds_text(stamp));
    object.set(&["metadata", "deletionGracePeriodSeconds"], seconds);
    seconds
}

/// The garbage collector's finalizers, as the propagation policy asks.
fn settle_finalizers(object: &mut Value, propagation: Option<&str>, dependents: Dependents) {
    let is_policy = |name: &Value| matches!(name.as_str(), Some(ORPHAN | FOREGROUND));
    let finalizers = object.list_at(&["metadata", "finalizers"]);
    let policy = match (propagation, dependents) {
        (_, Dependents::None) => return,
        (Some(policy), _) => policy,
        (None, Dependents::Orphaned) if !finalizers.iter().any(is_policy) => "Orphan",
        (None, _) => return,
    };
    let mut finalizers = finalizers.to_vec();
    finalizers.retain(|name| !is_policy(name));
    match policy {
        "Orphan" => finalizers.push(ORPHAN.into()),
        "Foreground" => finalizers.push(FOREGROUND.into()),
        _ => {}
    }
    match finalizers.is_empty() {
        true => drop(object.remove(&["metadata", "finalizers"])),
        false => object.set(&["metadata", "finalizers"], finalizers),
    }
}

fn check_preconditions(
    target: &Target<'_>,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    // Errors name the kind that is stored.
    let (resource, name) = (target.resource, target.name);
    let strategy = resource.strategy();
    for (what, field, given, why) in [
        (
            "UID",
            "uid",
            &options.uid,
            "The object might have been deleted and then recreated",
        ),
        (
            "ResourceVersion",
            "resourceVersion",
            &options.resource_version,
            "The object might have been modified",
        ),
    ] {
        let found = object.str_at(&["metadata", field]);
        let Some(given) = given.as_deref().filter(|given| *given != found) else {
            continue;
        };
        return Err(match strategy.checks_delete_preconditions_itself() {
            true => resource.conflict(
                name,
                format_args!(
                    "Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}"
                ),
            ),
            false => Status::conflict(
                &resource.group,
                &resource.kind,
                name,
                format_args!(
                    "the {what} in the precondition ({given}) does not match the {what} in record ({found}). {why}"
                ),
            ),
        });
    }
    Ok(())
}
