//! Validation errors of single fields and the paths that name them, worded as Kubernetes words them.

use std::fmt;

use crate::document::Value;
use crate::status::Cause;

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldErrorKind {
    NotFound {
        value: Value,
    },
    Required,
    Duplicate {
        value: Value,
    },
    /// Of what is too large to show.
    DuplicateOmitted,
    Invalid {
        value: Value,
    },
    /// Of what is too large or too secret to show.
    InvalidOmitted,
    NotSupported {
        value: Value,
    },
    Forbidden,
    TooLong,
    TooMany {
        actual: i64,
    },
    Internal,
    TypeInvalid {
        value: Value,
    },
}

impl FieldErrorKind {
    /// The machine-readable reason of a cause, e.g. `FieldValueRequired`.
    pub fn reason(&self) -> &'static str {
        match self {
            FieldErrorKind::NotFound { .. } => "FieldValueNotFound",
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Duplicate { .. } | FieldErrorKind::DuplicateOmitted => {
                "FieldValueDuplicate"
            }
            FieldErrorKind::Invalid { .. } | FieldErrorKind::InvalidOmitted => "FieldValueInvalid",
            FieldErrorKind::NotSupported { .. } => "FieldValueNotSupported",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany { .. } => "FieldValueTooMany",
            FieldErrorKind::Internal => "InternalError",
            FieldErrorKind::TypeInvalid { .. } => "FieldValueTypeInvalid",
        }
    }

    fn words(&self) -> &'static str {
        match self {
            FieldErrorKind::NotFound { .. } => "Not found",
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Duplicate { .. } | FieldErrorKind::DuplicateOmitted => {
                "Duplicate value"
            }
            FieldErrorKind::Invalid { .. }
            | FieldErrorKind::InvalidOmitted
            | FieldErrorKind::TypeInvalid { .. } => "Invalid value",
            FieldErrorKind::NotSupported { .. } => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany { .. } => "Too many",
            FieldErrorKind::Internal => "Internal error",
        }
    }
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub path: String,
    pub kind: FieldErrorKind,
    pub detail: String,
    /// How the value is written where Go shows a structure of its own.
    shown: Option<String>,
}

impl FieldError {
    fn new(path: &Path, kind: FieldErrorKind, detail: impl Into<String>) -> FieldError {
        FieldError {
            path: path.to_string(),
            kind,
            detail: detail.into(),
            shown: None,
        }
    }

    /// Writes the value as Go writes one of its structures: fields in the order of declaration,
    /// under their Go names.
    pub fn showing(mut self, fields: &[(&str, Value)]) -> FieldError {
        self.shown = Some(go_struct(fields));
        self
    }

    /// Writes the value as `text`, which is how Go writes it.
    pub fn showing_text(mut self, text: String) -> FieldError {
        self.shown = Some(text);
        self
    }

    /// Shows `value` in place of nothing.
    pub(crate) fn replace_null(&mut self, replacement: &Value) {
        if let FieldErrorKind::Invalid { value } | FieldErrorKind::NotSupported { value } =
            &mut self.kind
            && value.is_null()
        {
            *value = replacement.clone();
            self.shown.take_if(|shown| shown == "null");
        }
    }

    pub fn internal(path: &Path, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorKind::Internal, detail)
    }

    pub fn required(path: &Path, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorKind::Required, detail)
    }

    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        let value = value.into();
        FieldError::new(path, FieldErrorKind::Invalid { value }, detail)
    }

    /// As [`FieldError::invalid`], without saying what is there.
    pub fn invalid_omitted(path: &Path, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorKind::InvalidOmitted, detail)
    }

    pub fn duplicate(path: &Path, value: impl Into<Value>) -> FieldError {
        let value = value.into();
        FieldError::new(path, FieldErrorKind::Duplicate { value }, "")
    }

    /// As [`FieldError::duplicate`], without saying what is there.
    pub fn duplicate_omitted(path: &Path) -> FieldError {
        FieldError::new(path, FieldErrorKind::DuplicateOmitted, "")
    }

    /// The error for a value of another type than the field has.
    pub fn type_invalid(
        path: &Path,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        let value = value.into();
        FieldError::new(path, FieldErrorKind::TypeInvalid { value }, detail)
    }

    pub fn not_found(path: &Path, value: impl Into<Value>) -> FieldError {
        let value = value.into();
        FieldError::new(path, FieldErrorKind::NotFound { value }, "")
    }

    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> FieldError {
        let quoted: Vec<String> = supported.iter().map(|text| format!("{text:?}")).collect();
        let detail = match quoted.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", quoted.join(", ")),
        };
        let value = value.into();
        FieldError::new(path, FieldErrorKind::NotSupported { value }, detail)
    }

    pub fn forbidden(path: &Path, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorKind::Forbidden, detail)
    }

    pub fn too_long(path: &Path, most: usize) -> FieldError {
        let unit = if most == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {most} {unit}");
        FieldError::new(path, FieldErrorKind::TooLong, detail)
    }

    /// Where no length would do.
    pub fn too_long_at_all(path: &Path) -> FieldError {
        FieldError::new(path, FieldErrorKind::TooLong, "value is too long")
    }

    pub fn too_many(path: &Path, actual: usize, most: usize) -> FieldError {
        let unit = if most == 1 { "item" } else { "items" };
        let detail = format!("must have at most {most} {unit}");
        let actual = actual as i64;
        FieldError::new(path, FieldErrorKind::TooMany { actual }, detail)
    }

    /// The error without its path, e.g. `Invalid value: "A": must be lower case`.
    pub fn body(&self) -> String {
        let words = self.kind.words();
        let mut body = match &self.kind {
            FieldErrorKind::NotFound { value }
            | FieldErrorKind::Duplicate { value }
            | FieldErrorKind::Invalid { value }
            | FieldErrorKind::NotSupported { value }
            | FieldErrorKind::TypeInvalid { value } => match (&self.shown, value) {
                (Some(shown), _) => format!("{words}: {shown}"),
                (None, Value::String(text)) => format!("{words}: {}", quote(text)),
                (None, Value::Float(number)) => format!("{words}: {}", go_float(*number)),
                (None, other) => format!("{words}: {}", in_go_order(other)),
            },
            FieldErrorKind::TooMany { actual } => format!("{words}: {actual}"),
            _ => words.to_string(),
        };
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.body())
    }
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Cause {
        Cause {
            reason: error.kind.reason(),
            message: error.body(),
            field: error.path,
        }
    }
}

/// The path to a field, e.g. `spec.containers[0].name` or `metadata.labels[app]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    pub fn new(name: &str) -> Path {
        Path(name.to_string())
    }

    pub fn child(&self, name: &str) -> Path {
        match self.0.as_str() {
            "" => Path(name.to_string()),
            parent => Path(format!("{parent}.{name}")),
        }
    }

    pub fn index(&self, index: usize) -> Path {
        Path(format!("{}[{index}]", self.0))
    }

    pub fn key(&self, key: &str) -> Path {
        Path(format!("{}[{key}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A field error at the root of an object names it so.
        match self.0.as_str() {
            "" => formatter.write_str("<nil>"),
            path => formatter.write_str(path),
        }
    }
}

/// The fields of Go's types that errors show, where their order is not that of the alphabet.
const GO_ORDER: [&str; 32] = [
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
    "matchLabels",
    "matchExpressions",
    "Rules",
    "Action",
    "OnExitCodes",
    "OnPodConditions",
    "ContainerName",
    "Key",
    "Operator",
    "Values",
    "SucceededIndexes",
    "SucceededCount",
    "MinAvailable",
    "Selector",
    "MaxUnavailable",
    "UnhealthyPodEvictionPolicy",
    "Type",
    "Status",
    "RollingUpdate",
    "Kind",
    "Namespace",
    "Name",
    "UID",
    "APIVersion",
    "ResourceVersion",
    "FieldPath",
];

/// How many errors about the items of a list may show the whole list, or what is around it: with
/// one for each item the answer would grow with the square of the list.
pub(crate) fn most_showing(value: &Value) -> usize {
    const MOST_BYTES: usize = 1 << 20;
    (MOST_BYTES / value.to_json().len().max(1)).max(1)
}

/// JSON as Go writes it: the fields of its types in their order, the keys of maps sorted.
pub(crate) fn in_go_order(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(in_go_order).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(object) => {
            let has = |name: &str| object.contains(name);
            let selector = object.iter().all(|(name, _)| name.starts_with("match"));
            let go_names = object
                .iter()
                .all(|(name, _)| name.starts_with(char::is_uppercase));
            let owner = ["apiVersion", "kind", "name", "uid"].into_iter().all(has);
            let mut fields: Vec<(&str, &Value)> = object.iter().collect();
            if selector || go_names || owner {
                let place = |name: &str| GO_ORDER.iter().position(|known| *known == name);
                fields.sort_by_key(|(name, _)| place(name).unwrap_or(GO_ORDER.len()));
            }
            let fields: Vec<String> = fields
                .into_iter()
                .map(|(name, value)| format!("{}:{}", go_text(name), in_go_order(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::String(text) => go_text(text),
        // Whole numbers have no fraction in Go's JSON.
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e21 => {
            format!("{number:.0}")
        }
        other => other.to_string(),
    }
}

/// A text in Go's JSON, in which what HTML would read is escaped.
pub(crate) fn go_text(text: &str) -> String {
    let mut written = Value::from(text).to_string();
    for sign in ['&', '<', '>', '\u{2028}', '\u{2029}'] {
        if written.contains(sign) {
            written = written.replace(sign, &format!("\\u{:04x}", sign as u32));
        }
    }
    written
}

/// A float as Go's `%v` prints it: the shortest digits, with an exponent from a million on and below
/// 0.0001.
pub fn go_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_string();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_string();
    }
    // `{:e}` has the shortest digits too: 1.5e-7.
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    match (-4..6).contains(&exponent) {
        true => format!("{number}"),
        false => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
    }
}

/// A Go structure in JSON.
pub fn go_struct(fields: &[(&str, Value)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name:?}:{value}"))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// Go's `%q`: double quotes, with escapes for what does not print.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            control if control.is_ascii_control() => {
                quoted.push_str(&format!("\\x{:02x}", control as u32));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_upstream_words_them() {
        let path = Path::new("spec").child("containers").index(0).child("name");
        let check = |error: FieldError, expected: &str| assert_eq!(error.to_string(), expected);
        check(
            FieldError::required(&path, ""),
            "spec.containers[0].name: Required value",
        );
        check(
            FieldError::invalid(&path, "A\"b", "no"),
            r#"spec.containers[0].name: Invalid value: "A\"b": no"#,
        );
        check(
            FieldError::invalid(&Path::new("a").key("b"), 7, "no"),
            "a[b]: Invalid value: 7: no",
        );
        check(
            FieldError::not_supported(&path, "x", &["a", "b"]),
            r#"spec.containers[0].name: Unsupported value: "x": supported values: "a", "b""#,
        );
        check(
            FieldError::too_long(&path, 63),
            "spec.containers[0].name: Too long: may not be more than 63 bytes",
        );
        check(
            FieldError::too_many(&path, 3, 1),
            "spec.containers[0].name: Too many: 3: must have at most 1 item",
        );
    }
}
