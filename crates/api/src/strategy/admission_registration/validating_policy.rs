//! ValidatingAdmissionPolicies.

use super::expressions::{Checker, Expression, Role};
use super::match_conditions::{self, Known};
use super::{FAILURE_POLICIES, match_resources, parameters, warn_of_static_suffix};
use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::resource::{MetadataChecks, Strategy};
use crate::strategy::checks::optional_one_of;
use crate::strategy::conditions;

const MOST_ANNOTATIONS: usize = 20;
const LONGEST_ANNOTATION: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// Words of the language that cannot be names.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

pub struct ValidatingAdmissionPolicy;

impl Strategy for ValidatingAdmissionPolicy {
    fn namespaced(&self) -> bool {
        false
    }

    fn has_status(&self) -> bool {
        true
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

    fn validate_update_content(&self, new: &Value, old: &Value, below: &str) -> Vec<FieldError> {
        match below {
            "status" => validate_status(new),
            _ => validate(new, Some(old)),
        }
    }

    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        match subresource {
            "" => MetadataChecks::WHOLE,
            _ => MetadataChecks::NONE,
        }
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, _subresource: &str) -> Vec<String> {
        warn_of_static_suffix(new)
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        vec![
            object.str_at(&["metadata", "name"]).into(),
            (object.list_at(&["spec", "validations"]).len() as i64).into(),
            parameters::kind_cell(object).into(),
            object_age(object, now).into(),
        ]
    }
}

/// The defaults that both kinds of policies have.
pub(super) fn default_spec(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").filter(|spec| !spec.is_null()) {
        spec.set_missing(&["failurePolicy"], "Fail");
        if let Some(constraints) = spec.get_mut("matchConstraints") {
            match_resources::default(constraints);
        }
    }
}

/// What both kinds of policies begin with: failure policy, parameters and constraints.
pub(super) fn validate_common(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    match spec.has(&["failurePolicy"]) {
        false => errors.push(FieldError::required(&path.child("failurePolicy"), "")),
        true => optional_one_of(spec, "failurePolicy", &FAILURE_POLICIES, path, errors),
    }
    if let Some(kind) = spec.get("paramKind").filter(|kind| !kind.is_null()) {
        parameters::validate_kind(kind, &path.child("paramKind"), errors);
    }
    match_resources::validate_constraints(spec, path, errors);
}

pub(super) fn validate_conditions(
    spec: &Value,
    old: Option<&Value>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let conditions = spec.list_at(&["matchConditions"]);
    let stored = old.map_or(&[][..], |old| old.list_at(&["matchConditions"]));
    let is_same = old
        .is_some_and(|old| old.get("paramKind") == spec.get("paramKind") && stored == conditions);
    if is_same {
        return;
    }
    let stored: Vec<&Value> = stored.iter().collect();
    let known = Known {
        has_params: spec.has(&["paramKind"]),
        stored: &stored,
    };
    let at = path.child("matchConditions");
    match_conditions::validate(conditions, known, &at, errors);
}

/// The variables of a policy, each known to those behind it.
pub(super) fn validate_variables(
    spec: &Value,
    checker: &mut Checker,
    stored: &[&str],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let variables = spec.list_at(&["variables"]);
    for (index, variable) in variables.iter().enumerate() {
        let at = path.child("variables").index(index);
        let name = variable.str_at(&["name"]);
        if name.trim().is_empty() {
            errors.push(FieldError::required(
                &at.child("name"),
                "name is not specified",
            ));
        } else if !is_identifier(name) {
            let detail = "must be a valid CEL identifier";
            errors.push(FieldError::invalid(&at.child("name"), name, detail));
        }
        let at = at.child("expression");
        let text = variable.str_at(&["expression"]);
        if text.trim().is_empty() {
            errors.push(FieldError::required(&at, "expression is not specified"));
            continue;
        }
        let expression = Expression {
            text,
            role: Role::Variable,
            is_stored: stored.contains(&text),
        };
        errors.extend(checker.add_variable(name, &expression, &at));
    }
}

fn is_identifier(name: &str) -> bool {
    let mut letters = name.bytes();
    letters
        .next()
        .is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && letters.all(|letter| letter == b'_' || letter.is_ascii_alphanumeric())
        && !RESERVED.contains(&name)
}

fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (spec, path) = (
        object.get("spec").unwrap_or(&Value::Null),
        Path::new("spec"),
    );
    let old = old.and_then(|old| old.get("spec"));
    let mut errors = Vec::new();
    validate_common(spec, &path, &mut errors);
    validate_conditions(spec, old, &path, &mut errors);
    let stored = |list: &str, field: &str| -> Vec<&str> {
        let items = old.map_or(&[][..], |old| old.list_at(&[list])).iter();
        items.map(|item| item.str_at(&[field])).collect()
    };
    let stored_expressions = stored("validations", "expression");
    let has_params = spec.has(&["paramKind"]);
    // As upstream: a policy without variables has no `variables`.
    let mut checker = match spec.list_at(&["variables"]).is_empty() {
        true => Checker::without_variables(has_params),
        false => Checker::with_variables(has_params),
    };
    validate_variables(spec, &mut checker, &stored_expressions, &path, &mut errors);
    let (validations, annotations) = (
        spec.list_at(&["validations"]),
        spec.list_at(&["auditAnnotations"]),
    );
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        for field in ["validations", "auditAnnotations"] {
            errors.push(FieldError::required(&path.child(field), detail));
        }
        return errors;
    }
    let stored = Stored {
        expressions: &stored_expressions,
        messages: &stored("validations", "messageExpression"),
        annotations: &stored("auditAnnotations", "valueExpression"),
    };
    for (index, validation) in validations.iter().enumerate() {
        let at = path.child("validations").index(index);
        validate_validation(validation, &checker, &stored, &at, &mut errors);
    }
    let at = path.child("auditAnnotations");
    if annotations.len() > MOST_ANNOTATIONS {
        let detail = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        let value = Value::Array(annotations.to_vec());
        errors.push(FieldError::invalid(&at, value, detail));
    }
    let name = object.str_at(&["metadata", "name"]);
    for (index, annotation) in annotations.iter().enumerate() {
        let at = at.index(index);
        validate_annotation(annotation, name, &checker, &stored, &at, &mut errors);
        let key = annotation.str_at(&["key"]);
        let mut before = annotations[..index].iter();
        if before.any(|other| other.str_at(&["key"]) == key) {
            errors.push(FieldError::duplicate(&at.child("key"), key));
        }
    }
    errors
}

/// The expressions that were stored before.
struct Stored<'a> {
    expressions: &'a [&'a str],
    messages: &'a [&'a str],
    annotations: &'a [&'a str],
}

fn validate_validation(
    validation: &Value,
    checker: &Checker,
    stored: &Stored<'_>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let (text, at) = (validation.str_at(&["expression"]), path.child("expression"));
    if text.trim().is_empty() {
        errors.push(FieldError::required(&at, "expression is not specified"));
    } else {
        let expression = Expression {
            text,
            role: Role::Validation,
            is_stored: stored.expressions.contains(&text),
        };
        errors.extend(checker.check(&expression, &at));
    }
    let (text, at) = (
        validation.str_at(&["messageExpression"]),
        path.child("messageExpression"),
    );
    if !text.is_empty() && text.trim().is_empty() {
        errors.push(FieldError::invalid(
            &at,
            text,
            "must be non-empty if specified",
        ));
    } else if !text.is_empty() {
        let expression = Expression {
            text,
            role: Role::Message,
            is_stored: stored.messages.contains(&text),
        };
        errors.extend(checker.check(&expression, &at));
    }
    let (text, at) = (validation.str_at(&["message"]), path.child("message"));
    if !text.is_empty() && text.trim().is_empty() {
        errors.push(FieldError::invalid(
            &at,
            text,
            "must be non-empty if specified",
        ));
    } else if text.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(
            &at,
            text,
            "must not contain line breaks",
        ));
    }
    optional_one_of(validation, "reason", &REASONS, path, errors);
}

fn validate_annotation(
    annotation: &Value,
    name: &str,
    checker: &Checker,
    stored: &Stored<'_>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let (key, at) = (annotation.str_at(&["key"]), path.child("key"));
    if name.is_empty() {
        let detail = "requires metadata.name be non-empty";
        errors.push(FieldError::invalid(&at, key, detail));
    } else {
        let qualified = format!("{name}/{key}");
        let wrong = names::qualified_name(&qualified);
        errors.extend(all_invalid(&at, &qualified, wrong));
    }
    let (text, at) = (
        annotation.str_at(&["valueExpression"]),
        path.child("valueExpression"),
    );
    match text.trim() {
        "" => errors.push(FieldError::required(
            &at,
            "valueExpression is not specified",
        )),
        long if long.len() > LONGEST_ANNOTATION => {
            let detail = format!("must not exceed {LONGEST_ANNOTATION} bytes in length");
            errors.push(FieldError::required(&at, detail));
        }
        _ => {
            let expression = Expression {
                text,
                role: Role::AuditAnnotation,
                is_stored: stored.annotations.contains(&text),
            };
            errors.extend(checker.check(&expression, &at));
        }
    }
}

fn validate_status(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status");
    let mut errors = Vec::new();
    let warnings = object.list_at(&["status", "typeChecking", "expressionWarnings"]);
    for (index, warning) in warnings.iter().enumerate() {
        let at = path.child("typeChecking").child("expressionWarnings");
        let at = at.index(index);
        if warning.str_at(&["warning"]).is_empty() {
            errors.push(FieldError::required(&at.child("warning"), ""));
        }
        if warning.str_at(&["fieldRef"]).trim().is_empty() {
            errors.push(FieldError::required(&at.child("fieldRef"), ""));
        }
    }
    let list = object.list_at(&["status", "conditions"]);
    errors.extend(conditions::validate(list, &path.child("conditions")));
    errors
}
