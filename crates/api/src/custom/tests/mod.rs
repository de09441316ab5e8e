//! Tests of schemas as a whole.

mod objects;
mod rules;
mod shapes;

use super::*;

fn schema(document: Value) -> Schema {
    Schema::from_document(&document).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A schema with these properties of `spec`.
fn with_spec(properties: Value) -> Schema {
    schema(crate::document!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties_of(&properties)}},
    }))
}

fn properties_of(properties: &Value) -> serde_json::Value {
    serde_json::from_slice(&properties.to_json()).expect("JSON")
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
