//! Kinds of which no object is ever stored: what is created is a question or an order, answered on
//! the spot.

use std::sync::Arc;

use api::{Resource, Status};
use http::Response;

use crate::body::Body;
use crate::context::Context;
use crate::reviews;
use crate::subresources;

pub(crate) fn is_unstored(resource: &Resource) -> bool {
    !resource.has_verb("get")
}

pub(crate) async fn create(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    match (&*resource.group, &*resource.kind) {
        ("", "Binding") => subresources::bind(context, body).await,
        _ => reviews::create(context, resource, body).await,
    }
}
