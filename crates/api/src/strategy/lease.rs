//! Leases.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::Rules;
use crate::resource::Strategy;

pub struct Lease;

impl Strategy for Lease {
    /// Upstream checks it without the rules of the core group.
    fn metadata_rules(&self) -> Rules {
        Rules {
            known_finalizers: false,
            ..Rules::new(self.namespaced(), self.name_rule())
        }
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    /// A renewal must be based on the current holder.
    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let mut errors = Vec::new();
        let duration = object.i64_at(&["spec", "leaseDurationSeconds"]);
        if let Some(seconds) = duration.filter(|seconds| *seconds <= 0) {
            let at = path.child("leaseDurationSeconds");
            errors.push(FieldError::invalid(&at, seconds, "must be greater than 0"));
        }
        let transitions = object.i64_at(&["spec", "leaseTransitions"]);
        if let Some(number) = transitions.filter(|number| *number < 0) {
            let at = path.child("leaseTransitions");
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(&at, number, detail));
        }
        let strategy = object.str_at(&["spec", "strategy"]);
        if !object.str_at(&["spec", "preferredHolder"]).is_empty() && strategy.is_empty() {
            let detail = "may only be specified if `strategy` is defined";
            errors.push(FieldError::forbidden(
                &path.child("preferredHolder"),
                detail,
            ));
        }
        errors
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["spec", "holderIdentity"]).into(),
            object_age(object, now).into(),
        ]
    }
}
