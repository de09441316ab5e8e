//! PUT of an object, which creates it for the few kinds that allow that.

use std::sync::Arc;

use api::{Reason, Resource, Status};
use http::Response;

use super::respond;
use crate::authorization::Attributes;
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::hops::Hops;
use crate::registry::{self, Target};

pub(crate) async fn update(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let info = &context.info;
    let sent = decode::object(context, resource, body)?;
    let mut sent = api::conversion::to_storage(resource, sent);
    registry::check_name(&sent, &info.name)?;
    registry::settle_namespace(resource, &info.namespace, &mut sent)?;
    let target = Target::of(context, resource);
    let server = &context.server;
    let exists = server
        .objects
        .get(resource, target.namespace, target.name)
        .await;
    if let Err(status) = exists
        && status.reason == Reason::NotFound
        && info.subresource.is_empty()
        && resource.strategy().allow_create_on_update()
    {
        sent.remove(&["metadata", "resourceVersion"]);
        let attributes = Attributes {
            verb: "create".to_string(),
            ..Attributes::of(info)
        };
        server.authorizer.check(&context.identity, &attributes)?;
        let mut hops = Hops::none();
        let entry = registry::create(context, resource, sent.into(), &mut hops).await?;
        return respond(context, 201, resource, &entry).await;
    }
    let conditional = !sent.str_at(&["metadata", "resourceVersion"]).is_empty();
    let entry = registry::update(context, &target, conditional, |_| Ok(sent.clone())).await?;
    respond(context, 200, resource, &entry).await
}
