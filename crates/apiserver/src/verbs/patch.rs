//! PATCH: JSON, merge and strategic merge patches, retried when others write in between.

use std::sync::Arc;

use api::field::{FieldError, Path};
use api::{Details, Reason, Resource, Status, Value, conversion, schema};
use http::Response;

use super::create::settle_namespace;
use super::respond;
use super::update::{Target, change};
use crate::body::Body;
use crate::decode::{self, FieldValidation};
use crate::negotiate::content_type;
use crate::server::Context;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    /// Not a patch but a configuration: `apply` has it.
    Apply,
}

impl PatchType {
    pub fn of(media_type: &str) -> Option<PatchType> {
        match media_type {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            "application/apply-patch+yaml" => Some(PatchType::Apply),
            _ => None,
        }
    }

    pub fn of_request(context: &Context) -> Result<PatchType, Status> {
        PatchType::of(content_type(&context.headers)).ok_or_else(not_a_patch)
    }
}

pub(crate) async fn patch(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let patch_type = PatchType::of_request(context)?;
    if patch_type == PatchType::Apply {
        return super::apply::apply(context, resource, body).await;
    }
    let target = Target::of(context, resource);
    let patch = match parse(patch_type, body) {
        Ok(patch) => patch,
        // Whether there is anything to patch comes first.
        Err(status) => {
            let (namespace, name) = (target.namespace, target.name);
            context.server.get(resource, namespace, name).await?;
            return Err(status);
        }
    };
    let conditional = names_version(patch_type, &patch);
    let repeated = match patch_type {
        PatchType::Merge | PatchType::Strategic => schema::repeated_fields(body),
        _ => Vec::new(),
    };
    let entry = change(context, &target, conditional, |stored| {
        let converted;
        let old = match resource.is_stored_as_itself() {
            true => stored,
            false => {
                converted = conversion::from_storage(resource, stored.clone());
                &converted
            }
        };
        let mut new = apply(patch_type, old, &patch, resource.definition)?;
        let how = (patch_type, &patch, repeated.as_slice());
        check_patched(context, resource, how, &mut new, old)?;
        Ok(conversion::to_storage(resource, new))
    })
    .await?;
    respond(context, 200, resource, &entry)
}

pub(crate) fn parse(patch_type: PatchType, body: &[u8]) -> Result<Value, Status> {
    // Upstream leaves its words out for this one.
    let words = match patch_type {
        PatchType::Strategic => "",
        _ => "error decoding patch: ",
    };
    let wrong = |problem: &str| Status::bad_request(format!("{words}{problem}"));
    let patch = schema::parse_json(body).map_err(|problem| wrong(&problem))?;
    let found = match &patch {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    };
    match (&patch, patch_type) {
        (Value::Array(_), PatchType::Json) => Ok(patch),
        (Value::Object(_), PatchType::Merge | PatchType::Strategic) => Ok(patch),
        (_, PatchType::Json) => Err(wrong(&format!(
            "json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        ))),
        _ => Err(wrong(&format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        ))),
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
        PatchType::Apply => Err(Status::internal("a configuration is no patch")),
    }
}

/// Upstream's router answers this before anything that could list the types.
fn not_a_patch() -> Status {
    const MESSAGE: &str = "415: Unsupported Media Type";
    Status::new(Reason::UnsupportedMediaType, MESSAGE).with_details(Details::default())
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
    (patch_type, patch, repeated): (PatchType, &Value, &[schema::FieldProblem]),
    new: &mut Value,
    old: &Value,
) -> Result<(), Status> {
    let target = schema::Target::of(resource);
    // What upstream shows of the attempt.
    let shown = match patch_type {
        PatchType::Strategic => api::patch::in_go(patch),
        _ => String::from_utf8_lossy(&new.to_json()).into_owned(),
    };
    let wrong = |problem: String| {
        let error = FieldError::invalid(&Path::new("patch"), shown.as_str(), problem);
        Status::invalid("", "", "", vec![error.into()])
    };
    if patch_type == PatchType::Strategic {
        for field in ["apiVersion", "kind"] {
            new.set(&[field], old.str_at(&[field]));
        }
    }
    let (version, kind) = (new.str_at(&["apiVersion"]), new.str_at(&["kind"]));
    if kind != target.kind || version != old.str_at(&["apiVersion"]) {
        return Err(wrong(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        )));
    }
    let conform = match patch_type {
        PatchType::Strategic => schema::restore,
        _ => schema::conform,
    };
    let (checked, unknown) = conform(target.definition, std::mem::take(new))
        .map_err(|problem| wrong(problem.to_string()))?;
    let problems = [repeated, unknown.as_slice()].concat();
    *new = checked;
    if !problems.is_empty() && FieldValidation::of(context) == FieldValidation::Strict {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return Err(wrong(format!(
            "strict decoding error: {}",
            texts.join(", ")
        )));
    }
    decode::complain(context, &target, &problems)?;
    let (given, expected) = (
        new.str_at(&["metadata", "name"]),
        old.str_at(&["metadata", "name"]),
    );
    if given.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != expected {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({expected})"
        )));
    }
    settle_namespace(resource, &context.info.namespace, new)
}
