//! GET of one object.

use std::sync::Arc;

use api::{Reason, Resource, Status};
use http::Response;

use super::list::{parse_revision, reach};
use super::respond;
use crate::body::Body;
use crate::context::Context;

pub(crate) async fn get(
    context: &Context,
    resource: &Arc<Resource>,
) -> Result<Response<Body>, Status> {
    let info = &context.info;
    let namespace = if resource.namespaced {
        &info.namespace
    } else {
        ""
    };
    let version = context.query.get("resourceVersion");
    // Upstream hands the error of its cache on as it is.
    let stored = api::conversion::storage_of(resource);
    let asked =
        parse_revision(version).map_err(|problem| match stored.strategy().has_watch_cache() {
            true => Status::new(Reason::Unknown, problem.to_string()),
            false => Status::bad_request(format!("invalid resource version: {problem}")),
        })?;
    let entry = match asked {
        // Any cached state will do.
        Some(0) => {
            context
                .server
                .objects
                .find(resource, namespace, &info.name)
                .await?
        }
        at_least => {
            if let Some(revision) = at_least {
                reach(context, revision).await?;
            }
            context
                .server
                .objects
                .get(resource, namespace, &info.name)
                .await?
        }
    };
    respond(context, 200, resource, &entry).await
}
