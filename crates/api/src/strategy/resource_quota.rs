//! ResourceQuotas. What they count is the API server's business.

use std::collections::BTreeMap;

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path, most_showing};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::canonical_quantities;
use crate::strategy::checks::quantity;
use crate::strategy::resource_names;

pub struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn returns_deleted(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        for path in [["spec", "hard"], ["status", "hard"], ["status", "used"]] {
            canonical_quantities(object, &path);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = spec(object);
        errors.extend(amounts(object, &["status", "hard"]));
        errors.extend(amounts(object, &["status", "used"]));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            let mut errors = amounts(new, &["status", "hard"]);
            errors.extend(amounts(new, &["status", "used"]));
            return errors;
        }
        let mut errors = spec(new);
        let scopes = |object: &Value| {
            let list = object.list_at(&["spec", "scopes"]).iter();
            let mut texts: Vec<String> = list
                .map(|scope| scope.as_str().unwrap_or_default().to_string())
                .collect();
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        if scopes(new) != scopes(old) {
            let value = new.at(&["spec", "scopes"]).cloned().unwrap_or_default();
            let at = Path::new("spec").child("scopes");
            errors.push(FieldError::invalid(&at, value, "field is immutable"));
        }
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::CHANGE
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (name, hard) in object.fields_at(&["status", "hard"]) {
            let used = object.str_at(&["status", "used", name]);
            let used = if used.is_empty() { "0" } else { used };
            let text = format!("{name}: {used}/{}", hard.as_str().unwrap_or_default());
            match name.split_once('.') {
                Some(("limits", _)) => limits.push(text),
                _ => requests.push(text),
            }
        }
        vec![
            object.str_at(&["metadata", "name"]).into(),
            requests.join(", ").into(),
            limits.join(", ").into(),
            object_age(object, now).into(),
        ]
    }
}

fn spec(object: &Value) -> Vec<FieldError> {
    let mut errors = amounts(object, &["spec", "hard"]);
    scopes(object, &mut errors);
    scope_selector(object, &mut errors);
    errors
}

fn amounts(object: &Value, path: &[&str; 2]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let parent = Path::new(path[0]).child(path[1]);
    for (name, value) in object.fields_at(path) {
        let at = parent.key(name);
        errors.extend(resource_names::in_quota(name, &at));
        let quantity = quantity(Some(value));
        if quantity.is_negative() {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(&at, quantity.to_string(), detail));
        }
        if resource_names::is_whole(name) && !quantity.is_integer() {
            let text = quantity.to_string();
            errors.push(FieldError::invalid(&at, text, "must be an integer"));
        }
    }
    errors
}

fn is_scope(name: &str) -> bool {
    matches!(
        name,
        "Terminating"
            | "NotTerminating"
            | "BestEffort"
            | "NotBestEffort"
            | "PriorityClass"
            | "VolumeAttributesClass"
            | "CrossNamespacePodAffinity"
    )
}

/// Whether a resource can be counted within a scope.
fn fits(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => matches!(
            resource,
            "pods"
                | "cpu"
                | "memory"
                | "limits.cpu"
                | "limits.memory"
                | "requests.cpu"
                | "requests.memory"
        ),
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ => true,
    }
}

/// The number of the quota's resources that cannot be counted within each scope.
struct Misfits<'a> {
    object: &'a Value,
    counted: BTreeMap<String, usize>,
}

impl<'a> Misfits<'a> {
    fn of(object: &'a Value) -> Misfits<'a> {
        Misfits {
            object,
            counted: BTreeMap::new(),
        }
    }

    fn within(&mut self, scope: &str) -> usize {
        if !is_scope(scope) {
            return 0;
        }
        if let Some(count) = self.counted.get(scope) {
            return *count;
        }
        let names = self.object.fields_at(&["spec", "hard"]);
        let count = names
            .filter(|(name, _)| resource_names::is_quota_name(name) && !fits(scope, name))
            .count();
        self.counted.insert(scope.to_string(), count);
        count
    }
}

/// The number of pairs of scopes that exclude each other.
fn conflicts(scopes: &[&str]) -> usize {
    [
        ["BestEffort", "NotBestEffort"],
        ["Terminating", "NotTerminating"],
    ]
    .iter()
    .filter(|pair| pair.iter().all(|scope| scopes.contains(scope)))
    .count()
}

fn scopes(object: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec").child("scopes");
    let list = object.list_at(&["spec", "scopes"]);
    let mut room = match object.at(&["spec", "scopes"]) {
        Some(scopes) => most_showing(scopes),
        None => return,
    };
    let mut wrong = |detail: &str| {
        if room > 0 {
            room -= 1;
            errors.push(FieldError::invalid(&path, list.to_vec(), detail));
        }
    };
    let mut misfits = Misfits::of(object);
    let names: Vec<&str> = list
        .iter()
        .map(|scope| scope.as_str().unwrap_or_default())
        .collect();
    for scope in &names {
        if !is_scope(scope) {
            wrong("unsupported scope");
        }
        for _ in 0..misfits.within(scope) {
            wrong("unsupported scope applied to resource");
        }
    }
    for _ in 0..conflicts(&names) {
        wrong("conflicting scopes");
    }
}

fn scope_selector(object: &Value, errors: &mut Vec<FieldError>) {
    let path = Path::new("spec")
        .child("scopeSelector")
        .child("matchExpressions");
    let expressions = object.list_at(&["spec", "scopeSelector", "matchExpressions"]);
    let mut names: Vec<&str> = Vec::new();
    let selector = object.at(&["spec", "scopeSelector"]);
    let mut room = selector.map_or(0, most_showing);
    let mut misfits = Misfits::of(object);
    for expression in expressions {
        let scope = expression.str_at(&["scopeName"]);
        names.push(scope);
        if !is_scope(scope) {
            let at = path.child("scopeName");
            errors.push(FieldError::invalid(&at, scope, "unsupported scope"));
        }
        let count = misfits.within(scope).min(room);
        room -= count;
        for _ in 0..count {
            let value = selector.cloned();
            let detail = "unsupported scope applied to resource";
            errors.push(FieldError::invalid(
                &path,
                value.unwrap_or_default(),
                detail,
            ));
        }
        let operator = expression.str_at(&["operator"]);
        let at = path.child("operator");
        let only_exists = matches!(
            scope,
            "BestEffort"
                | "NotBestEffort"
                | "Terminating"
                | "NotTerminating"
                | "CrossNamespacePodAffinity"
        );
        if only_exists && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(&at, operator, detail));
        }
        let values = expression.list_at(&["values"]);
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &path.child("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::invalid(
                &path.child("values"),
                values.to_vec(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                &at,
                operator,
                "not a valid selector operator",
            )),
        }
    }
    for _ in 0..conflicts(&names) {
        let value = object.at(&["spec", "scopes"]).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&path, value, "conflicting scopes"));
    }
}
