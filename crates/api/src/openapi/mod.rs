//! The OpenAPI documents of the served kinds: v3 for each group version, and v2 as JSON and as the
//! protobuf form that older kubectl asks for. Made from the type table and, for custom kinds, from
//! what their definitions declare.
//!
//! Nothing is made before it is asked for, and nothing is made anew because of a kind that it is not
//! about: the entity tag of a version comes from the fingerprints of its kinds alone, so that the
//! index of v3 needs no document; some documents of built-in kinds are kept, as many as there is room
//! for; and the v2 document is put together from one piece for each custom kind.

mod custom;
mod definitions;
mod descriptions;
mod gnostic;
mod kept;
mod operations;
mod paths;
mod pieces;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::catalogue::{Group, Snapshot};
use crate::document::{Object, Value};
use crate::resource::{Resource, api_version};

pub use custom::{Declarations, Declared};
use kept::Kept;
use pieces::{Pieces, Whole};

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

/// The documents of a server, each made when it is first asked for.
#[derive(Default)]
pub struct Documents {
    /// By group; an entry is about the group as it was.
    groups: Mutex<BTreeMap<String, Arc<OfGroup>>>,
    general: OnceLock<BTreeMap<&'static str, Document>>,
    /// Of versions that have built-in kinds alone.
    kept: Mutex<Kept>,
    v2: Mutex<Pieces>,
}

/// The documents of one group.
struct OfGroup {
    group: Arc<Group>,
    /// By the name of the version. They are few, and there may be thousands of groups: a tree would
    /// reserve room for ten more.
    versions: Box<[(String, OfVersion)]>,
    /// Upstream describes no group that has custom kinds alone.
    has_built_in: bool,
    /// At `/openapi/v3/apis/<group>`.
    root: OnceLock<Document>,
}

#[derive(Default)]
struct OfVersion {
    has_custom: bool,
    etag: OnceLock<String>,
}

/// The kinds that documents are about.
#[derive(Clone, Copy)]
pub struct Kinds<'a> {
    pub snapshot: &'a Arc<Snapshot>,
    pub declarations: &'a dyn Declarations,
}

impl Documents {
    /// The document at `/openapi/v3/<path>`, e.g. `apis/apps/v1` or `api/v1`.
    pub fn v3(&self, kinds: Kinds<'_>, path: &str) -> Option<Document> {
        if let Some(document) = self.general().get(path) {
            return Some(document.clone());
        }
        let words: Vec<&str> = path.split('/').collect();
        let (group, version) = match words.as_slice() {
            ["api", version] => ("", Some(*version)),
            ["apis", group, version] if !group.is_empty() => (*group, Some(*version)),
            ["apis", group] if !group.is_empty() => (*group, None),
            _ => return None,
        };
        let group = self.of_group(kinds.snapshot.group(group)?);
        match version {
            Some(version) => self.version(kinds, &group, version),
            None => group.has_built_in.then(|| group.root().clone()),
        }
    }

    /// The document at `/openapi/v3`, which lists the others.
    pub fn v3_index(&self, kinds: Kinds<'_>) -> Document {
        // Sorted once: there may be thousands.
        let mut paths: Vec<(String, Value)> = Vec::new();
        let mut list = |path: &str, etag: &str| {
            let url = format!("/openapi/v3/{path}?hash={etag}");
            let entry = crate::document!({"serverRelativeURL": url});
            paths.push((path.to_string(), entry));
        };
        for (path, document) in self.general() {
            list(path, &document.etag);
        }
        for group in kinds.snapshot.groups() {
            let group = self.of_group(group);
            let name = group.group.name();
            for (version, _) in &group.versions {
                let path = match name {
                    "" => format!("api/{version}"),
                    _ => format!("apis/{}", api_version(name, version)),
                };
                list(&path, group.etag(version));
            }
            if !name.is_empty() && group.has_built_in {
                list(&format!("apis/{name}"), &group.root().etag);
            }
        }
        let mut index = Value::object();
        index.set(&["paths"], Object::from_iter(paths));
        Document::new(index.to_json())
    }

    /// The document at `/openapi/v2` as JSON.
    pub fn v2_json(&self, kinds: Kinds<'_>) -> Document {
        locked(&self.v2).document(kinds, Whole::Json)
    }

    /// The document at `/openapi/v2` as protobuf.
    pub fn v2_protobuf(&self, kinds: Kinds<'_>) -> Document {
        locked(&self.v2).document(kinds, Whole::Protobuf)
    }

    /// How many pieces of the v2 document were made so far.
    pub fn v2_pieces_made(&self) -> u64 {
        locked(&self.v2).made()
    }

    fn version(&self, kinds: Kinds<'_>, group: &OfGroup, version: &str) -> Option<Document> {
        let known = group.known(version)?;
        let etag = group.etag(version).to_string();
        if known.has_custom {
            let body = group.write(kinds, version).into();
            return Some(Document { body, etag });
        }
        let kept = locked(&self.kept).get(&etag);
        let body = kept.unwrap_or_else(|| {
            let body = Bytes::from(group.write(kinds, version));
            locked(&self.kept).keep(&etag, &body);
            body
        });
        Some(Document { body, etag })
    }

    fn general(&self) -> &BTreeMap<&'static str, Document> {
        self.general.get_or_init(|| {
            let written = GENERAL.into_iter().filter_map(|path| {
                let written = paths::general(path, Version::V3)?;
                let document = v3_written(written, &[]);
                Some((path, Document::new(document.to_json())))
            });
            written.collect()
        })
    }

    fn of_group(&self, group: &Arc<Group>) -> Arc<OfGroup> {
        let mut groups = locked(&self.groups);
        if let Some(known) = groups.get(group.name())
            && Arc::ptr_eq(&known.group, group)
        {
            return known.clone();
        }
        let made = Arc::new(OfGroup::new(group.clone()));
        groups.insert(group.name().to_string(), made.clone());
        made
    }

    /// Forgets what it has about groups that are served no more.
    pub fn forget_others(&self, kinds: &Snapshot) {
        locked(&self.groups).retain(|name, _| kinds.group(name).is_some());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OfGroup {
    fn new(group: Arc<Group>) -> OfGroup {
        let mut versions: BTreeMap<String, OfVersion> = BTreeMap::new();
        for resource in group.resources() {
            let version = versions.entry(resource.version.to_string()).or_default();
            version.has_custom |= resource.is_custom();
        }
        let has_built_in = group.resources().any(|resource| !resource.is_custom());
        OfGroup {
            group,
            has_built_in,
            versions: versions.into_iter().collect(),
            root: OnceLock::new(),
        }
    }

    fn known(&self, version: &str) -> Option<&OfVersion> {
        let mut versions = self.versions.iter();
        let found = versions.find(|(known, _)| known == version)?;
        Some(&found.1)
    }

    /// Changes when a kind of the version does, and with the program.
    fn etag(&self, version: &str) -> &str {
        let Some(known) = self.known(version) else {
            return "";
        };
        known.etag.get_or_init(|| {
            let mut digest = Sha256::new();
            let mut add = |text: &str| {
                digest.update(text.as_bytes());
                digest.update([0]);
            };
            add(descriptions::SOURCE);
            add(self.group.name());
            add(version);
            for resource in self.group.of_version(version) {
                add(&resource.plural);
                if let Some(custom) = resource.definition.custom() {
                    add(&hexadecimal(&custom.kind.fingerprint));
                }
            }
            hexadecimal(&digest.finalize())
        })
    }

    fn write(&self, kinds: Kinds<'_>, version: &str) -> Vec<u8> {
        let served = self.group.of_version(version);
        let served: Vec<&Resource> = served.map(|resource| &**resource).collect();
        let mut written = paths::paths(&served, Version::V3);
        let mut added = Object::default();
        for resource in &served {
            if resource.is_custom() {
                written.definitions.extend(META.map(Into::into));
                let declared = kinds.declarations.of(resource).unwrap_or_default();
                for (name, schema) in custom::definitions(resource, &declared, Version::V3) {
                    added.insert(name, schema);
                }
            }
        }
        let built_in: Vec<&Resource> = served.into_iter().filter(|one| !one.is_custom()).collect();
        let mut document = v3_written(written, &built_in);
        if let Some(Value::Object(schemas)) = document.at_mut(&["components", "schemas"]) {
            for (name, schema) in added {
                schemas.insert(name, schema);
            }
        }
        if built_in.is_empty() {
            document.set(&["info", "title"], "Kubernetes CRD Swagger");
            document.set(&["info", "version"], "v0.1.0");
            document.remove(&["components", "securitySchemes"]);
        }
        document.to_json()
    }

    fn root(&self) -> &Document {
        self.root.get_or_init(|| {
            let written = paths::group(self.group.name(), Version::V3);
            Document::new(v3_written(written, &[]).to_json())
        })
    }
}

/// What every custom kind refers to.
const META: [&str; 2] = [custom::OBJECT_META, custom::LIST_META];

/// A definition of the built-in kinds as v2 has it, by its name.
pub fn built_in_definition(name: &str) -> Option<Value> {
    let name = definitions::built_in_name(name)?;
    let roots = std::collections::BTreeSet::from([name.into()]);
    definitions::reachable(&roots, &[], Version::V2).remove(name)
}

/// Paths and definitions of others in the protobuf form of v2. Appended to our own document, they
/// are part of it: that is how protobuf merges.
pub fn v2_protobuf_part(document: &Value) -> Vec<u8> {
    gnostic::encode(document)
}

impl Document {
    pub fn new(body: Vec<u8>) -> Document {
        Document {
            etag: hexadecimal(&Sha256::digest(&body)),
            body: body.into(),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// The paths of documents that are about no group version.
const GENERAL: [&str; 5] = [
    ".well-known/openid-configuration",
    "api",
    "apis",
    "openid/v1/jwks",
    "version",
];

fn v3_written(written: paths::Written, served: &[&Resource]) -> Value {
    let mut document = crate::document!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": short_version()},
        "components": {"securitySchemes": {"BearerToken": {
            "type": "apiKey", "name": "authorization", "in": "header",
            "description": "Bearer Token authentication",
        }}},
    });
    let mut schemas = definitions::reachable(&written.definitions, served, Version::V3);
    descriptions::describe(&mut schemas, Version::V3);
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

#[cfg(test)]
mod tests;
