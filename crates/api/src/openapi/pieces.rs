//! The v2 document, put together: what the built-in kinds give, made once, and one piece for each
//! custom kind, made again only when its definition changes or when it was forgotten for lack of room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{
    Document, GENERAL, Kinds, Version, custom, definitions, gnostic, paths, short_version,
};
use crate::catalogue::Snapshot;
use crate::document::Value;
use crate::resource::Resource;

/// What all kept pieces may take together.
const BUDGET: usize = 16 << 20;
/// A document of all kinds that is larger than this is not kept.
const LARGEST_KEPT: usize = 8 << 20;

/// In which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    Json = 0,
    Protobuf = 1,
}

#[derive(Default)]
pub(super) struct Pieces {
    base: Option<Base>,
    /// By the fingerprint of the definition and the version.
    kept: BTreeMap<([u8; 32], String), Arc<Piece>>,
    order: VecDeque<([u8; 32], String)>,
    bytes: usize,
    /// The newest documents, by form, with the kinds that they are about.
    newest: [Option<(Arc<Snapshot>, Document)>; 2],
    made: u64,
}

/// What the built-in kinds give.
struct Base {
    kinds: Vec<Arc<Resource>>,
    piece: Piece,
    /// What stands before the definitions in JSON.
    head: Vec<u8>,
}

/// Members of the two large objects of the document.
struct Piece {
    definitions: Vec<u8>,
    paths: Vec<u8>,
    protobuf: Vec<u8>,
}

impl Piece {
    fn size(&self) -> usize {
        self.definitions.len() + self.paths.len() + self.protobuf.len() + 256
    }
}

impl Pieces {
    pub fn made(&self) -> u64 {
        self.made
    }

    pub fn document(&mut self, kinds: Kinds<'_>, whole: Whole) -> Document {
        if let Some((snapshot, document)) = &self.newest[whole as usize]
            && Arc::ptr_eq(snapshot, kinds.snapshot)
        {
            return document.clone();
        }
        let pieces = self.pieces(kinds);
        let body = match (&self.base, whole) {
            (Some(base), Whole::Json) => base.json(&pieces),
            (Some(base), Whole::Protobuf) => {
                let all = pieces.iter().map(|piece| &piece.protobuf);
                let all = std::iter::once(&base.piece.protobuf).chain(all);
                all.flatten().copied().collect()
            }
            (None, _) => Vec::new(),
        };
        let document = Document::new(body);
        self.newest[whole as usize] = (document.body.len() <= LARGEST_KEPT)
            .then(|| (kinds.snapshot.clone(), document.clone()));
        document
    }

    /// The pieces of all custom kinds and groups.
    fn pieces(&mut self, kinds: Kinds<'_>) -> Vec<Arc<Piece>> {
        let resources = || kinds.snapshot.resources();
        let built_in: Vec<_> = resources()
            .filter(|one| !one.is_custom())
            .cloned()
            .collect();
        let is_same = |base: &Base| {
            base.kinds.len() == built_in.len()
                && base
                    .kinds
                    .iter()
                    .zip(&built_in)
                    .all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if !self.base.as_ref().is_some_and(is_same) {
            self.base = Some(Base::new(built_in));
        }
        let custom = resources().filter(|resource| resource.is_custom());
        let mut pieces: Vec<_> = custom.map(|resource| self.piece(kinds, resource)).collect();
        let known = self.base.as_ref().map_or(&[][..], |base| &base.kinds);
        for group in kinds.snapshot.groups() {
            if known.iter().all(|resource| resource.group != group.name()) {
                let written = paths::group(group.name(), Version::V2);
                let piece = written_piece(&Value::Object(written.paths), &Value::object());
                pieces.push(Arc::new(piece));
            }
        }
        pieces
    }

    fn piece(&mut self, kinds: Kinds<'_>, resource: &Resource) -> Arc<Piece> {
        let custom = resource.definition.custom();
        let fingerprint = custom.map_or([0; 32], |custom| custom.kind.fingerprint);
        let key = (fingerprint, resource.version.to_string());
        if let Some(known) = self.kept.get(&key) {
            return known.clone();
        }
        self.made += 1;
        let declared = kinds.declarations.of(resource).unwrap_or_default();
        let written = paths::paths(&[resource], Version::V2);
        let definitions = custom::definitions(resource, &declared, Version::V2);
        let (written, definitions) = (Value::Object(written.paths), Value::Object(definitions));
        let piece = Arc::new(written_piece(&written, &definitions));
        self.keep(key, &piece);
        piece
    }

    fn keep(&mut self, key: ([u8; 32], String), piece: &Arc<Piece>) {
        if piece.size() > BUDGET {
            return;
        }
        self.bytes += piece.size();
        self.order.push_back(key.clone());
        self.kept.insert(key, piece.clone());
        while self.bytes > BUDGET
            && let Some(oldest) = self.order.pop_front()
        {
            let removed = self.kept.remove(&oldest);
            self.bytes -= removed.map_or(0, |removed| removed.size());
        }
    }
}

fn written_piece(paths: &Value, definitions: &Value) -> Piece {
    Piece {
        protobuf: gnostic::encode_piece(paths, definitions),
        definitions: members(definitions),
        paths: members(paths),
    }
}

/// The members of an object in JSON, without what is around them.
fn members(object: &Value) -> Vec<u8> {
    let json = object.to_json();
    let inner = json.get(1..json.len().saturating_sub(1));
    inner.unwrap_or_default().to_vec()
}

impl Base {
    fn new(kinds: Vec<Arc<Resource>>) -> Base {
        let served: Vec<&Resource> = kinds.iter().map(|one| &**one).collect();
        let mut written = paths::paths(&served, Version::V2);
        let mut groups: Vec<&str> = served.iter().map(|resource| &*resource.group).collect();
        groups.dedup();
        let of_groups = groups.into_iter().filter(|group| !group.is_empty());
        let of_groups = of_groups.map(|group| paths::group(group, Version::V2));
        let general = GENERAL.into_iter();
        let general = general.filter_map(|path| paths::general(path, Version::V2));
        for more in general.chain(of_groups) {
            written.definitions.extend(more.definitions);
            for (path, item) in more.paths {
                written.paths.insert(path, item);
            }
        }
        written.definitions.extend(super::META.map(Into::into));
        let definitions = definitions::reachable(&written.definitions, &served, Version::V2);
        let mut document = crate::document!({
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": short_version()},
            "securityDefinitions": {"BearerToken": {
                "type": "apiKey", "name": "authorization", "in": "header",
                "description": "Bearer Token authentication",
            }},
            "security": [{"BearerToken": []}],
        });
        let head = members(&document);
        document.set(&["definitions"], definitions);
        document.set(&["paths"], written.paths);
        let object = |field: &str| document.get(field).map(members).unwrap_or_default();
        let piece = Piece {
            definitions: object("definitions"),
            paths: object("paths"),
            protobuf: gnostic::encode(&document),
        };
        Base { kinds, piece, head }
    }

    fn json(&self, pieces: &[Arc<Piece>]) -> Vec<u8> {
        let mut out = Vec::new();
        out.push(b'{');
        out.extend_from_slice(&self.head);
        let all = || std::iter::once(&self.piece).chain(pieces.iter().map(|piece| &**piece));
        for (name, members) in [
            (
                "definitions",
                all().map(|piece| &piece.definitions).collect::<Vec<_>>(),
            ),
            ("paths", all().map(|piece| &piece.paths).collect()),
        ] {
            out.extend_from_slice(format!(",\"{name}\":{{").as_bytes());
            let mut is_first = true;
            for text in members.into_iter().filter(|text| !text.is_empty()) {
                if !std::mem::replace(&mut is_first, false) {
                    out.push(b',');
                }
                out.extend_from_slice(text);
            }
            out.push(b'}');
        }
        out.push(b'}');
        out
    }
}
