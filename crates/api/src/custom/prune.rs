//! Taking out the fields that a schema does not know.

use std::fmt::Write;

use super::node::{Additional, Node};
use crate::document::Value;

/// The paths of what was taken out.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    path: String,
    pub found: Vec<String>,
    /// The bytes of all paths found, which are bounded.
    told: usize,
}

/// More bytes of paths than this are not reported.
const MOST_TOLD: usize = 1 << 20;

impl Pruned {
    fn field(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }

    fn note(&mut self, name: &str) {
        self.told += self.path.len() + name.len() + 1;
        if self.told > MOST_TOLD && !self.found.is_empty() {
            return;
        }
        let length = self.path.len();
        self.field(name);
        self.found.push(self.path.clone());
        self.path.truncate(length);
    }
}

/// Prunes a value; at the root of a resource `apiVersion`, `kind` and `metadata` stay. Without a
/// schema nothing is known.
pub(super) fn prune(
    value: &mut Value,
    node: Option<&Node>,
    is_resource: bool,
    mut pruned: Option<&mut Pruned>,
) {
    let is_resource = is_resource || node.is_some_and(Node::is_embedded_resource);
    if let Some(node) = node.filter(|node| node.preserves_unknown_fields()) {
        return keep_unknown(value, node, is_resource, pruned);
    }
    let length = pruned.as_ref().map_or(0, |pruned| pruned.path.len());
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let is_meta = matches!(name, "apiVersion" | "kind" | "metadata");
            if is_resource && is_meta {
                return true;
            }
            let below = match node {
                None => None,
                Some(node) => match (node.property(name), node.additional()) {
                    (Some(below), _) => Some(Some(&**below)),
                    (None, Additional::Undeclared) => None,
                    (None, Additional::Allowed(_)) => Some(None),
                    (None, Additional::Schema(below)) => Some(Some(&**below)),
                },
            };
            let Some(below) = below else {
                if let Some(pruned) = &mut pruned
                    && (!is_meta || length > 0 || node.is_none())
                {
                    pruned.note(name);
                }
                return false;
            };
            if let Some(pruned) = &mut pruned {
                pruned.field(name);
            }
            prune(value, below, false, pruned.as_deref_mut());
            if let Some(pruned) = &mut pruned {
                pruned.path.truncate(length);
            }
            true
        }),
        Value::Array(items) => {
            let below = node.and_then(|node| node.items()).map(|below| &**below);
            for (index, item) in items.iter_mut().enumerate() {
                if let Some(pruned) = &mut pruned {
                    let _ = write!(pruned.path, "[{index}]");
                }
                prune(item, below, false, pruned.as_deref_mut());
                if let Some(pruned) = &mut pruned {
                    pruned.path.truncate(length);
                }
            }
        }
        _ => {}
    }
}

/// Below a node that keeps unknown fields: what is declared there is pruned as it says.
fn keep_unknown(
    value: &mut Value,
    node: &Node,
    is_resource: bool,
    mut pruned: Option<&mut Pruned>,
) {
    let length = pruned.as_ref().map_or(0, |pruned| pruned.path.len());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if is_resource && matches!(name, "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let below = match (node.property(name), node.additional()) {
                    (Some(below), _) => Some(&**below),
                    (None, Additional::Undeclared) => continue,
                    (None, Additional::Allowed(_)) => None,
                    (None, Additional::Schema(below)) => Some(&**below),
                };
                if let Some(pruned) = &mut pruned {
                    pruned.field(name);
                }
                prune(value, below, false, pruned.as_deref_mut());
                if let Some(pruned) = &mut pruned {
                    pruned.path.truncate(length);
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = node.items() else { return };
            for (index, item) in items.iter_mut().enumerate() {
                if let Some(pruned) = &mut pruned {
                    let _ = write!(pruned.path, "[{index}]");
                }
                let is_resource = below.is_embedded_resource();
                keep_unknown(item, below, is_resource, pruned.as_deref_mut());
                if let Some(pruned) = &mut pruned {
                    pruned.path.truncate(length);
                }
            }
        }
        _ => {}
    }
}
