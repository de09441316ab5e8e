//! The generic verbs: one handler each, for all kinds.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod selection;
pub(crate) mod update;
pub(crate) mod watch;

use api::{Resource, Status, Value};
use http::Response;

use crate::body::Body;
use crate::cache::Entry;
use crate::negotiate::{Encoding, Form};
use crate::response;
use crate::server::Context;

/// An object as the answer, in the form the client accepts.
pub(crate) fn respond(
    context: &Context,
    code: u16,
    resource: &Resource,
    entry: &Entry,
) -> Result<Response<Body>, Status> {
    let output = context.output;
    if output.form == Form::Object && output.encoding == Encoding::Json {
        let chunks = Body::chunks(entry.chunks());
        return Ok(response::bytes(code, "application/json", chunks));
    }
    let object = entry.object_with_version()?;
    let shaped = match output.form {
        Form::Object => object,
        Form::PartialObjectMetadata => partial(&object),
        Form::Table => table(context, resource, &[object], &Value::object(), true)?,
    };
    Ok(response::encoded(code, &shaped, output.encoding))
}

pub(crate) fn partial(object: &Value) -> Value {
    let mut partial =
        api::document!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"});
    partial.set(
        &["metadata"],
        object.get("metadata").cloned().unwrap_or_default(),
    );
    partial
}

pub(crate) fn table(
    context: &Context,
    resource: &Resource,
    items: &[Value],
    metadata: &Value,
    with_columns: bool,
) -> Result<Value, Status> {
    let include =
        api::table::IncludeObject::parse(context.query.get("includeObject")).ok_or_else(|| {
            Status::bad_request(format!(
                "unrecognized includeObject value: {:?}",
                context.query.get("includeObject")
            ))
        })?;
    let now = context.server.environment.now();
    let mut table = api::table::render(resource, items, metadata, include, with_columns, now);
    if metadata.get("resourceVersion").is_none()
        && let [only] = items
    {
        let version = only.str_at(&["metadata", "resourceVersion"]);
        table.set(&["metadata", "resourceVersion"], version);
    }
    Ok(table)
}

/// The success answer of a deletion that removed the object.
pub(crate) fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = api::document!({"name": name, "kind": resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details.set(&["group"], resource.group);
    }
    api::document!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
