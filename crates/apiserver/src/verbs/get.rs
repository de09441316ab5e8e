//! GET of one object.

use api::{Resource, Status};
use http::Response;

use super::respond;
use crate::body::Body;
use crate::server::Context;

pub(crate) async fn get(
    context: &Context,
    resource: &'static Resource,
) -> Result<Response<Body>, Status> {
    let info = &context.info;
    let namespace = if resource.namespaced {
        &info.namespace
    } else {
        ""
    };
    // resourceVersion=0 means that any cached state will do.
    let entry = match context.query.get("resourceVersion") {
        "0" => context.server.find(resource, namespace, &info.name).await?,
        _ => context.server.get(resource, namespace, &info.name).await?,
    };
    respond(context, 200, resource, &entry)
}
