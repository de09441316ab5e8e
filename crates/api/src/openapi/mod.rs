//! The OpenAPI documents of the served kinds: v3 for each group version, and v2 as JSON and as the
//! protobuf form that older kubectl asks for. Made from the type table and a snapshot of the
//! catalogue on first request and kept with that snapshot. They carry no descriptions.

mod definitions;
mod gnostic;
mod operations;
mod paths;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::catalogue::Snapshot;
use crate::document::{Object, Value};
use crate::resource::{Resource, api_version};

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

/// The documents about the kinds of one snapshot, each made when it is first asked for.
pub struct Documents {
    kinds: Arc<Snapshot>,
    v3: OnceLock<BTreeMap<String, Document>>,
    v3_index: OnceLock<Document>,
    v2_json: OnceLock<Document>,
    v2_protobuf: OnceLock<Document>,
}

impl Documents {
    pub fn new(kinds: Arc<Snapshot>) -> Documents {
        Documents {
            kinds,
            v3: OnceLock::new(),
            v3_index: OnceLock::new(),
            v2_json: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
        }
    }

    /// Whether these documents are about the kinds of this snapshot.
    pub fn are_of(&self, kinds: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.kinds, kinds)
    }

    /// The document at `/openapi/v3/<path>`, e.g. `apis/apps/v1` or `api/v1`.
    pub fn v3(&self, path: &str) -> Option<&Document> {
        self.v3_documents().get(path)
    }

    /// The document at `/openapi/v3`, which lists the others.
    pub fn v3_index(&self) -> &Document {
        self.v3_index.get_or_init(|| {
            let paths: Object = self
                .v3_documents()
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
    pub fn v2_json(&self) -> &Document {
        self.v2_json
            .get_or_init(|| Document::new(v2_document(&self.kinds).to_json()))
    }

    /// The document at `/openapi/v2` as protobuf.
    pub fn v2_protobuf(&self) -> &Document {
        self.v2_protobuf
            .get_or_init(|| Document::new(gnostic::encode(&v2_document(&self.kinds))))
    }

    /// One document per group version and general path, made together: the index needs the hash of
    /// each.
    fn v3_documents(&self) -> &BTreeMap<String, Document> {
        self.v3.get_or_init(|| {
            let kinds = &*self.kinds;
            let versions = group_versions(kinds).into_iter().map(|(group, version)| {
                let path = match group {
                    "" => format!("api/{version}"),
                    _ => format!("apis/{}", api_version(group, version)),
                };
                let document = v3_document(kinds, group, version);
                (path, Document::new(document.to_json()))
            });
            let groups = groups(kinds);
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
}

/// A definition of the table of types as v2 has it, by its name.
pub fn built_in_definition(name: &str) -> Option<Value> {
    let name = crate::schema::table().definition(name)?.name;
    let roots = std::collections::BTreeSet::from([name]);
    definitions::reachable(&roots, &[], Version::V2).remove(name)
}

/// Paths and definitions of others in the protobuf form of v2. Appended to our own document, they
/// are part of it: that is how protobuf merges.
pub fn v2_protobuf_part(document: &Value) -> Vec<u8> {
    gnostic::encode(document)
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

/// The named groups, by name.
fn groups(kinds: &Snapshot) -> Vec<&str> {
    let mut groups: Vec<&str> = group_versions(kinds)
        .into_iter()
        .map(|(group, _)| group)
        .collect();
    groups.retain(|group| !group.is_empty());
    groups.dedup();
    groups
}

fn group_versions(kinds: &Snapshot) -> Vec<(&str, &str)> {
    let mut versions: Vec<_> = kinds
        .resources()
        .iter()
        .map(|resource| (&*resource.group, &*resource.version))
        .collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

fn v3_document(kinds: &Snapshot, group: &str, version: &str) -> Value {
    let served: Vec<&Resource> = kinds
        .resources()
        .iter()
        .map(|resource| &**resource)
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

fn v2_document(kinds: &Snapshot) -> Value {
    let served: Vec<&Resource> = kinds.resources().iter().map(|one| &**one).collect();
    let mut written = paths::paths(&served, Version::V2);
    let groups = groups(kinds);
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
