//! The words of upstream's library for a JSON patch that does not apply to a document.

use super::json::json_patch;
use crate::document::Value;

const MISSING: &str = "missing value";

/// The first operation of a patch that does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// A `test` found another value than it expects, which is no mistake in the patch.
    pub is_failed_test: bool,
    pub words: String,
}

/// The first operation that does not apply; nothing where the patch as a whole is refused, for being
/// too large or no patch at all.
pub fn misfit(object: &Value, operations: &Value) -> Option<Misfit> {
    let mut document = object.clone();
    for operation in operations.as_array()? {
        let alone = Value::Array(vec![operation.clone()]);
        match json_patch(&document, &alone) {
            Ok(patched) => document = patched,
            Err(_) => return Some(of_operation(&document, operation)),
        }
    }
    None
}

fn of_operation(document: &Value, operation: &Value) -> Misfit {
    let name = operation.str_at(&["op"]);
    let misfit = |words: String| Misfit {
        is_failed_test: false,
        words,
    };
    let Some(path) = operation.get("path").and_then(Value::as_str) else {
        return misfit(format!("{name} operation failed to decode path: {MISSING}"));
    };
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", path));
    let has_parent = parent.is_empty() || {
        let test = crate::document!([{"op": "copy", "from": parent, "path": parent}]);
        json_patch(document, &test).is_ok()
    };
    misfit(match name {
        "add" if has_parent => format!("error in add for path: '{path}': invalid index referenced"),
        "add" => {
            format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}")
        }
        "remove" if has_parent => format!(
            "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: {MISSING}"
        ),
        "remove" => {
            format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}")
        }
        "replace" if has_parent => {
            format!("replace operation does not apply: doc is missing key: {path}: {MISSING}")
        }
        "replace" => {
            format!("replace operation does not apply: doc is missing path: {path}: {MISSING}")
        }
        "test" if has_parent => {
            return Misfit {
                is_failed_test: true,
                words: format!("testing value {path} failed: test failed"),
            };
        }
        "test" => format!("test operation does not apply: is missing path: {path}: {MISSING}"),
        "move" | "copy" => {
            let from = operation.str_at(&["from"]);
            format!("{name} operation does not apply: doc is missing from path: {from}: {MISSING}")
        }
        other => format!("Unexpected kind: {other}"),
    })
}
