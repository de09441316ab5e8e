//! From a request's body to a document of the expected kind. Parsing, type checks and their words
//! are `api::schema`'s; here it is decided what unknown fields mean for this request.

pub(crate) mod custom;

use api::protobuf;
use api::schema::{self, FieldProblem, Target};
use api::{Resource, Status, Value};

use crate::context::Context;
use crate::negotiate::{JSON, PROTOBUF, YAML, content_type, unsupported_media_type};

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// What to do about fields the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// What the request asks for; `options` has refused everything else.
    pub fn of(context: &Context) -> FieldValidation {
        match context.query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }
}

/// Reads an object of `resource`'s kind.
pub(crate) fn object(context: &Context, resource: &Resource, body: &[u8]) -> Result<Value, Status> {
    match resource.definition.custom() {
        Some(custom) => custom::object(context, resource, custom, body),
        None => read(context, &Target::of(resource), body),
    }
}

/// Reads an object of any registered kind, e.g. what a subresource takes.
pub(crate) fn of_kind(
    context: &Context,
    group: &str,
    version: &str,
    kind: &str,
    body: &[u8],
) -> Result<Value, Status> {
    let target = Target::of_kind(group, version, kind)
        .ok_or_else(|| Status::internal(format_args!("no schema for kind {kind}")))?;
    read(context, &target, body)
}

/// Reads `DeleteOptions`, which clients send in the version of the group that they delete from.
pub(crate) fn delete_options(context: &Context, body: &[u8]) -> Result<Value, Status> {
    let target = Target::of_kind("", "v1", "DeleteOptions")
        .ok_or_else(|| Status::internal("no schema for DeleteOptions"))?;
    let mut value = match content_type(&context.headers) {
        _ if body.is_empty() => return Ok(Value::object()),
        PROTOBUF => protobuf::decode_as(target.definition, body)
            .map_err(|problem| Status::bad_request(problem.to_string()))?,
        YAML => api::document::yaml::parse_documents(body)
            .map_err(|problem| Status::bad_request(problem.to_string()))?
            .into_iter()
            .next()
            .unwrap_or_default(),
        // Some clients name no type, or a wrong one, for a body they hardly know they send.
        _ => schema::parse_json(body).map_err(|problem| {
            Status::bad_request(format!(
                "couldn't get version/kind; json parse error: {problem}"
            ))
        })?,
    };
    let kind = value.str_at(&["kind"]);
    if !kind.is_empty() && kind != "DeleteOptions" {
        let version = value.str_at(&["apiVersion"]);
        return Err(Status::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/apis/meta/internalversion/scheme/register.go:30\""
        )));
    }
    value.remove(&["apiVersion"]);
    value.remove(&["kind"]);
    schema::decode_as(&target, &mut value)?;
    Ok(value)
}

fn read(context: &Context, target: &Target<'_>, body: &[u8]) -> Result<Value, Status> {
    let (value, problems) = match content_type(&context.headers) {
        JSON => schema::decode_json_as(target, body)?,
        YAML => {
            let (mut value, repeated) = yaml(target, body)?;
            let problems = schema::decode_as(target, &mut value)?;
            match FieldValidation::of(context) {
                FieldValidation::Strict if !repeated.is_empty() => {
                    return Err(schema::strict_yaml_error(target, &repeated, &problems));
                }
                FieldValidation::Warn => repeated.into_iter().for_each(|line| context.warn(line)),
                _ => {}
            }
            (value, problems)
        }
        PROTOBUF => {
            let mut value = protobuf::decode_as(target.definition, body)
                .map_err(|problem| schema::unrecognized(target, &problem.to_string(), body))?;
            let problems = schema::decode_as(target, &mut value)?;
            (value, problems)
        }
        _ => return Err(unsupported_media_type(ACCEPTED)),
    };
    complain(context, target, &problems)?;
    Ok(value)
}

/// The first document of a body in YAML, and the lines with keys that it has twice.
fn yaml(target: &Target<'_>, body: &[u8]) -> Result<(Value, Vec<String>), Status> {
    let parsed = api::document::yaml::parse_with_repeated(body);
    let (mut documents, repeated) = parsed.map_err(|problem| {
        // Go's parser tells of the first line without its number.
        let problem = problem.to_string();
        let problem = problem.trim_start_matches("error converting YAML to JSON: ");
        schema::unrecognized(target, &problem.replacen("line 1: ", "", 1), body)
    })?;
    if documents.is_empty() {
        return Err(Status::bad_request("Object 'Kind' is missing in 'null'"));
    }
    let repeated = repeated.iter().map(ToString::to_string).collect();
    Ok((documents.swap_remove(0), repeated))
}

/// Answers unknown fields as the request asks.
pub(crate) fn complain(
    context: &Context,
    target: &Target<'_>,
    problems: &[FieldProblem],
) -> Result<(), Status> {
    match FieldValidation::of(context) {
        FieldValidation::Strict if !problems.is_empty() => {
            Err(schema::strict_error(target, problems))
        }
        FieldValidation::Warn => {
            problems
                .iter()
                .for_each(|problem| context.warn(problem.to_string()));
            Ok(())
        }
        _ => Ok(()),
    }
}
