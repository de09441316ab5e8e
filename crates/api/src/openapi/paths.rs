//! The operations of the served kinds, written in either notation of OpenAPI.

use std::collections::BTreeSet;

use super::Version;
use super::definitions::{GROUP, GROUP_LIST, INFO, RESOURCE_LIST, VERSIONS, reference};
use super::operations::{Operation, Parameter, Path, group_version_word, paths_of, tag};
use crate::document::{Object, Value};
use crate::resource::{Name, Resource, api_version};

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

/// Custom kinds have no protobuf, and no lists that a strategic merge could know.
const TEXTS: &[&str] = &["application/json", "application/yaml"];
const CUSTOM_PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// What the paths refer to, without the paths themselves.
#[derive(Default)]
pub(super) struct Written {
    pub paths: Object,
    pub definitions: BTreeSet<Name>,
}

/// All paths of the served kinds, and the resource list of each group version, which upstream does
/// not describe where all kinds are custom ones.
pub(super) fn paths(served: &[&Resource], version: Version) -> Written {
    let mut written = Written::default();
    for resource in served {
        if !resource.is_custom() {
            let list = group_version(&resource.group, &resource.version, version);
            written.definitions.extend(list.definitions);
            for (path, item) in list.paths {
                written.paths.insert(path, item);
            }
        }
        written.add_kind(resource, version);
    }
    written.definitions.remove("");
    written
}

/// The paths of one kind alone.
pub(super) fn of_kind(resource: &Resource, version: Version) -> Written {
    let mut written = Written::default();
    written.add_kind(resource, version);
    written
}

/// The path that a group version lists its kinds at.
fn group_version(group: &str, name: &str, version: Version) -> Written {
    let mut written = Written::default();
    let path = match group {
        "" => format!("/api/{name}/"),
        group => format!("/apis/{}/", api_version(group, name)),
    };
    let id = format!("get{}APIResources", group_version_word(group, name));
    let documents = (PRODUCED, PRODUCED);
    let tag = tag(group, name);
    written.add(&path, &id, &tag, documents, RESOURCE_LIST, version);
    written
}

/// The paths that are about no kind: versions, groups, keys.
pub(super) fn general(path: &str, version: Version) -> Option<Written> {
    let mut written = Written::default();
    let at = format!("/{path}/");
    let documents = (PRODUCED, PRODUCED);
    match path {
        "api" => written.add(
            &at,
            "getCoreAPIVersions",
            "core",
            documents,
            VERSIONS,
            version,
        ),
        "apis" => written.add(
            &at,
            "getAPIVersions",
            "apis",
            documents,
            GROUP_LIST,
            version,
        ),
        "version" => {
            let json: &[&str] = &["application/json"];
            written.add(
                &at,
                "getCodeVersion",
                "version",
                (json, json),
                INFO,
                version,
            );
        }
        ".well-known/openid-configuration" => {
            let id = "getServiceAccountIssuerOpenIDConfiguration";
            written.add(
                &at,
                id,
                "WellKnown",
                (&[], &["application/json"]),
                "",
                version,
            );
        }
        "openid/v1/jwks" => {
            let id = "getServiceAccountIssuerOpenIDKeyset";
            let produced = &["application/jwk-set+json"];
            written.add(&at, id, "openid", (&[], produced), "", version);
        }
        _ => return None,
    }
    Some(written)
}

/// The path that a group is described at.
pub(super) fn group(name: &str, version: Version) -> Written {
    let mut written = Written::default();
    let word = group_version_word(name, "");
    let id = format!("get{word}APIGroup");
    let tag = format!("{}{}", word[..1].to_lowercase(), &word[1..]);
    let at = format!("/apis/{name}/");
    written.add(&at, &id, &tag, (PRODUCED, PRODUCED), GROUP, version);
    written
}

impl Written {
    fn add_kind(&mut self, resource: &Resource, version: Version) {
        let tag = tag(&resource.group, &resource.version);
        for path in paths_of(resource) {
            for operation in &path.operations {
                self.definitions.insert(operation.response.clone());
                let body = operation.body.as_ref();
                let body = body.map(|body| body.definition.clone());
                self.definitions.extend(body);
            }
            let item = path_item(&path, version, &tag, resource.is_custom());
            self.paths.insert(path.path, item);
        }
    }

    /// A document to be read at a path, whose definition may be "" for text.
    fn add(
        &mut self,
        path: &str,
        id: &str,
        tag: &str,
        (consumed, produced): (&[&str], &[&str]),
        definition: &'static str,
        version: Version,
    ) {
        let mut get = crate::document!({"operationId": id, "tags": [tag]});
        get.set(
            &["responses"],
            responses(definition, &[("200", "OK")], produced, version),
        );
        if version == Version::V2 {
            media_types(&mut get, consumed, produced);
        }
        let mut item = Value::object();
        item.set(&["get"], get);
        self.paths.insert(path, item);
        if !definition.is_empty() {
            self.definitions.insert(definition.into());
        }
    }
}

/// Parameters that all operations of a path share are the path's.
fn path_item(path: &Path<'_>, version: Version, tag: &str, is_custom: bool) -> Value {
    let shared: Vec<Parameter> = match path.operations.split_first() {
        Some((first, others)) => {
            let everywhere = |one: &&Parameter| {
                let mut others = others.iter();
                others.all(|operation| operation.parameters.contains(one))
            };
            first
                .parameters
                .iter()
                .filter(everywhere)
                .copied()
                .collect()
        }
        None => Vec::new(),
    };
    let mut item = Value::object();
    for operation in &path.operations {
        let written = write(operation, &shared, version, tag, is_custom);
        item.set(&[operation.method], written);
    }
    let mut parameters: Vec<(&str, &str, &str)> = shared
        .into_iter()
        .map(|(name, kind)| (name, "query", kind))
        .collect();
    let variables = path.variables.iter();
    parameters.extend(variables.map(|name| (*name, "path", "string")));
    parameters.sort_unstable();
    let parameters: Vec<Value> = parameters
        .into_iter()
        .map(|(name, place, kind)| parameter(name, place, kind, version))
        .collect();
    if !parameters.is_empty() {
        item.set(&["parameters"], parameters);
    }
    item
}

fn write(
    operation: &Operation<'_>,
    shared: &[Parameter],
    version: Version,
    tag: &str,
    is_custom: bool,
) -> Value {
    let mut written = crate::document!({
        "operationId": operation.id,
        "tags": [tag],
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": operation.group, "version": operation.version, "kind": operation.kind,
        },
    });
    let consumed = match (operation.action, is_custom) {
        ("patch", true) => CUSTOM_PATCHES,
        ("patch", false) => PATCHES,
        (_, true) => TEXTS,
        (_, false) => &["*/*"],
    };
    let produced = match operation.action {
        _ if is_custom => TEXTS.to_vec(),
        "connect" => vec!["*/*"],
        "list" | "watch" | "watchlist" => [PRODUCED, STREAMED].concat(),
        _ if operation.response.is_empty() => [&["text/plain"], PRODUCED].concat(),
        _ => PRODUCED.to_vec(),
    };
    let mut parameters: Vec<Value> = operation
        .parameters
        .iter()
        .filter(|one| !shared.contains(one))
        .map(|(name, kind)| parameter(name, "query", kind, version))
        .collect();
    if let Some(body) = &operation.body {
        let schema = reference(&body.definition, version);
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
        responses(&operation.response, operation.codes, &produced, version),
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
    if !consumed.is_empty() {
        operation.set(&["consumes"], texts(consumed));
    }
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
