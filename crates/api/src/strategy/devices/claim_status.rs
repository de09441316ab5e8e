//! Validation of the status of ResourceClaims: the allocation, its consumers, and the state of the
//! devices.

use super::requests::{request_name, request_names};
use super::{
    MOST_CONFIGURATIONS, binding_conditions, configuration, each, each_of_set, itself, label,
    pool_name, raw,
};
use crate::addresses;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::repeats::Seen;
use crate::strategy::checks::{driver_name, require, supported};
use crate::strategy::node_selector;

const MOST_CONSUMERS: usize = 256;
const MOST_RESULTS: usize = 32;
const MOST_CONDITIONS: usize = 8;
const LONGEST_DATA: usize = 10 * 1024;
const MOST_ADDRESSES: usize = 16;

/// Checks an update of the status.
pub fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let path = Path::new("status");
    let mut errors = Vec::new();
    let requests = new.list_at(&["spec", "devices", "requests"]);
    let reserved = new.list_at(&["status", "reservedFor"]);
    let at = path.child("reservedFor");
    let uid = |one: &Value| Value::from(one.str_at(&["uid"]));
    each_of_set(
        reserved,
        MOST_CONSUMERS,
        uid,
        &at,
        &mut errors,
        |one, at, errors| {
            for name in ["resource", "name", "uid"] {
                require(one, name, at, errors);
            }
        },
    );
    let allocation = ["status", "allocation"];
    let results = new.list_at(&["status", "allocation", "devices", "results"]);
    let results = results.iter().map(|one| device_id(one).to_string());
    let results: Seen<String> = results.collect();
    let devices = new.list_at(&["status", "devices"]);
    let devices_at = path.child("devices");
    each_of_set(
        devices,
        usize::MAX,
        device_id,
        &devices_at,
        &mut errors,
        |one, at, errors| device(one, &results, at, errors),
    );
    if !reserved.is_empty() {
        if !new.has(&allocation) {
            let detail = "may not be specified when `allocated` is not set";
            errors.push(FieldError::forbidden(&at, detail));
        } else if new.has(&["metadata", "deletionTimestamp"]) {
            let before = old.list_at(&["status", "reservedFor"]).iter();
            let before: Seen<String> = before.map(Value::to_string).collect();
            if reserved
                .iter()
                .any(|one| !before.contains(&one.to_string()))
            {
                let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
                errors.push(FieldError::forbidden(&at, detail));
            }
        }
    }
    let at = path.child("allocation");
    if let Some(made) = new.at(&allocation).filter(|value| !value.is_null()) {
        if !old.has(&allocation) {
            allocated(made, requests, &at, &mut errors);
        } else if old.at(&allocation) != Some(made) {
            let value = made.clone();
            errors.push(FieldError::invalid(&at, value, "field is immutable"));
        }
    }
    errors
}

/// Removes the status of devices that are no longer allocated to the claim.
pub fn forget_deallocated(new: &mut Value, old: &Value) {
    let at = ["status", "allocation", "devices", "results"];
    let id = |device: &Value| device_id(device).to_string();
    let had: Seen<String> = old.list_at(&at).iter().map(id).collect();
    let has: Seen<String> = new.list_at(&at).iter().map(id).collect();
    let gone = |device: &Value| {
        let id = id(device);
        had.contains(&id) && !has.contains(&id)
    };
    if let Some(Value::Array(devices)) = new.at_mut(&["status", "devices"]) {
        devices.retain(|device| !gone(device));
        if devices.is_empty() {
            new.remove(&["status", "devices"]);
        }
    }
}

/// A device and its share in the format of Go.
fn device_id(device: &Value) -> Value {
    let text = |name: &str| device.str_at(&[name]).to_string();
    let mut id = format!("{}/{}/{}", text("driver"), text("pool"), text("device"));
    if device.has(&["shareID"]) {
        id = format!("{id}/{}", text("shareID"));
    }
    id.into()
}

fn share(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if !object.has(&["shareID"]) {
        return;
    }
    let uid = object.str_at(&["shareID"]);
    let at = path.child("shareID");
    let dashes = [8, 13, 18, 23];
    let hexadecimal = |(index, byte): (usize, u8)| match dashes.contains(&index) {
        true => byte == b'-',
        false => byte.is_ascii_hexdigit(),
    };
    if uid.len() != 36 {
        let detail = format!("error validating uid: invalid UUID length: {}", uid.len());
        errors.push(FieldError::invalid(&at, uid, detail));
    } else if !uid.bytes().enumerate().all(hexadecimal) {
        let detail = "error validating uid: invalid UUID format";
        errors.push(FieldError::invalid(&at, uid, detail));
    } else if uid != uid.to_lowercase() {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        errors.push(FieldError::invalid(&at, uid, detail));
    }
}

fn allocated(made: &Value, requests: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("devices");
    let results = made.list_at(&["devices", "results"]);
    let results_at = at.child("results");
    each(
        results,
        MOST_RESULTS,
        &results_at,
        errors,
        |one, at, errors| {
            let text = |name: &str| one.str_at(&[name]);
            request_name(text("request"), requests, &at.child("request"), errors);
            errors.extend(driver_name(text("driver"), &at.child("driver")));
            errors.extend(pool_name(text("pool"), &at.child("pool")));
            errors.extend(label(text("device"), &at.child("device")));
            binding_conditions(one, at, errors);
            share(one, at, errors);
        },
    );
    let config = made.list_at(&["devices", "config"]);
    let most = 2 * MOST_CONFIGURATIONS;
    each(
        config,
        most,
        &at.child("config"),
        errors,
        |one, at, errors| {
            let source = one.str_at(&["source"]);
            let source_at = at.child("source");
            match source {
                "" => errors.push(FieldError::required(&source_at, "")),
                _ => {
                    let sources = ["FromClaim", "FromClass"];
                    errors.extend(supported(source, &sources, &source_at));
                }
            }
            request_names(one, requests, at, errors);
            configuration(one, at, errors);
        },
    );
    if let Some(selector) = made.get("nodeSelector").filter(|value| !value.is_null()) {
        let at = path.child("nodeSelector");
        errors.extend(node_selector::validate(selector, &at));
    }
}

fn device(device: &Value, results: &Seen<String>, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |name: &str| device.str_at(&[name]);
    errors.extend(driver_name(text("driver"), &path.child("driver")));
    errors.extend(pool_name(text("pool"), &path.child("pool")));
    errors.extend(label(text("device"), &path.child("device")));
    share(device, path, errors);
    let id = device_id(device);
    if !results.contains(&id.to_string()) {
        let detail = "must be an allocated device in the claim";
        errors.push(FieldError::invalid(path, id, detail));
    }
    let conditions = device.list_at(&["conditions"]);
    let at = path.child("conditions");
    if conditions.len() > MOST_CONDITIONS {
        errors.push(FieldError::too_many(&at, conditions.len(), MOST_CONDITIONS));
    }
    let mut seen = Seen::new();
    for (index, one) in conditions.iter().enumerate() {
        let kind = one.str_at(&["type"]);
        let at = at.index(index);
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&at.child("type"), kind));
        }
        condition(one, &at, errors);
    }
    if device.has(&["data"]) {
        raw(
            device.get("data"),
            LONGEST_DATA,
            &path.child("data"),
            errors,
        );
    }
    let at = path.child("networkData");
    for (name, most) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if device.str_at(&["networkData", name]).len() > most {
            errors.push(FieldError::too_long(&at.child(name), most));
        }
    }
    let list = device.list_at(&["networkData", "ips"]);
    let most = MOST_ADDRESSES;
    each_of_set(
        list,
        most,
        itself,
        &at.child("ips"),
        errors,
        |one, at, errors| {
            let text = one.as_str().unwrap_or_default();
            errors.extend(addresses::interface_address(text, at));
        },
    );
}

/// Checks a condition of the common form.
fn condition(condition: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |name: &str| condition.str_at(&[name]);
    let kind = text("type");
    let wrong = names::qualified_name(kind);
    errors.extend(all_invalid(&path.child("type"), kind, wrong));
    let statuses = ["False", "True", "Unknown"];
    errors.extend(supported(text("status"), &statuses, &path.child("status")));
    let generation = condition.i64_at(&["observedGeneration"]).unwrap_or(0);
    if generation < 0 {
        let at = path.child("observedGeneration");
        let detail = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(&at, generation, detail));
    }
    require(condition, "lastTransitionTime", path, errors);
    let reason = text("reason");
    let at = path.child("reason");
    if reason.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        if !is_reason(reason) {
            let words = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
            let pattern = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";
            let examples = [
                "my_name",
                "MY_NAME",
                "MyName",
                "ReasonA,ReasonB",
                "ReasonA:ReasonB",
            ];
            let detail = names::pattern_error(words, pattern, &examples);
            errors.push(FieldError::invalid(&at, reason, detail));
        }
        if reason.len() > 1024 {
            errors.push(FieldError::too_long(&at, 1024));
        }
    }
    if text("message").len() > 32 * 1024 {
        errors.push(FieldError::too_long(&path.child("message"), 32 * 1024));
    }
}

fn is_reason(text: &str) -> bool {
    let bytes = text.as_bytes();
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(word)
        && bytes
            .iter()
            .all(|byte| word(byte) || matches!(byte, b',' | b':'))
}
