//! CSIStorageCapacities.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::quantity::Quantity;
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::label_selector;
use crate::strategy::checks::{immutable_text, quantity, semantically_equal};
use crate::strategy::node_selector;
use crate::warnings::deprecated_label;

pub struct CsiStorageCapacity;

impl Strategy for CsiStorageCapacity {
    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        for name in ["capacity", "maximumVolumeSize"] {
            if let Some(Value::String(text)) = object.get(name)
                && let Ok(quantity) = Quantity::parse(text)
            {
                object.set(&[name], quantity.to_string());
            }
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(topology) = object.get("nodeTopology").filter(|value| !value.is_null()) {
            let path = Path::new("nodeTopology");
            errors.extend(label_selector::validate(topology, &path));
        }
        let class = object.str_at(&["storageClassName"]);
        let path = Path::new("storageClassName");
        errors.extend(all_invalid(&path, class, names::dns_subdomain(class)));
        let capacity = quantity(object.get("capacity"));
        if capacity.is_negative() {
            let path = Path::new("capacity");
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(&path, capacity.to_string(), detail));
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        let name = "nodeTopology";
        if !semantically_equal(new.get(name), old.get(name)) {
            let value = new.get(name).cloned().unwrap_or_default();
            let path = Path::new(name);
            errors.push(FieldError::invalid(&path, value, "field is immutable"));
        }
        let name = "storageClassName";
        let (new, old) = (new.str_at(&[name]), old.str_at(&[name]));
        errors.extend(immutable_text(new, old, &Path::new(name)));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, _subresource: &str) -> Vec<String> {
        let path = Path::new("nodeTopology");
        let Some(topology) = new.get("nodeTopology") else {
            return Vec::new();
        };
        let mut warnings = node_selector::expression_warnings(topology, &path);
        for (label, _) in topology.fields_at(&["matchLabels"]) {
            if let Some(words) = deprecated_label(label) {
                warnings.push(format!(
                    "{}: {words}",
                    path.child("matchLabels").child(label)
                ));
            }
        }
        warnings
    }
}
