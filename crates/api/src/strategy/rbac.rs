//! Roles and role bindings. The API server's authorizer evaluates them.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names::{self, NameRule};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::label_selector;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Role and ClusterRole.
pub struct Role {
    pub namespaced: bool,
}

/// RoleBinding and ClusterRoleBinding.
pub struct Binding {
    pub namespaced: bool,
}

impl Strategy for Role {
    fn namespaced(&self) -> bool {
        self.namespaced
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (index, rule) in object.list_at(&["rules"]).iter().enumerate() {
            let at = Path::new("rules").index(index);
            policy_rule(rule, self.namespaced, &at, &mut errors);
        }
        if !self.namespaced && object.has(&["aggregationRule"]) {
            let path = Path::new("aggregationRule").child("clusterRoleSelectors");
            let selectors = object.list_at(&["aggregationRule", "clusterRoleSelectors"]);
            if selectors.is_empty() {
                let detail =
                    "at least one clusterRoleSelector required if aggregationRule is non-nil";
                errors.push(FieldError::required(&path, detail));
            }
            for (index, selector) in selectors.iter().enumerate() {
                errors.extend(label_selector::validate(selector, &path.index(index)));
            }
        }
        errors
    }
}

impl Strategy for Binding {
    fn namespaced(&self) -> bool {
        self.namespaced
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn default(&self, object: &mut Value) {
        object.set_default(&["roleRef", "apiGroup"], GROUP);
        for subject in object.list_at_mut(&["subjects"]) {
            if matches!(subject.str_at(&["kind"]), "User" | "Group") {
                subject.set_default(&["apiGroup"], GROUP);
            }
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let path = Path::new("roleRef");
        let text = |name: &str| object.str_at(&["roleRef", name]);
        if text("apiGroup") != GROUP {
            let at = path.child("apiGroup");
            errors.push(FieldError::not_supported(&at, text("apiGroup"), &[GROUP]));
        }
        let kinds: &[&str] = match self.namespaced {
            true => &["Role", "ClusterRole"],
            false => &["ClusterRole"],
        };
        if !kinds.contains(&text("kind")) {
            let at = path.child("kind");
            errors.push(FieldError::not_supported(&at, text("kind"), kinds));
        }
        let name = text("name");
        match name {
            "" => errors.push(FieldError::required(&path.child("name"), "")),
            _ => errors.extend(all_invalid(
                &path.child("name"),
                name,
                names::path_segment(name, false),
            )),
        }
        for (index, one) in object.list_at(&["subjects"]).iter().enumerate() {
            let at = Path::new("subjects").index(index);
            subject(one, self.namespaced, &at, &mut errors);
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let mut errors = self.validate_content(new);
        if new.get("roleRef") != old.get("roleRef") {
            let path = Path::new("roleRef");
            let text = |name: &str| Value::from(new.str_at(&["roleRef", name]));
            let error = FieldError::invalid(&path, Value::Null, "cannot change roleRef");
            errors.push(error.showing(&[
                ("APIGroup", text("apiGroup")),
                ("Kind", text("kind")),
                ("Name", text("name")),
            ]));
        }
        errors
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let subjects = |kind: &str| -> Value {
            let named: Vec<String> = object
                .list_at(&["subjects"])
                .iter()
                .filter(|subject| subject.str_at(&["kind"]) == kind)
                .map(|subject| match subject.str_at(&["namespace"]) {
                    namespace if kind == "ServiceAccount" && !namespace.is_empty() => {
                        format!("{namespace}/{}", subject.str_at(&["name"]))
                    }
                    _ => subject.str_at(&["name"]).to_string(),
                })
                .collect();
            named.join(", ").into()
        };
        let role = |name: &str| object.str_at(&["roleRef", name]);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            format!("{}/{}", role("kind"), role("name")).into(),
            object_age(object, now).into(),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    }
}

fn policy_rule(rule: &Value, namespaced: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let empty = |name: &str| rule.list_at(&[name]).is_empty();
    if empty("verbs") {
        let detail = "verbs must contain at least one value";
        errors.push(FieldError::required(&path.child("verbs"), detail));
    }
    if !empty("nonResourceURLs") {
        let at = path.child("nonResourceURLs");
        let value = rule.get("nonResourceURLs").cloned().unwrap_or_default();
        if namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.push(FieldError::invalid(&at, value.clone(), detail));
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(&at, value, detail));
        }
        return;
    }
    if empty("apiGroups") {
        let detail = "resource rules must supply at least one api group";
        errors.push(FieldError::required(&path.child("apiGroups"), detail));
    }
    if empty("resources") {
        let detail = "resource rules must supply at least one resource";
        errors.push(FieldError::required(&path.child("resources"), detail));
    }
}

fn subject(subject: &Value, namespaced: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let text = |name: &str| subject.str_at(&[name]);
    let (name, group) = (text("name"), text("apiGroup"));
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    let group_path = path.child("apiGroup");
    match text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                let wrong = names::dns_subdomain(name);
                errors.extend(all_invalid(&path.child("name"), name, wrong));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(&group_path, group, &[""]));
            }
            if !namespaced && text("namespace").is_empty() {
                errors.push(FieldError::required(&path.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(&group_path, group, &[GROUP]));
            }
        }
        other => errors.push(FieldError::not_supported(
            &path.child("kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        )),
    }
}
