//! The generic verbs, one handler each for all kinds: they read the options and the body of a
//! request, call the registry or the cache, and encode the answer.

mod converted_watch;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
mod list_body;
mod list_options;
pub(crate) mod patch;
pub(crate) mod selection;
pub(crate) mod update;
pub(crate) mod watch;

use std::sync::Arc;

use api::{Reason, Resource, Status, Value};
use http::Response;

use crate::body::Body;
use crate::cache::{CachedObject, Shape};
use crate::context::Context;
use crate::converted;
use crate::negotiate::{Encoding, Form};
use crate::response;

/// An object as the answer, in the form the client accepts.
pub(crate) async fn respond(
    context: &Context,
    code: u16,
    resource: &Arc<Resource>,
    entry: &Arc<CachedObject>,
) -> Result<Response<Body>, Status> {
    let converted;
    let entry = match converted::needs_hook(resource).is_some() {
        true => {
            let entries = vec![entry.clone()];
            converted = Box::pin(converted::as_shown(&context.server, resource, entries)).await?;
            converted.first().unwrap_or(entry)
        }
        false => entry,
    };
    let entry = &context.server.cache.forms.shown(resource, entry)?;
    let output = context.output;
    let media_type = output.encoding.media_type();
    let mut body = Vec::new();
    match (output.form, output.encoding) {
        (Form::Object, Encoding::Json) => {
            let chunks = Body::few(entry.chunks());
            return Ok(response::bytes(code, media_type, chunks));
        }
        (Form::PartialObjectMetadata, Encoding::Json) => {
            write_partial(resource, entry, &mut body, entry.revision)?;
        }
        (Form::Object | Form::PartialObjectMetadata, Encoding::Protobuf) => {
            let (shape, api_version, kind) = protobuf_kind(resource, output.form);
            let message = context.server.cache.forms.message(resource, entry, shape)?;
            let version = entry.version();
            message.write_enveloped(&mut body, &api_version, kind, &version);
        }
        (Form::PartialObjectMetadataList, _) => {
            return Err(respond_not_listed(&go_type(resource, "")));
        }
        (form, encoding) => {
            let object = entry.object_with_version()?;
            let shaped = match form {
                Form::Object => object,
                Form::Table => table(context, resource, &[object], &Value::object(), true)?,
                _ => partial(&object),
            };
            return response::encoded(code, &shaped, encoding);
        }
    }
    Ok(response::bytes(code, media_type, body))
}

/// The answer to one who asks for a list where there is one object.
pub(crate) fn respond_not_listed(go_type: &str) -> Status {
    Status::new(
        Reason::NotAcceptable,
        format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({go_type})"
        ),
    )
}

/// Which message an object goes out as, and what the envelope calls it.
pub(crate) fn protobuf_kind(resource: &Resource, form: Form) -> (Shape, String, &str) {
    match form {
        Form::Object | Form::Table => (Shape::Object, resource.api_version(), &*resource.kind),
        Form::PartialObjectMetadata | Form::PartialObjectMetadataList => (
            Shape::Metadata,
            "meta.k8s.io/v1".to_string(),
            "PartialObjectMetadata",
        ),
    }
}

/// How messages name an object's type: `*core.Pod`, `*rbac.RoleList`.
pub(crate) fn go_type(resource: &Resource, suffix: &str) -> String {
    let package = match resource.group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    format!("*{package}.{}{suffix}", &*resource.kind)
}

/// Appends the object as `PartialObjectMetadata`, from the bytes as they are where nothing of the
/// metadata is kept elsewhere.
pub(crate) fn write_partial(
    resource: &Resource,
    entry: &CachedObject,
    out: &mut Vec<u8>,
    revision: u64,
) -> Result<(), Status> {
    let strategy = resource.strategy();
    if !strategy.hides_metadata() {
        entry.write_metadata(out, revision);
        return Ok(());
    }
    let mut partial = partial(&entry.object()?);
    if let Some(metadata) = partial.at_mut(&["metadata"]) {
        strategy.row_metadata(metadata);
        if revision > 0 {
            metadata.set(&["resourceVersion"], revision.to_string());
        }
    }
    out.extend_from_slice(&partial.to_json());
    Ok(())
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
                "Unable to convert to Table as requested: includeObject: Invalid value: {:?}: must be 'Metadata', 'Object', 'None', or empty",
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
    if context.output.is_beta_table {
        make_beta(&mut table);
    }
    Ok(table)
}

/// Turns a Table of v1 into one of v1beta1: they differ in name only.
fn make_beta(table: &mut Value) {
    const BETA: &str = "meta.k8s.io/v1beta1";
    table.set(&["apiVersion"], BETA);
    let rows = table.at_mut(&["rows"]).and_then(Value::as_array_mut);
    for row in rows.into_iter().flatten() {
        if row.str_at(&["object", "kind"]) == "PartialObjectMetadata" {
            row.set(&["object", "apiVersion"], BETA);
        }
    }
}

/// The success answer of a deletion that removed the object.
pub(crate) fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = api::document!({"name": name, "kind": &*resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details.set(&["group"], &*resource.group);
    }
    api::document!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}
