//! VolumeAttachments.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::resource::{MetadataChecks, Strategy, generic};
use crate::strategy::checks::{driver_name, size_of_map};
use crate::strategy::persistent_volume;

const METADATA_SIZE: usize = 256 * 1024;
const LONGEST_MESSAGE: usize = 1024;

pub struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn namespaced(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        let path = ["spec", "source", "inlineVolumeSpec"];
        if object.has(&path) {
            persistent_volume::default_spec(object, &path);
        }
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "attached"], false);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        if subresource == "status" {
            generic::keep_metadata(new, old);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let text = |name: &str| object.str_at(&["spec", name]);
        let mut errors = driver_name(text("attacher"), &path.child("attacher"));
        source(object, &path.child("source"), &mut errors);
        let node = text("nodeName");
        let wrong = names::dns_subdomain(node);
        errors.extend(all_invalid(&path.child("nodeName"), node, wrong));
        status(object, &mut errors);
        let name = ["spec", "source", "persistentVolumeName"];
        if object.has(&name) {
            let name = object.str_at(&name);
            let at = path.child("source").child("persistentVolumeName");
            errors.extend(all_invalid(&at, name, names::dns_subdomain(name)));
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        if new.get("spec") != old.get("spec") {
            let path = Path::new("spec");
            let error = FieldError::invalid(&path, Value::Null, "field is immutable");
            errors.push(error.showing(&shown_spec(new)));
        }
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::WHOLE
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let text = |path: &[&str]| -> Value { object.str_at(path).into() };
        vec![
            text(&["metadata", "name"]),
            text(&["spec", "attacher"]),
            text(&["spec", "source", "persistentVolumeName"]),
            text(&["spec", "nodeName"]),
            object.bool_at(&["status", "attached"]).into(),
            object_age(object, now).into(),
        ]
    }
}

/// The spec as Go shows its internal form; an inline volume is shown as it was sent.
fn shown_spec(object: &Value) -> [(&'static str, Value); 3] {
    let spec = |path: &[&str]| object.at(path).cloned().unwrap_or_default();
    let mut source = Value::object();
    let name = spec(&["spec", "source", "persistentVolumeName"]);
    source.set(&["PersistentVolumeName"], name);
    let inline = spec(&["spec", "source", "inlineVolumeSpec"]);
    source.set(&["InlineVolumeSpec"], inline);
    [
        ("Attacher", object.str_at(&["spec", "attacher"]).into()),
        ("Source", source),
        ("NodeName", object.str_at(&["spec", "nodeName"]).into()),
    ]
}

fn source(object: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let inline = object.at(&["spec", "source", "inlineVolumeSpec"]);
    let inline = inline.filter(|value| !value.is_null());
    let name = object.at(&["spec", "source", "persistentVolumeName"]);
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline, name.and_then(Value::as_str)) {
        (None, None) => errors.push(FieldError::required(path, detail)),
        (Some(_), Some(_)) => errors.push(FieldError::forbidden(path, detail)),
        (None, Some("")) => {
            let at = path.child("persistentVolumeName");
            let detail = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required(&at, detail));
        }
        (None, Some(_)) => {}
        (Some(inline), None) => {
            let at = path.child("inlineVolumeSpec");
            errors.extend(persistent_volume::spec(inline, "", true, &at));
        }
    }
}

fn status(object: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("status");
    if size_of_map(object, &["status", "attachmentMetadata"]) > METADATA_SIZE {
        let at = path.child("attachmentMetadata");
        errors.push(FieldError::too_long(&at, METADATA_SIZE));
    }
    for name in ["attachError", "detachError"] {
        let Some(error) = object.at(&["status", name]) else {
            continue;
        };
        let at = path.child(name);
        if error.str_at(&["message"]).len() > LONGEST_MESSAGE {
            // The limit that upstream names is another one.
            errors.push(FieldError::too_long(&at.child("message"), METADATA_SIZE));
        }
        if let Some(code) = error.i64_at(&["errorCode"]).filter(|code| *code < 0) {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.push(FieldError::invalid(&at.child("errorCode"), code, detail));
        }
    }
}
