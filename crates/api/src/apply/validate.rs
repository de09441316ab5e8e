//! Whether an applied configuration fits the schema. The words are those of upstream's typed
//! values, Go's way of printing included.

use super::element;
use super::place::{Form, Items, Place, Scalar};
use crate::document::Value;
use crate::field::quote;
use crate::repeats::Seen;

/// More problems than this are not reported: each shows its whole path.
const MOST_PROBLEMS: usize = 100;

/// All problems as one text, or nothing.
pub(super) fn problems(place: Place<'_>, value: &Value) -> Option<String> {
    let mut found = Vec::new();
    visit(place, value, &mut Vec::new(), &mut found);
    match found.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        several => Some(format!("errors:\n  {}", several.join("\n  "))),
    }
}

fn visit(place: Place<'_>, value: &Value, path: &mut Vec<String>, found: &mut Vec<String>) {
    if value.is_null() || found.len() >= MOST_PROBLEMS {
        return;
    }
    let mut tell = |path: &[String], problem: String| match path {
        [] => found.push(problem),
        path => found.push(format!("{}: {problem}", element::display(path))),
    };
    match place.form(Some(value)) {
        Form::Scalar(scalar) => {
            if let Some(problem) = wrong_scalar(scalar, value) {
                tell(path, problem);
            }
        }
        Form::List(items) => match value {
            Value::Array(values) => list(items, values, path, found),
            other => tell(path, format!("expected list, got &{{{}}}", plain(other))),
        },
        Form::Map { place, .. } => {
            let Value::Object(fields) = value else {
                return tell(path, format!("expected map, got &{{{}}}", plain(value)));
            };
            for (name, child) in fields.iter() {
                path.push(element::field(name));
                match place.child(name) {
                    Some(below) => visit(below, child, path, found),
                    None => {
                        let at = element::display(path);
                        found.push(format!("{at}: field not declared in schema"));
                        path.pop();
                        return;
                    }
                }
                path.pop();
            }
        }
    }
}

fn list(items: Items<'_>, values: &[Value], path: &mut Vec<String>, found: &mut Vec<String>) {
    let mut seen: Seen<String> = Seen::new();
    for (index, value) in values.iter().enumerate() {
        if found.len() >= MOST_PROBLEMS {
            return;
        }
        let step = match items.is_atomic() {
            true => Ok(format!("i:{index}")),
            false => items.element(value),
        };
        let step = match step {
            Ok(step) => step,
            Err(problem) => {
                let at = element::display(path);
                found.push(format!("{at}: element {index}: {problem}"));
                return;
            }
        };
        if !items.is_atomic() && !seen.insert(step.clone()) {
            let at = element::display(path);
            let shown = element::display(std::slice::from_ref(&step));
            found.push(format!("{at}: duplicate entries for key {shown}"));
        }
        path.push(step);
        visit(items.item(), value, path, found);
        path.pop();
    }
}

fn wrong_scalar(scalar: Scalar, value: &Value) -> Option<String> {
    match (scalar, value) {
        (Scalar::String, Value::String(_))
        | (Scalar::Number, Value::Integer(_) | Value::Float(_))
        | (Scalar::Bool, Value::Bool(_)) => None,
        (Scalar::Any, Value::Array(_) | Value::Object(_)) => {
            Some(format!("expected any scalar, got &{{{}}}", plain(value)))
        }
        (Scalar::Any, _) => None,
        (Scalar::Number, other) => Some(format!(
            "expected numeric (int or float), got {}",
            go_type(other)
        )),
        (Scalar::String, other) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            detailed(other)
        )),
        (Scalar::Bool, other) => Some(format!("expected boolean, got &{{{}}}", plain(other))),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Integer(_) | Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Go's `%v`.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", plain(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        other => number_or_flag(other),
    }
}

/// Go's `%#v`.
fn detailed(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(detailed).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", quote(name), detailed(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => number_or_flag(other),
    }
}

/// All numbers of a configuration are floats in Go, shown with an exponent from 10⁶ on.
fn number_or_flag(value: &Value) -> String {
    let number = match value {
        Value::Integer(whole) => return whole.to_string(),
        Value::Float(number) => *number,
        other => return other.to_string(),
    };
    if number == 0.0 || (1e-4..1e6).contains(&number.abs()) {
        return format!("{number}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, power)) => match power.strip_prefix('-') {
            Some(power) => format!("{digits}e-{power:0>2}"),
            None => format!("{digits}e+{power:0>2}"),
        },
        None => text,
    }
}
