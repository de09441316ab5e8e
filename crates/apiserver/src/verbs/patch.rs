//! PATCH: JSON, merge and strategic merge patches, retried when others write in between.

use api::{Resource, Status, Value, conversion, schema};
use http::Response;

use super::respond;
use super::update::{Target, change};
use crate::body::Body;
use crate::decode;
use crate::negotiate::{content_type, unsupported_media_type};
use crate::server::Context;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
}

const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";

pub(crate) async fn patch(
    context: &Context,
    resource: &'static Resource,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let (patch_type, patch) = parse(context, body)?;
    let target = Target::of(context, resource);
    let conditional = names_version(patch_type, &patch);
    let entry = change(context, &target, conditional, |stored| {
        let converted;
        let old = match conversion::is_stored_as_itself(resource) {
            true => stored,
            false => {
                converted = conversion::from_storage(resource, stored.clone());
                &converted
            }
        };
        let mut new = apply(patch_type, old, &patch, resource.definition)?;
        check_patched(context, resource, &mut new, old)?;
        Ok(conversion::to_storage(resource, new))
    })
    .await?;
    respond(context, 200, resource, &entry)
}

pub(crate) fn parse(context: &Context, body: &[u8]) -> Result<(PatchType, Value), Status> {
    let patch_type = match content_type(&context.headers) {
        "application/json-patch+json" => PatchType::Json,
        "application/merge-patch+json" => PatchType::Merge,
        "application/strategic-merge-patch+json" => PatchType::Strategic,
        _ => return Err(unsupported_media_type(ACCEPTED)),
    };
    let patch = Value::from_json(body)
        .map_err(|problem| Status::bad_request(format!("error decoding patch: {problem}")))?;
    match (&patch, patch_type) {
        (Value::Array(_), PatchType::Json) => Ok((patch_type, patch)),
        (Value::Object(_), PatchType::Merge | PatchType::Strategic) => Ok((patch_type, patch)),
        (_, PatchType::Json) => Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        )),
        _ => Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        )),
    }
}

pub(crate) fn apply(
    patch_type: PatchType,
    old: &Value,
    patch: &Value,
    definition: &str,
) -> Result<Value, Status> {
    match patch_type {
        PatchType::Json => api::patch::json_patch(old, patch),
        PatchType::Merge => Ok(api::patch::merge_patch(old, patch)),
        PatchType::Strategic => api::patch::strategic_merge(old, patch, definition),
    }
}

/// Whether the patch itself demands a resourceVersion: then a conflict is the client's to solve.
pub(crate) fn names_version(patch_type: PatchType, patch: &Value) -> bool {
    match patch_type {
        PatchType::Json => patch.as_array().into_iter().flatten().any(|operation| {
            operation.str_at(&["path"]) == "/metadata/resourceVersion"
                && operation.str_at(&["op"]) != "remove"
        }),
        _ => !patch.str_at(&["metadata", "resourceVersion"]).is_empty(),
    }
}

/// A patch may break what a PUT could not: the kind, the name, the types.
fn check_patched(
    context: &Context,
    resource: &Resource,
    new: &mut Value,
    old: &Value,
) -> Result<(), Status> {
    for field in ["apiVersion", "kind"] {
        let (given, expected) = (new.str_at(&[field]), old.str_at(&[field]));
        if given != expected {
            return Err(Status::bad_request(format!(
                "the {field} in the data ({given}) does not match the expected {field} ({expected})"
            )));
        }
    }
    let target = schema::Target::of(resource);
    let (checked, problems) =
        schema::conform(target.definition, std::mem::take(new)).map_err(|problem| {
            Status::invalid(
                "",
                "",
                "",
                vec![api::Cause {
                    reason: "FieldValueInvalid",
                    message: format!("Invalid value: {problem}"),
                    field: "patch".to_string(),
                }],
            )
        })?;
    *new = checked;
    decode::complain(context, &target, &problems)?;
    for field in ["name", "namespace"] {
        let path = ["metadata", field];
        let (given, expected) = (new.str_at(&path), old.str_at(&path));
        if given != expected {
            return Err(Status::bad_request(format!(
                "the {field} of the object ({given}) does not match the {field} on the URL ({expected})"
            )));
        }
    }
    Ok(())
}
