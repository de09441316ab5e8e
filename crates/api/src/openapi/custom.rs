//! The definitions of a custom kind and of its list, made of the schema that its definition declares,
//! descriptions included. Older clients know fewer words: the second notation leaves out what they
//! would refuse or misunderstand.

use super::Version;
use super::definitions::{definition_of, list_definition_of, reference};
use crate::document::{Object, Value};
use crate::resource::Resource;

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
const PRESERVES: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// What a definition declares about one version of its kind.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// `schema.openAPIV3Schema`.
    pub schema: Option<Value>,
    /// The paths of the selectable fields, without the first dot.
    pub selectable_fields: Vec<String>,
}

/// Where the declared schemas of custom kinds are found: they are not kept in memory a second time.
pub trait Declarations {
    fn of(&self, resource: &Resource) -> Option<Declared>;
}

/// No custom kinds.
impl Declarations for () {
    fn of(&self, _resource: &Resource) -> Option<Declared> {
        None
    }
}

/// The definitions of the kind and of its list, by name.
pub(super) fn definitions(resource: &Resource, declared: &Declared, version: Version) -> Object {
    let fields = declared.selectable_fields.iter();
    let fields: Vec<Value> = fields
        .map(|field| crate::document!({"fieldPath": field.as_str()}))
        .collect();
    let tag = |schema: &mut Value, kind: &str| {
        let kinds = crate::document!([{
            "group": &*resource.group, "version": &*resource.version, "kind": kind,
        }]);
        schema.set(&[GROUP_VERSION_KIND], kinds);
        if !fields.is_empty() {
            schema.set(&["x-kubernetes-selectable-fields"], fields.clone());
        }
    };
    let mut kind = kind_schema(resource, declared, version);
    tag(&mut kind, &resource.kind);
    let mut list = list_schema(resource, version);
    tag(&mut list, &resource.list_kind());
    let named = [
        (definition_of(resource).into_owned(), kind),
        (list_definition_of(resource).into_owned(), list),
    ];
    named.into_iter().collect()
}

fn kind_schema(resource: &Resource, declared: &Declared, version: Version) -> Value {
    let custom = resource.definition.custom();
    let preserves = custom.is_some_and(|custom| custom.kind.preserves_unknown_fields);
    let unknown = || crate::document!({"type": "object"});
    let Some(declared) = &declared.schema else {
        return unknown();
    };
    if version == Version::V2 && (preserves || is_true(declared, PRESERVES)) {
        return unknown();
    }
    let mut schema = shown(declared, version);
    schema.set(&["properties", "metadata"], metadata(OBJECT_META, version));
    type_meta(&mut schema, version);
    schema
}

fn list_schema(resource: &Resource, version: Version) -> Value {
    let kind = &resource.kind;
    let mut schema = crate::document!({
        "type": "object",
        "description": format!("{} is a list of {kind}", resource.list_kind()),
        "required": ["items"],
    });
    let mut items = crate::document!({
        "type": "array",
        "description": format!("List of {}.", resource.plural),
    });
    items.set(&["items"], reference(&definition_of(resource), version));
    schema.set(&["properties", "items"], items);
    schema.set(&["properties", "metadata"], metadata(LIST_META, version));
    type_meta(&mut schema, version);
    schema
}

/// Nothing else may be next to a reference in the third notation.
fn metadata(name: &str, version: Version) -> Value {
    const DESCRIPTION: &str = "Standard object's metadata.";
    let reference = reference(name, version);
    let mut schema = match version {
        Version::V2 => reference,
        Version::V3 => {
            let mut schema = Value::object();
            schema.set(&["allOf"], vec![reference]);
            schema
        }
    };
    schema.set(&["description"], DESCRIPTION);
    schema
}

fn type_meta(schema: &mut Value, _version: Version) {
    for (field, description) in [
        (
            "apiVersion",
            "APIVersion defines the version of the schema in which this object is written.",
        ),
        (
            "kind",
            "Kind is the type of this object, in CamelCase. It cannot be updated.",
        ),
    ] {
        let described = crate::document!({"type": "string", "description": description});
        schema.set(&["properties", field], described);
    }
}

fn is_true(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

/// A declared schema as it is published. Declared schemas are bounded in depth where they are decoded.
fn shown(declared: &Value, version: Version) -> Value {
    let Value::Object(declared) = declared else {
        return Value::object();
    };
    let mut schema = Object::default();
    for (key, value) in declared.iter() {
        let value = match key {
            "properties" => fields(value, version),
            "items" | "additionalProperties" => match value {
                Value::Object(_) => shown(value, version),
                other => other.clone(),
            },
            // Written only where they say something.
            "nullable" | "exclusiveMaximum" | "exclusiveMinimum" | "uniqueItems" | PRESERVES
            | EMBEDDED | INT_OR_STRING
                if *value != Value::Bool(true) =>
            {
                continue;
            }
            _ => value.clone(),
        };
        schema.insert(key, value);
    }
    let mut schema = Value::Object(schema);
    match version {
        Version::V2 => simplify(&mut schema, declared),
        Version::V3 => unfold(&mut schema),
    }
    let hides = version == Version::V2 && is_true(&schema, PRESERVES);
    if is_true(&schema, EMBEDDED) && !hides {
        embed(&mut schema, version);
    }
    schema
}

fn fields(properties: &Value, version: Version) -> Value {
    let Value::Object(properties) = properties else {
        return Value::object();
    };
    let fields = properties.iter();
    let fields: Object = fields
        .map(|(name, schema)| (name.to_string(), shown(schema, version)))
        .collect();
    Value::Object(fields)
}

/// A number or a text, said in words that all clients know.
fn unfold(schema: &mut Value) {
    if !is_true(schema, INT_OR_STRING) {
        return;
    }
    let either = crate::document!([{"type": "integer"}, {"type": "string"}]);
    let first = schema.list_at(&["allOf"]).first();
    let is_said = schema.get("anyOf") == Some(&either)
        || first.is_some_and(|first| first.get("anyOf") == Some(&either));
    if is_said {
        return;
    }
    if schema.get("anyOf").is_none() {
        return schema.set(&["anyOf"], either);
    }
    let mut all = schema.list_at(&["allOf"]).to_vec();
    let mut wrapped = Value::object();
    wrapped.set(&["anyOf"], either);
    all.insert(0, wrapped);
    schema.set(&["allOf"], all);
}

/// The second notation has no alternatives and no null. Where those were, nothing is said rather than
/// something wrong.
fn simplify(schema: &mut Value, declared: &Object) {
    for key in ["allOf", "anyOf", "oneOf", "not"] {
        schema.remove(&[key]);
    }
    let preserves = is_true(schema, PRESERVES);
    if is_true(schema, "nullable") {
        for key in ["type", "nullable", "items", "properties"] {
            schema.remove(&[key]);
        }
    }
    if preserves {
        schema.remove(&["items"]);
        schema.remove(&["properties"]);
    }
    let kind = schema.str_at(&["type"]);
    let is_open_array = kind == "array" && schema.get("items").is_none();
    if is_open_array || kind == "object" && preserves {
        schema.remove(&["type"]);
    }
    let is_nullable =
        |schema: Option<&Value>| schema.is_some_and(|schema| is_true(schema, "nullable"));
    if is_nullable(declared.get("additionalProperties")) {
        schema.remove(&["required"]);
    }
    let properties = declared.get("properties");
    let stays = |name: &Value| {
        let name = name.as_str().unwrap_or_default();
        schema.get("properties").is_none()
            || !is_nullable(properties.and_then(|properties| properties.get(name)))
    };
    let required = schema.list_at(&["required"]).iter();
    let required: Vec<Value> = required.filter(|name| stays(name)).cloned().collect();
    match required.is_empty() {
        true => drop(schema.remove(&["required"])),
        false => schema.set(&["required"], required),
    }
}

/// An embedded object has a kind and metadata of its own.
fn embed(schema: &mut Value, version: Version) {
    type_meta(schema, version);
    schema.set(&["properties", "metadata"], metadata(OBJECT_META, version));
    let mut required = schema.list_at(&["required"]).to_vec();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|known| known.as_str() == Some(name)) {
            required.push(name.into());
        }
    }
    schema.set(&["required"], required);
}
