//! From a request's body to a document of the expected kind. Parsing, type checks and their words
//! are `api::schema`'s; here it is decided what unknown fields mean for this request.

use api::schema::{self, FieldProblem, Target};
use api::{Resource, Status, Value};

use crate::negotiate::{content_type, unsupported_media_type};
use crate::server::Context;

/// What to do about fields the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    pub fn of(context: &Context) -> Result<FieldValidation, Status> {
        match context.query.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let (kind, supported) = match context.info.verb {
                    "update" => ("UpdateOptions", "\"\", \"Ignore\", \"Strict\", \"Warn\""),
                    "patch" => ("PatchOptions", "\"\", \"Ignore\", \"Strict\", \"Warn\""),
                    _ => ("CreateOptions", "\"\", \"Ignore\", \"Strict\", \"Warn\""),
                };
                Err(Status::invalid(
                    "meta.k8s.io",
                    kind,
                    "",
                    vec![api::Cause {
                        reason: "FieldValueNotSupported",
                        message: format!(
                            "Unsupported value: {other:?}: supported values: {supported}"
                        ),
                        field: "fieldValidation".to_string(),
                    }],
                ))
            }
        }
    }
}

/// Reads an object of `resource`'s kind.
pub(crate) fn object(context: &Context, resource: &Resource, body: &[u8]) -> Result<Value, Status> {
    read(context, &Target::of(resource), body)
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

fn read(context: &Context, target: &Target, body: &[u8]) -> Result<Value, Status> {
    let (value, problems) = match content_type(&context.headers) {
        "application/json" => schema::decode_json_as(target, body)?,
        "application/yaml" => {
            let mut documents = api::document::yaml::parse_documents(body)
                .map_err(|problem| Status::bad_request(problem.to_string()))?;
            if documents.is_empty() {
                return Err(Status::bad_request("Object 'Kind' is missing in 'null'"));
            }
            let mut value = documents.swap_remove(0);
            let problems = schema::decode_as(target, &mut value)?;
            (value, problems)
        }
        _ => return Err(unsupported_media_type("application/json, application/yaml")),
    };
    complain(context, target, &problems)?;
    Ok(value)
}

/// Answers unknown fields as the request asks.
pub(crate) fn complain(
    context: &Context,
    target: &Target,
    problems: &[FieldProblem],
) -> Result<(), Status> {
    let validation = FieldValidation::of(context)?;
    match validation {
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
