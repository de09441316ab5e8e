//! The patches of the API, and the making of one: JSON patch, merge patch, strategic merge patch.
//!
//! All take documents and return documents; what a patched object may look like is decided later.

mod diff;
mod json;
mod merge;
mod misfit;
mod order;
mod shape;
mod strategic;

use crate::document::Value;
use crate::status::{Details, Reason, Status};

pub use json::json_patch;
pub use merge::merge_patch;
pub use misfit::{Misfit, misfit};
pub use shape::{FieldRule, Shape};

/// Why a strategic merge patch cannot be applied or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid JSON document")]
    NotAnObject,
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey { map: String, key: String },
    #[error("expected a {expected}, but received a {received}")]
    WrongType {
        expected: &'static str,
        received: &'static str,
    },
    #[error("unknown patch type: {directive} in map: {map}")]
    UnknownDirective { directive: String, map: String },
    #[error("list element types are not identical: [{original} {patch}]")]
    MixedList { original: String, patch: String },
    #[error("unable to find api field in struct {name} for the json field {field:?}")]
    NoField { name: &'static str, field: String },
    #[error("cannot merge lists without merge key")]
    NoKeyForList,
    #[error("merging lists cannot yet be specified in the patch")]
    MergeInList,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    #[error("The order in patch list:\n{list}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch { list: String, order: String },
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let message = error.to_string();
        match error {
            Error::NotAnObject
            | Error::RetainKeys
            | Error::PrimitiveList
            | Error::SetElementOrder => Status::bad_request(message),
            Error::ListOfLists => Status::new(
                Reason::Invalid,
                "the server rejected our request due to an error in our request",
            )
            .with_details(Details::default()),
            // Upstream did not foresee these in an answer.
            _ => Status::new(Reason::Unknown, message),
        }
    }
}

/// A document as Go prints maps and slices.
pub fn in_go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(in_go).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields: Vec<String> = fields
                .map(|(name, value)| format!("{name}:{}", in_go(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

/// Applies a strategic merge patch to an object of the type `definition`.
pub fn strategic_merge(object: &Value, patch: &Value, definition: &str) -> Result<Value, Status> {
    let shape = shape::of(definition);
    Ok(strategic::apply(object, patch, shape)?)
}

/// The strategic merge patch that turns `live` into what `modified` asks for, deleting what
/// `last_applied` had and `modified` has no more. Fields that others set in `live` stay.
pub fn three_way(
    last_applied: &Value,
    live: &Value,
    modified: &Value,
    definition: &str,
) -> Result<Value, Status> {
    let shape = shape::of(definition);
    Ok(diff::three_way(last_applied, live, modified, shape)?)
}

/// The strategic merge patch that turns `original` into `modified`.
pub fn two_way(original: &Value, modified: &Value, definition: &str) -> Result<Value, Status> {
    let shape = shape::of(definition);
    Ok(diff::two_way(original, modified, shape)?)
}
