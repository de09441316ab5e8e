//! Small checks of single values that many kinds make.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::quantity::Quantity;

/// Demands a text at `name`.
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

/// The error for a quantity below zero, in the words of fields that show the whole number.
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
