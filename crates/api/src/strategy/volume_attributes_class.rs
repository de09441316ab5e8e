//! VolumeAttributesClasses.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::storage_class::{parameters, provisioner};

pub struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn namespaced(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = provisioner(object, "driverName");
        errors.extend(parameters(object, false));
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for name in ["driverName", "parameters"] {
            if new.get(name) != old.get(name) {
                let detail = format!("updates to {name} are forbidden.");
                errors.push(FieldError::forbidden(&Path::new(name), detail));
            }
        }
        errors.extend(self.validate_content(new));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["driverName"]).into(),
            object_age(object, now).into(),
        ]
    }
}
