//! PATCH of an object, also with an applied configuration.

use std::sync::Arc;

use api::{Details, Reason, Resource, Status};
use http::Response;

use super::respond;
use crate::body::Body;
use crate::context::Context;
use crate::negotiate::{content_type, unsupported_media_type};
use crate::options::PatchType;
use crate::registry::{self, Applied, Configuration, Patch, Target};

pub(crate) async fn patch(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let patch_type = patch_type(context)?;
    check_custom(resource, patch_type)?;
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
    let entry = entry.await?;
    respond(context, 200, resource, &entry).await
}

async fn apply(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let configuration = Configuration::read(body)?;
    match registry::apply(context, resource, &configuration).await? {
        Applied::Updated(entry) => respond(context, 200, resource, &entry).await,
        Applied::Created(entry, hops) => {
            let response = respond(context, 201, resource, &entry).await?;
            hops.created(&entry, context);
            Ok(response)
        }
    }
}

/// The type of the request's patch.
pub(crate) fn patch_type(context: &Context) -> Result<PatchType, Status> {
    let found = PatchType::of(content_type(&context.headers));
    let custom = context.info.resource.as_ref().filter(|one| one.is_custom());
    found.ok_or_else(|| match custom {
        Some(_) => unsupported_media_type(CUSTOM_PATCHES),
        None => not_a_patch(),
    })
}

/// The types of patches of custom kinds, which do not pass upstream's router.
const CUSTOM_PATCHES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// The lists of a custom kind declare no strategic merge.
pub(crate) fn check_custom(resource: &Resource, patch_type: PatchType) -> Result<(), Status> {
    match resource.is_custom() && patch_type == PatchType::Strategic {
        true => Err(unsupported_media_type(CUSTOM_PATCHES)),
        false => Ok(()),
    }
}

/// Upstream's router answers this before anything that could list the types.
fn not_a_patch() -> Status {
    const MESSAGE: &str = "415: Unsupported Media Type";
    Status::new(Reason::UnsupportedMediaType, MESSAGE).with_details(Details::default())
}
