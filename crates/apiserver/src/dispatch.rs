//! The end of the filter chain: finds what serves a request and hands it over, with what holds for
//! all verbs settled.

use std::sync::Arc;

use api::{Resource, Status};
use bytes::Bytes;
use http::{Method, Response};

use crate::body::Body;
use crate::context::Context;
use crate::endpoints;
use crate::negotiate::Output;
use crate::options;
use crate::request::RequestInfo;
use crate::response;
use crate::subresources::{self, not_allowed, not_served};
use crate::unstored;
use crate::usage;
use crate::verbs::{create, delete, get, list, patch, update, watch};

/// Where a request leads.
pub(crate) enum Routed {
    /// It is answered already.
    Answered(Response<Body>),
    /// To a verb on a resource, which [`verb`] carries out; or what is wrong with its options.
    Verb(Arc<Context>, Arc<Resource>, Result<(), Status>),
}

/// Finds what serves the request, and answers it where that is no verb on a resource.
pub(crate) async fn route(
    mut context: Context,
    method: &Method,
    body: &Bytes,
) -> Result<Routed, Status> {
    if *method == Method::HEAD && !endpoints::answers_head(&context) {
        return Err(not_allowed());
    }
    if !context.info.is_resource {
        let answer = Box::pin(endpoints::handle(&context, body)).await?;
        return Ok(Routed::Answered(answer));
    }
    let info = &context.info;
    let Some(resource) = info.resource.clone() else {
        if info.group == usage::GROUP {
            return usage::handle(&context).await.map(Routed::Answered);
        }
        return match endpoints::is_group(&context.server, &info.group) {
            true => Err(not_served()),
            false => Ok(Routed::Answered(endpoints::not_found())),
        };
    };
    info.check_names()?;
    if info.is_watch_path && !matches!(*method, Method::GET | Method::HEAD) {
        return Err(not_allowed());
    }
    let needs_namespace = !matches!(info.verb, "list" | "watch");
    if resource.namespaced && info.namespace.is_empty() && needs_namespace {
        return match resource.is_custom() {
            true => Ok(Routed::Answered(endpoints::not_found())),
            false => Err(not_allowed()),
        };
    }
    let settled = settle(&mut context, &resource);
    Ok(Routed::Verb(Arc::new(context), resource, settled))
}

/// The answer of a verb, with the warnings that came up. Who is refused is warned as well.
pub(crate) fn answer(context: &Context, result: Result<Response<Body>, Status>) -> Response<Body> {
    let mut response = match result {
        Ok(response) => response,
        Err(status) => response::refused(&context.server, &status, &context.headers),
    };
    response::warn(&mut response, &context.take_warnings());
    response
}

/// What holds for every verb: what can be sent and answered, and the options.
fn settle(context: &mut Context, resource: &Resource) -> Result<(), Status> {
    let verb = context.info.verb;
    let subresource = &context.info.subresource;
    if resource.is_custom()
        && let Some(word) = api::warnings::deprecation(resource)
    {
        context.warn(word);
    }
    if !subresource.is_empty() && resource.subresource(subresource).is_none() {
        return Err(match resource.is_custom() {
            true => resource.not_found(&context.info.name),
            false => not_served(),
        });
    }
    match resource.is_custom() {
        false => check_media_types(context)?,
        true if verb == "patch" => patch::check_custom(resource, patch::patch_type(context)?)?,
        true => {}
    }
    if resource.has_verb(verb)
        && context.info.subresource.is_empty()
        && !resource.is_custom()
        && !is_misplaced(&context.info)
        && let Some(word) = api::warnings::deprecation(resource)
    {
        context.warn(word);
    }
    context.dry_run = options::check(context)?;
    // A Scale is of a built-in kind.
    let is_custom = resource.is_custom() && context.info.subresource != "scale";
    context.output = match (verb, is_custom) {
        ("watch", true) => Output::negotiate_custom_stream(&context.headers)?,
        ("watch", false) => Output::negotiate_stream(&context.headers)?,
        (_, true) => Output::negotiate_custom(&context.headers)?,
        (_, false) => Output::negotiate(&context.headers)?,
    };
    Ok(())
}

/// Upstream's router refuses what no handler of the path takes or gives, in its own words.
fn check_media_types(context: &Context) -> Result<(), Status> {
    if context.info.verb == "patch" {
        patch::patch_type(context)?;
    }
    let connects = matches!(
        context.info.subresource.as_str(),
        "log" | "exec" | "attach" | "portforward" | "proxy"
    );
    match connects {
        true => Ok(()),
        false => Output::check_router(&context.headers, context.info.verb),
    }
}

/// A watch of one object by its path is a watch all the same. What changes one object needs its
/// name, and what makes one must not have it.
fn is_misplaced(info: &RequestInfo) -> bool {
    match info.verb {
        "create" => !info.name.is_empty(),
        "update" | "patch" | "delete" => info.name.is_empty(),
        _ => false,
    }
}

/// Carries out a verb on a resource.
pub(crate) async fn verb(
    context: &Arc<Context>,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let info = &context.info;
    if !info.subresource.is_empty() {
        return Box::pin(subresources::handle(context, resource, body)).await;
    }
    if is_misplaced(info) || !resource.has_verb(info.verb) {
        return Err(not_allowed());
    }
    match info.verb {
        "get" => get::get(context, resource).await,
        // Boxed: their futures are many times as large as that of a get, which would carry them too.
        "list" => Box::pin(list::list(context, resource)).await,
        "watch" => Box::pin(watch::watch(context.clone(), resource)).await,
        "create" if unstored::is_unstored(resource) => {
            Box::pin(unstored::create(context, resource, body)).await
        }
        "create" => Box::pin(create::create(context, resource, body)).await,
        "update" => Box::pin(update::update(context, resource, body)).await,
        "patch" => Box::pin(patch::patch(context, resource, body)).await,
        "delete" => Box::pin(delete::delete(context, resource, body)).await,
        "deletecollection" => Box::pin(delete::delete_collection(context, resource, body)).await,
        _ => Err(not_allowed()),
    }
}
