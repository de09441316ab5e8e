//! POST: a new object, through defaulting, admission and validation, into the store under the
//! condition that it was not there.

use std::sync::Arc;

use api::{Reason, Resource, Status, Value};
use http::Response;
use store::{Compare, Operation, Transaction, TransactionResult};

use super::update::owners_after;
use super::{requester, respond};
use crate::admission::namespace_lifecycle::unchanged;
use crate::admission::{self, Admitted};
use crate::allocation;
use crate::authorization::Granting;
use crate::body::Body;
use crate::cache::Entry;
use crate::decode;
use crate::hops::Hops;
use crate::server::{Context, Server, checked_bytes, store_failure};

/// Fresh names tried for `generateName` before giving up.
const NAME_ATTEMPTS: usize = 8;
/// Random characters appended to `generateName`, and the longest prefix kept.
const SUFFIX: usize = 5;
const LONGEST_PREFIX: usize = 63 - SUFFIX;

/// How often a namespace may change under a creation before it is given up.
const NAMESPACE_ATTEMPTS: usize = 16;

const SYSTEM_FIELDS: [&str; 5] = [
    "uid",
    "selfLink",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

pub(crate) const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

pub(crate) async fn create(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let object = decode::object(context, resource, body)?;
    let object = api::conversion::to_storage(resource, object);
    let mut hops = Hops::begin(context, resource, body.len());
    let entry = create_object(context, resource, object.into(), &mut hops).await?;
    let response = respond(context, 201, resource, &entry)?;
    hops.created(&entry, context);
    Ok(response)
}

/// An object to be created, already checked against the schema.
pub(crate) struct New {
    pub object: Value,
    /// Whether its `managedFields` are settled, by apply.
    pub is_owned: bool,
}

impl From<Value> for New {
    fn from(object: Value) -> New {
        New {
            object,
            is_owned: false,
        }
    }
}

/// Creates an object, in the version it is stored in, in the namespace of the request.
pub(crate) async fn create_object(
    context: &Context,
    resource: &Arc<Resource>,
    new: New,
    hops: &mut Hops,
) -> Result<Arc<Entry>, Status> {
    let server = &context.server;
    // The rules are those of the version that was sent.
    let strategy = resource.strategy();
    let (requested, resource) = (resource, api::conversion::storage_of(resource));
    let New {
        mut object,
        is_owned,
    } = new;
    settle_namespace(resource, &context.info.namespace, &mut object)?;
    // Nobody owns what only the server sets.
    for field in SYSTEM_FIELDS {
        object.remove(&["metadata", field]);
    }
    let names_version = !matches!(object.str_at(&["metadata", "resourceVersion"]), "" | "0");
    let repeated = api::warnings::without_repeated_owners(&mut object, false);
    repeated.into_iter().for_each(|word| context.warn(word));
    api::schema::defaults(resource, &mut object);
    strategy.default(&mut object);
    // Settled before admission and the strategy: what they set has no owner.
    let owners = match is_owned {
        true => object.remove(&MANAGED_FIELDS),
        false => {
            let write = (requested, "");
            owners_after(context, write, None, &mut object)
        }
    };
    let mut admitted = Admitted {
        context,
        resource,
        subresource: "",
        operation: admission::Operation::Create,
        object: &mut object,
        old: None,
    };
    admission::mutate(&mut admitted).await?;
    // Admission may have added what has defaults of its own.
    api::schema::defaults(resource, &mut object);
    strategy.default(&mut object);
    let sent_empty = api::schema::forget_empty(resource, &mut object);
    if let Some(owners) = owners {
        object.set(&MANAGED_FIELDS, owners);
    }
    let generate = object.str_at(&["metadata", "name"]).is_empty();
    let prefix = object.str_at(&["metadata", "generateName"]).to_string();
    let mut attempts = if generate && !prefix.is_empty() {
        NAME_ATTEMPTS
    } else {
        1
    };
    loop {
        // Kept only where it may be needed again, under another name.
        let mut object = match attempts {
            1 => std::mem::take(&mut object),
            _ => object.clone(),
        };
        if generate && !prefix.is_empty() {
            let kept: String = prefix.chars().take(LONGEST_PREFIX).collect();
            let suffix = match strategy.generates_names() {
                true => server.environment.name_suffix(SUFFIX),
                false => String::new(),
            };
            object.set(&["metadata", "name"], format!("{kept}{suffix}"));
        }
        fill_system_fields(server, &mut object);
        strategy.prepare_create(&mut object);
        requester::record(context, resource, &mut object);
        strategy.stamp(&mut object, None, "", &server.timestamp());
        api::schema::forget_empty(resource, &mut object);
        let reservation = allocation::reserve(server, resource, &mut object, None)?;
        let errors = strategy.validate_create(&object);
        if !errors.is_empty() {
            let errors = sent_empty.shown_in(errors);
            let name = object.str_at(&["metadata", "name"]);
            return Err(resource.invalid(name, errors));
        }
        for word in api::warnings::of(resource, &object, None, "") {
            context.warn(word);
        }
        context.server.authorizer.check_escalation(&Granting {
            identity: &context.identity,
            resource,
            namespace: object.str_at(&["metadata", "namespace"]),
            requested_name: &context.info.name,
            new: &object,
            old: None,
        })?;
        let admitted = Admitted {
            context,
            resource,
            subresource: "",
            operation: admission::Operation::Create,
            object: &mut object,
            old: None,
        };
        let charge = admission::validate(&admitted).await?;
        if names_version {
            charge.give_back(context).await;
            // Found out late by upstream's storage, which has no reason to give.
            return Err(Status::new(
                Reason::Unknown,
                "resourceVersion should not be set on objects to be created",
            ));
        }
        // As reading it back from the store would.
        strategy.default(&mut object);
        let mut result = insert(context, requested, &object, hops).await;
        if !is_owned && is_too_large(&result) && object.has(&MANAGED_FIELDS) {
            // As upstream: the object matters more than who owns its fields.
            object.remove(&MANAGED_FIELDS);
            result = insert(context, requested, &object, hops).await;
        }
        if result.is_err() {
            charge.give_back(context).await;
        }
        if let (Ok(entry), true) = (&result, reservation.holds()) {
            // The reservation may go once the cache shows the service itself. The service is
            // written, also if the cache does not get there in time.
            let _ = server.reach(entry.revision).await;
        }
        attempts -= 1;
        match result {
            Err(status) if status.reason == Reason::AlreadyExists && attempts > 0 => continue,
            Err(status) if status.reason == Reason::AlreadyExists && generate => {
                let mut status = status;
                let name = object.str_at(&["metadata", "name"]);
                status.message = format!(
                    "{} {name:?} already exists, the server was not able to generate a unique name for the object",
                    resource.qualified()
                );
                if let Some(details) = &mut status.details {
                    details.retry_after_seconds = 1;
                }
                return Err(status);
            }
            other => return other,
        }
    }
}

async fn insert(
    context: &Context,
    resource: &Arc<Resource>,
    object: &Value,
    hops: &mut Hops,
) -> Result<Arc<Entry>, Status> {
    let server = &context.server;
    let (namespace, name) = (
        object.str_at(&["metadata", "namespace"]),
        object.str_at(&["metadata", "name"]),
    );
    let bytes = checked_bytes(object, None)?;
    let key = Server::store_key(resource, namespace, name);
    if context.dry_run {
        match server.get(resource, namespace, name).await {
            Err(status) if status.reason == Reason::NotFound => {}
            Err(status) if status.reason != Reason::StoreReadError => return Err(status),
            _ => {
                return Err(resource.already_exists(name));
            }
        }
        return server.entry(resource, namespace, name, bytes, 0, object);
    }
    let lease = server.lease_of(resource).await?;
    hops.put(context, object, bytes.len());
    let draft = server.draft(resource, namespace, name, bytes.clone(), object)?;
    let companions = allocation::companions(server, resource, None, Some(object));
    for _ in 0..NAMESPACE_ATTEMPTS {
        let mut compare = vec![Compare::ModRevision {
            key: key.clone(),
            revision: 0,
        }];
        let mut expected = None;
        if resource.namespaced {
            let unchanged = unchanged(server, resource, namespace, name).await?;
            let Compare::ModRevision { revision, .. } = &unchanged;
            expected = Some(*revision);
            compare.push(unchanged);
        }
        compare.extend(companions.compare.iter().cloned());
        let mut then = vec![Operation::Put {
            key: key.clone(),
            value: bytes.clone(),
            lease,
        }];
        then.extend(companions.then.iter().cloned());
        let result = server
            .store
            .transact(Transaction { compare, then })
            .await
            .map_err(store_failure)?;
        let (revision, current) = match result {
            TransactionResult::Committed { revision, .. } => {
                hops.revision(context);
                return Ok(draft.committed(revision));
            }
            TransactionResult::Failed { revision, current } => (revision, current),
        };
        let revision_of = |index: usize| {
            let found = current.get(index).and_then(Option::as_ref);
            found.map_or(0, |found| found.mod_revision)
        };
        if revision_of(0) != 0 {
            return Err(resource.already_exists(name));
        }
        if expected.is_none_or(|expected| expected == revision_of(1)) {
            return Err(allocation::taken_meanwhile(resource, name));
        }
        // Somebody changed the namespace, or deleted it: what it is now decides.
        server.reach(revision).await?;
    }
    Err(resource.conflict(
        name,
        format_args!("namespace {namespace} changes all the time; please try again"),
    ))
}

/// Whether the store would not take an object for its size.
pub(crate) fn is_too_large<T>(result: &Result<T, Status>) -> bool {
    let words = store::Error::TooLarge.to_string();
    matches!(result, Err(status) if status.reason == Reason::Unknown && status.message == words)
}

fn fill_system_fields(server: &Server, object: &mut Value) {
    object.set(&["metadata", "creationTimestamp"], server.timestamp());
    object.set(&["metadata", "uid"], server.environment.uuid());
    object.remove(&["metadata", "resourceVersion"]);
}

/// Puts the request's namespace into the object, or refuses a different one.
pub(crate) fn settle_namespace(
    resource: &Resource,
    namespace: &str,
    object: &mut Value,
) -> Result<(), Status> {
    if !matches!(object.get("metadata"), Some(Value::Object(_))) {
        object.set(&["metadata"], Value::object());
    }
    let given = object.str_at(&["metadata", "namespace"]);
    match (resource.namespaced, given) {
        (false, "") => Ok(()),
        (false, _) => {
            object.remove(&["metadata", "namespace"]);
            Ok(())
        }
        (true, "") => {
            object.set(&["metadata", "namespace"], namespace);
            Ok(())
        }
        (true, given) if given == namespace => Ok(()),
        (true, _) => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}
