//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use super::match_conditions::{self, Known};
use super::{
    FAILURE_POLICIES, MATCH_POLICIES, REINVOCATION_POLICIES, rules, texts, warn_of_static_suffix,
};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names;
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::{client_config, label_selector, optional_one_of};

const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
/// The versions of `AdmissionReview`.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const TIMEOUT_SECONDS: i64 = 10;

/// Either of the two kinds.
pub struct WebhookConfiguration {
    pub is_mutating: bool,
}

impl Strategy for WebhookConfiguration {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        for hook in object.list_at_mut(&["webhooks"]) {
            hook.set_missing(&["failurePolicy"], "Fail");
            hook.set_missing(&["matchPolicy"], "Equivalent");
            hook.set_missing(&["namespaceSelector"], Value::object());
            hook.set_missing(&["objectSelector"], Value::object());
            hook.set_missing(&["timeoutSeconds"], TIMEOUT_SECONDS);
            if self.is_mutating {
                hook.set_missing(&["reinvocationPolicy"], "Never");
            }
            if let Some(config) = hook.get_mut("clientConfig") {
                client_config::default(config);
            }
            hook.list_at_mut(&["rules"])
                .iter_mut()
                .for_each(rules::default);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        self.validate_hooks(object, &Demands::of_new())
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        self.validate_hooks(new, &Demands::of_update(new, old))
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::WHOLE
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, _subresource: &str) -> Vec<String> {
        warn_of_static_suffix(new)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            (object.list_at(&["webhooks"]).len() as i64).into(),
            object_age(object, now).into(),
        ]
    }
}

/// What is demanded of hooks. What a stored configuration does not fulfil is not demanded of its
/// next state either.
struct Demands<'a> {
    no_side_effects: bool,
    known_version: bool,
    unique_names: bool,
    valid_selector_values: bool,
    /// Whether match conditions are looked at.
    conditions: bool,
    stored_conditions: Vec<&'a Value>,
}

impl<'a> Demands<'a> {
    fn of_new() -> Demands<'a> {
        Demands {
            no_side_effects: true,
            known_version: true,
            unique_names: true,
            valid_selector_values: true,
            conditions: true,
            stored_conditions: Vec::new(),
        }
    }

    fn of_update(new: &Value, old: &'a Value) -> Demands<'a> {
        let (before, after) = (old.list_at(&["webhooks"]), new.list_at(&["webhooks"]));
        let conditions = |hook: &Value| hook.list_at(&["matchConditions"]).to_vec();
        let is_same = before.len() == after.len()
            && before
                .iter()
                .zip(after)
                .all(|(old, new)| conditions(old) == conditions(new));
        let mut seen = Vec::new();
        let unique_names = before.iter().all(|hook| {
            let name = hook.str_at(&["name"]);
            let is_new = !seen.contains(&name);
            seen.push(name);
            is_new
        });
        Demands {
            no_side_effects: before
                .iter()
                .all(|hook| NO_SIDE_EFFECTS.contains(&hook.str_at(&["sideEffects"]))),
            known_version: before.iter().all(|hook| {
                let versions = texts(hook, "admissionReviewVersions");
                versions.is_empty() || has_known_version(&versions)
            }),
            unique_names,
            valid_selector_values: before
                .iter()
                .all(|hook| selectors(hook, &Path::new("")).is_empty()),
            conditions: !is_same,
            stored_conditions: before
                .iter()
                .flat_map(|hook| hook.list_at(&["matchConditions"]))
                .collect(),
        }
    }
}

impl WebhookConfiguration {
    fn validate_hooks(&self, object: &Value, demands: &Demands<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for (index, hook) in object.list_at(&["webhooks"]).iter().enumerate() {
            let path = Path::new("webhooks").index(index);
            self.validate_hook(hook, demands, &path, &mut errors);
            let at = path.child("admissionReviewVersions");
            review_versions(hook, demands.known_version, &at, &mut errors);
            let name = hook.str_at(&["name"]);
            if !demands.unique_names || name.is_empty() {
                continue;
            }
            match seen.contains(&name) {
                true => errors.push(FieldError::duplicate(&path.child("name"), name)),
                false => seen.push(name),
            }
        }
        errors
    }

    fn validate_hook(
        &self,
        hook: &Value,
        demands: &Demands<'_>,
        path: &Path,
        errors: &mut Vec<FieldError>,
    ) {
        full_name(hook.str_at(&["name"]), &path.child("name"), errors);
        for (index, rule) in hook.list_at(&["rules"]).iter().enumerate() {
            rules::validate(rule, &path.child("rules").index(index), errors);
        }
        optional_one_of(hook, "failurePolicy", &FAILURE_POLICIES, path, errors);
        optional_one_of(hook, "matchPolicy", &MATCH_POLICIES, path, errors);
        let allowed: &[&str] = match demands.no_side_effects {
            true => &NO_SIDE_EFFECTS,
            false => &SIDE_EFFECTS,
        };
        match hook.get("sideEffects").and_then(Value::as_str) {
            None => {
                let detail = format!("must specify one of {}", allowed.join(", "));
                errors.push(FieldError::required(&path.child("sideEffects"), detail));
            }
            Some(_) => optional_one_of(hook, "sideEffects", allowed, path, errors),
        }
        if let Some(seconds) = hook.i64_at(&["timeoutSeconds"])
            && !(1..=30).contains(&seconds)
        {
            let detail = "the timeout value must be between 1 and 30 seconds";
            let at = path.child("timeoutSeconds");
            errors.push(FieldError::invalid(&at, seconds, detail));
        }
        let of_selectors = selectors(hook, path).into_iter();
        errors.extend(of_selectors.filter(|error| {
            // The value of a label, as opposed to everything else about a selector.
            demands.valid_selector_values || !error.path.contains(".values[")
        }));
        if self.is_mutating {
            let policies = &REINVOCATION_POLICIES;
            optional_one_of(hook, "reinvocationPolicy", policies, path, errors);
        }
        let config = hook.get("clientConfig").unwrap_or(&Value::Null);
        client_config::validate(config, &path.child("clientConfig"), errors);
        if demands.conditions {
            let known = Known {
                has_params: false,
                stored: &demands.stored_conditions,
            };
            let conditions = hook.list_at(&["matchConditions"]);
            let at = path.child("matchConditions");
            match_conditions::validate(conditions, known, &at, errors);
        }
    }
}

fn selectors(hook: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = hook.get(field).filter(|selector| !selector.is_null()) {
            errors.extend(label_selector::validate(selector, &path.child(field)));
        }
    }
    errors
}

/// A domain name of at least three parts.
fn full_name(name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        return errors.push(FieldError::required(path, ""));
    }
    let wrong = names::dns_subdomain(name);
    if !wrong.is_empty() {
        return errors.push(FieldError::invalid(path, name, wrong.join(",")));
    }
    if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn has_known_version(versions: &[&str]) -> bool {
    versions
        .iter()
        .any(|version| REVIEW_VERSIONS.contains(version))
}

fn review_versions(hook: &Value, needs_known: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let versions = texts(hook, "admissionReviewVersions");
    let accepted = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        let detail = format!("must specify one of {accepted}");
        return errors.push(FieldError::required(path, detail));
    }
    for (index, version) in versions.iter().enumerate() {
        let at = path.index(index);
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(&at, *version, "duplicate version"));
            continue;
        }
        for problem in names::dns_1035_label(version) {
            errors.push(FieldError::invalid(&at, *version, problem));
        }
    }
    if needs_known && !has_known_version(&versions) {
        let value = hook.get("admissionReviewVersions").cloned();
        let detail = format!("must include at least one of {accepted}");
        errors.push(FieldError::invalid(path, value.unwrap_or_default(), detail));
    }
}
