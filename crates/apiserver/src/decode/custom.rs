//! Bodies of custom resources. They have no types of the program's own: the schema of their
//! definition says which fields there are, and what is wrong with a value is found by validation.

use api::custom::{ConformError, Malformed, Schema};
use api::resource::CustomVersion;
use api::schema::{self, FieldProblem, Target};
use api::{Resource, Status, Value};

use super::{FieldValidation, complain, yaml};
use crate::context::Context;
use crate::negotiate::{JSON, PROTOBUF, YAML, content_type, unsupported_media_type};

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

pub(super) fn object(
    context: &Context,
    resource: &Resource,
    custom: &CustomVersion,
    body: &[u8],
) -> Result<Value, Status> {
    let target = Target::of(resource);
    let validation = FieldValidation::of(context);
    let (mut value, mut problems, repeated) = match content_type(&context.headers) {
        JSON => {
            let value = schema::parse_untyped(&target, body)?;
            let repeated = match validation {
                FieldValidation::Ignore => Vec::new(),
                _ => schema::repeated_fields(body),
            };
            (value, repeated, Vec::new())
        }
        YAML => {
            let (value, repeated) = yaml(&target, body)?;
            let json = value.to_json();
            (schema::parse_untyped(&target, &json)?, Vec::new(), repeated)
        }
        PROTOBUF => return Err(no_message(&target, body)),
        _ => return Err(unsupported_media_type(ACCEPTED)),
    };
    let given = value.str_at(&["apiVersion"]).to_string();
    let expected = resource.api_version();
    let version = given.rsplit('/').next().unwrap_or_default().to_string();
    let kind = value.str_at(&["kind"]).to_string();
    problems.extend(
        conform(custom, &mut value).map_err(|problem| {
            schema::unhandled(&target, (&version, &kind), &problem.to_string())
        })?,
    );
    match validation {
        FieldValidation::Strict if !repeated.is_empty() => {
            return Err(schema::strict_yaml_error(&target, &repeated, &problems));
        }
        FieldValidation::Warn => repeated.into_iter().for_each(|line| context.warn(line)),
        _ => {}
    }
    complain(context, &target, &problems)?;
    if given != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        )));
    }
    Ok(value)
}

/// Brings an object into the form of its kind; what the schema does not know is taken out and told.
pub(crate) fn conform(
    custom: &CustomVersion,
    object: &mut Value,
) -> Result<Vec<FieldProblem>, ConformError> {
    let anything;
    let schema = match custom.schema.get::<Schema>() {
        Some(schema) if !custom.kind.preserves_unknown_fields => schema,
        _ => {
            anything = Schema::of_anything();
            &anything
        }
    };
    let unknown = schema.conform(object, Malformed::Refused)?;
    let problems = unknown.into_iter().map(|path| FieldProblem {
        path,
        duplicate: false,
    });
    Ok(problems.collect())
}

/// Custom resources have no protobuf messages.
fn no_message(target: &Target<'_>, body: &[u8]) -> Status {
    const PROBLEM: &str = "object *unstructured.Unstructured does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message";
    match api::protobuf::kind_of(body) {
        Some((api_version, kind)) if !kind.is_empty() => {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            schema::unhandled(target, (version, &kind), PROBLEM)
        }
        _ => schema::unrecognized(target, PROBLEM, body),
    }
}
