//! Puts the configuration of a mutating policy into an object: the merge of server-side apply without
//! its ownership. What a policy adds belongs to whoever sends the request.

use super::element;
use super::merge;
use super::place::{Form, Place};
use super::validate;
use crate::custom;
use crate::document::Value;
use crate::schema::Shape;

/// Whose schema says how lists and maps merge.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// The name of a type in the table, e.g. `io.k8s.api.core.v1.Pod`.
    BuiltIn(&'a str),
    Custom(&'a custom::Schema),
}

/// Why a configuration is not put into an object. The words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// It does not fit the schema.
    #[error("failed to convert patch object to typed object: {0}")]
    Schema(String),
    /// It has values that can only be replaced as a whole, at these paths.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
}

/// `live` with what the configuration says, of which both are of the same kind.
pub fn put_configuration(
    target: Target<'_>,
    live: &Value,
    configuration: &Value,
) -> Result<Value, ConfigurationError> {
    let place = match target {
        Target::BuiltIn(definition) => {
            Shape::of(definition).map_or(Place::Deduced, Place::Declared)
        }
        Target::Custom(schema) => Place::of_custom(schema),
    };
    if let Some(problems) = validate::problems(place, configuration) {
        return Err(ConfigurationError::Schema(problems));
    }
    let mut atomic = Vec::new();
    find_atomic(place, configuration, &mut Vec::new(), &mut atomic);
    if !atomic.is_empty() {
        return Err(ConfigurationError::Atomic(atomic));
    }
    Ok(merge::merge(place, Some(live), Some(configuration)).unwrap_or_default())
}

/// The paths of values that are owned as a whole. Whoever means to change some fields of one would
/// remove all others. The depth of documents is bounded where they are made.
fn find_atomic(place: Place<'_>, value: &Value, path: &mut Vec<String>, atomic: &mut Vec<String>) {
    match (place.form(Some(value)), value) {
        (
            Form::Map {
                atomic: is_atomic,
                place,
            },
            Value::Object(fields),
        ) => {
            if is_atomic {
                atomic.push(element::display(path));
            }
            for (name, child) in fields.iter() {
                // What is below the keys of a map is not looked at, as upstream.
                let Some(below) = place.child(name).filter(|_| place.declares(name)) else {
                    continue;
                };
                path.push(element::field(name));
                find_atomic(below, child, path, atomic);
                path.pop();
            }
        }
        (Form::List(items), Value::Array(values)) => {
            if items.is_atomic() {
                atomic.push(element::display(path));
            }
            for (index, value) in values.iter().enumerate() {
                path.push(format!("i:{index}"));
                find_atomic(items.item(), value, path, atomic);
                path.pop();
            }
        }
        _ => {}
    }
}
