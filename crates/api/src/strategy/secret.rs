//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::pem::Pem;

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names;
use crate::metadata::{all_invalid, immutable};
use crate::resource::{MetadataChecks, Strategy, generic};
use crate::strategy::config_map::{MOST_DATA, decoded_length, frozen};

pub struct Secret;

impl Strategy for Secret {
    fn default(&self, object: &mut Value) {
        object.set_default(&["type"], "Opaque");
        // `stringData` is only for writing.
        if let Some(Value::Object(texts)) = object.remove(&["stringData"]) {
            for (key, text) in texts {
                let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
                object.set(&["data", &key], encoded);
            }
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("data");
        let mut errors = Vec::new();
        let mut size = 0;
        for (key, value) in object.fields_at(&["data"]) {
            let at = path.key(key);
            errors.extend(all_invalid(&at, key, names::config_key(key)));
            size += decoded_length(value.as_str().unwrap_or_default());
        }
        if size > MOST_DATA {
            errors.push(FieldError::too_long(&path, MOST_DATA));
        }
        errors.extend(required_by_type(object, &path));
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> =
            immutable(new.get("type"), old.get("type"), &Path::new("type"))
                .into_iter()
                .collect();
        errors.extend(frozen(new, old, &["data"]));
        errors.extend(self.validate_content(new));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    /// Warns of a pair of certificate and key that no server could use.
    fn warnings(&self, new: &Value, _old: Option<&Value>, _subresource: &str) -> Vec<String> {
        if new.str_at(&["type"]) != "kubernetes.io/tls" {
            return Vec::new();
        }
        let has_pem = |key: &str| {
            let bytes = STANDARD.decode(new.str_at(&["data", key]));
            let bytes = bytes.unwrap_or_default();
            Pem::iter_from_buffer(&bytes).any(|block| block.is_ok())
        };
        for (key, name) in [("tls.crt", "certificate"), ("tls.key", "key")] {
            if !has_pem(key) {
                return vec![format!("tls: failed to find any PEM data in {name} input")];
            }
        }
        Vec::new()
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, true);
        fields.push(("type", object.str_at(&["type"]).to_string()));
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["type"]).into(),
            (object.fields_at(&["data"]).count() as i64).into(),
            object_age(object, now).into(),
        ]
    }
}

/// Validates the keys of the well-known types.
fn required_by_type(object: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let missing = |key: &str| !object.has(&["data", key]);
    let mut require = |key: &str| {
        if missing(key) {
            errors.push(FieldError::required(&path.key(key), ""));
        }
    };
    match object.str_at(&["type"]) {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if object.str_at(&["metadata", "annotations", key]).is_empty() {
                let at = Path::new("metadata").child("annotations").key(key);
                errors.push(FieldError::required(&at, ""));
            }
        }
        "kubernetes.io/dockercfg" => {
            require(".dockercfg");
            errors.extend(not_json(object, ".dockercfg", path));
        }
        "kubernetes.io/dockerconfigjson" => {
            require(".dockerconfigjson");
            errors.extend(not_json(object, ".dockerconfigjson", path));
        }
        "kubernetes.io/basic-auth" if missing("username") && missing("password") => {
            require("username");
            require("password");
        }
        "kubernetes.io/ssh-auth" if object.str_at(&["data", "ssh-privatekey"]).is_empty() => {
            errors.push(FieldError::required(&path.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/tls" => {
            require("tls.crt");
            require("tls.key");
        }
        _ => {}
    }
    errors
}

fn not_json(object: &Value, key: &str, path: &Path) -> Option<FieldError> {
    let text = object.at(&["data", key])?.as_str()?;
    let bytes = STANDARD.decode(text).unwrap_or_default();
    let words = match crate::schema::parse_json(&bytes) {
        Ok(Value::Object(_)) => return None,
        Ok(_) => "json: cannot unmarshal into Go value of type map[string]interface {}".to_string(),
        Err(error) => error.to_string(),
    };
    let redacted = "<secret contents redacted>";
    Some(FieldError::invalid(&path.key(key), redacted, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn string_data_becomes_data() {
        let mut object = document!({
            "data": {"a": "b2xk", "b": "Yg=="}, "stringData": {"a": "new"},
        });
        Secret.default(&mut object);
        assert_eq!(
            object,
            document!({"type": "Opaque", "data": {"a": "bmV3", "b": "Yg=="}})
        );
    }

    #[test]
    fn typed_secrets_must_have_their_keys() {
        let check = |object: Value, expected: &[&str]| {
            let errors = Secret.validate_content(&object);
            let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
            assert_eq!(texts, expected, "{object}");
        };
        check(document!({"type": "Opaque"}), &[]);
        check(
            document!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
            &["data[tls.key]: Required value"],
        );
        check(
            document!({"type": "kubernetes.io/basic-auth"}),
            &[
                "data[username]: Required value",
                "data[password]: Required value",
            ],
        );
        check(
            document!({"type": "kubernetes.io/service-account-token"}),
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        );
        let docker = document!({"type": "kubernetes.io/dockerconfigjson", "data": {
            ".dockerconfigjson": STANDARD.encode("{}"),
        }});
        check(docker, &[]);
    }

    #[test]
    fn the_type_of_a_secret_is_immutable() {
        let (old, new) = (document!({"type": "Opaque"}), document!({"type": "other"}));
        let errors = Secret.validate_update_content(&new, &old, "");
        assert_eq!(
            errors[0].to_string(),
            r#"type: Invalid value: "other": field is immutable"#
        );
    }
}
