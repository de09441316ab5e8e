//! ResourceClaimTemplates.

use super::claim;
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata;
use crate::resource::{MetadataChecks, Strategy};

pub struct ResourceClaimTemplate;

impl Strategy for ResourceClaimTemplate {
    fn returns_deleted(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.at_mut(&["spec", "spec"]) {
            claim::default_spec(spec);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let mut errors =
            template_metadata(object.at(&["spec", "metadata"]), &path.child("metadata"));
        let empty = Value::object();
        let spec = object.at(&["spec", "spec"]).unwrap_or(&empty);
        claim::spec(spec, &path.child("spec"), &mut errors);
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        errors.extend(claim::immutable_spec(new, old));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object_age(object, now).into(),
        ]
    }
}

/// Checks the metadata of a template: labels and annotations, nothing else.
pub fn template_metadata(metadata: Option<&Value>, path: &Path) -> Vec<FieldError> {
    let Some(metadata) = metadata else {
        return Vec::new();
    };
    let annotations = metadata.get("annotations");
    let mut errors = metadata::annotations(annotations, &path.child("annotations"));
    let labels = metadata.get("labels");
    errors.extend(metadata::labels(labels, &path.child("labels")));
    for (name, value) in metadata.fields_at(&[]) {
        let allowed = matches!(name, "annotations" | "labels");
        if !allowed && !value.is_null() {
            // Go's field is called otherwise.
            let name = if name == "uid" { "uID" } else { name };
            errors.push(FieldError::forbidden(&path.child(name), "cannot be set"));
        }
    }
    errors
}
