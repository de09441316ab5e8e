//! PATCH of an object, also with an applied configuration.

use std::sync::Arc;

use api::{Details, Reason, Resource, Status};
use http::Response;

use super::respond;
use crate::body::Body;
use crate::context::Context;
use crate::negotiate::content_type;
use crate::options::PatchType;
use crate::registry::{self, Applied, Configuration, Patch, Target};

pub(crate) async fn patch(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let patch_type = patch_type(context)?;
    if patch_type == PatchType::Apply {
        return apply(context, resource, body).await;
    }
    let target = Target::of(context, resource);
    let patch = match Patch::parse(patch_type, body) {
        Ok(patch) => patch,
        // Whether there is anything to patch comes first.
        Err(status) => {
            let (namespace, name) = (target.namespace, target.name);
            context
                .server
                .objects
                .get(resource, namespace, name)
                .await?;
            return Err(status);
        }
    };
    let entry = registry::update(context, &target, patch.names_version(), |stored| {
        patch.of_stored(context, resource, stored)
    });
    respond(context, 200, resource, &entry.await?)
}

async fn apply(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let configuration = Configuration::read(body)?;
    match registry::apply(context, resource, &configuration).await? {
        Applied::Updated(entry) => respond(context, 200, resource, &entry),
        Applied::Created(entry, hops) => {
            let response = respond(context, 201, resource, &entry)?;
            hops.created(&entry, context);
            Ok(response)
        }
    }
}

/// The type of the request's patch.
pub(crate) fn patch_type(context: &Context) -> Result<PatchType, Status> {
    PatchType::of(content_type(&context.headers)).ok_or_else(not_a_patch)
}

/// Upstream's router answers this before anything that could list the types.
fn not_a_patch() -> Status {
    const MESSAGE: &str = "415: Unsupported Media Type";
    Status::new(Reason::UnsupportedMediaType, MESSAGE).with_details(Details::default())
}
