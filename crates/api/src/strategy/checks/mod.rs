//! Small checks of single values that many kinds need.

pub mod client_config;
pub mod label_selector;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::quantity::Quantity;

/// Requires a text at `name`.
pub fn require(object: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if object.str_at(&[name]).is_empty() {
        errors.push(FieldError::required(&path.child(name), ""));
    }
}

/// The error for a text that is not one of `supported`.
pub fn supported(text: &str, supported: &[&str], path: &Path) -> Option<FieldError> {
    (!supported.contains(&text)).then(|| FieldError::not_supported(path, text, supported))
}

/// Checks the name of a CSI or DRA driver.
pub fn driver_name(name: &str, path: &Path) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    errors.extend(all_invalid(
        path,
        name,
        names::dns_subdomain(&name.to_lowercase()),
    ));
    errors
}

/// The error for a text that may not change; "" where there is none.
pub fn immutable_text(new: &str, old: &str, path: &Path) -> Option<FieldError> {
    (new != old).then(|| FieldError::invalid(path, new, "field is immutable"))
}

/// The quantity in a document, zero where there is none.
pub fn quantity(value: Option<&Value>) -> Quantity {
    let text = value.and_then(Value::as_str).unwrap_or("0");
    Quantity::parse(text).unwrap_or_else(|_| Quantity::from_milli(0))
}

/// The error for a negative quantity, in the form that contains the integer value.
pub fn basic_quantity(value: &Value, path: &Path) -> Option<FieldError> {
    let number = quantity(Some(value)).value();
    let detail = "must be a valid resource quantity";
    (number < 0).then(|| FieldError::invalid(path, number, detail))
}

/// The error for a quantity that is not above zero.
pub fn positive_quantity(value: &Value, path: &Path) -> Option<FieldError> {
    let quantity = quantity(Some(value));
    let positive = !quantity.is_negative() && !quantity.is_zero();
    (!positive)
        .then(|| FieldError::invalid(path, quantity.to_string(), "must be greater than zero"))
}

/// Whether two lists or maps are the same to Go, for which an empty one equals an absent one.
pub fn semantically_equal(one: Option<&Value>, other: Option<&Value>) -> bool {
    let blank = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    };
    one == other || (blank(one) && blank(other))
}

/// The bytes of all keys and values of a map of texts.
pub fn size_of_map(object: &Value, path: &[&str]) -> usize {
    let fields = object.fields_at(path);
    fields
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum()
}

/// Requires that the text at `name`, where there is one, is one of `supported`.
pub fn optional_one_of(
    object: &Value,
    name: &str,
    supported: &[&str],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    if let Some(value) = object.get(name).and_then(Value::as_str)
        && !supported.contains(&value)
    {
        let at = path.child(name);
        errors.push(FieldError::not_supported(&at, value, supported));
    }
}

/// Requires that there is a text at `name` and that it is one of `supported`.
pub fn required_one_of(
    object: &Value,
    name: &str,
    supported: &[&str],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let at = path.child(name);
    match object.str_at(&[name]) {
        "" => errors.push(FieldError::required(&at, "")),
        value if supported.contains(&value) => {}
        value => errors.push(FieldError::not_supported(&at, value, supported)),
    }
}

/// One `Invalid` error for each message about a number.
pub fn invalid_number(path: &Path, number: i64, messages: Vec<String>) -> Vec<FieldError> {
    messages
        .into_iter()
        .map(|detail| FieldError::invalid(path, number, detail))
        .collect()
}

/// The error for a negative number.
pub fn not_negative(number: i64, path: &Path) -> Option<FieldError> {
    let detail = "must be greater than or equal to 0";
    (number < 0).then(|| FieldError::invalid(path, number, detail))
}

/// Checks a path that must be relative and must not leave its directory.
pub fn relative_path(text: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text.starts_with('/') {
        errors.push(FieldError::invalid(path, text, "must be a relative path"));
    }
    errors.extend(no_backsteps(text, path));
    errors
}

/// The error for a path with `..` in it.
pub fn no_backsteps(text: &str, path: &Path) -> Option<FieldError> {
    let has_backstep = text.split('/').any(|part| part == "..");
    has_backstep.then(|| FieldError::invalid(path, text, "must not contain '..'"))
}

/// The text of a quantity, which a document may contain as a string or as a number.
pub fn quantity_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Rewrites the quantities of a resource list in canonical form, rounded up to thousandths.
/// Values that are no quantities stay, and validation rejects them.
pub fn canonical_quantities(object: &mut Value, path: &[&str]) {
    let Some(Value::Object(list)) = object.at_mut(path) else {
        return;
    };
    for (_, value) in list.iter_mut() {
        let text = match &*value {
            Value::String(text) => text.clone(),
            Value::Integer(_) | Value::Float(_) => value.to_string(),
            _ => continue,
        };
        if let Ok(quantity) = Quantity::parse(&text) {
            *value = quantity.rounded_to_milli().to_string().into();
        }
    }
}
