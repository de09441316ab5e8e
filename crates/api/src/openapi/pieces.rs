//! The v2 document, put together: what the built-in kinds give, made once, and one piece for each
//! custom kind, made again only when its definition changes or when it was forgotten for lack of room.
//! Pieces are kept compressed: those of different kinds are long and much alike.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

use super::{
    Document, GENERAL, Kinds, Version, custom, definitions, descriptions, gnostic, paths,
    short_version,
};
use crate::catalogue::Snapshot;
use crate::document::Value;
use crate::resource::Resource;

/// What all kept pieces may take together.
const BUDGET: usize = 16 << 20;
/// A document of all kinds that is larger than this is not kept.
const LARGEST_KEPT: usize = 8 << 20;

/// In which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whole {
    Json = 0,
    Protobuf = 1,
}

#[derive(Default)]
pub(super) struct Pieces {
    base: Option<Base>,
    kept: BTreeMap<PieceKey, Arc<Piece>>,
    order: VecDeque<PieceKey>,
    bytes: usize,
    /// The newest documents, by form, with the kinds that they are about.
    newest: [Option<(Arc<Snapshot>, Document)>; 2],
    made: u64,
}

/// What the built-in kinds give.
struct Base {
    kinds: Vec<Arc<Resource>>,
    json: Option<BaseJson>,
    protobuf: Option<Vec<u8>>,
}

struct BaseJson {
    /// What stands before the definitions.
    head: Vec<u8>,
    definitions: Vec<u8>,
    paths: Vec<u8>,
}

/// The form, the fingerprint of the definition, and the version.
type PieceKey = (Whole, [u8; 32], String);

/// What one custom kind adds to the document, compressed. As JSON, these are members of the two large
/// objects: first of the definitions, then of the paths.
struct Piece {
    compressed: Box<[u8]>,
    /// The length of the members of the definitions.
    definitions: usize,
}

impl Piece {
    fn new(whole: Whole, paths: &Value, definitions: &Value) -> Piece {
        let (plain, definitions) = match whole {
            Whole::Protobuf => (gnostic::encode_piece(paths, definitions), 0),
            Whole::Json => {
                let mut plain = members(definitions);
                let length = plain.len();
                plain.append(&mut members(paths));
                (plain, length)
            }
        };
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        let written = encoder.write_all(&plain);
        let compressed = written.and_then(|()| encoder.finish());
        let compressed = compressed.expect("writing to memory does not fail");
        Piece {
            compressed: compressed.as_slice().into(),
            definitions,
        }
    }

    /// Replaces `plain` by what was compressed.
    fn read(&self, plain: &mut Vec<u8>) {
        plain.clear();
        let read = ZlibDecoder::new(&*self.compressed).read_to_end(plain);
        read.expect("a piece was compressed here");
    }

    fn size(&self) -> usize {
        self.compressed.len() + size_of::<Piece>() + 2 * size_of::<PieceKey>()
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
        let pieces = self.pieces(kinds, whole);
        let body = match (&mut self.base, whole) {
            (Some(base), Whole::Json) => base.json().with(&pieces),
            (Some(base), Whole::Protobuf) => {
                let mut body = base.protobuf().to_vec();
                let mut plain = Vec::new();
                for piece in &pieces {
                    piece.read(&mut plain);
                    body.extend_from_slice(&plain);
                }
                body
            }
            (None, _) => Vec::new(),
        };
        let document = Document::new(body);
        self.newest[whole as usize] = (document.body.len() <= LARGEST_KEPT)
            .then(|| (kinds.snapshot.clone(), document.clone()));
        document
    }

    /// The pieces of all custom kinds.
    fn pieces(&mut self, kinds: Kinds<'_>, whole: Whole) -> Vec<Arc<Piece>> {
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
            self.base = Some(Base {
                kinds: built_in,
                json: None,
                protobuf: None,
            });
        }
        let custom = resources().filter(|resource| resource.is_custom());
        custom
            .map(|resource| self.piece(kinds, resource, whole))
            .collect()
    }

    fn piece(&mut self, kinds: Kinds<'_>, resource: &Resource, whole: Whole) -> Arc<Piece> {
        let custom = resource.definition.custom();
        let fingerprint = custom.map_or([0; 32], |custom| custom.kind.fingerprint);
        let key = (whole, fingerprint, resource.version.to_string());
        if let Some(known) = self.kept.get(&key) {
            return known.clone();
        }
        self.made += 1;
        let declared = kinds.declarations.of(resource).unwrap_or_default();
        let written = paths::of_kind(resource, Version::V2);
        let definitions = custom::definitions(resource, &declared, Version::V2);
        let piece = Arc::new(Piece::new(
            whole,
            &Value::Object(written.paths),
            &Value::Object(definitions),
        ));
        self.keep(key, &piece);
        piece
    }

    fn keep(&mut self, key: PieceKey, piece: &Arc<Piece>) {
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

/// The members of an object in JSON, without what is around them.
fn members(object: &Value) -> Vec<u8> {
    let json = object.to_json();
    let inner = json.get(1..json.len().saturating_sub(1));
    inner.unwrap_or_default().to_vec()
}

impl Base {
    /// Each form is made when it is first asked for: most clients want only one.
    fn json(&mut self) -> &BaseJson {
        let kinds = &self.kinds;
        self.json.get_or_insert_with(|| {
            let document = written_base(kinds);
            let object = |field: &str| document.get(field).map(members).unwrap_or_default();
            BaseJson {
                head: members(&head()),
                definitions: object("definitions"),
                paths: object("paths"),
            }
        })
    }

    fn protobuf(&mut self) -> &[u8] {
        let kinds = &self.kinds;
        self.protobuf
            .get_or_insert_with(|| gnostic::encode(&written_base(kinds)))
    }
}

/// What stands before the definitions.
fn head() -> Value {
    crate::document!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": short_version()},
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "name": "authorization", "in": "header",
            "description": "Bearer Token authentication",
        }},
        "security": [{"BearerToken": []}],
    })
}

/// The document of built-in kinds alone.
fn written_base(kinds: &[Arc<Resource>]) -> Value {
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
    let mut definitions = definitions::reachable(&written.definitions, &served, Version::V2);
    descriptions::describe(&mut definitions, Version::V2);
    let mut document = head();
    document.set(&["definitions"], definitions);
    document.set(&["paths"], written.paths);
    document
}

impl BaseJson {
    /// The whole document.
    fn with(&self, pieces: &[Arc<Piece>]) -> Vec<u8> {
        let mut definitions = Members::of(&self.definitions);
        let mut paths = Members::of(&self.paths);
        let mut plain = Vec::new();
        for piece in pieces {
            piece.read(&mut plain);
            let (of_definitions, of_paths) = plain.split_at(piece.definitions);
            definitions.add(of_definitions);
            paths.add(of_paths);
        }
        let (definitions, paths) = (definitions.0, paths.0);
        let length = self.head.len() + definitions.len() + paths.len() + 64;
        let mut out = Vec::with_capacity(length);
        out.push(b'{');
        out.extend_from_slice(&self.head);
        for (name, members) in [("definitions", definitions), ("paths", paths)] {
            out.extend_from_slice(format!(",\"{name}\":{{").as_bytes());
            out.extend_from_slice(&members);
            out.push(b'}');
        }
        out.push(b'}');
        out
    }
}

/// The members of an object, from several texts.
struct Members(Vec<u8>);

impl Members {
    fn of(text: &[u8]) -> Members {
        Members(text.to_vec())
    }

    fn add(&mut self, text: &[u8]) {
        if !self.0.is_empty() && !text.is_empty() {
            self.0.push(b',');
        }
        self.0.extend_from_slice(text);
    }
}
