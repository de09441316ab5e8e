//! FlowSchemas.

use super::{CATCH_ALL, EXEMPT, conditions};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::resource::{MetadataChecks, Strategy};

pub struct FlowSchema;

const MOST_PRECEDENCE: i64 = 10_000;
const DEFAULT_PRECEDENCE: i64 = 1_000;
const METHODS: [&str; 2] = ["ByNamespace", "ByUser"];
const SUBJECTS: [&str; 3] = ["Group", "ServiceAccount", "User"];
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

impl Strategy for FlowSchema {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if object.i64_at(&["spec", "matchingPrecedence"]).unwrap_or(0) == 0 {
            object.set(&["spec", "matchingPrecedence"], DEFAULT_PRECEDENCE);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let name = object.str_at(&["metadata", "name"]);
        let path = Path::new("spec");
        let mut errors = Vec::new();
        let empty = Value::object();
        let spec = object.get("spec").unwrap_or(&empty);
        validate_spec(name, spec, &path, &mut errors);
        if fixed(name).is_some_and(|fixed| fixed != *spec) {
            let detail = format!("spec of '{name}' must equal the fixed value");
            errors.push(FieldError::invalid(&path, spec.clone(), detail));
        }
        errors.extend(conditions(object));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        _old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "" => self.validate_content(new),
            _ => conditions(new),
        }
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        match subresource {
            "" => MetadataChecks::WHOLE,
            _ => MetadataChecks::NONE,
        }
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let method = match object.has(&["spec", "distinguisherMethod"]) {
            true => object.str_at(&["spec", "distinguisherMethod", "type"]),
            false => "<none>",
        };
        let dangling = object
            .list_at(&["status", "conditions"])
            .iter()
            .find(|condition| condition.str_at(&["type"]) == "Dangling")
            .map_or("?", |condition| condition.str_at(&["status"]));
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object
                .str_at(&["spec", "priorityLevelConfiguration", "name"])
                .into(),
            object
                .i64_at(&["spec", "matchingPrecedence"])
                .unwrap_or(0)
                .into(),
            method.into(),
            object_age(object, now).into(),
            dangling.into(),
        ]
    }
}

fn validate_spec(name: &str, spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let precedence = spec.i64_at(&["matchingPrecedence"]).unwrap_or(0);
    let at = path.child("matchingPrecedence");
    let mut wrong = |detail: &str| errors.push(FieldError::invalid(&at, precedence, detail));
    if precedence <= 0 {
        wrong("must be a positive value");
    }
    if precedence > MOST_PRECEDENCE {
        wrong(&format!("must not be greater than {MOST_PRECEDENCE}"));
    }
    if precedence == 1 && name != EXEMPT {
        wrong("only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if let Some(method) = spec.get("distinguisherMethod").filter(|one| !one.is_null()) {
        let kind = method.str_at(&["type"]);
        if !METHODS.contains(&kind) {
            let at = path.child("distinguisherMethod").child("type");
            let error = FieldError::not_supported(&at, method.clone(), &METHODS);
            errors.push(error.showing(&[("Type", kind.into())]));
        }
    }
    let level = spec.str_at(&["priorityLevelConfiguration", "name"]);
    let at = path.child("priorityLevelConfiguration").child("name");
    match level {
        "" => errors.push(FieldError::required(&at, "must reference a priority level")),
        _ => errors.extend(all_invalid(&at, level, names::dns_subdomain(level))),
    }
    for (index, rule) in spec.list_at(&["rules"]).iter().enumerate() {
        validate_rule(rule, &path.child("rules").index(index), errors);
    }
}

fn validate_rule(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let subjects = rule.list_at(&["subjects"]);
    for (index, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &path.child("subjects").index(index), errors);
    }
    if subjects.is_empty() {
        let detail = "subjects must contain at least one value";
        errors.push(FieldError::required(&path.child("subjects"), detail));
    }
    let resources = rule.list_at(&["resourceRules"]);
    let others = rule.list_at(&["nonResourceRules"]);
    if resources.is_empty() && others.is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, detail));
    }
    for (index, rule) in resources.iter().enumerate() {
        validate_resources(rule, &path.child("resourceRules").index(index), errors);
    }
    for (index, rule) in others.iter().enumerate() {
        validate_urls(rule, &path.child("nonResourceRules").index(index), errors);
    }
}

fn validate_subject(subject: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let kind = subject.str_at(&["kind"]);
    if !SUBJECTS.contains(&kind) {
        errors.push(FieldError::not_supported(
            &path.child("kind"),
            kind,
            &SUBJECTS,
        ));
        return;
    }
    // The member that belongs to the kind comes first.
    let members = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    for (of, member) in members.iter().filter(|(of, _)| *of == kind) {
        let at = path.child(member);
        if !subject.has(&[member]) {
            let detail = format!("{member} is required when subject kind is '{of}'");
            errors.push(FieldError::required(&at, detail));
            continue;
        }
        let name = subject.str_at(&[member, "name"]);
        if name.is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        if *of == "ServiceAccount" {
            if !name.is_empty() && name != "*" {
                let wrong = names::dns_subdomain(name);
                errors.extend(all_invalid(&at.child("name"), name, wrong));
            }
            let namespace = subject.str_at(&[member, "namespace"]);
            let at = at.child("namespace");
            match namespace {
                "" => errors.push(FieldError::required(
                    &at,
                    "must specify namespace for service account",
                )),
                _ => errors.extend(all_invalid(&at, namespace, names::dns_label(namespace))),
            }
        }
    }
    for (of, member) in members.iter().filter(|(of, _)| *of != kind) {
        if subject.has(&[member]) {
            let detail = format!("{member} is forbidden when subject kind is not '{of}'");
            errors.push(FieldError::forbidden(&path.child(member), detail));
        }
    }
}

fn validate_urls(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    validate_verbs(rule, path, errors);
    let urls = texts(rule, "nonResourceURLs");
    let at = path.child("nonResourceURLs");
    if urls.is_empty() {
        let detail = "nonResourceURLs must contain at least one value";
        errors.push(FieldError::required(&at, detail));
    } else if urls.contains(&"*") {
        alone(rule, "nonResourceURLs", "non-resource URLs", path, errors);
    } else {
        for (index, url) in urls.iter().enumerate() {
            if let Some(detail) = wrong_with_url(url) {
                errors.push(FieldError::invalid(&at.index(index), *url, detail));
            }
        }
    }
}

fn validate_resources(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    validate_verbs(rule, path, errors);
    for (field, one, others) in [
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ] {
        if texts(rule, field).is_empty() {
            let detail = format!("resource rules must supply at least one {one}");
            errors.push(FieldError::required(&path.child(field), detail));
        } else if texts(rule, field).contains(&"*") {
            alone(rule, field, others, path, errors);
        }
    }
    let namespaces = texts(rule, "namespaces");
    let at = path.child("namespaces");
    if namespaces.is_empty() && !rule.bool_at(&["clusterScope"]) {
        let detail =
            "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(FieldError::required(&at, detail));
    } else if namespaces.contains(&"*") {
        alone(rule, "namespaces", "namespaces", path, errors);
    } else {
        for (index, name) in namespaces.iter().enumerate() {
            for wrong in names::dns_label(name) {
                let detail =
                    format!("each member of this list must be '*' or a DNS-1123 label; {wrong}");
                errors.push(FieldError::invalid(&at.index(index), *name, detail));
            }
        }
    }
}

fn validate_verbs(rule: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let verbs = texts(rule, "verbs");
    let at = path.child("verbs");
    if verbs.is_empty() {
        let detail = "verbs must contain at least one value";
        errors.push(FieldError::required(&at, detail));
    } else if verbs.contains(&"*") {
        alone(rule, "verbs", "verbs", path, errors);
    } else if !verbs.iter().all(|verb| VERBS.contains(verb)) {
        let value = rule.get("verbs").cloned().unwrap_or_default();
        errors.push(FieldError::not_supported(&at, value, &VERBS));
    }
}

/// A list with `*` has nothing else.
fn alone(rule: &Value, field: &str, others: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if rule.list_at(&[field]).len() > 1 {
        let value = rule.get(field).cloned().unwrap_or_default();
        let detail = format!("if '*' is present, must not specify other {others}");
        errors.push(FieldError::invalid(&path.child(field), value, detail));
    }
}

fn wrong_with_url(url: &str) -> Option<&'static str> {
    let stars = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || (stars == 1 && !url.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    let list = rule.list_at(&[field]).iter();
    list.map(|one| one.as_str().unwrap_or_default()).collect()
}

/// The spec of a schema that has to be as it is.
fn fixed(name: &str) -> Option<Value> {
    let group = |name: &str| crate::document!({"kind": "Group", "group": {"name": name}});
    let (precedence, method, subjects) = match name {
        EXEMPT => (1, None, crate::document!([group("system:masters")])),
        CATCH_ALL => {
            let groups = ["system:unauthenticated", "system:authenticated"].map(group);
            (
                MOST_PRECEDENCE,
                Some("ByUser"),
                Value::from(groups.to_vec()),
            )
        }
        _ => return None,
    };
    let mut spec = crate::document!({
        "matchingPrecedence": precedence,
        "priorityLevelConfiguration": {"name": name},
        "rules": [{
            "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
            "resourceRules": [{
                "apiGroups": ["*"], "clusterScope": true, "namespaces": ["*"],
                "resources": ["*"], "verbs": ["*"],
            }],
            "subjects": subjects,
        }],
    });
    if let Some(method) = method {
        spec.set(&["distinguisherMethod", "type"], method);
    }
    Some(spec)
}
