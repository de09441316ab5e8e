//! The paths that a definition may name: `fieldPath` of a rule and `jsonPath` of a selectable field
//! (checked against the schema), and the dotted paths of the scale subresource.

use std::sync::Arc;

use super::node::{Additional, Node};
use crate::document::Value;
use crate::field::Path;

/// Why a path does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("does not refer to a valid field")]
    NoSuchField,
    #[error("array notation is not allowed")]
    ArrayNotation,
    #[error("unexpected end of JSON path")]
    End,
    #[error("expected single quoted string but got {0}")]
    NotQuoted(String),
    #[error("invalid string literal: invalid escape char {0}")]
    Escape(String),
    #[error("expected ] but got {0}")]
    NotClosed(String),
    #[error("expected [ or . but got: {0}")]
    NotSeparated(String),
}

/// A path that the schema has.
#[derive(Clone, Debug)]
pub struct FoundPath {
    /// As errors write it, e.g. `spec.labels[app]`; "" for an empty path.
    pub text: String,
    /// The names along it.
    pub names: Vec<String>,
    /// The schema of what stands there; none below `additionalProperties: true`.
    pub node: Option<Arc<Node>>,
}

/// Follows `.name` and `['name']` through a schema. `brackets` allows the second form.
pub fn field_path(text: &str, root: &Arc<Node>, brackets: bool) -> Result<FoundPath, PathError> {
    let mut found = FoundPath {
        text: String::new(),
        names: Vec::new(),
        node: Some(root.clone()),
    };
    let mut rest = text;
    while let Some(token) = next_token(&mut rest) {
        match token {
            "[" if !brackets => return Err(PathError::ArrayNotation),
            "[" => {
                let token = next_token(&mut rest).ok_or(PathError::End)?;
                let inner = token
                    .strip_prefix('\'')
                    .and_then(|inner| inner.strip_suffix('\''))
                    .ok_or_else(|| PathError::NotQuoted(token.to_string()))?;
                found.step(&unescaped(inner)?)?;
                let token = next_token(&mut rest).ok_or(PathError::End)?;
                if token != "]" {
                    return Err(PathError::NotClosed(token.to_string()));
                }
            }
            "." => {
                let token = next_token(&mut rest).ok_or(PathError::End)?;
                found.step(token)?;
            }
            other => return Err(PathError::NotSeparated(other.to_string())),
        }
    }
    Ok(found)
}

impl FoundPath {
    fn step(&mut self, name: &str) -> Result<(), PathError> {
        let path = Path::new(&self.text);
        let node = self.node.as_ref().ok_or(PathError::NoSuchField)?;
        let (path, below) = if !node.properties().is_empty() {
            let below = node.property(name).ok_or(PathError::NoSuchField)?;
            (path.child(name), Some(below.clone()))
        } else {
            match node.additional() {
                Additional::Undeclared => return Err(PathError::NoSuchField),
                Additional::Allowed(_) => (path.key(name), None),
                Additional::Schema(below) => (path.key(name), Some(below.clone())),
            }
        };
        self.text = path.to_string();
        self.names.push(name.to_string());
        self.node = below;
        Ok(())
    }
}

/// Delimiters by themselves, a quoted text as a whole, anything else up to the next delimiter.
fn next_token<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let bytes = rest.as_bytes();
    let length = match bytes.first()? {
        b'.' | b'[' | b']' => 1,
        b'\'' => (1..bytes.len())
            .find(|index| bytes[*index] == b'\'' && bytes[index - 1] != b'\\')
            .map_or(bytes.len(), |end| end + 1),
        _ => bytes
            .iter()
            .position(|byte| matches!(byte, b'.' | b'[' | b']'))
            .unwrap_or(bytes.len()),
    };
    let (token, left) = rest.split_at(length);
    *rest = left;
    Some(token)
}

fn unescaped(text: &str) -> Result<String, PathError> {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            result.push(character);
            continue;
        }
        result.push(match characters.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some('\'') => '\'',
            Some('\\') => '\\',
            // A backslash at the end is no escape.
            None => '\\',
            Some(other) => return Err(PathError::Escape(format!("\\{other}"))),
        });
    }
    Ok(result)
}

/// The names of a dotted path such as `.spec.replicas`; the first dot may be missing.
pub fn dotted(path: &str) -> Vec<&str> {
    path.strip_prefix('.').unwrap_or(path).split('.').collect()
}

/// Why the value at a dotted path cannot be used, in the words of Go's unstructured objects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccessorError(String);

/// The whole number at a dotted path; none where a part of the path is missing.
pub fn number_at(object: &Value, path: &str) -> Result<Option<i64>, AccessorError> {
    match value_at(object, path)? {
        None => Ok(None),
        Some(Value::Integer(number)) => Ok(Some(*number)),
        Some(other) => Err(wrong_type(path, other, "int64")),
    }
}

/// The text at a dotted path.
pub fn text_at<'a>(object: &'a Value, path: &str) -> Result<Option<&'a str>, AccessorError> {
    match value_at(object, path)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(path, other, "string")),
    }
}

fn value_at<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, AccessorError> {
    let names = dotted(path);
    let mut value = object;
    for (depth, name) in names.iter().enumerate() {
        match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(below) => value = below,
                None => return Ok(None),
            },
            other => {
                let (shown, kind) = described(other);
                return Err(AccessorError(format!(
                    ".{} accessor error: {shown} is of the type {kind}, expected \
                     map[string]interface{{}}",
                    names[..=depth].join(".")
                )));
            }
        }
    }
    Ok(Some(value))
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> AccessorError {
    let (shown, kind) = described(value);
    AccessorError(format!(
        ".{} accessor error: {shown} is of the type {kind}, expected {expected}",
        dotted(path).join(".")
    ))
}

/// A value as Go prints it with `%v`, and its type with `%T`.
fn described(value: &Value) -> (String, &'static str) {
    match value {
        Value::Null => ("<nil>".to_string(), "<nil>"),
        Value::Bool(flag) => (flag.to_string(), "bool"),
        Value::Integer(number) => (number.to_string(), "int64"),
        Value::Float(number) => (super::go::float(*number), "float64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (super::go::printed(value), "[]interface {}"),
        Value::Object(_) => (super::go::printed(value), "map[string]interface {}"),
    }
}
