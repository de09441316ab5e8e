//! Dynamic resource allocation: DeviceClasses, ResourceClaims and their templates, ResourceSlices.
//! This module has their common validation.

use crate::document::Value;
use crate::expressions::devices::{self as expressions, DeviceSelectorError};
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::repeats::{Seen, repeats};
use crate::strategy::checks::{driver_name, supported};

pub mod claim;
mod claim_status;
pub mod claim_template;
pub mod class;
mod counters;
mod device;
mod requests;
pub mod slice;

const MOST_REQUESTS: usize = 32;
const MOST_SELECTORS: usize = 32;
const MOST_CONFIGURATIONS: usize = 32;
const LONGEST_PARAMETERS: usize = 10 * 1024;
const LONGEST_IDENTIFIER: usize = 32;
const MOST_BINDING_CONDITIONS: usize = 4;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Checks the items of a list, unless there are too many of them, which is an error.
fn each(
    list: &[Value],
    most: usize,
    path: &Path,
    errors: &mut Vec<FieldError>,
    mut check: impl FnMut(&Value, &Path, &mut Vec<FieldError>),
) {
    if list.len() > most {
        errors.push(FieldError::too_many(path, list.len(), most));
        return;
    }
    for (index, item) in list.iter().enumerate() {
        check(item, &path.index(index), errors);
    }
}

/// Like [`each`], and no two items may have the same key.
fn each_of_set(
    list: &[Value],
    most: usize,
    key: fn(&Value) -> Value,
    path: &Path,
    errors: &mut Vec<FieldError>,
    check: impl FnMut(&Value, &Path, &mut Vec<FieldError>),
) {
    each(list, most, path, errors, check);
    if list.len() > most {
        return;
    }
    let keys: Vec<String> = list.iter().map(|item| key(item).to_string()).collect();
    for index in repeats(&keys) {
        let item = key(&list[index]);
        errors.push(FieldError::duplicate(&path.index(index), item));
    }
}

fn itself(item: &Value) -> Value {
    item.clone()
}

fn name_of(item: &Value) -> Value {
    item.str_at(&["name"]).into()
}

fn label(text: &str, path: &Path) -> Vec<FieldError> {
    all_invalid(path, text, names::dns_label(text))
}

fn pool_name(name: &str, path: &Path) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push(FieldError::too_long(path, 253));
    }
    for part in name.split('/') {
        errors.extend(all_invalid(path, part, names::dns_subdomain(part)));
    }
    errors
}

/// Checks the name of an attribute or a capacity: an identifier, perhaps with a domain.
fn qualified_name(name: &str, path: &Path) -> Vec<FieldError> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [name] => identifier(name, path),
        [domain, name] => {
            let mut errors = match *domain {
                "" => vec![FieldError::invalid(
                    path,
                    "",
                    "the domain must not be empty",
                )],
                _ => driver_name(domain, path),
            };
            match *name {
                "" => errors.push(FieldError::invalid(path, "", "the name must not be empty")),
                _ => errors.extend(identifier(name, path)),
            }
            errors
        }
        // Upstream lets these pass.
        _ => Vec::new(),
    }
}

fn fully_qualified_name(name: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = qualified_name(name, path);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(FieldError::invalid(path, name, detail));
    }
    errors
}

fn identifier(name: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.len() > LONGEST_IDENTIFIER {
        errors.push(FieldError::too_long(path, LONGEST_IDENTIFIER));
    }
    errors.extend(all_invalid(path, name, names::c_identifier(name)));
    errors
}

/// Checks selectors; `are_stored` if they are the same as before.
fn selectors(list: &[Value], path: &Path, are_stored: bool, errors: &mut Vec<FieldError>) {
    each(list, MOST_SELECTORS, path, errors, |one, at, errors| {
        let at = at.child("cel");
        if !one.has(&["cel"]) {
            errors.push(FieldError::required(&at, ""));
            return;
        }
        let at = at.child("expression");
        let expression = one.str_at(&["cel", "expression"]);
        if expression.len() > expressions::LONGEST {
            errors.push(FieldError::too_long(&at, expressions::LONGEST));
            return;
        }
        let Err(error) = expressions::check(expression, are_stored) else {
            return;
        };
        let detail = error.to_string();
        errors.push(match error {
            DeviceSelectorError::Compile(_) | DeviceSelectorError::ResultType(_) => {
                FieldError::invalid(&at, expression, detail)
            }
            DeviceSelectorError::Program(_) => FieldError::internal(&at, detail),
            DeviceSelectorError::Cost => FieldError::forbidden(&at, detail),
        });
    });
}

/// Checks `opaque` of a configuration.
fn configuration(config: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("opaque");
    if !config.has(&["opaque"]) {
        errors.push(FieldError::required(&at, ""));
        return;
    }
    let driver = config.str_at(&["opaque", "driver"]);
    errors.extend(driver_name(driver, &at.child("driver")));
    let parameters = config.at(&["opaque", "parameters"]);
    raw(
        parameters,
        LONGEST_PARAMETERS,
        &at.child("parameters"),
        errors,
    );
}

/// Checks a field that can be any object.
fn raw(value: Option<&Value>, longest: usize, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        None | Some(Value::Null) => errors.push(FieldError::required(path, "")),
        Some(value) if value.to_json().len() > longest => {
            errors.push(FieldError::too_long(path, longest));
        }
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(FieldError::invalid(
            path,
            "<value omitted>",
            "must be a valid JSON object",
        )),
    }
}

fn toleration(toleration: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |name: &str| toleration.str_at(&[name]);
    let (key, value) = (text("key"), text("value"));
    if !key.is_empty() {
        let wrong = names::qualified_name(key);
        errors.extend(all_invalid(&path.child("key"), key, wrong));
    }
    let at = path.child("value");
    match text("operator") {
        "Exists" if !value.is_empty() => {
            let detail = "must be empty for operator `Exists`";
            errors.push(FieldError::invalid(&at, value, detail));
        }
        "Exists" => {}
        "Equal" => errors.extend(all_invalid(&at, value, names::label_value(value))),
        "" => errors.push(FieldError::required(&path.child("operator"), "")),
        other => {
            let operators = ["Equal", "Exists"];
            errors.extend(supported(other, &operators, &path.child("operator")));
        }
    }
    let effect = text("effect");
    if !effect.is_empty() {
        errors.extend(supported(effect, &EFFECTS, &path.child("effect")));
    }
}

/// Checks the conditions that must be true, or must not be true, before a device is bound.
fn binding_conditions(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let (good, bad) = ("bindingConditions", "bindingFailureConditions");
    for name in [good, bad] {
        let list = object.list_at(&[name]);
        let most = MOST_BINDING_CONDITIONS;
        each(list, most, &path.child(name), errors, |one, at, errors| {
            let text = one.as_str().unwrap_or_default();
            errors.extend(all_invalid(at, text, names::qualified_name(text)));
        });
    }
    let (conditions, failures) = (object.list_at(&[good]), object.list_at(&[bad]));
    let text = |one: &Value| one.to_string();
    let known: Seen<String> = conditions.iter().map(text).collect();
    for (name, list) in [(good, conditions), (bad, failures)] {
        let mut seen = Seen::new();
        for (index, one) in list.iter().enumerate() {
            let at = path.child(name).index(index);
            if !seen.insert(text(one)) {
                errors.push(FieldError::duplicate(&at, one.clone()));
            }
            if name == bad && known.contains(&text(one)) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.push(FieldError::invalid(&at, one.clone(), detail));
            }
        }
    }
    let shown = |name: &str| object.get(name).cloned().unwrap_or_default();
    if conditions.is_empty() && !failures.is_empty() {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        errors.push(FieldError::invalid(&path.child(good), shown(good), detail));
    }
    if failures.is_empty() && !conditions.is_empty() {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        errors.push(FieldError::invalid(&path.child(bad), shown(bad), detail));
    }
}
