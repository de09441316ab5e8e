//! What lies below an object: the few paths that are not the generic verbs.

pub(crate) mod addresses;
mod binding;
pub(crate) mod connect;
mod eviction;
mod kubelet;
mod log;
mod proxy;
mod rewrite;
mod scale;
mod token;
mod upgraded;

use std::sync::Arc;

use api::{Reason, Resource, Status};
use http::Response;

use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::registry::{Target, check_name, update_past_rules};
use crate::verbs::{get, patch, respond, update};

pub(crate) use binding::create_named as bind;
pub(crate) use kubelet::locate as locate_kubelet;
pub(crate) use upgraded::join;

pub(crate) async fn handle(
    context: &Arc<Context>,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let info = &context.info;
    let known = resource.subresource(&info.subresource);
    if !known.is_some_and(|subresource| subresource.verbs.contains(&info.verb)) {
        return Err(match known {
            Some(_) if resource.is_custom() => not_supported(resource, info.verb),
            Some(_) => not_allowed(),
            None => not_served(),
        });
    }
    match (info.subresource.as_str(), info.verb) {
        ("status" | "approval" | "ephemeralcontainers" | "resize", "get") => {
            get::get(context, resource).await
        }
        ("status" | "approval" | "ephemeralcontainers" | "resize", "update") => {
            update::update(context, resource, body).await
        }
        ("status" | "approval" | "ephemeralcontainers" | "resize", "patch") => {
            patch::patch(context, resource, body).await
        }
        ("finalize", "update") => finalize(context, resource, body).await,
        ("binding", "create") => binding::create(context, resource, &info.name, body).await,
        ("eviction", "create") => eviction::create(context, resource, body).await,
        ("scale", _) => scale::handle(context, resource, body).await,
        ("token", "create") => token::create(context, resource, body).await,
        ("log", "get") => log::get(context, resource).await,
        _ => Err(not_served()),
    }
}

/// PUT of a namespace's spec.finalizers.
async fn finalize(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let sent = decode::object(context, resource, body)?;
    check_name(&sent, &context.info.name)?;
    let target = Target::of(context, resource);
    let version = sent.str_at(&["metadata", "resourceVersion"]);
    let entry = update_past_rules(context, &target, !version.is_empty(), |old| {
        let mut new = old.clone();
        new.set(&["metadata", "resourceVersion"], version);
        match sent.at(&["spec", "finalizers"]) {
            Some(finalizers) => new.set(&["spec", "finalizers"], finalizers.clone()),
            None => drop(new.remove(&["spec", "finalizers"])),
        }
        Ok(new)
    })
    .await?;
    respond(context, 200, resource, &entry).await
}

pub(crate) fn not_served() -> Status {
    Status::new(
        Reason::NotFound,
        "the server could not find the requested resource",
    )
    .with_details(api::Details::default())
}

/// What custom resources cannot do, in upstream's words for them.
fn not_supported(resource: &Resource, verb: &str) -> Status {
    let (group, plural) = (&resource.group, &resource.plural);
    let message = format!("{verb} is not supported on resources of kind \"{plural}.{group}\"");
    Status::new(Reason::MethodNotAllowed, message).with_details(api::Details {
        group: group.to_string(),
        kind: plural.to_string(),
        ..api::Details::default()
    })
}

pub(crate) fn not_allowed() -> Status {
    Status::new(
        Reason::MethodNotAllowed,
        "the server does not allow this method on the requested resource",
    )
    .with_details(api::Details::default())
}
