//! Types as OpenAPI schemas, with the `x-kubernetes-*` keys that clients merge and validate by.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::Version;
use crate::document::{Object, Value};
use crate::resource::{Name, Resource};
use crate::schema::{Definition, Field, Type, table};

pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
pub(super) const RESOURCE_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
pub(super) const VERSIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions";
pub(super) const GROUP: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup";
pub(super) const GROUP_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList";
pub(super) const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";
pub(super) const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Definitions that are not in the table of types, by name.
const SPECIAL: [&str; 12] = [
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    INFO,
    PATCH,
];

/// The name, if it is that of a definition of the built-in kinds.
pub(super) fn built_in_name(name: &str) -> Option<&'static str> {
    let special = SPECIAL.into_iter().find(|special| *special == name);
    special.or_else(|| Some(table().definition(name)?.name))
}

/// The definitions that `roots` need, by name.
pub(super) fn reachable(roots: &BTreeSet<Name>, served: &[&Resource], version: Version) -> Object {
    let mut names = BTreeSet::new();
    for name in roots {
        // Those of custom kinds are written by `custom`.
        if let Cow::Borrowed(name) = name {
            collect(name, &mut names);
        }
    }
    names
        .into_iter()
        .map(|name| {
            let schema = match table().definition(name) {
                Some(definition) => object_schema(definition, served, version),
                None => special_schema(name, version),
            };
            (name.to_string(), schema)
        })
        .collect()
}

/// A reference to a definition, as it stands alone.
pub(super) fn reference(name: &str, version: Version) -> Value {
    let place = match version {
        Version::V2 => "#/definitions/",
        Version::V3 => "#/components/schemas/",
    };
    crate::document!({"$ref": format!("{place}{name}")})
}

/// The name of the definition of a kind.
pub(super) fn definition_of(resource: &Resource) -> Name {
    match resource.is_custom() {
        true => model_name(resource, &resource.kind).into(),
        false => resource.definition.name().into(),
    }
}

/// The name of the definition of the list of a kind; "" if there is none.
pub(super) fn list_definition_of(resource: &Resource) -> Name {
    let kind = resource.list_kind();
    if resource.is_custom() {
        return model_name(resource, &kind).into();
    }
    let list = table().of_kind(&resource.group, &resource.version, &kind);
    list.map_or("", |definition| definition.name).into()
}

/// e.g. `com.example.stable.v1.CronTab`.
fn model_name(resource: &Resource, kind: &str) -> String {
    let words: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{kind}", words.join("."), resource.version)
}

fn collect(name: &'static str, names: &mut BTreeSet<&'static str>) {
    if !names.insert(name) {
        return;
    }
    let Some(definition) = table().definition(name) else {
        return;
    };
    for property in &definition.properties {
        let mut kind = &table().field(property).kind;
        while let Some(item) = kind.item() {
            kind = item;
        }
        if let Some(name) = definition_name(kind) {
            collect(name, names);
        }
    }
}

/// What a type refers to, if it is not written in place.
fn definition_name(kind: &Type) -> Option<&'static str> {
    Some(match kind {
        Type::Object(index) => table().at(*index).name,
        Type::Time => "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        Type::MicroTime => "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        Type::Duration => "io.k8s.apimachinery.pkg.apis.meta.v1.Duration",
        Type::Fields => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        Type::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity",
        Type::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        Type::Raw => "io.k8s.apimachinery.pkg.runtime.RawExtension",
        Type::Json => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        Type::SchemaOrArray => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray"
        }
        Type::SchemaOrBool => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool"
        }
        Type::SchemaOrStrings => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray"
        }
        _ => return None,
    })
}

/// The types that the table knows only by a letter.
fn special_schema(name: &str, version: Version) -> Value {
    match (name.rsplit('.').next().unwrap_or_default(), version) {
        ("Time" | "MicroTime", _) => crate::document!({"type": "string", "format": "date-time"}),
        ("Duration", _) => crate::document!({"type": "string"}),
        ("Quantity", Version::V2) => crate::document!({"type": "string"}),
        ("Quantity", Version::V3) => {
            crate::document!({"oneOf": [{"type": "string"}, {"type": "number"}]})
        }
        ("IntOrString", Version::V2) => {
            crate::document!({"type": "string", "format": "int-or-string"})
        }
        ("IntOrString", Version::V3) => crate::document!({
            "format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}],
        }),
        ("Info", _) => version_info(version),
        ("FieldsV1" | "RawExtension" | "Patch", _) => crate::document!({"type": "object"}),
        _ => Value::object(),
    }
}

/// What `/version` answers.
fn version_info(version: Version) -> Value {
    const ALWAYS: [&str; 9] = [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ];
    const SOMETIMES: [&str; 4] = [
        "emulationMajor",
        "emulationMinor",
        "minCompatibilityMajor",
        "minCompatibilityMinor",
    ];
    let mut schema = crate::document!({"type": "object"});
    schema.set(&["required"], texts(&ALWAYS));
    for name in ALWAYS.iter().chain(&SOMETIMES) {
        schema.set(&["properties", name, "type"], "string");
        if version == Version::V3 && ALWAYS.contains(name) {
            schema.set(&["properties", name, "default"], "");
        }
    }
    schema
}

fn object_schema(definition: &Definition, served: &[&Resource], version: Version) -> Value {
    let mut schema = crate::document!({"type": "object"});
    let mut properties = Object::default();
    for property in &definition.properties {
        let field = table().field(property);
        properties.insert(field.name, field_schema(field, version));
    }
    let mut required = Vec::new();
    collect_required(definition, &mut required);
    if !properties.is_empty() {
        schema.set(&["properties"], properties);
    }
    if !required.is_empty() {
        schema.set(&["required"], required);
    }
    if !definition.map_type.is_empty() {
        schema.set(&["x-kubernetes-map-type"], definition.map_type);
    }
    if let Ok(unions) = Value::from_json(definition.unions.as_bytes()) {
        schema.set(&["x-kubernetes-unions"], unions);
    }
    let kinds = kinds_of(definition, served);
    if !kinds.is_empty() {
        schema.set(&["x-kubernetes-group-version-kind"], kinds);
    }
    schema
}

/// In declaration order, which properties are not in.
fn collect_required(definition: &Definition, names: &mut Vec<Value>) {
    for field in &definition.fields {
        match field.kind.definition() {
            Some(inlined) if field.inline => collect_required(inlined, names),
            _ if field.required => names.push(field.name.into()),
            _ => {}
        }
    }
}

/// Two meta kinds are registered in every group version.
fn kinds_of(definition: &Definition, served: &[&Resource]) -> Vec<Value> {
    let everywhere = matches!(definition.name, DELETE_OPTIONS | WATCH_EVENT);
    let mut kinds: Vec<_> = definition
        .kinds
        .iter()
        .map(|known| (known.group, known.version, known.kind))
        .collect();
    if let ([(_, _, kind)], true) = (kinds.as_slice(), everywhere) {
        let kind = *kind;
        let served = served.iter();
        kinds.extend(served.map(|resource| (&*resource.group, &*resource.version, kind)));
        kinds.sort_unstable();
        kinds.dedup();
    }
    kinds
        .into_iter()
        .map(|(group, version, kind)| {
            crate::document!({"group": group, "version": version, "kind": kind})
        })
        .collect()
}

fn field_schema(field: &Field, version: Version) -> Value {
    let default = match version {
        Version::V2 => None,
        Version::V3 => default_of(field),
    };
    let mut schema = type_schema(&field.kind, version, default, field);
    if !field.values.is_empty() {
        schema.set(&["enum"], texts(&field.values));
    }
    if !field.format.is_empty() {
        schema.set(&["format"], field.format);
    }
    for (key, text) in [
        ("x-kubernetes-list-type", field.list_type),
        ("x-kubernetes-map-type", field.map_type),
        ("x-kubernetes-patch-strategy", field.patch_strategy),
        ("x-kubernetes-patch-merge-key", field.patch_merge_key),
    ] {
        if !text.is_empty() {
            schema.set(&[key], text);
        }
    }
    if !field.list_map_keys.is_empty() {
        schema.set(&["x-kubernetes-list-map-keys"], texts(&field.list_map_keys));
    }
    schema
}

fn type_schema(kind: &Type, version: Version, default: Option<Value>, field: &Field) -> Value {
    let plain = |name: &str| crate::document!({"type": name});
    let mut schema = match kind {
        Type::String => plain("string"),
        Type::Bytes => crate::document!({"type": "string", "format": "byte"}),
        Type::Bool => plain("boolean"),
        Type::Int32 => crate::document!({"type": "integer", "format": "int32"}),
        Type::Int64 => crate::document!({"type": "integer", "format": "int64"}),
        Type::Float => crate::document!({"type": "number", "format": "double"}),
        Type::Any => Value::object(),
        Type::List { item, .. } => {
            let mut schema = plain("array");
            schema.set(&["items"], item_schema(item, version, field));
            schema
        }
        Type::Map(item) => {
            let mut schema = plain("object");
            schema.set(&["additionalProperties"], item_schema(item, version, field));
            schema
        }
        other => {
            let name = definition_name(other).unwrap_or_default();
            match &default {
                // Nothing else may be next to a reference.
                Some(_) => {
                    let mut schema = Value::object();
                    schema.set(&["allOf"], vec![reference(name, version)]);
                    schema
                }
                None => reference(name, version),
            }
        }
    };
    if let Some(default) = default {
        schema.set(&["default"], default);
    }
    schema
}

fn item_schema(item: &Type, version: Version, field: &Field) -> Value {
    let default = match version {
        Version::V2 => None,
        Version::V3 => zero(item),
    };
    let mut schema = type_schema(item, version, default, field);
    if !field.item_values.is_empty() {
        schema.set(&["enum"], texts(&field.item_values));
    }
    if !field.item_format.is_empty() {
        schema.set(&["format"], field.item_format);
    }
    schema
}

/// The declared default, or the zero value of a field that is always written.
fn default_of(field: &Field) -> Option<Value> {
    if !field.default.is_empty() {
        return Value::from_json(field.default.as_bytes()).ok();
    }
    match field.kind {
        _ if field.pointer => None,
        Type::Object(_) => zero(&field.kind),
        _ if field.omits_zero() => None,
        _ => zero(&field.kind),
    }
}

fn zero(kind: &Type) -> Option<Value> {
    match kind {
        Type::String => Some("".into()),
        Type::Bool => Some(false.into()),
        Type::Int32 | Type::Int64 | Type::Float => Some(0.into()),
        Type::Object(_) => Some(Value::object()),
        _ => None,
    }
}

fn texts(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| Value::from(*name)).collect()
}
