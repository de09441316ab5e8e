//! DeviceClasses.

use super::{MOST_CONFIGURATIONS, configuration, each, selectors};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{NameRule, Rules};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::resource_names;

pub struct DeviceClass;

impl Strategy for DeviceClass {
    fn namespaced(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn name_rule(&self) -> NameRule {
        NameRule::LongName
    }

    fn metadata_rules(&self) -> Rules {
        Rules {
            generate_name: false,
            ..Rules::new(self.namespaced(), self.name_rule())
        }
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        spec(object, false)
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        _subresource: &str,
    ) -> Vec<FieldError> {
        let selectors = |object: &Value| object.list_at(&["spec", "selectors"]).to_vec();
        spec(new, selectors(new) == selectors(old))
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

fn spec(object: &Value, selectors_are_stored: bool) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let list = object.list_at(&["spec", "selectors"]);
    let at = path.child("selectors");
    selectors(list, &at, selectors_are_stored, &mut errors);
    let list = object.list_at(&["spec", "config"]);
    let at = path.child("config");
    each(list, MOST_CONFIGURATIONS, &at, &mut errors, configuration);
    if object.has(&["spec", "extendedResourceName"]) {
        let name = object.str_at(&["spec", "extendedResourceName"]);
        if !resource_names::is_extended(name) {
            let at = path.child("extendedResourceName");
            let detail = "must be a valid extended resource name";
            errors.push(FieldError::invalid(&at, name, detail));
        }
    }
    errors
}
