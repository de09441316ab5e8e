//! From a request's body to an object of the expected kind: parsing, kind check, schema, unknown
//! fields.

use api::{Resource, Status, Value, catalogue};

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
            other => Err(Status::invalid(
                "meta.k8s.io",
                "CreateOptions",
                "",
                vec![api::Cause {
                    reason: "FieldValueNotSupported",
                    message: format!(
                        "Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
                    ),
                    field: "fieldValidation".to_string(),
                }],
            )),
        }
    }
}

/// Reads JSON or YAML, as Content-Type says.
pub(crate) fn parse(context: &Context, body: &[u8]) -> Result<Value, Status> {
    let value = match content_type(&context.headers) {
        "application/json" => Value::from_json(body).map_err(|problem| {
            Status::bad_request(format!(
                "couldn't get version/kind; json parse error: {problem}"
            ))
        })?,
        "application/yaml" => {
            let mut documents = api::document::yaml::parse_documents(body)
                .map_err(|problem| Status::bad_request(problem.to_string()))?;
            if documents.is_empty() {
                return Err(Status::bad_request("Object 'Kind' is missing in 'null'"));
            }
            documents.swap_remove(0)
        }
        _ => return Err(unsupported_media_type("application/json, application/yaml")),
    };
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Status::bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        )),
    }
}

/// Reads an object of `resource`'s kind and checks it against the schema.
pub(crate) fn object(context: &Context, resource: &Resource, body: &[u8]) -> Result<Value, Status> {
    let mut object = parse(context, body)?;
    expect_kind(&mut object, resource.group, resource.version, resource.kind)?;
    check_schema(context, resource, &mut object)?;
    Ok(object)
}

/// Type-checks and prunes; complains about unknown fields as the request asks.
pub(crate) fn check_schema(
    context: &Context,
    resource: &Resource,
    object: &mut Value,
) -> Result<(), Status> {
    let validation = FieldValidation::of(context)?;
    let unknown = api::schema::decode(resource, object)?;
    if unknown.is_empty() || validation == FieldValidation::Ignore {
        return Ok(());
    }
    let complaints: Vec<String> = unknown
        .iter()
        .map(|field| match field.duplicate {
            true => format!("duplicate field {:?}", field.path),
            false => format!("unknown field {:?}", field.path),
        })
        .collect();
    match validation {
        FieldValidation::Strict => Err(Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
            complaints.join(", "),
            kind = resource.kind,
            version = resource.version,
        ))),
        _ => {
            complaints.into_iter().for_each(|text| context.warn(text));
            Ok(())
        }
    }
}

/// Fills in a missing apiVersion and kind; refuses others than the expected.
pub(crate) fn expect_kind(
    object: &mut Value,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<(), Status> {
    let expected = catalogue::api_version(group, version);
    let given_version = match object.get("apiVersion") {
        None | Some(Value::Null) => expected.clone(),
        Some(Value::String(text)) if text.is_empty() => expected.clone(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err(not_a_string("apiVersion")),
    };
    let given_kind = match object.get("kind") {
        None | Some(Value::Null) => kind.to_string(),
        Some(Value::String(text)) if text.is_empty() => kind.to_string(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err(not_a_string("kind")),
    };
    if given_version != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({expected})"
        )));
    }
    if given_kind != kind {
        let (_, short) = catalogue::split_api_version(&given_version);
        return Err(Status::bad_request(format!(
            "{given_kind} in version {short:?} cannot be handled as a {kind}: no kind {given_kind:?} is registered for version {given_version:?}"
        )));
    }
    object.set(&["apiVersion"], expected);
    object.set(&["kind"], given_kind);
    Ok(())
}

fn not_a_string(field: &str) -> Status {
    Status::bad_request(format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal into Go struct field .{field} of type string"
    ))
}
