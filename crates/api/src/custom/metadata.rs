//! The metadata of resources that stand inside an object (`x-kubernetes-embedded-resource`): brought
//! into the shape that metadata has, and checked.

use super::node::{Additional, Node};
use crate::document::{Object, Value};
use crate::field::{FieldError, Path};
use crate::metadata::{self, NameRule, Rules, names};
use crate::schema;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// What becomes of metadata of a wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    Refused,
    /// As for objects that were stored before anybody looked at it.
    Dropped,
}

/// Metadata that cannot be read, in the words of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MetadataError(pub String);

/// Brings `metadata` of a resource into shape; the paths of its unknown fields, below `metadata`.
/// Nothing happens to a resource without it.
pub fn conform(resource: &mut Object, malformed: Malformed) -> Result<Vec<String>, MetadataError> {
    let Some(given) = resource.get_mut("metadata") else {
        return Ok(Vec::new());
    };
    let (mut value, unknown) = read(given, malformed)?;
    if value.get("creationTimestamp").is_some_and(Value::is_null) {
        value.remove(&["creationTimestamp"]);
    }
    // Upstream reads and writes metadata, and does not write what is empty.
    for name in ["labels", "annotations"] {
        let found = value.get(name).and_then(Value::as_object);
        if found.is_some_and(|found| found.is_empty()) {
            value.remove(&[name]);
        }
    }
    *given = value;
    Ok(unknown)
}

fn read(given: &Value, malformed: Malformed) -> Result<(Value, Vec<String>), MetadataError> {
    let Some(definition) = schema::table().definition(OBJECT_META) else {
        return Ok((given.clone(), Vec::new()));
    };
    if given.is_null() {
        return Ok((Value::object(), Vec::new()));
    }
    let error = match schema::conform(definition, given.clone()) {
        Ok((value, problems)) => {
            let unknown = problems.into_iter().map(|problem| problem.path).collect();
            return Ok((value, unknown));
        }
        Err(error) => MetadataError(error.to_string()),
    };
    let Value::Object(fields) = given else {
        return Err(match malformed {
            Malformed::Refused => error,
            Malformed::Dropped => {
                let kind = match given {
                    Value::Bool(_) => "bool",
                    Value::Integer(_) => "int64",
                    Value::Float(_) => "float64",
                    Value::Array(_) => "[]interface {}",
                    _ => "string",
                };
                MetadataError(format!("invalid metadata: expected object, got {kind}"))
            }
        });
    };
    if malformed == Malformed::Refused {
        return Err(error);
    }
    // What can be read by itself is kept.
    let mut kept = Object::default();
    let mut unknown = Vec::new();
    for (name, value) in fields.iter() {
        let alone = Object::from_fields(vec![(name.to_string(), value.clone())]);
        if let Ok((Value::Object(read), problems)) =
            schema::conform(definition, Value::Object(alone))
        {
            unknown.extend(problems.into_iter().map(|problem| problem.path));
            for (name, value) in read {
                kept.insert(name, value);
            }
        }
    }
    Ok((Value::Object(kept), unknown))
}

/// Brings the metadata of `value`, a whole resource of which nothing else is known, into shape.
pub(super) fn coerce_resource(
    value: &mut Value,
    malformed: Malformed,
) -> Result<Vec<String>, FieldError> {
    let resource = Node {
        flags: super::node::Flags {
            embedded_resource: true,
            ..Default::default()
        },
        ..Default::default()
    };
    coerce(value, &resource, true, malformed)
}

/// Brings the metadata of all resources in a value into shape; the paths of unknown fields.
pub(super) fn coerce(
    value: &mut Value,
    node: &Node,
    is_resource: bool,
    malformed: Malformed,
) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    coerce_at(
        value,
        node,
        is_resource,
        malformed,
        &Path::new(""),
        &mut unknown,
    )?;
    unknown.sort();
    Ok(unknown)
}

fn coerce_at(
    value: &mut Value,
    node: &Node,
    is_resource: bool,
    malformed: Malformed,
    path: &Path,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    match value {
        Value::Object(fields) => {
            if is_resource {
                coerce_meta(fields, malformed, path, unknown)?;
            }
            for (name, value) in fields.iter_mut() {
                let (below, path) = match (node.property(name), node.additional()) {
                    (Some(below), _) => (below, path.child(name)),
                    (None, Additional::Schema(below)) => (below, path.key(name)),
                    (None, _) => continue,
                };
                let is_resource = below.is_embedded_resource();
                coerce_at(value, below, is_resource, malformed, &path, unknown)?;
            }
        }
        Value::Array(items) => {
            let Some(below) = node.items() else {
                return Ok(());
            };
            for (index, item) in items.iter_mut().enumerate() {
                let is_resource = below.is_embedded_resource();
                coerce_at(
                    item,
                    below,
                    is_resource,
                    malformed,
                    &path.index(index),
                    unknown,
                )?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_meta(
    fields: &mut Object,
    malformed: Malformed,
    path: &Path,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    for name in ["apiVersion", "kind"] {
        match fields.get(name) {
            None | Some(Value::String(_)) => {}
            Some(_) if malformed == Malformed::Dropped => drop(fields.remove(name)),
            Some(other) => {
                let value = other.clone();
                return Err(FieldError::invalid(
                    &path.child(name),
                    value,
                    "must be a string",
                ));
            }
        }
    }
    let path = path.child("metadata");
    match conform(fields, malformed) {
        Ok(found) => unknown.extend(found.iter().map(|name| path.child(name).to_string())),
        Err(_) if malformed == Malformed::Dropped => {}
        Err(error) => {
            let value = fields.get("metadata").cloned().unwrap_or_default();
            return Err(FieldError::invalid(&path, value, error.to_string()));
        }
    }
    Ok(())
}

/// Checks the type and metadata of a whole resource of which nothing else is known.
pub(super) fn validate_resource_alone(value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Value::Object(fields) = value {
        validate_resource(fields, &Path::new(""), &mut errors);
    }
    errors
}

/// Checks the type and metadata of all resources in a value.
pub(super) fn validate(
    value: &Value,
    node: &Node,
    is_resource: bool,
    path: &Path,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_at(value, node, is_resource, path, &mut errors);
    errors
}

fn validate_at(
    value: &Value,
    node: &Node,
    is_resource: bool,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    match value {
        Value::Object(fields) => {
            if is_resource {
                validate_resource(fields, path, errors);
            }
            for (name, value) in fields.iter() {
                let (below, path) = match (node.property(name), node.additional()) {
                    (Some(below), _) => (below, path.child(name)),
                    (None, Additional::Schema(below)) => (below, path.key(name)),
                    (None, _) => continue,
                };
                validate_at(value, below, below.is_embedded_resource(), &path, errors);
            }
        }
        Value::Array(items) => {
            let Some(below) = node.items() else { return };
            for (index, item) in items.iter().enumerate() {
                let is_resource = below.is_embedded_resource();
                validate_at(item, below, is_resource, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn validate_resource(fields: &Object, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        match fields.get(name) {
            None => errors.push(FieldError::required(&path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(&path, "", "must not be empty"));
            }
            Some(Value::String(text)) => errors.extend(type_error(name, text, &path)),
            Some(other) => {
                let value = other.clone();
                errors.push(FieldError::invalid(&path, value, "must be a string"));
            }
        }
    }
    if !fields.contains("metadata") {
        return;
    }
    let mut resource = Object::default();
    resource.insert(
        "metadata",
        fields.get("metadata").cloned().unwrap_or_default(),
    );
    if let Err(error) = conform(&mut resource, Malformed::Refused) {
        let value = fields.get("metadata").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(
            &path.child("metadata"),
            value,
            error.to_string(),
        ));
        return;
    }
    let mut resource = Value::Object(resource);
    // A name is not required here.
    resource.set_default(&["metadata", "name"], "fakename");
    let namespaced = !resource.str_at(&["metadata", "namespace"]).is_empty();
    let rules = Rules::new(namespaced, NameRule::PathSegment);
    for mut error in metadata::validate(&resource, rules) {
        error.path = path.child(&error.path).to_string();
        errors.push(error);
    }
}

fn type_error(name: &str, text: &str, path: &Path) -> Option<FieldError> {
    if name == "apiVersion" {
        return (text.matches('/').count() > 1).then(|| {
            let detail = format!("unexpected GroupVersion string: {text}");
            FieldError::invalid(path, text, detail)
        });
    }
    let wrong = names::dns_1035_label(&text.to_lowercase());
    (!wrong.is_empty()).then(|| {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            wrong.join(",")
        );
        FieldError::invalid(path, text, detail)
    })
}
