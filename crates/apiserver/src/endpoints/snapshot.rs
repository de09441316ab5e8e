//! `/coracle/v1/snapshot`: the whole store as one file, for those who may do everything.

use api::Status;
use futures::StreamExt;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::body::{Body, BoxError};
use crate::context::Context;
use crate::storage::store_failure;

/// It holds every Secret: RBAC gives the path to nobody but administrators.
pub(super) async fn save(context: &Context) -> Result<Response<Body>, Status> {
    let snapshot = context.server.objects.store().snapshot().await;
    let parts = snapshot.map_err(store_failure)?;
    // A part that fails breaks the response off: what arrived is then known not to be whole.
    let parts = parts.map(|part| part.map_err(BoxError::from));
    let mut response = Response::new(Body::stream(parts));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    Ok(response)
}
