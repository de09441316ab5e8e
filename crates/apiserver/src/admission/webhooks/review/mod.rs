//! The answer of a hook: read with suspicion, as upstream reads it.

use std::fmt;

use api::{Status, Value};
use base64::Engine;

use crate::admission_hooks::{Phase, ReviewVersion};

const GROUP: &str = "admission.k8s.io";
/// The set of types that upstream reads answers with, as its errors name it.
const SCHEME: &str = "pkg/util/webhook/client.go:71";

/// What a hook said.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    pub is_allowed: bool,
    /// The operations of its patch, if there are any.
    pub patch: Option<Value>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
    /// Its reasons for a refusal: a `Status`.
    pub status: Option<Value>,
}

/// Why an answer is none, in upstream's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// It cannot be read.
    Undecodable(String),
    /// It says what it must not say.
    Wrong(String),
    /// Its patch is none.
    Patch(String),
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Undecodable(problem) => write!(formatter, "failed to call webhook: {problem}"),
            Invalid::Wrong(problem) => {
                write!(formatter, "received invalid webhook response: {problem}")
            }
            Invalid::Patch(problem) => write!(
                formatter,
                "received undecodable patch in webhook response: {problem}"
            ),
        }
    }
}

/// Reads the answer to the review of this UID.
pub(super) fn read(
    body: &[u8],
    version: ReviewVersion,
    phase: Phase,
    uid: &str,
) -> Result<Verdict, Invalid> {
    let review = api::schema::parse_json(body).map_err(|problem| {
        let words = format!("couldn't get version/kind; json parse error: {problem}");
        Invalid::Undecodable(words)
    })?;
    check_kind(&review, version)?;
    let response = review
        .get("response")
        .filter(|response| !response.is_null());
    let response = response.ok_or_else(|| wrong("webhook response was absent"))?;
    check_types(response)?;
    let is_strict = version == ReviewVersion::V1;
    let given = response.str_at(&["uid"]);
    if is_strict && given != uid {
        return Err(wrong(format!(
            "expected response.uid={uid:?}, got {given:?}"
        )));
    }
    let (api_version, kind) = (review.str_at(&["apiVersion"]), review.str_at(&["kind"]));
    if is_strict && (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        let (group, version) = api::resource::split_api_version(api_version);
        return Err(wrong(format!(
            "expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {group}/{version}, Kind={kind}"
        )));
    }
    let texts = |field: &str| {
        let items = response.list_at(&[field]).iter();
        let texts = items.filter_map(Value::as_str).map(str::to_string);
        texts.collect()
    };
    let annotations = response.fields_at(&["auditAnnotations"]);
    let annotations =
        annotations.filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_string())));
    Ok(Verdict {
        is_allowed: response.bool_at(&["allowed"]),
        patch: patch(response, is_strict, phase)?,
        warnings: texts("warnings"),
        annotations: annotations.collect(),
        status: response
            .get("status")
            .filter(|status| !status.is_null())
            .cloned(),
    })
}

/// What a client is told when a hook refuses.
pub(super) fn denial(hook: &str, status: Option<Value>) -> Status {
    let mut status = status.unwrap_or_else(Value::object);
    let by = format!("admission webhook {hook:?} denied the request");
    let message = match (status.str_at(&["message"]), status.str_at(&["reason"])) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    status.set(&["message"], message);
    if status.i64_at(&["code"]).unwrap_or(0) < 400 {
        status.set(&["code"], 400);
    }
    Status::of_document(status)
}

fn wrong(problem: impl Into<String>) -> Invalid {
    Invalid::Wrong(problem.into())
}

fn check_kind(review: &Value, expected: ReviewVersion) -> Result<(), Invalid> {
    let (api_version, kind) = (review.str_at(&["apiVersion"]), review.str_at(&["kind"]));
    if api_version.is_empty() && kind.is_empty() {
        // Read as what was expected; whether that is good enough is looked at later.
        return Ok(());
    }
    let (expected, other) = match expected {
        ReviewVersion::V1 => ("v1", "v1beta1"),
        ReviewVersion::V1Beta1 => ("v1beta1", "v1"),
    };
    let is_known = |version: &str| api_version == format!("{GROUP}/{version}");
    if kind == "AdmissionReview" && is_known(other) {
        return Err(Invalid::Undecodable(format!(
            "converting ({other}.AdmissionReview) to ({expected}.AdmissionReview): unknown conversion"
        )));
    }
    // What is missing is taken from what was expected.
    let is_kind = matches!(kind, "AdmissionReview" | "");
    match is_kind && (api_version.is_empty() || is_known(expected)) {
        true => Ok(()),
        false => Err(Invalid::Undecodable(format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme {SCHEME:?}"
        ))),
    }
}

/// Refuses an answer whose fields are not of their types.
fn check_types(response: &Value) -> Result<(), Invalid> {
    let mismatch = |value: &Value, field: &str, expected: &str| {
        let found = match value {
            Value::Null => return Ok(()),
            Value::Bool(_) => "bool",
            Value::Integer(_) | Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let is_right = match expected {
            "[]string" => found == "array",
            "map[string]string" | "v1.Status" => found == "object",
            expected => found == expected,
        };
        match is_right {
            true => Ok(()),
            false => Err(Invalid::Undecodable(format!(
                "json: cannot unmarshal {found} into Go struct field AdmissionReview.response.{field} of type {expected}"
            ))),
        }
    };
    for (field, expected) in [
        ("uid", "string"),
        ("allowed", "bool"),
        ("patch", "string"),
        ("patchType", "string"),
        ("warnings", "[]string"),
        ("auditAnnotations", "map[string]string"),
        ("status", "v1.Status"),
    ] {
        mismatch(response.get(field).unwrap_or(&Value::Null), field, expected)?;
    }
    for warning in response.list_at(&["warnings"]) {
        mismatch(warning, "warnings", "string")?;
    }
    for (_, value) in response.fields_at(&["auditAnnotations"]) {
        mismatch(value, "auditAnnotations", "string")?;
    }
    if response.as_object().is_none() {
        return mismatch(response, "", "v1.AdmissionResponse");
    }
    Ok(())
}

/// The patch of an answer, if it may have one.
fn patch(response: &Value, is_strict: bool, phase: Phase) -> Result<Option<Value>, Invalid> {
    let encoded = response.str_at(&["patch"]);
    let kind = response.get("patchType").and_then(Value::as_str);
    match (phase, is_strict) {
        (Phase::Validating, false) => return Ok(None),
        (Phase::Validating, true) => {
            return match (encoded, kind) {
                ("", None) => Ok(None),
                ("", Some(_)) => Err(wrong(
                    "validating webhook may not return response.patchType",
                )),
                _ => Err(wrong("validating webhook may not return response.patch")),
            };
        }
        (Phase::Mutating, true) => match (encoded, kind) {
            ("", None) => return Ok(None),
            ("", Some(_)) => {
                return Err(wrong(
                    "webhook returned response.patchType but not response.patch",
                ));
            }
            (_, None) => {
                return Err(wrong(
                    "webhook returned response.patch but not response.patchType",
                ));
            }
            (_, Some("")) => {
                return Err(wrong("webhook returned invalid response.patchType of \"\""));
            }
            (_, Some("JSONPatch")) => {}
            (_, Some(other)) => {
                return Err(wrong(format!("unsupported patch type {other:?}")));
            }
        },
        // The older version always means a JSON patch.
        (Phase::Mutating, false) if encoded.is_empty() => return Ok(None),
        (Phase::Mutating, false) => {}
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(encoded);
    let decoded = decoded.map_err(|problem| match problem {
        base64::DecodeError::InvalidByte(at, _) => {
            Invalid::Undecodable(format!("illegal base64 data at input byte {at}"))
        }
        problem => Invalid::Undecodable(format!("illegal base64 data: {problem}")),
    })?;
    let patch = api::schema::parse_json(&decoded);
    let patch = patch.map_err(|problem| Invalid::Patch(problem.to_string()))?;
    match patch {
        Value::Array(operations) if operations.is_empty() => Ok(None),
        Value::Null => Ok(None),
        Value::Array(operations) => match operations.iter().all(|one| one.as_object().is_some()) {
            true => Ok(Some(Value::Array(operations))),
            false => Err(Invalid::Patch(
                "json: cannot unmarshal into Go value of type jsonpatch.Operation".to_string(),
            )),
        },
        _ => Err(Invalid::Patch(
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_string(),
        )),
    }
}

#[cfg(test)]
mod tests;
