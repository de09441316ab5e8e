//! The operations of the served kinds, written in either notation of OpenAPI.

use super::Version;
use super::definitions::{RESOURCE_LIST, reference};
use super::operations::{Operation, Path, group_version_word, paths_of, tag};
use crate::catalogue::{Resource, api_version};
use crate::document::{Object, Value};

const PRODUCED: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const STREAMED: &[&str] = &[
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// All paths of the served kinds, and the resource list of each group version.
pub(super) fn paths(served: &[&'static Resource], version: Version) -> Object {
    let mut paths = Object::default();
    for resource in served {
        let tag = tag(resource.group, resource.version);
        let (path, list) = resource_list(resource, version, &tag);
        paths.insert(path, list);
        for path in paths_of(resource) {
            let item = path_item(&path, version, &tag);
            paths.insert(path.path, item);
        }
    }
    paths
}

fn path_item(path: &Path, version: Version, tag: &str) -> Value {
    let mut item = Value::object();
    for operation in &path.operations {
        item.set(&[operation.method], write(operation, version, tag));
    }
    let mut parameters: Vec<Value> = path
        .variables
        .iter()
        .map(|name| parameter(name, "path", "string", version))
        .collect();
    parameters.push(parameter("pretty", "query", "string", version));
    item.set(&["parameters"], parameters);
    item
}

fn resource_list(resource: &Resource, version: Version, tag: &str) -> (String, Value) {
    let path = match resource.group {
        "" => format!("/api/{}/", resource.version),
        group => format!("/apis/{}/", api_version(group, resource.version)),
    };
    let id = format!(
        "get{}APIResources",
        group_version_word(resource.group, resource.version)
    );
    let mut get = crate::document!({"operationId": id, "tags": [tag]});
    get.set(
        &["responses"],
        responses(RESOURCE_LIST, &[("200", "OK")], PRODUCED, version),
    );
    if version == Version::V2 {
        media_types(&mut get, PRODUCED, PRODUCED);
    }
    let mut item = Value::object();
    item.set(&["get"], get);
    (path, item)
}

fn write(operation: &Operation, version: Version, tag: &str) -> Value {
    let mut written = crate::document!({
        "operationId": operation.id,
        "tags": [tag],
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": operation.group, "version": operation.version, "kind": operation.kind,
        },
    });
    let consumed = if operation.action == "patch" {
        PATCHES
    } else {
        &["*/*"]
    };
    let produced = match operation.action {
        "list" => [PRODUCED, STREAMED].concat(),
        _ if operation.response.is_empty() => [&["text/plain"], PRODUCED].concat(),
        _ => PRODUCED.to_vec(),
    };
    let mut parameters: Vec<Value> = operation
        .parameters
        .iter()
        .map(|(name, kind)| parameter(name, "query", kind, version))
        .collect();
    if let Some(body) = &operation.body {
        let schema = reference(body.definition, version);
        match version {
            Version::V2 => {
                let mut parameter = crate::document!({"in": "body", "name": "body"});
                parameter.set(&["schema"], schema);
                if body.required {
                    parameter.set(&["required"], true);
                }
                parameters.insert(0, parameter);
            }
            Version::V3 => {
                written.set(&["requestBody", "content"], content(&schema, consumed));
                if body.required {
                    written.set(&["requestBody", "required"], true);
                }
            }
        }
    }
    if !parameters.is_empty() {
        written.set(&["parameters"], parameters);
    }
    written.set(
        &["responses"],
        responses(operation.response, operation.codes, &produced, version),
    );
    if version == Version::V2 {
        media_types(&mut written, consumed, &produced);
    }
    written
}

fn media_types(operation: &mut Value, consumed: &[&str], produced: &[&str]) {
    let texts = |names: &[&str]| {
        names
            .iter()
            .map(|name| Value::from(*name))
            .collect::<Vec<_>>()
    };
    operation.set(&["consumes"], texts(consumed));
    operation.set(&["produces"], texts(produced));
    operation.set(&["schemes"], texts(&["https"]));
}

fn parameter(name: &str, place: &str, kind: &str, version: Version) -> Value {
    let mut parameter = crate::document!({"name": name, "in": place});
    match version {
        Version::V2 => {
            parameter.set(&["type"], kind);
            parameter.set(&["uniqueItems"], true);
        }
        Version::V3 => {
            parameter.set(&["schema", "type"], kind);
            parameter.set(&["schema", "uniqueItems"], true);
        }
    }
    if place == "path" {
        parameter.set(&["required"], true);
    }
    parameter
}

fn responses(
    definition: &str,
    codes: &[(&str, &str)],
    produced: &[&str],
    version: Version,
) -> Value {
    let schema = match definition {
        "" => crate::document!({"type": "string"}),
        name => reference(name, version),
    };
    let mut responses = crate::document!({"401": {"description": "Unauthorized"}});
    for (code, description) in codes {
        responses.set(&[code, "description"], *description);
        match version {
            Version::V2 => responses.set(&[code, "schema"], schema.clone()),
            Version::V3 => responses.set(&[code, "content"], content(&schema, produced)),
        }
    }
    responses
}

/// The same schema for every media type.
fn content(schema: &Value, media_types: &[&str]) -> Object {
    let mut wrapped = Value::object();
    wrapped.set(&["schema"], schema.clone());
    media_types
        .iter()
        .map(|media_type| (media_type.to_string(), wrapped.clone()))
        .collect()
}
