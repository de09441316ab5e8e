//! DELETE of one object or a collection: preconditions, grace, finalizers, propagation.
//!
//! An object goes at once unless a grace period or a finalizer holds it; then it is marked with a
//! deletionTimestamp and goes with the update that removes the last hold.

use std::sync::Arc;

use api::field::{FieldError, Path};
use api::strategy::Dependents;
use api::{Resource, Status, Value};
use http::Response;
use store::{Compare, Operation, Transaction, TransactionResult};

use super::selection::Selection;
use super::update::{has_finalizers, is_deleting};
use super::{respond, success};
use crate::admission::{self, Admitted};
use crate::body::Body;
use crate::cache::Entry;
use crate::decode;
use crate::response;
use crate::server::{Context, Server, seconds_text, store_failure, stored_bytes};

const ATTEMPTS: usize = 20;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// `DeleteOptions`, from the body or the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub grace_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<String>,
    pub dry_run: bool,
    /// Whether only an object that cannot be read is to be deleted, unread.
    pub ignores_read_error: bool,
}

const IGNORE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl DeleteOptions {
    /// `document` is a `DeleteOptions` object.
    pub fn parse(context: &Context, document: &Value) -> Result<DeleteOptions, Status> {
        let text = |path: &[&str]| match document.str_at(path) {
            "" => None,
            text => Some(text.to_string()),
        };
        let mut options = DeleteOptions {
            grace_seconds: document.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            propagation: text(&["propagationPolicy"]),
            dry_run: context.dry_run,
            ignores_read_error: document.get(IGNORE).and_then(Value::as_bool) == Some(true),
        };
        let mut errors = Vec::new();
        let path = Path::new("propagationPolicy");
        let orphan = document.get("orphanDependents").and_then(Value::as_bool);
        let policy = options.propagation.clone().unwrap_or_default();
        if orphan.is_some() && !policy.is_empty() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&path, policy.as_str(), detail));
        }
        if !matches!(policy.as_str(), "" | "Foreground" | "Background" | "Orphan") {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported(
                &path,
                policy.as_str(),
                &supported,
            ));
        }
        let dry_run = document.list_at(&["dryRun"]);
        if dry_run.iter().any(|item| item.as_str() != Some("All")) {
            let given = Value::Array(dry_run.to_vec());
            errors.push(FieldError::not_supported(
                &Path::new("dryRun"),
                given,
                &["All"],
            ));
        }
        options.dry_run |= !dry_run.is_empty();
        if options.ignores_read_error {
            let with = [
                (options.dry_run, "dryRun"),
                (!policy.is_empty(), "propagationPolicy"),
                (orphan.is_some(), "orphanDependents"),
                (options.grace_seconds.is_some(), "gracePeriodSeconds"),
                (document.has(&["preconditions"]), "preconditions"),
            ];
            for (_, other) in with.into_iter().filter(|(given, _)| *given) {
                let detail = format!("cannot be set together with .{other}");
                errors.push(FieldError::invalid(&Path::new(IGNORE), true, detail));
            }
        }
        if !errors.is_empty() {
            return Err(invalid_options(errors));
        }
        if let Some(orphan) = orphan {
            options.propagation = Some(if orphan { "Orphan" } else { "Background" }.to_string());
        }
        Ok(options)
    }

    /// From a request's body, or from its query when it has none.
    pub fn of_request(context: &Context, body: &[u8]) -> Result<DeleteOptions, Status> {
        if !body.is_empty() {
            return DeleteOptions::parse(context, &decode::delete_options(context, body)?);
        }
        let query = &context.query;
        let mut document = Value::object();
        if let Some(seconds) = query.integer("gracePeriodSeconds")? {
            document.set(&["gracePeriodSeconds"], seconds);
        }
        if !query.get("propagationPolicy").is_empty() {
            document.set(&["propagationPolicy"], query.get("propagationPolicy"));
        }
        if query.all("orphanDependents").next().is_some() {
            document.set(&["orphanDependents"], query.flag("orphanDependents"));
        }
        if query.flag(IGNORE) {
            document.set(&[IGNORE], true);
        }
        let dry_run: Vec<Value> = query.all("dryRun").map(Value::from).collect();
        if !dry_run.is_empty() {
            document.set(&["dryRun"], dry_run);
        }
        DeleteOptions::parse(context, &document)
    }
}

fn invalid_options(errors: Vec<FieldError>) -> Status {
    let causes = errors.into_iter().map(api::Cause::from).collect();
    Status::invalid("meta.k8s.io", "DeleteOptions", "", causes)
}

/// Jobs leave their pods behind unless told otherwise, which surprises.
fn warn_of_orphans(context: &Context, resource: &Resource, options: &DeleteOptions) {
    const WORD: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
    if resource.group == "batch" && resource.kind == "Job" && options.propagation.is_none() {
        context.warn(WORD);
    }
}

/// What became of the object.
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Removed(Arc<Entry>),
    /// It stays for now, marked.
    Pending(Arc<Entry>),
}

pub(crate) async fn delete(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let options = DeleteOptions::of_request(context, body)?;
    if options.ignores_read_error {
        return super::delete_unread::delete(context, resource).await;
    }
    warn_of_orphans(context, resource, &options);
    let info = &context.info;
    let namespace = if resource.namespaced {
        &info.namespace
    } else {
        ""
    };
    match delete_object(context, resource, namespace, &info.name, &options).await? {
        Deleted::Pending(entry) => respond(context, 200, resource, &entry),
        Deleted::Removed(entry) => {
            if resource.strategy().returns_deleted() {
                return respond(context, 200, resource, &entry);
            }
            let object = entry.object()?;
            let uid = object.str_at(&["metadata", "uid"]);
            let status = success(resource, &info.name, uid);
            response::encoded(200, &status, context.output.encoding)
        }
    }
}

pub(crate) async fn delete_collection(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let options = DeleteOptions::of_request(context, body)?;
    if options.ignores_read_error {
        let detail = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let error = FieldError::invalid(&Path::new(IGNORE), true, detail);
        return Err(invalid_options(vec![error]));
    }
    let selection = Selection::of(context, resource)?;
    let page = super::list::page(context, resource, &selection).await?;
    warn_of_orphans(context, resource, &options);
    let mut items = Vec::new();
    for entry in page.items.iter() {
        match delete_object(context, resource, entry.namespace(), entry.name(), &options).await {
            Ok(_) => {
                // As it was when the collection was read.
                let shown = context.server.cache.forms.shown(resource, entry)?;
                let mut item = shown.object_with_version()?;
                for field in ["apiVersion", "kind"] {
                    item.remove(&[field]);
                }
                items.push(item);
            }
            Err(status) if status.reason == api::Reason::NotFound => {}
            Err(status) => return Err(status),
        }
    }
    let mut list = api::document!({
        "kind": format!("{}List", &*resource.kind), "apiVersion": resource.api_version(),
    });
    list.set(&["metadata"], page.metadata());
    list.set(&["items"], items);
    response::encoded_for(context, 200, &list, context.output.encoding)
}

pub(crate) async fn delete_object(
    context: &Context,
    resource: &Arc<Resource>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<Deleted, Status> {
    let server = &context.server;
    let mut current = server.get(resource, namespace, name).await?;
    let mut attempts = 0;
    loop {
        let mut object = current.object_with_version()?;
        check_preconditions(resource, name, &object, options)?;
        let mut admitted = Admitted {
            context,
            resource,
            subresource: "",
            operation: admission::Operation::Delete,
            object: &mut object,
            old: None,
        };
        admission::mutate(&mut admitted).await?;
        let plan = plan(server, resource, &mut object, options)?;
        object.remove(&["metadata", "resourceVersion"]);
        let bytes = stored_bytes(&object);
        let remove = plan == Plan::Remove;
        if !remove && bytes == current.bytes {
            return Ok(Deleted::Pending(current));
        }
        if options.dry_run {
            let entry =
                server.entry(resource, namespace, name, bytes, current.revision, &object)?;
            return Ok(if remove {
                Deleted::Removed(entry)
            } else {
                Deleted::Pending(entry)
            });
        }
        let key = Server::store_key(resource, namespace, name);
        let operation = match remove {
            true => Operation::Delete { key: key.clone() },
            false => Operation::Put {
                key: key.clone(),
                value: bytes.clone(),
                lease: None,
            },
        };
        let left = (!remove).then_some(&object);
        let companions = crate::allocation::companions(server, resource, Some(&object), left);
        let mut then = vec![operation];
        then.extend(companions.then);
        let result = server
            .store
            .transact(Transaction {
                compare: vec![Compare::ModRevision {
                    key,
                    revision: current.revision,
                }],
                then,
            })
            .await
            .map_err(store_failure)?;
        match result {
            TransactionResult::Committed { revision, .. } => {
                let entry = server.entry(resource, namespace, name, bytes, revision, &object)?;
                return Ok(if remove {
                    Deleted::Removed(entry)
                } else {
                    Deleted::Pending(entry)
                });
            }
            TransactionResult::Failed { current: found, .. } => {
                attempts += 1;
                let Some(found) = found.into_iter().next().flatten() else {
                    return Err(resource.not_found(name));
                };
                if attempts >= ATTEMPTS {
                    return Err(resource.conflict(name,
                        "the object has been modified; please apply your changes to the latest version and try again",
                    ));
                }
                let key = crate::cache::key_of(namespace, name);
                current = Arc::new(Entry::decode(
                    resource,
                    &key,
                    found.value,
                    found.mod_revision,
                )?);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Remove,
    Keep,
}

/// Marks `object` as the options ask and says whether anything still holds it.
fn plan(
    server: &Server,
    resource: &Resource,
    object: &mut Value,
    options: &DeleteOptions,
) -> Result<Plan, Status> {
    let is_namespace = resource.group.is_empty() && resource.kind == "Namespace";
    if is_namespace && is_deleting(object) && has_spec_finalizers(object) {
        // Its content is on its way out already.
        return Ok(Plan::Keep);
    }
    let dependents = resource.strategy().dependents();
    settle_finalizers(object, options.propagation.as_deref(), dependents);
    let now = server.environment.now();
    let asked = options.grace_seconds.map(at_least_a_second);
    let grace = resource.strategy().graceful_delete(object, asked);
    let existing = object
        .at(&["metadata", "deletionGracePeriodSeconds"])
        .and_then(Value::as_i64)
        .map(at_least_a_second);
    let mut remaining = 0;
    match (grace, is_deleting(object)) {
        (None, false) => {
            if has_finalizers(object) {
                mark(object, now, 0);
            }
        }
        (None, true) => {}
        (Some(seconds), false) => {
            mark(object, now, seconds);
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
    if is_namespace && is_deleting(object) {
        object.set(&["status", "phase"], "Terminating");
        object.remove(&["metadata", "deletionGracePeriodSeconds"]);
    }
    match remaining > 0 || has_finalizers(object) {
        true => Ok(Plan::Keep),
        false => Ok(Plan::Remove),
    }
}

/// A grace below zero counts as one second.
fn at_least_a_second(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

fn mark(object: &mut Value, now: jiff::Timestamp, seconds: i64) {
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
    let held = |name: &Value| matches!(name.as_str(), Some(ORPHAN | FOREGROUND));
    let settled = object.list_at(&["metadata", "finalizers"]).iter().any(held);
    let policy = match (propagation, dependents) {
        (_, Dependents::None) => return,
        (Some(policy), _) => policy,
        (None, Dependents::Orphaned) if !settled => "Orphan",
        (None, _) => return,
    };
    let mut finalizers: Vec<Value> = object
        .at(&["metadata", "finalizers"])
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    finalizers.retain(|name| !matches!(name.as_str(), Some(ORPHAN | FOREGROUND)));
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

fn has_spec_finalizers(object: &Value) -> bool {
    object
        .at(&["spec", "finalizers"])
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

fn check_namespace(
    resource: &Resource,
    name: &str,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    for (what, field, given) in [
        ("UID", "uid", &options.uid),
        (
            "ResourceVersion",
            "resourceVersion",
            &options.resource_version,
        ),
    ] {
        let found = object.str_at(&["metadata", field]);
        if let Some(given) = given
            && given != found
        {
            return Err(resource.conflict(name,
                format_args!(
                    "Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}"
                ),
            ));
        }
    }
    Ok(())
}

fn check_preconditions(
    resource: &Arc<Resource>,
    name: &str,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    // Errors name the kind that is stored; namespaces have a check of their own.
    let resource = api::conversion::storage_of(resource);
    if resource.kind == "Namespace" {
        return check_namespace(resource, name, object, options);
    }
    let uid = object.str_at(&["metadata", "uid"]);
    if let Some(given) = &options.uid
        && given != uid
    {
        return Err(Status::conflict(
            &*resource.group,
            &*resource.kind,
            name,
            format_args!(
                "the UID in the precondition ({given}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            ),
        ));
    }
    let version = object.str_at(&["metadata", "resourceVersion"]);
    if let Some(given) = &options.resource_version
        && given != version
    {
        return Err(Status::conflict(
            &*resource.group,
            &*resource.kind,
            name,
            format_args!(
                "the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            ),
        ));
    }
    Ok(())
}
