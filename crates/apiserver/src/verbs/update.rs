//! PUT, and the conditional read-change-write loop that PATCH and the subresources share.

use std::sync::Arc;

use api::apply::{Write, same_but_times};
use api::{Resource, Status, Value};
use http::Response;
use store::{Compare, Operation, Transaction, TransactionResult};

use super::create::{MANAGED_FIELDS, create_object, is_too_large, settle_namespace};
use super::respond;
use crate::admission::{self, Admitted};
use crate::allocation;
use crate::authorization::Granting;
use crate::body::Body;
use crate::cache::Entry;
use crate::decode;
use crate::hops::Hops;
use crate::options;
use crate::server::{Context, Server, checked_bytes, store_failure};

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";
/// Attempts of a change that names no resourceVersion and meets others' writes.
const ATTEMPTS: usize = 20;

pub(crate) async fn update(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let info = &context.info;
    let sent = decode::object(context, resource, body)?;
    let mut sent = api::conversion::to_storage(resource, sent);
    check_name(&sent, &info.name)?;
    settle_namespace(resource, &info.namespace, &mut sent)?;
    let target = Target::of(context, resource);
    let exists = context
        .server
        .get(target.requested, target.namespace, target.name)
        .await;
    let strategy = resource.strategy();
    if let Err(status) = exists
        && status.reason == api::Reason::NotFound
        && info.subresource.is_empty()
        && strategy.allow_create_on_update()
    {
        sent.remove(&["metadata", "resourceVersion"]);
        let attributes = crate::authorization::Attributes {
            verb: "create".to_string(),
            ..crate::authorization::Attributes::of(info)
        };
        context
            .server
            .authorizer
            .check(&context.identity, &attributes)?;
        let entry = create_object(context, resource, sent.into(), &mut Hops::none()).await?;
        return respond(context, 201, resource, &entry);
    }
    let conditional = !sent.str_at(&["metadata", "resourceVersion"]).is_empty();
    let entry = change(context, &target, conditional, |_| Ok(sent.clone())).await?;
    respond(context, 200, resource, &entry)
}

/// What a change is about.
pub(crate) struct Target<'a> {
    /// What it is stored as.
    pub resource: &'a Arc<Resource>,
    /// The version that was sent, whose rules hold.
    pub requested: &'a Arc<Resource>,
    pub namespace: &'a str,
    pub name: &'a str,
    /// "" for the object itself.
    pub subresource: &'a str,
    /// Written as it is, past the kind's rules: for subresources that are rules of their own, such
    /// as `binding`.
    pub raw: bool,
    /// Whether the new state comes with its final `managedFields`; otherwise this write owns what
    /// it changes.
    pub is_owned: bool,
}

impl<'a> Target<'a> {
    pub fn of(context: &'a Context, resource: &'a Arc<Resource>) -> Target<'a> {
        let info = &context.info;
        Target {
            resource: api::conversion::storage_of(resource),
            requested: resource,
            namespace: if resource.namespaced {
                &info.namespace
            } else {
                ""
            },
            name: &info.name,
            subresource: &info.subresource,
            raw: false,
            is_owned: false,
        }
    }
}

/// Reads the object, lets `make` say what it should be, and writes that if nobody wrote in between;
/// otherwise tries again unless the caller named a resourceVersion (`conditional`).
pub(crate) async fn change(
    context: &Context,
    target: &Target<'_>,
    conditional: bool,
    mut make: impl FnMut(&Value) -> Result<Value, Status>,
) -> Result<Arc<Entry>, Status> {
    let server = &context.server;
    let Target {
        resource,
        namespace,
        name,
        subresource,
        ..
    } = *target;
    // Errors name what was asked for.
    let requested = target.requested;
    let mut current = server.get(requested, namespace, name).await?;
    let mut attempts = 0;
    loop {
        let old = current.object_with_version()?;
        let mut new = make(&old)?;
        let patched = context.info.verb == "patch";
        check_preconditions(requested, &mut new, &old, name, patched)?;
        if target.raw {
            let owners = owners(context, target, &old, &mut new);
            set_owners(&mut new, owners);
            match write(context, target, &current, &old, new).await? {
                Written::Done(entry) => return Ok(entry),
                Written::Lost(found) => {
                    current = again(requested, name, found, conditional, &mut attempts)?
                }
            }
            continue;
        }
        let strategy = target.requested.strategy();
        api::schema::defaults(resource, &mut new);
        strategy.default(&mut new);
        // Settled before admission and the strategy: what they change has no owner.
        let owners = owners(context, target, &old, &mut new);
        let mut admitted = Admitted {
            context,
            resource,
            subresource,
            operation: admission::Operation::Update,
            object: &mut new,
            old: Some(&old),
        };
        admission::mutate(&mut admitted).await?;
        // A patch is looked at only here, by when admission might have done it.
        let repeated = api::warnings::without_repeated_owners(&mut new, patched);
        repeated.into_iter().for_each(|word| context.warn(word));
        let sent_empty = api::schema::forget_empty(resource, &mut new);
        strategy.prepare_update(&mut new, &old, subresource);
        strategy.stamp(&mut new, Some(&old), subresource, &server.timestamp());
        api::schema::forget_empty(resource, &mut new);
        set_owners(&mut new, owners);
        let reservation = match subresource {
            "" => allocation::reserve(server, resource, &mut new, Some(&old))?,
            _ => allocation::Reservation::none(),
        };
        let errors = strategy.validate_update(&new, &old, subresource);
        if !errors.is_empty() {
            let errors = sent_empty.shown_in(errors);
            return Err(resource.invalid(name, errors));
        }
        for word in api::warnings::of(resource, &new, Some(&old), subresource) {
            context.warn(word);
        }
        server.authorizer.check_escalation(&Granting {
            identity: &context.identity,
            resource,
            namespace,
            requested_name: &context.info.name,
            new: &new,
            old: Some(&old),
        })?;
        let admitted = Admitted {
            context,
            resource,
            subresource,
            operation: admission::Operation::Update,
            object: &mut new,
            old: Some(&old),
        };
        let charge = admission::validate(&admitted).await?;
        // As reading it back from the store would.
        strategy.default(&mut new);
        let written = write(context, target, &current, &old, new).await;
        if !matches!(written, Ok(Written::Done(_))) {
            charge.give_back(context).await;
        }
        match written? {
            Written::Done(entry) => {
                if reservation.holds() {
                    // Written, also if the cache does not get there in time.
                    let _ = server.reach(entry.revision).await;
                }
                return Ok(entry);
            }
            Written::Lost(found) => {
                current = again(requested, name, found, conditional, &mut attempts)?
            }
        }
    }
}

/// The `managedFields` of the new state, taken out of it until it is settled.
fn owners(context: &Context, target: &Target<'_>, old: &Value, new: &mut Value) -> Option<Value> {
    if target.is_owned {
        return new.remove(&MANAGED_FIELDS);
    }
    let write = (target.requested, target.subresource);
    owners_after(context, write, Some(old), new)
}

/// The owners after a write to a resource and subresource, in the version that was sent. Takes
/// `managedFields` out of the new state.
pub(crate) fn owners_after(
    context: &Context,
    (requested, subresource): (&Arc<Resource>, &str),
    old: Option<&Value>,
    new: &mut Value,
) -> Option<Value> {
    let manager = options::manager(context);
    let write = Write::new(requested, subresource, &manager, context.server.timestamp());
    if requested.is_stored_as_itself() {
        return api::apply::update(&write, old, new);
    }
    let shown = |object: &Value| api::conversion::from_storage(requested, object.clone());
    let (before, mut after) = (old.map(shown), shown(new));
    new.remove(&MANAGED_FIELDS);
    api::apply::update(&write, before.as_ref(), &mut after)
}

pub(crate) fn set_owners(new: &mut Value, owners: Option<Value>) {
    match owners {
        Some(owners) => new.set(&MANAGED_FIELDS, owners),
        None => drop(new.remove(&MANAGED_FIELDS)),
    }
}

/// A write that changes nothing but the times of its owners changes nothing at all.
fn keep_times(new: &mut Value, old: &Value) {
    let (before, after) = (old.at(&MANAGED_FIELDS), new.at(&MANAGED_FIELDS));
    if before == after || !same_but_times(before, after) {
        return;
    }
    let fresh = new.remove(&MANAGED_FIELDS);
    let version = new.remove(&["metadata", "resourceVersion"]);
    let same_metadata = old
        .fields_at(&["metadata"])
        .filter(|(name, _)| !matches!(*name, "managedFields" | "resourceVersion"));
    let is_same = same_metadata.eq(new.fields_at(&["metadata"]))
        && old
            .fields_at(&[])
            .filter(|(name, _)| *name != "metadata")
            .eq(new.fields_at(&[]).filter(|(name, _)| *name != "metadata"));
    let owners = if is_same { before.cloned() } else { fresh };
    set_owners(new, owners);
    if let Some(version) = version {
        new.set(&["metadata", "resourceVersion"], version);
    }
}

enum Written {
    Done(Arc<Entry>),
    /// Somebody else wrote first; this is what is there now.
    Lost(Option<Arc<Entry>>),
}

/// Writes `new` in place of `current`, or removes the object when this was the last thing that
/// held it. Writes nothing when nothing changed.
async fn write(
    context: &Context,
    target: &Target<'_>,
    current: &Arc<Entry>,
    old: &Value,
    mut new: Value,
) -> Result<Written, Status> {
    let server = &context.server;
    let Target {
        resource,
        namespace,
        name,
        ..
    } = *target;
    keep_times(&mut new, old);
    for field in ["resourceVersion", "selfLink"] {
        new.remove(&["metadata", field]);
    }
    let bytes = checked_bytes(&new, Some(old))?;
    if bytes == current.bytes {
        return Ok(Written::Done(current.clone()));
    }
    if context.dry_run {
        let entry = server.entry(resource, namespace, name, bytes, current.revision, &new)?;
        return Ok(Written::Done(entry));
    }
    let key = Server::store_key(resource, namespace, name);
    let lease = server.lease_of(resource).await?;
    let (operation, draft) = if is_deleting(old) && !awaits_deletion(&new) {
        (Operation::Delete { key: key.clone() }, None)
    } else {
        let draft = server.draft(resource, namespace, name, bytes.clone(), &new)?;
        let put = Operation::Put {
            key: key.clone(),
            value: bytes.clone(),
            lease,
        };
        (put, Some(draft))
    };
    let left = draft.is_some().then_some(&new);
    let companions = allocation::companions(server, resource, Some(old), left);
    let mut compare = vec![Compare::ModRevision {
        key,
        revision: current.revision,
    }];
    compare.extend(companions.compare);
    let mut then = vec![operation];
    then.extend(companions.then);
    let result = server
        .store
        .transact(Transaction { compare, then })
        .await
        .map_err(store_failure);
    if !target.is_owned && is_too_large(&result) && new.has(&MANAGED_FIELDS) {
        // As upstream: the object matters more than who owns its fields.
        drop(draft);
        new.remove(&MANAGED_FIELDS);
        return Box::pin(write(context, target, current, old, new)).await;
    }
    match result? {
        TransactionResult::Committed { revision, .. } => {
            let entry = match draft {
                Some(draft) => draft.committed(revision),
                None => server.entry(resource, namespace, name, bytes, revision, &new)?,
            };
            Ok(Written::Done(entry))
        }
        TransactionResult::Failed { current: found, .. } => {
            let key = crate::cache::key_of(namespace, name);
            let found = found.into_iter().next().flatten();
            if found
                .as_ref()
                .is_some_and(|item| item.mod_revision == current.revision)
            {
                return Err(allocation::taken_meanwhile(resource, name));
            }
            let found = found
                .map(|item| Entry::decode(resource, &key, item.value, item.mod_revision))
                .transpose()?;
            Ok(Written::Lost(found.map(Arc::new)))
        }
    }
}

/// What to try again with, after somebody else wrote first.
fn again(
    resource: &Resource,
    name: &str,
    found: Option<Arc<Entry>>,
    conditional: bool,
    attempts: &mut usize,
) -> Result<Arc<Entry>, Status> {
    *attempts += 1;
    match found {
        None => Err(resource.not_found(name)),
        Some(_) if conditional || *attempts >= ATTEMPTS => Err(resource.conflict(name, MODIFIED)),
        Some(found) => Ok(found),
    }
}

/// Compares the resourceVersion and UID the client named with what is there. A UID in a patch is no
/// condition but a change, which validation refuses.
fn check_preconditions(
    resource: &Arc<Resource>,
    new: &mut Value,
    old: &Value,
    name: &str,
    patched: bool,
) -> Result<(), Status> {
    let (given, uid) = (
        new.str_at(&["metadata", "uid"]),
        old.str_at(&["metadata", "uid"]),
    );
    if !patched && !given.is_empty() && given != uid {
        let stored = api::conversion::storage_of(resource);
        let key = Server::store_key(stored, old.str_at(&["metadata", "namespace"]), name);
        return Err(resource.conflict(name,
            format_args!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {uid}",
                String::from_utf8_lossy(&key)
            ),
        ));
    }
    let version = old.str_at(&["metadata", "resourceVersion"]);
    match new.str_at(&["metadata", "resourceVersion"]) {
        "" | "0" => {
            if !resource.strategy().allow_unconditional_update() {
                // The storage says it, which knows the resource, not the kind.
                return Err(Status::invalid(
                    &*resource.group,
                    &*resource.plural,
                    name,
                    vec![api::Cause {
                        reason: "FieldValueInvalid",
                        message: "Invalid value: 0: must be specified for an update".to_string(),
                        field: "metadata.resourceVersion".to_string(),
                    }],
                ));
            }
            new.set(&["metadata", "resourceVersion"], version);
        }
        given if given == version => {}
        // Upstream hands the parser's error on as it is.
        given if given.parse::<u64>().is_err() => {
            return Err(Status::new(
                api::Reason::Unknown,
                format!("strconv.ParseUint: parsing {given:?}: invalid syntax"),
            ));
        }
        _ => {
            return Err(resource.conflict(name, MODIFIED));
        }
    }
    Ok(())
}

pub(crate) fn check_name(object: &Value, name: &str) -> Result<(), Status> {
    match object.str_at(&["metadata", "name"]) {
        given if given == name => Ok(()),
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given => Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some()
}

/// Whether an object that is being deleted must still stay: finalizers, or grace.
pub(crate) fn awaits_deletion(object: &Value) -> bool {
    let grace = object
        .at(&["metadata", "deletionGracePeriodSeconds"])
        .and_then(Value::as_i64);
    has_finalizers(object) || grace.is_some_and(|seconds| seconds > 0)
}

pub(crate) fn has_finalizers(object: &Value) -> bool {
    let any = |path: &[&str]| {
        object
            .at(path)
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    };
    any(&["metadata", "finalizers"])
        || object.str_at(&["kind"]) == "Namespace" && any(&["spec", "finalizers"])
}
