//! The paths of the scale subresource.

use super::path;
use crate::document::Value;
use crate::field::{FieldError, Path};

/// Where an object keeps what its scale shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// e.g. `.spec.replicas`.
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

impl ScalePaths {
    /// Reads `subresources.scale` of a version.
    pub fn of(scale: &Value) -> ScalePaths {
        let text = |name: &str| scale.get(name).and_then(Value::as_str).map(str::to_string);
        ScalePaths {
            spec_replicas: text("specReplicasPath").unwrap_or_default(),
            status_replicas: text("statusReplicasPath").unwrap_or_default(),
            label_selector: text("labelSelectorPath"),
        }
    }

    /// Checks the wanted number of replicas.
    pub fn validate_spec(&self, object: &Value) -> Vec<FieldError> {
        replicas(object, &self.spec_replicas).into_iter().collect()
    }

    /// Checks the counted replicas and the selector.
    pub fn validate_status(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        errors.extend(replicas(object, &self.status_replicas));
        if let Some(selector) = &self.label_selector
            && let Err(error) = path::text_at(object, selector)
        {
            let path = Path::new(selector);
            errors.push(FieldError::invalid(&path, "", error.to_string()));
        }
        errors
    }
}

fn replicas(object: &Value, at: &str) -> Option<FieldError> {
    let path = Path::new(at);
    match path::number_at(object, at) {
        Err(error) => Some(FieldError::invalid(&path, 0, error.to_string())),
        Ok(Some(number)) if number < 0 => {
            let detail = "should be a non-negative integer";
            Some(FieldError::invalid(&path, number, detail))
        }
        Ok(Some(number)) if number > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            Some(FieldError::invalid(&path, number, detail))
        }
        Ok(_) => None,
    }
}
