//! `meta.k8s.io/v1` Tables: columns and rows.

use crate::conversion;
use crate::document::{Object, Value};
use crate::resource::{Column, Resource, Strategy};

/// How much of each object a row carries (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Reads the query parameter.
    pub fn parse(text: &str) -> Option<IncludeObject> {
        match text {
            "" | "Metadata" => Some(IncludeObject::Metadata),
            "None" => Some(IncludeObject::None),
            "Object" => Some(IncludeObject::Object),
            _ => None,
        }
    }
}

/// The table of `items`. `list_metadata` is the list's own metadata (resourceVersion, continue,
/// remainingItemCount). The columns are left out when `with_columns` is false, as a watch does
/// after its first event.
pub fn render(
    resource: &Resource,
    items: &[Value],
    list_metadata: &Value,
    include: IncludeObject,
    with_columns: bool,
    now: jiff::Timestamp,
) -> Value {
    let strategy = resource.strategy();
    let columns = match with_columns {
        true => Value::Array(resource.columns.iter().map(column_document).collect()),
        false => Value::Null,
    };
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            let mut row = Object::default();
            let cells = match resource.is_stored_as_itself() {
                true => strategy.cells(item, now),
                false => strategy.cells(&conversion::to_storage(resource, item.clone()), now),
            };
            row.insert("cells", cells);
            row.insert("object", included(strategy, item, include));
            Value::Object(row)
        })
        .collect();
    let mut table = crate::document!({"kind": "Table", "apiVersion": "meta.k8s.io/v1"});
    let metadata = match list_metadata {
        Value::Object(_) => list_metadata.clone(),
        _ => Value::object(),
    };
    table.set(&["metadata"], metadata);
    table.set(&["columnDefinitions"], columns);
    table.set(&["rows"], rows);
    table
}

fn column_document(column: &Column) -> Value {
    crate::document!({
        "name": &*column.name, "type": &*column.kind, "format": &*column.format,
        "description": "", "priority": column.priority,
    })
}

fn included(strategy: &dyn Strategy, item: &Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => item.clone(),
        IncludeObject::Metadata => {
            let mut partial = crate::document!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            });
            let mut metadata = item.get("metadata").cloned().unwrap_or_default();
            strategy.row_metadata(&mut metadata);
            partial.set(&["metadata"], metadata);
            partial
        }
    }
}
