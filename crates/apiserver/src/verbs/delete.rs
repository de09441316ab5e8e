//! DELETE of one object or a collection.

use std::sync::Arc;

use api::field::{FieldError, Path};
use api::{Resource, Status, Value};
use http::Response;

use super::selection::Selection;
use super::{respond, success};
use crate::authorization::{Attributes, Decision};
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::registry::{self, DeleteOptions, Deleted, Target};
use crate::response;

/// The verb that permits to delete an object that cannot be read, besides `delete`.
const UNREAD_VERB: &str = "unsafe-delete-ignore-read-errors";

pub(crate) async fn delete(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let options = options(context, body)?;
    let target = Target::of(context, resource);
    if options.ignores_read_error {
        authorize_unread(context)?;
        registry::delete_unread(context, &target).await?;
        return unread_success(context, resource);
    }
    warn(context, resource, &options);
    let name = (target.namespace, target.name);
    match registry::delete(context, resource, name, &options).await? {
        Deleted::Pending(entry) => respond(context, 200, resource, &entry).await,
        Deleted::Removed(entry) => {
            if resource.strategy().returns_deleted() {
                return respond(context, 200, resource, &entry).await;
            }
            let object = entry.object()?;
            let uid = object.str_at(&["metadata", "uid"]);
            let status = success(resource, target.name, uid);
            response::encoded(200, &status, context.output.encoding)
        }
    }
}

pub(crate) async fn delete_collection(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let options = options(context, body)?;
    if options.ignores_read_error {
        let detail = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let path = Path::new(DeleteOptions::IGNORE_READ_ERROR);
        let error = FieldError::invalid(&path, true, detail);
        return Err(DeleteOptions::invalid(vec![error]));
    }
    let selection = Selection::of(context, resource)?;
    let page = super::list::page(context, resource, &selection).await?;
    warn(context, resource, &options);
    let mut items = Vec::new();
    for entry in page.items.iter() {
        let name = (entry.namespace(), entry.name());
        match registry::delete(context, resource, name, &options).await {
            Ok(_) => {
                // As it was when the collection was read.
                let shown = context.server.cache.forms.shown(resource, entry)?;
                let mut item = shown.object_with_version()?;
                if !resource.is_custom() {
                    for field in ["apiVersion", "kind"] {
                        item.remove(&[field]);
                    }
                }
                items.push(item);
            }
            Err(status) if status.reason == api::Reason::NotFound => {}
            Err(status) => return Err(status),
        }
    }
    let mut list = api::document!({
        "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(),
    });
    list.set(&["metadata"], page.metadata_of(resource));
    list.set(&["items"], items);
    response::encoded_for(context, 200, &list, context.output.encoding)
}

/// From the request's body, or from its query when it has none.
fn options(context: &Context, body: &[u8]) -> Result<DeleteOptions, Status> {
    if !body.is_empty() {
        let document = decode::delete_options(context, body)?;
        return DeleteOptions::parse(&document, context.dry_run);
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
    if query.flag(DeleteOptions::IGNORE_READ_ERROR) {
        document.set(&[DeleteOptions::IGNORE_READ_ERROR], true);
    }
    let dry_run: Vec<Value> = query.all("dryRun").map(Value::from).collect();
    if !dry_run.is_empty() {
        document.set(&["dryRun"], dry_run);
    }
    DeleteOptions::parse(&document, context.dry_run)
}

fn warn(context: &Context, resource: &Resource, options: &DeleteOptions) {
    if let Some(word) = resource.strategy().delete_warning()
        && options.propagation.is_none()
    {
        context.warn(word);
    }
}

/// Besides the right to delete the object, which was checked with the request.
fn authorize_unread(context: &Context) -> Result<(), Status> {
    let question = Attributes {
        verb: UNREAD_VERB.to_string(),
        ..Attributes::of(&context.info)
    };
    let authorizer = &context.server.authorizer;
    match authorizer.allows(&context.identity, &question) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(Status::forbidden(
            &question.group,
            &question.resource,
            &question.name,
            format!("not permitted to do {UNREAD_VERB:?}, reason: {reason}"),
        )),
    }
}

fn unread_success(context: &Context, resource: &Resource) -> Result<Response<Body>, Status> {
    let success = api::document!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": context.info.name, "kind": resource.kind}, "code": 200,
    });
    response::encoded(200, &success, context.output.encoding)
}
