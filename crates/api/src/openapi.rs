//! The OpenAPI documents of the served kinds: v3 for each group version, and v2 as JSON and as the
//! protobuf form that older kubectl asks for. Made from the type table and the catalogue on first
//! request and kept. They carry no descriptions.

mod definitions;
mod gnostic;
mod operations;
mod paths;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::catalogue::{Resource, api_version, resources};
use crate::document::{Object, Value};

/// The protobuf media type of `/openapi/v2`, as the answer's `Content-Type` has it.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The same in the `Accept` header of every released kubectl. It must not be sent back: its `@` makes
/// it unreadable for Go's media type parser.
pub const V2_PROTOBUF_ACCEPTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// A document as it is sent.
#[derive(Clone, Debug)]
pub struct Document {
    pub body: Bytes,
    /// Upper-case hexadecimal, without quotes; also the `hash` in the index.
    pub etag: String,
}

/// Which of the two notations a document is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V2,
    V3,
}

/// The document at `/openapi/v3/<path>`, e.g. `apis/apps/v1` or `api/v1`.
pub fn v3(path: &str) -> Option<&'static Document> {
    v3_documents().get(path)
}

/// The document at `/openapi/v3`: where the others are.
pub fn v3_index() -> &'static Document {
    static INDEX: OnceLock<Document> = OnceLock::new();
    INDEX.get_or_init(|| {
        let paths: Object = v3_documents()
            .iter()
            .map(|(path, document)| {
                let url = format!("/openapi/v3/{path}?hash={}", document.etag);
                (path.clone(), crate::document!({"serverRelativeURL": url}))
            })
            .collect();
        let mut index = Value::object();
        index.set(&["paths"], paths);
        Document::new(index.to_json())
    })
}

/// The document at `/openapi/v2` as JSON.
pub fn v2_json() -> &'static Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| Document::new(v2_document().to_json()))
}

/// The document at `/openapi/v2` as protobuf.
pub fn v2_protobuf() -> &'static Document {
    static DOCUMENT: OnceLock<Document> = OnceLock::new();
    DOCUMENT.get_or_init(|| Document::new(gnostic::encode(&v2_document())))
}

impl Document {
    pub fn new(body: Vec<u8>) -> Document {
        let etag = Sha256::digest(&body)
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        Document {
            body: body.into(),
            etag,
        }
    }
}

/// The paths of documents that are about no group version.
const GENERAL: [&str; 5] = [
    ".well-known/openid-configuration",
    "api",
    "apis",
    "openid/v1/jwks",
    "version",
];

/// One document per group version and general path, made together: the index needs the hash of
/// each.
fn v3_documents() -> &'static BTreeMap<String, Document> {
    static DOCUMENTS: OnceLock<BTreeMap<String, Document>> = OnceLock::new();
    DOCUMENTS.get_or_init(|| {
        let versions = group_versions().into_iter().map(|(group, version)| {
            let path = match group {
                "" => format!("api/{version}"),
                _ => format!("apis/{}", api_version(group, version)),
            };
            (path, Document::new(v3_document(group, version).to_json()))
        });
        let groups = groups();
        let of_groups = groups.iter().map(|group| format!("apis/{group}"));
        let general = GENERAL.into_iter().map(str::to_string).chain(of_groups);
        let general = general.filter_map(|path| {
            let written = paths::general(&path, &groups, Version::V3)?;
            let document = v3_written(written, &[]);
            Some((path, Document::new(document.to_json())))
        });
        versions.chain(general).collect()
    })
}

/// The named groups, by name.
fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = group_versions()
        .into_iter()
        .map(|(group, _)| group)
        .collect();
    groups.retain(|group| !group.is_empty());
    groups.dedup();
    groups
}

fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut versions: Vec<_> = resources()
        .iter()
        .map(|resource| (resource.group, resource.version))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

fn v3_document(group: &str, version: &str) -> Value {
    let served: Vec<&Resource> = resources()
        .iter()
        .filter(|resource| resource.group == group && resource.version == version)
        .collect();
    v3_written(paths::paths(&served, Version::V3), &served)
}

fn v3_written(written: paths::Written, served: &[&Resource]) -> Value {
    let mut document = crate::document!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": short_version()},
        "components": {"securitySchemes": {"BearerToken": {
            "type": "apiKey", "name": "authorization", "in": "header",
            "description": "Bearer Token authentication",
        }}},
    });
    let schemas = definitions::reachable(&written.definitions, served, Version::V3);
    if !schemas.is_empty() {
        document.set(&["components", "schemas"], schemas);
    }
    document.set(&["paths"], written.paths);
    document
}

/// e.g. `1.36`.
fn short_version() -> &'static str {
    let version = crate::schema::table().version.trim_start_matches('v');
    version.rsplit_once('.').map_or(version, |(short, _)| short)
}

fn v2_document() -> Value {
    let served: Vec<&Resource> = resources().iter().collect();
    let mut written = paths::paths(&served, Version::V2);
    let groups = groups();
    let of_groups = groups.iter().map(|group| format!("apis/{group}"));
    for path in GENERAL.into_iter().map(str::to_string).chain(of_groups) {
        let Some(general) = paths::general(&path, &groups, Version::V2) else {
            continue;
        };
        written.definitions.extend(general.definitions);
        for (path, item) in general.paths {
            written.paths.insert(path, item);
        }
    }
    let mut document = crate::document!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": short_version()},
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "name": "authorization", "in": "header",
            "description": "Bearer Token authentication",
        }},
        "security": [{"BearerToken": []}],
    });
    document.set(
        &["definitions"],
        definitions::reachable(&written.definitions, &served, Version::V2),
    );
    document.set(&["paths"], written.paths);
    document
}

#[cfg(test)]
mod tests;
