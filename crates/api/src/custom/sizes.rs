//! How large values can be, as the cost of rules is estimated: at most how many elements a text, a
//! list or a map has, and at least how many bytes a value takes in a request.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::kind::Kind;
use super::node::Node;
use crate::document::Value;

/// The largest request, which bounds what has no bound of its own.
pub const MAX_REQUEST_SIZE: i64 = 3 * 1024 * 1024;

/// Bounds of the values of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Of a list its items, of a map its entries, of a text its bytes; 0 for anything else.
    pub max_elements: i64,
    /// The bytes of the smallest value in JSON.
    pub min_serialized_size: i64,
}

impl Size {
    const fn new(max_elements: i64, min_serialized_size: i64) -> Size {
        Size {
            max_elements,
            min_serialized_size,
        }
    }
}

/// The bounds of a node's values; `None` for what expressions cannot see. At the root of a resource
/// `apiVersion`, `kind` and `metadata` are there even if the schema does not say so.
pub fn estimate(node: &Arc<Node>, is_root: bool) -> Option<Size> {
    if node.is_int_or_string() {
        let longest = match node.max_length() {
            Some(length) => length.max(0).saturating_mul(4),
            None => MAX_REQUEST_SIZE - 2,
        };
        return Some(Size::new(longest, 1));
    }
    match node.kind() {
        Kind::Array => {
            let item = node.items()?;
            let item = estimate(item, item.is_embedded_resource())?;
            let most = match node.max_items() {
                Some(most) => most.max(0),
                None => (MAX_REQUEST_SIZE - 2) / (item.min_serialized_size + 1),
            };
            Some(Size::new(most, 2))
        }
        Kind::Object => match node.additional_schema() {
            Some(value) => {
                let value = estimate(value, value.is_embedded_resource())?;
                let most = match node.max_properties() {
                    Some(most) => most.max(0),
                    None => (MAX_REQUEST_SIZE - 2) / (value.min_serialized_size + 6),
                };
                Some(Size::new(most, 2))
            }
            None => Some(Size::new(0, smallest_object(node, is_root))),
        },
        Kind::String => Some(text(node)),
        Kind::Boolean => Some(Size::new(0, 4)),
        Kind::Number | Kind::Integer => Some(Size::new(0, 1)),
        Kind::Any => None,
    }
}

/// The braces and the fields that must be there and have no default.
fn smallest_object(node: &Node, is_root: bool) -> i64 {
    let mut smallest = 2;
    let required: BTreeSet<&str> = node.required().iter().map(|name| &**name).collect();
    for name in required {
        // Of a root these have the types that every resource has.
        let size = match (is_root, name) {
            (true, "kind" | "apiVersion") => Some(2),
            (true, "metadata") => Some(2),
            _ => match node.property(name) {
                Some(property) if property.default().is_some() => None,
                Some(property) => estimate(property, property.is_embedded_resource())
                    .map(|size| size.min_serialized_size),
                None => None,
            },
        };
        if let Some(size) = size {
            smallest += name.len() as i64 + size + 4;
        }
    }
    smallest
}

fn text(node: &Node) -> Size {
    const LONGEST: i64 = MAX_REQUEST_SIZE - 2;
    match (node.format(), node.max_length()) {
        ("byte", Some(length)) => Size::new(length.max(0), 2),
        ("byte", None) => Size::new(LONGEST, 2),
        ("duration", _) => Size::new(32, 3),
        ("date", _) => Size::new(12, 12),
        ("date-time", _) => Size::new(32, 21),
        (_, Some(length)) => Size::new(length.max(0).saturating_mul(4), 2),
        (_, None) if !node.enumeration().is_empty() => {
            let texts = node.enumeration().iter().filter_map(Value::as_str);
            Size::new(texts.map(str::len).max().unwrap_or_default() as i64, 2)
        }
        (_, None) => Size::new(LONGEST, 2),
    }
}
