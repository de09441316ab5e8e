//! One device in a ResourceSlice.

use super::counters;
use super::{EFFECTS, binding_conditions, each, each_of_set, label, qualified_name};
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::quantity::Quantity;
use crate::strategy::checks::{quantity, supported};
use crate::strategy::node_selector;

const MOST_ENTRIES: usize = 32;
const MOST_VALUES: usize = 48;
const MOST_TAINTS: usize = 16;
const MOST_CONSUMPTIONS: usize = 2;
const LONGEST_VALUE: usize = 64;
const LONGEST_KEY: usize = 63 + 1 + 32;
const MOST_OPTIONS: usize = 10;

/// Removes fields of features that are disabled in this version.
pub fn drop_disabled(slice: &mut Value) {
    for device in slice.list_at_mut(&["spec", "devices"]) {
        device.remove(&["nodeAllocatableResourceMappings"]);
        if let Some(Value::Object(attributes)) = device.get_mut("attributes") {
            for (_, attribute) in attributes.iter_mut() {
                for list in ["bools", "ints", "strings", "versions"] {
                    attribute.remove(&[list]);
                }
            }
        }
    }
}

pub fn validate(
    device: &Value,
    old: Option<&Value>,
    per_device: bool,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    errors.extend(label(device.str_at(&["name"]), &path.child("name")));
    let count = |name: &str| device.fields_at(&[name]).count();
    let entries = count("attributes") + count("capacity");
    if entries > MOST_ENTRIES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MOST_ENTRIES}");
        errors.push(FieldError::invalid(path, entries as i64, detail));
    }
    if count("attributes") > MOST_VALUES {
        let detail = format!("the total number of attribute values must not exceed {MOST_VALUES}");
        errors.push(FieldError::invalid(
            path,
            count("attributes") as i64,
            detail,
        ));
    }
    let at = path.child("attributes");
    for (name, value) in device.fields_at(&["attributes"]) {
        errors.extend(qualified_name(name, &at));
        attribute(value, &at.key(&shortened(name)), errors);
    }
    let at = path.child("capacity");
    let shared = device.bool_at(&["allowMultipleAllocations"]);
    for (name, value) in device.fields_at(&["capacity"]) {
        errors.extend(qualified_name(name, &at));
        capacity(value, shared, &at.key(&shortened(name)), errors);
    }
    let taints = device.list_at(&["taints"]);
    if old.is_none_or(|old| old.list_at(&["taints"]) != taints) {
        each(taints, MOST_TAINTS, &path.child("taints"), errors, taint);
    }
    let set = |one: &Value| Value::from(one.str_at(&["counterSet"]));
    let list = device.list_at(&["consumesCounters"]);
    let at = path.child("consumesCounters");
    each_of_set(
        list,
        MOST_CONSUMPTIONS,
        set,
        &at,
        errors,
        |one, at, errors| {
            counters::validate(one, "counterSet", at, errors);
        },
    );
    nodes(device, per_device, path, errors);
    binding_conditions(device, path, errors);
}

fn nodes(device: &Value, per_device: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let any = ["nodeName", "nodeSelector", "allNodes"]
        .iter()
        .any(|name| device.has(&[name]));
    if !per_device {
        if any {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.push(FieldError::invalid(path, Value::Null, detail));
        }
        return;
    }
    let mut set = Vec::new();
    if let Some(name) = device.get("nodeName").and_then(Value::as_str) {
        let at = path.child("nodeName");
        if name.is_empty() {
            errors.push(FieldError::invalid(&at, "", "must not be empty"));
        } else {
            set.push("`nodeName`");
            errors.extend(all_invalid(&at, name, names::dns_subdomain(name)));
        }
    }
    if let Some(selector) = device.get("nodeSelector").filter(|value| !value.is_null()) {
        set.push("`nodeSelector`");
        let at = path.child("nodeSelector");
        errors.extend(node_selector::validate(selector, &at));
    }
    match device.get("allNodes").and_then(Value::as_bool) {
        Some(true) => set.push("`allNodes`"),
        Some(false) => {
            let detail = "must be either unset or set to true";
            errors.push(FieldError::invalid(&path.child("allNodes"), false, detail));
        }
        None => {}
    }
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match set.len() {
        0 => errors.push(FieldError::required(path, detail)),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            errors.push(FieldError::invalid(path, shown, detail));
        }
    }
}

fn attribute(attribute: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let kinds = ["bool", "int", "string", "version"];
    if let Some(text) = attribute.get("string").and_then(Value::as_str)
        && text.len() > LONGEST_VALUE
    {
        errors.push(FieldError::too_long(&path.child("string"), LONGEST_VALUE));
    }
    if let Some(text) = attribute.get("version").and_then(Value::as_str) {
        let at = path.child("version");
        if !is_semantic_version(text) {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            errors.push(FieldError::invalid(&at, text, detail));
        }
        if text.len() > LONGEST_VALUE {
            errors.push(FieldError::too_long(&at, LONGEST_VALUE));
        }
    }
    let detail = "exactly one value must be specified";
    match kinds.iter().filter(|kind| attribute.has(&[kind])).count() {
        0 => errors.push(FieldError::invalid(path, "", detail)),
        1 => {}
        _ => {
            let value = |name: &str| attribute.get(name).cloned().unwrap_or_default();
            let error = FieldError::invalid(path, Value::Null, detail);
            errors.push(error.showing(&[
                ("IntValue", value("int")),
                ("BoolValue", value("bool")),
                ("StringValue", value("string")),
                ("VersionValue", value("version")),
                ("IntValues", Value::Null),
                ("BoolValues", Value::Null),
                ("StringValues", Value::Null),
                ("VersionValues", Value::Null),
            ]));
        }
    }
}

fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = match text.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (text, None),
    };
    let (core, release) = match rest.split_once('-') {
        Some((core, release)) => (core, Some(release)),
        None => (rest, None),
    };
    let word = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let number = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'))
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(number)
        && release.is_none_or(|release| {
            release
                .split('.')
                .all(|part| word(part) && (!digits(part) || number(part)))
        })
        && build.is_none_or(|build| build.split('.').all(word))
}

fn capacity(capacity: &Value, shared: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(policy) = capacity
        .get("requestPolicy")
        .filter(|value| !value.is_null())
    else {
        return;
    };
    let at = path.child("requestPolicy");
    if !shared {
        let detail = "allowMultipleAllocations must be true";
        errors.push(FieldError::forbidden(&at, detail));
        return;
    }
    let most = quantity(capacity.get("value"));
    let options = policy.list_at(&["validValues"]);
    let range = policy.get("validRange").filter(|value| !value.is_null());
    let default = policy.get("default").filter(|value| !value.is_null());
    let needs = |name: &str| {
        let detail = format!("required when {name} is defined");
        FieldError::required(&at.child("default"), detail)
    };
    match (options.is_empty(), range, default) {
        (false, Some(_), _) => {
            let detail = r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#;
            errors.push(FieldError::forbidden(&at, detail));
        }
        (false, None, None) => errors.push(needs("validValues")),
        (false, None, Some(default)) => {
            let default = quantity(Some(default));
            valid_values(options, default, most, &at.child("validValues"), errors);
        }
        (true, Some(_), None) => errors.push(needs("validRange")),
        (true, Some(range), Some(default)) => {
            let default = quantity(Some(default));
            valid_range(range, default, most, &at.child("validRange"), errors);
        }
        (true, None, _) => {}
    }
}

fn valid_values(
    options: &[Value],
    default: Quantity,
    most: Quantity,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let amounts: Vec<Quantity> = options.iter().map(|one| quantity(Some(one))).collect();
    for (index, pair) in amounts.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let detail = "values must be sorted in ascending order";
            let at = path.index(index + 1);
            errors.push(FieldError::invalid(&at, pair[1].to_string(), detail));
        }
    }
    let key = |one: &Value| Value::from(quantity(Some(one)).value().to_string());
    each_of_set(
        options,
        MOST_OPTIONS,
        key,
        path,
        errors,
        |one, at, errors| {
            let amount = quantity(Some(one));
            if amount > most {
                let detail = format!("option is larger than capacity value: {most}");
                errors.push(FieldError::invalid(at, amount.to_string(), detail));
            }
        },
    );
    if options.len() > MOST_OPTIONS || !amounts.contains(&default) {
        let detail = "default value is not valid according to the requestPolicy";
        errors.push(FieldError::invalid(path, default.to_string(), detail));
    }
}

fn valid_range(
    range: &Value,
    default: Quantity,
    most: Quantity,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let amount = |name: &str| range.get(name).map(|value| quantity(Some(value)));
    let Some(least) = amount("min") else {
        let detail = "required when validRange is defined";
        errors.push(FieldError::required(&path.child("min"), detail));
        return;
    };
    let mut wrong = |name: &str, shown: Quantity, detail: String| {
        let at = path.child(name);
        errors.push(FieldError::invalid(&at, shown.to_string(), detail));
    };
    if least > most {
        wrong(
            "min",
            least,
            format!("min is larger than capacity value: {most}"),
        );
    }
    if default < least {
        wrong("min", default, format!("default is less than min: {least}"));
    }
    let limit = amount("max");
    if let Some(limit) = limit {
        if least > limit {
            wrong("max", least, format!("min is larger than max: {limit}"));
        }
        if limit > most {
            wrong(
                "max",
                limit,
                format!("max is larger than capacity value: {most}"),
            );
        }
        if default > limit {
            wrong("max", default, format!("default is more than max: {limit}"));
        }
    }
    if let Some(step) = amount("step") {
        let first = least + step;
        if first > most {
            let detail = format!("one step {first} is larger than capacity value: {most}");
            wrong("step", step, detail);
        }
        for amount in [Some(default), limit].into_iter().flatten() {
            let beyond = amount.value().wrapping_sub(least.value());
            if beyond.checked_rem(step.value()).unwrap_or(0) != 0 {
                let detail =
                    format!("value is not a multiple of a given step ({step}) from ({least})");
                wrong("step", amount, detail);
            }
        }
    }
}

fn taint(taint: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |name: &str| taint.str_at(&[name]);
    let (key, value, effect) = (text("key"), text("value"), text("effect"));
    let wrong = names::qualified_name(key);
    errors.extend(all_invalid(&path.child("key"), key, wrong));
    if !value.is_empty() {
        let wrong = names::label_value(value);
        errors.extend(all_invalid(&path.child("value"), value, wrong));
    }
    match effect {
        "" => errors.push(FieldError::required(&path.child("effect"), "")),
        _ => errors.extend(supported(effect, &EFFECTS, &path.child("effect"))),
    }
}

/// A key in an error message. Long keys are shortened in the middle.
fn shortened(key: &str) -> String {
    if key.len() <= LONGEST_KEY || !key.is_ascii() {
        return key.to_string();
    }
    let rest = LONGEST_KEY - 3;
    let (head, tail) = (rest.div_ceil(2), rest / 2);
    format!("{}...{}", &key[..head], &key[key.len() - tail..])
}
