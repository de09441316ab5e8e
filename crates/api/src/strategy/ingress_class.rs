//! IngressClasses.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::{immutable_text, supported};
use crate::strategy::ingress::typed_reference;

const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
const LONGEST_CONTROLLER: usize = 250;

pub struct IngressClass;

impl Strategy for IngressClass {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        let parameters = ["spec", "parameters"];
        let scope = ["spec", "parameters", "scope"];
        if object.has(&parameters) && !object.has(&scope) {
            object.set(&scope, "Cluster");
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let controller = object.str_at(&["spec", "controller"]);
        let mut errors = Vec::new();
        let at = path.child("controller");
        if controller.len() > LONGEST_CONTROLLER {
            errors.push(FieldError::too_long(&at, LONGEST_CONTROLLER));
        }
        errors.extend(domain_prefixed_path(controller, &at));
        let parameters = object.at(&["spec", "parameters"]);
        if let Some(parameters) = parameters.filter(|value| !value.is_null()) {
            parameter_reference(parameters, &path.child("parameters"), &mut errors);
        }
        errors
    }

    fn validate_update_content(&self, new: &Value, old: &Value, _: &str) -> Vec<FieldError> {
        let at = ["spec", "controller"];
        let path = Path::new("spec").child("controller");
        let mut errors = Vec::from_iter(immutable_text(new.str_at(&at), old.str_at(&at), &path));
        errors.extend(self.validate_content(new));
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let parameter = |name: &str| object.str_at(&["spec", "parameters", name]);
        let group = match object.has(&["spec", "parameters", "apiGroup"]) {
            true => format!(".{}", parameter("apiGroup")),
            false => String::new(),
        };
        let parameters = match object.has(&["spec", "parameters"]) {
            true => format!("{}{group}/{}", parameter("kind"), parameter("name")),
            false => "<none>".to_string(),
        };
        vec![
            name_or_default(object, &[DEFAULT_ANNOTATION]).into(),
            object.str_at(&["spec", "controller"]).into(),
            parameters.into(),
            object_age(object, now).into(),
        ]
    }
}

/// The name, with a note where an annotation says that this is the default.
pub fn name_or_default(object: &Value, annotations: &[&str]) -> String {
    let name = object.str_at(&["metadata", "name"]);
    let default = annotations
        .iter()
        .any(|key| object.str_at(&["metadata", "annotations", key]) == "true");
    match default {
        true => format!("{name} (default)"),
        false => name.to_string(),
    }
}

/// Checks `domain/path`.
fn domain_prefixed_path(text: &str, path: &Path) -> Vec<FieldError> {
    if text.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let parts = text.split_once('/').unwrap_or_default();
    let (domain, rest) = match parts {
        ("", _) | (_, "") => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            return vec![FieldError::invalid(path, text, detail)];
        }
        parts => parts,
    };
    let mut errors = all_invalid(path, domain, names::dns_subdomain(domain));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(allowed) {
        let pattern = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
        let detail = names::pattern_error("Invalid path", pattern, &[]);
        errors.push(FieldError::invalid(path, rest, detail));
    }
    errors
}

fn parameter_reference(parameters: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    typed_reference(parameters, path, errors);
    if !parameters.has(&["scope"]) {
        errors.push(FieldError::required(&path.child("scope"), ""));
        return;
    }
    let scope = parameters.str_at(&["scope"]);
    let at = path.child("namespace");
    let namespace = parameters.get("namespace").and_then(Value::as_str);
    match (scope, namespace) {
        ("Namespace", None) => {
            let detail = "`parameters.scope` is set to 'Namespace'";
            errors.push(FieldError::required(&at, detail));
        }
        ("Namespace", Some(name)) => {
            errors.extend(all_invalid(&at, name, names::dns_label(name)));
        }
        ("Cluster", Some(_)) => {
            let detail = "`parameters.scope` is set to 'Cluster'";
            errors.push(FieldError::forbidden(&at, detail));
        }
        _ => errors.extend(supported(
            scope,
            &["Cluster", "Namespace"],
            &path.child("scope"),
        )),
    }
}
