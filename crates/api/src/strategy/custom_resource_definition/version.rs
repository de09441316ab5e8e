//! The parts of a version: deprecation, subresources, columns, selectable fields.

use crate::custom::{Kind, Node, field_path};
use crate::document::Value;
use crate::field::{FieldError, Path, go_text};
use crate::repeats::Seen;

/// The most fields that a selector may name in addition to those of the metadata.
pub const MOST_SELECTABLE: usize = 8;

/// Checks the words that clients of a deprecated version get.
pub fn deprecation(version: &Value, path: &Path) -> Vec<FieldError> {
    let given = version.get("deprecationWarning").and_then(Value::as_str);
    let Some(words) = given else {
        return Vec::new();
    };
    let mut wrong = Vec::new();
    if !version.bool_at(&["deprecated"]) {
        wrong.push("can only be set for deprecated versions".to_string());
    } else {
        if words.len() > 256 {
            wrong.push("must be <= 256 characters long".to_string());
        }
        if words.is_empty() {
            wrong.push("must not be an empty string".to_string());
        }
        let printable = |sign: char| sign == ' ' || !(sign.is_control() || sign.is_whitespace());
        if let Some((index, _)) = words.char_indices().find(|(_, sign)| !printable(*sign)) {
            wrong.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at \
                 index {index}"
            ));
        }
    }
    let path = path.child("deprecationWarning");
    let errors = wrong.into_iter();
    errors
        // Upstream has a pointer to the text, which its errors show as JSON.
        .map(|why| FieldError::invalid(&path, words, why).showing_text(go_text(words)))
        .collect()
}

/// A path that is followed field by field.
fn simple_path(text: &str, path: &Path) -> Option<FieldError> {
    (!text.starts_with('.'))
        .then(|| FieldError::invalid(path, text, "must be a simple json path starting with ."))
}

/// Checks the paths of the scale subresource.
pub fn subresources(subresources: Option<&Value>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let scale = subresources.and_then(|declared| declared.get("scale"));
    let Some(scale) = scale.filter(|scale| !scale.is_null()) else {
        return errors;
    };
    for (name, under) in [
        ("specReplicasPath", ".spec"),
        ("statusReplicasPath", ".status"),
    ] {
        let text = scale.str_at(&[name]);
        let path = path.child(&format!("scale.{name}"));
        if text.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if let Some(error) = simple_path(text, &path) {
            errors.push(error);
        } else if !text.starts_with(&format!("{under}.")) {
            let why = format!("should be a json path under {under}");
            errors.push(FieldError::invalid(&path, text, why));
        }
    }
    let text = scale.str_at(&["labelSelectorPath"]);
    let path = path.child("scale.labelSelectorPath");
    if !text.is_empty() {
        if let Some(error) = simple_path(text, &path) {
            errors.push(error);
        } else if !text.starts_with(".spec.") && !text.starts_with(".status.") {
            let why = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(&path, text, why));
        }
    }
    errors
}

/// Checks one printer column.
pub fn column(column: &Value, path: &Path) -> Vec<FieldError> {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = [
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    let mut errors = Vec::new();
    let text = |name: &str| column.str_at(&[name]);
    if text("name").is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let why = format!("must be one of {}", TYPES.join(","));
    match text("type") {
        "" => errors.push(FieldError::required(&path.child("type"), why)),
        known if TYPES.contains(&known) => {}
        other => errors.push(FieldError::invalid(&path.child("type"), other, why)),
    }
    let format = text("format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        let why = format!("must be one of {}", FORMATS.join(","));
        errors.push(FieldError::invalid(&path.child("format"), format, why));
    }
    let path = path.child("JSONPath");
    match text("jsonPath") {
        "" => errors.push(FieldError::required(&path, "")),
        given => errors.extend(simple_path(given, &path)),
    }
    errors
}

/// Checks the fields that selectors may name. `too_many` were there before.
pub fn selectable(
    fields: &[Value],
    schema: &std::sync::Arc<Node>,
    path: &Path,
    too_many: bool,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = Seen::new();
    let mut different = 0;
    for (index, field) in fields.iter().enumerate() {
        let text = field.str_at(&["jsonPath"]);
        let path = path.index(index).child("jsonPath");
        if text.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let found = match field_path(text, schema, false) {
            Ok(found) => found,
            Err(error) => {
                let why = format!("is an invalid path: {error}");
                errors.push(FieldError::invalid(&path, text, why));
                continue;
            }
        };
        if found.names.first().is_some_and(|name| name == "metadata") {
            let why = "must not point to fields in metadata";
            errors.push(FieldError::invalid(&path, text, why));
        }
        let kind = found.node.as_ref().map(|node| node.kind());
        if !matches!(kind, Some(Kind::String | Kind::Boolean | Kind::Integer)) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields \
                       and strings with formats are allowed.";
            errors.push(FieldError::invalid(&path, text, why));
        }
        match seen.insert(found.text) {
            true => different += 1,
            false => errors.push(FieldError::duplicate(&path, text)),
        }
    }
    if different > MOST_SELECTABLE && !too_many {
        errors.push(FieldError::too_many(path, different, MOST_SELECTABLE));
    }
    errors
}
