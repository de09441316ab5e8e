//! pods/eviction: a deletion that disruption budgets could refuse. There are no budgets yet, so it
//! is a deletion.

use api::{Resource, Status, Value};
use http::Response;

use crate::body::Body;
use crate::decode;
use crate::response;
use crate::server::Context;
use crate::verbs::delete::{DeleteOptions, delete_object};

pub(super) async fn create(
    context: &Context,
    resource: &'static Resource,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let eviction = decode::of_kind(context, "policy", "v1", "Eviction", body)?;
    let info = &context.info;
    let given = eviction.str_at(&["metadata", "name"]);
    if given != info.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let options = match eviction.get("deleteOptions") {
        Some(options) => DeleteOptions::parse(context, options)?,
        None => DeleteOptions::parse(context, &Value::object())?,
    };
    delete_object(context, resource, &info.namespace, &info.name, &options).await?;
    let success = api::document!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(response::json(201, &success))
}
