//! Writes under a condition: a new object if its name is free, a changed one if nobody wrote in
//! between. This is the only place where objects are put into the store, and the only loop that
//! compares and tries again.

use std::future::Future;
use std::sync::Arc;

use api::{Reason, Status, Value};
use store::{Compare, Operation, Transaction, TransactionResult};

use super::Target;
use super::finalizers::{awaits_deletion, is_deleting};
use super::owners::{MANAGED_FIELDS, keep_times};
use crate::admission::namespace_lifecycle::unchanged;
use crate::allocation;
use crate::cache::{CachedObject, key_of};
use crate::context::Context;
use crate::converted;
use crate::hops::Hops;
use crate::storage::{checked_bytes, store_failure, store_key};

pub(super) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";
/// Attempts of a change that names no resourceVersion and meets others' writes.
const ATTEMPTS: usize = 20;
/// How often a namespace may change under a creation before it is given up.
const NAMESPACE_ATTEMPTS: usize = 16;

/// What decides the new state of an object from the stored one. Asked again with the newer object
/// when somebody else wrote first.
pub(super) trait Change {
    fn plan(&mut self, old: &Value) -> impl Future<Output = Result<Planned, Status>> + Send;

    /// The write that was planned last did not happen: gives back what was taken for it.
    fn abandon(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Whether the caller goes on only when the cache shows what was written.
    fn must_show(&self) -> bool {
        false
    }
}

pub(super) struct Planned {
    pub new: Value,
    /// Whether the object goes with this write; then `new` is its last state.
    pub removes: bool,
}

impl Planned {
    /// `new` in place of `old`; it removes an object that nothing keeps any more.
    pub fn update(target: &Target<'_>, new: Value, old: &Value) -> Planned {
        Planned {
            removes: is_deleting(old) && !awaits_deletion(target.resource, &new),
            new,
        }
    }
}

/// What became of the object.
pub(super) struct Written {
    pub entry: Arc<CachedObject>,
    pub is_removed: bool,
}

/// Reads the object, lets `change` say what it should be, and writes that if nobody wrote in between;
/// otherwise tries again, unless the caller named a resourceVersion (`conditional`).
pub(super) async fn write(
    context: &Context,
    target: &Target<'_>,
    conditional: bool,
    mut change: impl Change,
) -> Result<Written, Status> {
    let server = &context.server;
    // Errors name what was asked for.
    let (requested, name) = (target.requested, target.name);
    let mut current = server
        .objects
        .get(requested, target.namespace, name)
        .await?;
    let mut attempts = 0;
    loop {
        let old = current.object_with_version()?;
        let old = converted::as_requested(server, requested, old).await?;
        let Planned { new, removes } = change.plan(&old).await?;
        let outcome = replace(context, target, &current, &old, new, removes).await;
        if !matches!(outcome, Ok(Replaced::Done(_))) {
            change.abandon().await;
        }
        let found = match outcome? {
            Replaced::Done(entry) => {
                if change.must_show() || target.resource.strategy().takes_effect_at_once() {
                    // It is written, also if the cache does not get there in time.
                    let _ = server.objects.reach(entry.revision).await;
                }
                return Ok(Written {
                    entry,
                    is_removed: removes,
                });
            }
            Replaced::Lost(found) => found,
        };
        attempts += 1;
        current = match found {
            None => return Err(requested.not_found(name)),
            Some(_) if conditional || attempts >= ATTEMPTS => {
                return Err(requested.conflict(name, MODIFIED));
            }
            Some(found) => found,
        };
    }
}

enum Replaced {
    Done(Arc<CachedObject>),
    /// Somebody else wrote first; this is what is there now.
    Lost(Option<Arc<CachedObject>>),
}

/// Puts `new` in the place of `current`, or removes the object. Writes nothing when nothing changed.
async fn replace(
    context: &Context,
    target: &Target<'_>,
    current: &Arc<CachedObject>,
    old: &Value,
    mut new: Value,
    removes: bool,
) -> Result<Replaced, Status> {
    let server = &context.server;
    let (namespace, name) = (target.namespace, target.name);
    let resource = &converted::stored_version(server, target.resource)?;
    keep_times(&mut new, old);
    for field in ["resourceVersion", "selfLink"] {
        new.remove(&["metadata", field]);
    }
    if !removes {
        new = converted::as_stored(server, target.requested, resource, new).await?;
    }
    let bytes = checked_bytes(&new, Some(old))?;
    if !removes && bytes == current.bytes && !current.is_stale() {
        return Ok(Replaced::Done(current.clone()));
    }
    if target.dry_run {
        let entry =
            server
                .objects
                .entry(resource, namespace, name, bytes, current.revision, &new)?;
        return Ok(Replaced::Done(entry));
    }
    let key = store_key(resource, namespace, name);
    let (operation, draft) = match removes {
        true => (Operation::Delete { key: key.clone() }, None),
        false => {
            let lease = server.objects.lease_of(resource).await?;
            let draft = server
                .objects
                .draft(resource, namespace, name, bytes.clone(), &new)?;
            let put = Operation::Put {
                key: key.clone(),
                value: bytes.clone(),
                lease,
            };
            (put, Some(draft))
        }
    };
    let left = (!removes).then_some(&new);
    let companions = allocation::companions(&server.services, resource, Some(old), left);
    let mut compare = vec![Compare::ModRevision {
        key,
        revision: current.revision,
    }];
    compare.extend(companions.compare);
    let mut then = vec![operation];
    then.extend(companions.then);
    let result = server
        .objects
        .store()
        .transact(Transaction { compare, then })
        .await;
    let is_too_large = matches!(result, Err(store::Error::TooLarge));
    if !target.is_owned && is_too_large && new.has(&MANAGED_FIELDS) {
        // As upstream: the object matters more than who owns its fields.
        drop(draft);
        new.remove(&MANAGED_FIELDS);
        return Box::pin(replace(context, target, current, old, new, removes)).await;
    }
    match result.map_err(store_failure)? {
        TransactionResult::Committed { revision, .. } => Ok(Replaced::Done(match draft {
            Some(draft) => draft.committed(revision),
            None => server
                .objects
                .entry(resource, namespace, name, bytes, revision, &new)?,
        })),
        TransactionResult::Failed { current: found, .. } => {
            let found = found.into_iter().next().flatten();
            let is_same = |revision| revision == current.revision;
            if found
                .as_ref()
                .is_some_and(|item| is_same(item.mod_revision))
            {
                return Err(allocation::taken_meanwhile(resource, name));
            }
            let key = key_of(namespace, name);
            let found = found
                .map(|item| CachedObject::decode(resource, &key, item.value, item.mod_revision))
                .transpose()?;
            Ok(Replaced::Lost(found.map(Arc::new)))
        }
    }
}

/// Why an object was not created.
pub(super) enum InsertError {
    /// The store accepts no value of this size.
    TooLarge,
    Refused(Status),
}

impl From<Status> for InsertError {
    fn from(status: Status) -> InsertError {
        InsertError::Refused(status)
    }
}

impl From<store::Error> for InsertError {
    fn from(error: store::Error) -> InsertError {
        match error {
            store::Error::TooLarge => InsertError::TooLarge,
            error => InsertError::Refused(store_failure(error)),
        }
    }
}

impl From<InsertError> for Status {
    fn from(error: InsertError) -> Status {
        match error {
            InsertError::TooLarge => store_failure(store::Error::TooLarge),
            InsertError::Refused(status) => status,
        }
    }
}

/// Puts a new object, under the conditions that its name is free and that its namespace still takes
/// new content.
pub(super) async fn insert(
    context: &Context,
    target: &Target<'_>,
    object: &Value,
    hops: &mut Hops,
) -> Result<Arc<CachedObject>, InsertError> {
    let server = &context.server;
    let requested = target.requested;
    let resource = &converted::stored_version(server, target.resource)?;
    let (namespace, name) = (target.namespace, target.name);
    let converted = match resource.is_custom() {
        true => Some(converted::as_stored(server, requested, resource, object.clone()).await?),
        false => None,
    };
    let object = converted.as_ref().unwrap_or(object);
    let bytes = checked_bytes(object, None)?;
    let key = store_key(resource, namespace, name);
    if target.dry_run {
        match server.objects.get(requested, namespace, name).await {
            Err(status) if status.reason == Reason::NotFound => {}
            Err(status) if status.reason != Reason::StoreReadError => return Err(status.into()),
            _ => return Err(requested.already_exists(name).into()),
        }
        let objects = &server.objects;
        return Ok(objects.entry(resource, namespace, name, bytes, 0, object)?);
    }
    let lease = server.objects.lease_of(resource).await?;
    hops.put(context, object, bytes.len());
    let draft = server
        .objects
        .draft(resource, namespace, name, bytes.clone(), object)?;
    let companions = allocation::companions(&server.services, resource, None, Some(object));
    for _ in 0..NAMESPACE_ATTEMPTS {
        let mut compare = vec![Compare::ModRevision {
            key: key.clone(),
            revision: 0,
        }];
        // What the object lives in may not change meanwhile.
        let mut around = Vec::new();
        if resource.namespaced {
            around.push(unchanged(server, requested, namespace, name).await?);
        }
        around.extend(converted::definition_unchanged(server, requested, name)?);
        let expected: Vec<_> = around.iter().map(revision_of_compare).collect();
        compare.extend(around);
        compare.extend(companions.compare.iter().cloned());
        let mut then = vec![Operation::Put {
            key: key.clone(),
            value: bytes.clone(),
            lease,
        }];
        then.extend(companions.then.iter().cloned());
        let result = server
            .objects
            .store()
            .transact(Transaction { compare, then })
            .await;
        let (revision, current) = match result? {
            TransactionResult::Committed { revision, .. } => {
                hops.revision(context);
                let entry = draft.committed(revision);
                if resource.strategy().takes_effect_at_once() {
                    // It is written, also if the cache does not get there in time.
                    let _ = server.objects.reach(revision).await;
                }
                return Ok(entry);
            }
            TransactionResult::Failed { revision, current } => (revision, current),
        };
        let revision_of = |index: usize| {
            let found = current.get(index).and_then(Option::as_ref);
            found.map_or(0, |found| found.mod_revision)
        };
        if revision_of(0) != 0 {
            return Err(requested.already_exists(name).into());
        }
        let mut expected = expected.into_iter().enumerate();
        if expected.all(|(index, revision)| revision == revision_of(index + 1)) {
            return Err(allocation::taken_meanwhile(requested, name).into());
        }
        // Somebody changed the namespace or the definition of the kind, or deleted it: what it is
        // now decides.
        server.objects.reach(revision).await?;
    }
    let problem = format_args!("namespace {namespace} changes all the time; please try again");
    Err(requested.conflict(name, problem).into())
}

fn revision_of_compare(compare: &Compare) -> u64 {
    let Compare::ModRevision { revision, .. } = compare;
    *revision
}
