//! PodDisruptionBudgets.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{NameRule, Rules};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::label_selector;
use crate::strategy::{conditions, int_or_percent, workload};

pub struct PodDisruptionBudget;

const AMOUNTS: [&str; 2] = ["minAvailable", "maxUnavailable"];

impl Strategy for PodDisruptionBudget {
    /// Upstream checks it without the rules of the core group.
    fn metadata_rules(&self) -> Rules {
        Rules {
            known_finalizers: false,
            ..Rules::new(self.namespaced(), self.name_rule())
        }
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn prepare_create_content(&self, object: &mut Value) {
        for name in [
            "currentHealthy",
            "desiredHealthy",
            "disruptionsAllowed",
            "expectedPods",
        ] {
            object.set(&["status", name], 0);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let mut errors = Vec::new();
        let given = |name: &str| object.at(&["spec", name]).filter(|value| !value.is_null());
        if AMOUNTS.iter().all(|name| given(name).is_some()) {
            let detail = "minAvailable and maxUnavailable cannot be both set";
            let mut value = Value::object();
            for (shown, name) in [
                ("MinAvailable", "minAvailable"),
                ("Selector", "selector"),
                ("MaxUnavailable", "maxUnavailable"),
                ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy"),
            ] {
                value.set(&[shown], given(name).cloned().unwrap_or_default());
            }
            errors.push(FieldError::invalid(&path, value, detail));
        }
        for name in AMOUNTS {
            if let Some(value) = given(name) {
                let at = path.child(name);
                errors.extend(int_or_percent::validate(value, &at));
                errors.extend(int_or_percent::above_hundred(value, &at));
            }
        }
        if let Some(selector) = given("selector") {
            errors.extend(label_selector::validate(selector, &path.child("selector")));
        }
        if let Some(policy) = given("unhealthyPodEvictionPolicy") {
            let supported = ["AlwaysAllow", "IfHealthyBudget"];
            let policy = policy.as_str().unwrap_or_default();
            if !supported.contains(&policy) {
                let at = path.child("unhealthyPodEvictionPolicy");
                errors.push(FieldError::not_supported(&at, policy, &supported));
            }
        }
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        _: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource != "status" {
            return self.validate_content(new);
        }
        let path = Path::new("status").child("conditions");
        let mut errors = conditions::validate(new.list_at(&["status", "conditions"]), &path);
        for name in [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ] {
            errors.extend(workload::not_negative(new, "status", name));
        }
        errors
    }

    fn metadata_checked_again(&self, _: &str) -> MetadataChecks {
        MetadataChecks::NONE
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let amount = |name: &str| -> Value {
            match object.at(&["spec", name]).filter(|value| !value.is_null()) {
                Some(value) => int_or_percent::text(value).into(),
                None => "N/A".into(),
            }
        };
        let allowed = object.i64_at(&["status", "disruptionsAllowed"]);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            amount("minAvailable"),
            amount("maxUnavailable"),
            allowed.unwrap_or(0).into(),
            object_age(object, now).into(),
        ]
    }
}
