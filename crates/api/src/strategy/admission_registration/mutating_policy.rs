//! MutatingAdmissionPolicies.

use super::expressions::{Checker, Expression, Role};
use super::validating_policy::{
    default_spec, validate_common, validate_conditions, validate_variables,
};
use super::{REINVOCATION_POLICIES, parameters, rules, warn_of_static_suffix};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::required_one_of;

const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];

pub struct MutatingAdmissionPolicy;

impl Strategy for MutatingAdmissionPolicy {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn takes_effect_at_once(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        default_spec(object);
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        validate(object, None)
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        validate(new, Some(old))
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
            (object.list_at(&["spec", "mutations"]).len() as i64).into(),
            parameters::kind_cell(object).into(),
            object_age(object, now).into(),
        ]
    }
}

fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (spec, path) = (
        object.get("spec").unwrap_or(&Value::Null),
        Path::new("spec"),
    );
    let old = old.and_then(|old| old.get("spec"));
    let mut errors = Vec::new();
    validate_common(spec, &path, &mut errors);
    let named = spec.list_at(&["matchConstraints", "resourceRules"]);
    rules::validate_mutable(named, &path.child("matchConstraints"), &mut errors);
    validate_conditions(spec, old, &path, &mut errors);
    let mut checker = Checker::with_variables(spec.has(&["paramKind"]));
    validate_variables(spec, &mut checker, &[], &path, &mut errors);
    let mutations = spec.list_at(&["mutations"]);
    if mutations.is_empty() {
        let detail = "mutations must contain at least one item";
        errors.push(FieldError::required(&path.child("mutations"), detail));
    }
    // As upstream: what was stored of either type counts as configurations that were applied.
    let before = old
        .map_or(&[][..], |old| old.list_at(&["mutations"]))
        .iter();
    let stored: Vec<&str> = before
        .map(|mutation| mutation.str_at(&["applyConfiguration", "expression"]))
        .collect();
    for (index, mutation) in mutations.iter().enumerate() {
        let at = path.child("mutations").index(index);
        validate_mutation(mutation, &checker, &stored, &at, &mut errors);
    }
    required_one_of(
        spec,
        "reinvocationPolicy",
        &REINVOCATION_POLICIES,
        &path,
        &mut errors,
    );
    errors
}

fn validate_mutation(
    mutation: &Value,
    checker: &Checker,
    stored: &[&str],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let (field, other, role) = match mutation.str_at(&["patchType"]) {
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Role::JsonPatch),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Role::ApplyConfiguration),
        _ => return required_one_of(mutation, "patchType", &PATCH_TYPES, path, errors),
    };
    let kind = mutation.str_at(&["patchType"]);
    let at = path.child(field);
    match mutation.get(field).filter(|patch| !patch.is_null()) {
        None => {
            let detail = format!("must be specified when patchType is {kind}");
            errors.push(FieldError::required(&at, detail));
        }
        Some(patch) => {
            let (given, at) = (patch.str_at(&["expression"]), at.child("expression"));
            match given.trim() {
                "" => errors.push(FieldError::required(&at, "")),
                text => {
                    let expression = Expression {
                        text,
                        role,
                        is_stored: stored.contains(&given),
                    };
                    errors.extend(checker.check(&expression, &at));
                }
            }
        }
    }
    if mutation.has(&[other]) {
        let detail = format!("must not be specified when patchType is {kind}");
        let shown = format!("{{{other}}}");
        errors.push(FieldError::invalid(&path.child(other), shown, detail));
    }
}
