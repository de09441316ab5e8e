//! ConfigMaps.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::resource::{MetadataChecks, Strategy};

/// All values of a ConfigMap or a Secret together.
pub const MOST_DATA: usize = 1024 * 1024;

pub struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut size = 0;
        for (key, value) in object.fields_at(&["data"]) {
            let at = Path::new("data").key(key);
            errors.extend(all_invalid(&at, key, names::config_key(key)));
            if object.has(&["binaryData", key]) {
                let detail = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(&at, key, detail));
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in object.fields_at(&["binaryData"]) {
            let at = Path::new("binaryData").key(key);
            errors.extend(all_invalid(&at, key, names::config_key(key)));
            size += decoded_length(value.as_str().unwrap_or_default());
        }
        if size > MOST_DATA {
            errors.push(FieldError::too_long(&Path::new("[]"), MOST_DATA));
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = frozen(new, old, &["data", "binaryData"]);
        errors.extend(self.validate_content(new));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let count = object.fields_at(&["data"]).count() + object.fields_at(&["binaryData"]).count();
        vec![
            object.str_at(&["metadata", "name"]).into(),
            (count as i64).into(),
            object_age(object, now).into(),
        ]
    }
}

/// The errors for changing what `immutable: true` has frozen.
pub fn frozen(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let detail = "field is immutable when `immutable` is set";
    if old.bool_at(&["immutable"]) {
        if !new.bool_at(&["immutable"]) {
            errors.push(FieldError::forbidden(&Path::new("immutable"), detail));
        }
        for field in fields {
            if new.get(field) != old.get(field) {
                errors.push(FieldError::forbidden(&Path::new(field), detail));
            }
        }
    }
    errors
}

/// The number of bytes that a base64 text decodes to.
pub fn decoded_length(text: &str) -> usize {
    let digits = text
        .bytes()
        .filter(|byte| !matches!(byte, b'=' | b'\n' | b'\r'));
    digits.count() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn invalid_config_maps_are_rejected() {
        let check = |object: Value, expected: &[&str]| {
            let errors = ConfigMap.validate_content(&object);
            let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
            assert_eq!(texts, expected, "{object}");
        };
        check(document!({"data": {"a.b-C_1": "x"}}), &[]);
        check(
            document!({"data": {"a b": "x"}}),
            &[
                r#"data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#,
            ],
        );
        check(
            document!({"data": {"..x": ""}, "binaryData": {"..": ""}}),
            &[
                r#"data[..x]: Invalid value: "..x": must not start with '..'"#,
                r#"binaryData[..]: Invalid value: "..": must not be '..'"#,
            ],
        );
        check(
            document!({"data": {"big": "x".repeat(MOST_DATA + 1)}}),
            &["[]: Too long: may not be more than 1048576 bytes"],
        );
    }

    #[test]
    fn immutable_config_maps_cannot_change() {
        let old = document!({"immutable": true, "data": {"a": "1"}});
        let new = document!({"data": {"a": "2"}});
        let errors = ConfigMap.validate_update_content(&new, &old, "");
        let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        assert_eq!(
            texts,
            [
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ]
        );
    }
}
