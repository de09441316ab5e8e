//! POST of a new object.

use std::sync::Arc;

use api::{Resource, Status};
use http::Response;

use super::respond;
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::hops::Hops;
use crate::registry;

pub(crate) async fn create(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let object = decode::object(context, resource, body)?;
    let object = api::conversion::to_storage(resource, object);
    let mut hops = Hops::begin(context, resource, body.len());
    let entry = registry::create(context, resource, object.into(), &mut hops).await?;
    let response = respond(context, 201, resource, &entry).await?;
    hops.created(&entry, context);
    Ok(response)
}
