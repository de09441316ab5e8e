//! FlowSchemas and PriorityLevelConfigurations: which requests an API server queues, and how many
//! of them run at once. They are stored for the extension API servers that read them; ours does
//! not act on them yet.

mod flow_schema;
mod priority_level;
#[cfg(test)]
mod tests;

pub use flow_schema::FlowSchema;
pub use priority_level::PriorityLevelConfiguration;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::repeats::repeats;

/// The name that the level and the schema have which are never limited.
const EXEMPT: &str = "exempt";
const CATCH_ALL: &str = "catch-all";

/// Conditions have a type, each another.
fn conditions(object: &Value) -> Vec<FieldError> {
    let path = Path::new("status").child("conditions");
    let list = object.list_at(&["status", "conditions"]);
    let types: Vec<&str> = list.iter().map(|one| one.str_at(&["type"])).collect();
    let repeated = repeats(&types);
    let mut errors = Vec::new();
    for (index, name) in types.iter().enumerate() {
        let at = path.index(index).child("type");
        if repeated.binary_search(&index).is_ok() {
            errors.push(FieldError::duplicate(&at, *name));
        }
        if name.is_empty() {
            errors.push(FieldError::required(&at, ""));
        }
    }
    errors
}
