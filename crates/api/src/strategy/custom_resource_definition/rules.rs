//! `x-kubernetes-validations`: what can be said of a rule without compiling it, and what compiling it
//! says.

use super::cost::{self, Cardinality, MOST_PER_RULE, TotalCost};
use super::strictness::Strictness;
use crate::custom::{self, Props, convertible, field_path};
use crate::document::Value;
use crate::field::{FieldError, Path};

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

fn has_line_breaks(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

/// Checks the fields of all rules of a place.
pub fn declaration_errors(schema: Props<'_>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in schema.rules().iter().enumerate() {
        let path = path.child("x-kubernetes-validations").index(index);
        let text = |name: &str| rule.str_at(&[name]);
        let message = text("message").trim();
        let message_path = path.child("message");
        if text("rule").trim().is_empty() {
            let why = "rule is not specified";
            errors.push(FieldError::required(&path.child("rule"), why));
        } else if !text("message").is_empty() && message.is_empty() {
            let why = "must be non-empty if specified";
            errors.push(FieldError::invalid(&message_path, text("message"), why));
        } else if has_line_breaks(message) {
            let why = "must not contain line breaks";
            errors.push(FieldError::invalid(&message_path, text("message"), why));
        } else if has_line_breaks(text("rule").trim()) && message.is_empty() {
            let why = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(&message_path, why));
        }
        let expression = text("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let why = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(&path.child("messageExpression"), why));
        }
        if let Some(reason) = rule.get("reason").and_then(Value::as_str)
            && !REASONS.contains(&reason)
        {
            let path = path.child("reason");
            errors.push(FieldError::not_supported(&path, reason, &REASONS));
        }
        let field = text("fieldPath");
        let mut wrong = |why: &str| {
            errors.push(FieldError::invalid(&path.child("fieldPath"), field, why));
        };
        if !field.is_empty() {
            if field.trim().is_empty() {
                wrong("must be non-empty if specified");
            }
            if has_line_breaks(field) {
                wrong("must not contain line breaks");
            }
            if convertible(schema).is_ok()
                && field_path(field, &custom::compile_unchecked(schema), true).is_err()
            {
                wrong("must be a valid path");
            }
        }
    }
    errors
}

/// A place with rules.
pub struct Place<'a> {
    pub schema: Props<'a>,
    pub path: &'a Path,
    pub is_root: bool,
    pub cardinality: Cardinality,
    pub uncorrelatable: Option<&'a Path>,
}

/// Compiles the rules of a place; their cost goes into the total.
pub fn compile_errors(
    place: &Place<'_>,
    strictness: Strictness<'_>,
    total: &mut TotalCost,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(expressions) = strictness.expressions else {
        return errors;
    };
    let node = custom::compile_unchecked(place.schema);
    let path = place.path.child("x-kubernetes-validations");
    if custom::estimate(&node, place.is_root).is_none() {
        let why = "internal error: failed to construct type information for \
                   x-kubernetes-validations rules: unable to convert structural schema to CEL \
                   declarations";
        errors.push(FieldError::internal(&path, why));
        return errors;
    }
    let compilation = expressions.compile(&node, place.is_root, strictness.is_stored);
    if let Some(failure) = compilation.failure {
        errors.push(FieldError::internal(&path, failure));
        return errors;
    }
    let unbounded = custom::max_cardinality(&node, place.is_root);
    for (index, rule) in compilation.rules.iter().enumerate() {
        let Some(declared) = place.schema.rules().get(index) else {
            break;
        };
        let path = path.index(index);
        let (rule_path, message_path) = (path.child("rule"), path.child("messageExpression"));
        let cost = place.cardinality.cost(rule.max_cost, unbounded);
        if strictness.cost_per_rule && cost > MOST_PER_RULE {
            let why = cost::exceeded("estimated rule cost", cost, MOST_PER_RULE);
            errors.push(FieldError::forbidden(&rule_path, why));
        }
        total.add(rule_path.clone(), cost);
        if let Some(error) = &rule.error {
            errors.push(shown_rule(&rule_path, declared, error));
        }
        if let Some(error) = &rule.message_error {
            errors.push(shown_rule(&message_path, declared, error));
        } else if rule.message.is_some() {
            let cost = rule.message_max_cost;
            if strictness.cost_per_rule && cost > MOST_PER_RULE {
                let name = "estimated messageExpression cost";
                let why = cost::exceeded(name, cost, MOST_PER_RULE);
                errors.push(FieldError::forbidden(&message_path, why));
            }
            total.add(message_path, cost);
        }
        let optional = declared.get("optionalOldSelf").and_then(Value::as_bool);
        match (rule.uses_old_self, place.uncorrelatable, optional) {
            (true, Some(above), _) => {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within \
                     {above}"
                );
                let text = declared.str_at(&["rule"]);
                errors.push(FieldError::invalid(&rule_path, text, why));
            }
            (false, _, Some(optional)) => {
                let why = "may not be set if oldSelf is not used in rule";
                let path = path.child("optionalOldSelf");
                errors.push(FieldError::invalid(&path, optional, why));
            }
            _ => {}
        }
    }
    errors
}

/// An error that shows the rule as Go's structure of it.
fn shown_rule(path: &Path, rule: &Value, why: &str) -> FieldError {
    let text = |name: &str| Value::from(rule.str_at(&[name]));
    let pointer = |name: &str| rule.get(name).cloned().unwrap_or_default();
    FieldError::invalid(path, rule.clone(), why).showing(&[
        ("Rule", text("rule")),
        ("Message", text("message")),
        ("MessageExpression", text("messageExpression")),
        ("Reason", pointer("reason")),
        ("FieldPath", text("fieldPath")),
        ("OptionalOldSelf", pointer("optionalOldSelf")),
    ])
}
