//! A schema as its author wrote it (`JSONSchemaProps`), read field by field from the document.
//!
//! What has the zero value of its Go type counts as absent, as it does upstream after decoding.

use crate::document::{Object, Value};

/// One schema of a document.
#[derive(Clone, Copy, Debug)]
pub struct Props<'a> {
    fields: Option<&'a Object>,
}

/// `items`: one schema, or a list of them, which is not structural.
#[derive(Clone, Copy, Debug)]
pub enum ItemProps<'a> {
    One(Props<'a>),
    Several(&'a [Value]),
}

/// `additionalProperties`: a boolean or a schema.
#[derive(Clone, Copy, Debug)]
pub enum AdditionalProps<'a> {
    Allowed(bool),
    Schema(Props<'a>),
}

impl<'a> Props<'a> {
    pub fn of(schema: &'a Value) -> Props<'a> {
        Props {
            fields: schema.as_object(),
        }
    }

    /// What the document has at `name`, null left out.
    pub fn get(self, name: &str) -> Option<&'a Value> {
        self.fields?.get(name).filter(|value| !value.is_null())
    }

    /// The fields that are set, under their names in the document.
    pub fn set_fields(self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let fields = self.fields.into_iter().flat_map(|fields| fields.iter());
        fields.filter(|(name, value)| !is_zero(name, value))
    }

    pub fn text(self, name: &str) -> &'a str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn flag(self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    pub fn whole(self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    pub fn number(self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    pub fn list(self, name: &str) -> &'a [Value] {
        self.get(name)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub fn texts(self, name: &str) -> impl Iterator<Item = &'a str> {
        self.list(name).iter().filter_map(Value::as_str)
    }

    /// The schemas of `allOf`, `anyOf` or `oneOf`.
    pub fn schemas(self, name: &str) -> impl ExactSizeIterator<Item = Props<'a>> {
        self.list(name).iter().map(Props::of)
    }

    /// The schemas by name of `properties`, `definitions`, `patternProperties` or `dependencies`.
    pub fn named(self, name: &str) -> impl Iterator<Item = (&'a str, Props<'a>)> {
        let fields = self.get(name).and_then(Value::as_object);
        let fields = fields.into_iter().flat_map(|fields| fields.iter());
        fields.map(|(name, schema)| (name, Props::of(schema)))
    }

    pub fn has_named(self, name: &str) -> bool {
        self.named(name).next().is_some()
    }

    pub fn property(self, name: &str) -> Option<Props<'a>> {
        let properties = self.get("properties")?.as_object()?;
        properties.get(name).map(Props::of)
    }

    pub fn kind(self) -> &'a str {
        self.text("type")
    }

    pub fn nullable(self) -> bool {
        self.flag("nullable")
    }

    pub fn default(self) -> Option<&'a Value> {
        self.get("default")
    }

    pub fn negated(self) -> Option<Props<'a>> {
        self.get("not").map(Props::of)
    }

    pub fn items(self) -> Option<ItemProps<'a>> {
        Some(match self.get("items")? {
            Value::Array(schemas) => ItemProps::Several(schemas),
            schema => ItemProps::One(Props::of(schema)),
        })
    }

    /// The schema of a list's items, if it is a single one.
    pub fn item(self) -> Option<Props<'a>> {
        match self.items()? {
            ItemProps::One(schema) => Some(schema),
            ItemProps::Several(_) => None,
        }
    }

    pub fn additional(self) -> Option<AdditionalProps<'a>> {
        Some(match self.get("additionalProperties")? {
            Value::Bool(allowed) => AdditionalProps::Allowed(*allowed),
            schema => AdditionalProps::Schema(Props::of(schema)),
        })
    }

    pub fn additional_schema(self) -> Option<Props<'a>> {
        match self.additional()? {
            AdditionalProps::Schema(schema) => Some(schema),
            AdditionalProps::Allowed(_) => None,
        }
    }

    pub fn preserves_unknown_fields(self) -> bool {
        self.flag("x-kubernetes-preserve-unknown-fields")
    }

    pub fn is_embedded_resource(self) -> bool {
        self.flag("x-kubernetes-embedded-resource")
    }

    pub fn is_int_or_string(self) -> bool {
        self.flag("x-kubernetes-int-or-string")
    }

    pub fn list_type(self) -> Option<&'a str> {
        self.get("x-kubernetes-list-type").and_then(Value::as_str)
    }

    pub fn map_type(self) -> Option<&'a str> {
        self.get("x-kubernetes-map-type").and_then(Value::as_str)
    }

    pub fn list_map_keys(self) -> impl Iterator<Item = &'a str> {
        self.texts("x-kubernetes-list-map-keys")
    }

    pub fn rules(self) -> &'a [Value] {
        self.list("x-kubernetes-validations")
    }

    /// Visits this schema and all below it, however they are attached, until `found` says so.
    /// Documents are bounded in depth where they are read.
    pub fn any(self, found: &mut impl FnMut(Props<'a>) -> bool) -> bool {
        if found(self) {
            return true;
        }
        let inside_items = match self.items() {
            None => false,
            Some(ItemProps::One(schema)) => schema.any(found),
            Some(ItemProps::Several(schemas)) => {
                schemas.iter().any(|schema| Props::of(schema).any(found))
            }
        };
        inside_items
            || ["allOf", "anyOf", "oneOf"]
                .into_iter()
                .any(|name| self.schemas(name).any(|schema| schema.any(found)))
            || self.negated().is_some_and(|schema| schema.any(found))
            || self
                .named("properties")
                .any(|(_, schema)| schema.any(found))
            || self
                .additional_schema()
                .is_some_and(|schema| schema.any(found))
            || ["patternProperties", "definitions", "dependencies"]
                .into_iter()
                .any(|name| self.named(name).any(|(_, schema)| schema.any(found)))
            || self
                .get("additionalItems")
                .is_some_and(|schema| Props::of(schema).any(found))
    }
}

/// Whether Go would have nothing in the field: where it has a pointer there, zero and false are
/// something.
fn is_zero(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => {
            !flag
                && !matches!(
                    name,
                    "x-kubernetes-preserve-unknown-fields"
                        | "additionalProperties"
                        | "additionalItems"
                )
        }
        Value::String(text) => {
            text.is_empty() && !name.starts_with("x-kubernetes-") && name != "$ref"
        }
        Value::Array(items) => items.is_empty() && name != "items",
        Value::Object(fields) => {
            fields.is_empty() && matches!(name, "properties" | "patternProperties" | "definitions")
        }
        Value::Integer(_) | Value::Float(_) => false,
    }
}
