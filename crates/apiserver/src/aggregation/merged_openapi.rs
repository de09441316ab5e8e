//! Our own OpenAPI documents with those of extension API servers put in. Their parts are kept as
//! bytes and put between ours: nothing of ours is made anew because one of theirs changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Value;
use api::catalogue::Snapshot;
use api::openapi::Document;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::extension_servers::{Table, V2Part};

/// The index at `/openapi/v3`.
pub(crate) fn v3_index(local: &Document, table: &Table, kinds: &Snapshot) -> Document {
    let mut added = Vec::new();
    let hidden = hidden(table, kinds);
    let local = match hidden.is_empty() {
        true => local.clone(),
        false => Document::new(without_hidden(&local.body, |paths| {
            hidden.iter().for_each(|root| {
                paths.remove(&["paths", root.trim_start_matches('/')]);
            });
        })),
    };
    for remote in table.iter() {
        for (path, url) in &remote.lasting.discovered.lock().v3 {
            let entry = api::document!({"serverRelativeURL": url.as_str()});
            write_member(
                &mut added,
                &Value::from(path.as_str()).to_json(),
                &entry.to_json(),
            );
        }
    }
    match (added.is_empty(), begin_of(&local.body, "paths")) {
        (false, Some(at)) => Document::new(spliced(&local.body, vec![(at, added)])),
        _ => local,
    }
}

/// The roots of group versions that kinds of our own have too: their extension server goes first.
fn hidden(table: &Table, kinds: &Snapshot) -> Vec<String> {
    let remotes = table.iter().map(|remote| &remote.specification);
    remotes
        .filter(|one| {
            let group = kinds.group(&one.group);
            group.is_some_and(|group| group.of_version(&one.version).next().is_some())
        })
        .map(|one| one.root())
        .collect()
}

/// A document of our own changed as a tree, which is seldom needed.
fn without_hidden(local: &[u8], remove: impl FnOnce(&mut Value)) -> Vec<u8> {
    match Value::from_json(local) {
        Ok(mut document) => {
            remove(&mut document);
            document.to_json()
        }
        Err(_) => local.to_vec(),
    }
}

/// The document at `/openapi/v2`, as JSON or in its protobuf form.
pub(crate) fn v2(local: Document, table: &Table, kinds: &Snapshot, protobuf: bool) -> Document {
    let parts: Vec<Arc<V2Part>> = table
        .iter()
        .filter_map(|remote| remote.lasting.discovered.lock().v2.clone())
        .filter(|part| !part.paths.is_empty())
        .collect();
    if parts.is_empty() {
        return local;
    }
    let body = match protobuf {
        true => {
            let mut body = local.body.to_vec();
            parts.iter().for_each(|part| body.extend(&part.protobuf));
            Some(body)
        }
        false => {
            let hidden = hidden(table, kinds);
            match hidden.is_empty() {
                true => merged_json(&local.body, &parts),
                false => merged_json(&without_paths(&local.body, &hidden, &parts), &parts),
            }
        }
    };
    let Some(body) = body else {
        return local;
    };
    let mut digest = Sha256::new();
    digest.update(&local.etag);
    for part in &parts {
        digest.update(&part.etag);
        digest.update([0]);
    }
    Document {
        body: body.into(),
        etag: digest
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect(),
    }
}

/// Our own document without the paths below these roots, and without definitions that others have.
fn without_paths(local: &[u8], hidden: &[String], parts: &[Arc<V2Part>]) -> Vec<u8> {
    without_hidden(local, |document| {
        if let Some(Value::Object(paths)) = document.get_mut("paths") {
            paths.retain(|path, _| {
                let below = |root: &String| {
                    let rest = path.strip_prefix(root.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                !hidden.iter().any(below)
            });
        }
        for (name, _) in parts.iter().flat_map(|part| &part.definitions) {
            if let Ok(Value::String(name)) = Value::from_json(name) {
                document.remove(&["definitions", &name]);
            }
        }
    })
}

fn merged_json(local: &[u8], parts: &[Arc<V2Part>]) -> Option<Vec<u8>> {
    // Of several definitions of one name, the first one counts.
    let mut known: BTreeSet<&Bytes> = BTreeSet::new();
    let (mut definitions, mut paths) = (Vec::new(), Vec::new());
    for part in parts {
        for (name, definition) in &part.definitions {
            if known.insert(name) {
                write_member(&mut definitions, name, definition);
            }
        }
        for (path, item) in &part.paths {
            write_member(&mut paths, path, item);
        }
    }
    let places = vec![
        (begin_of(local, "definitions")?, definitions),
        (begin_of(local, "paths")?, paths),
    ];
    Some(spliced(local, places))
}

/// A member of an object with a comma behind it.
fn write_member(written: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    written.extend_from_slice(name);
    written.push(b':');
    written.extend_from_slice(value);
    written.push(b',');
}

/// Puts members, each with a comma behind it, into objects that begin at these places.
fn spliced(document: &[u8], mut places: Vec<(usize, Vec<u8>)>) -> Vec<u8> {
    places.sort_by_key(|(at, _)| *at);
    let added: usize = places.iter().map(|(_, added)| added.len()).sum();
    let mut written = Vec::with_capacity(document.len() + added);
    let mut done = 0;
    for (at, mut added) in places {
        written.extend_from_slice(&document[done..at]);
        done = at;
        if document.get(at) == Some(&b'}') {
            // Nothing follows.
            added.pop();
        }
        written.extend(added);
    }
    written.extend_from_slice(&document[done..]);
    written
}

/// Where the object begins, behind its brace, that a member of the outermost object is. The document
/// is one of our own, without white space.
fn begin_of(document: &[u8], name: &str) -> Option<usize> {
    let wanted = format!("\"{name}\":{{");
    let wanted = wanted.as_bytes();
    let (mut depth, mut at) = (0usize, 0);
    while at < document.len() {
        match document[at] {
            b'"' if depth == 1 && document[at..].starts_with(wanted) => {
                return Some(at + wanted.len());
            }
            b'"' => {
                at += 1;
                while at < document.len() && document[at] != b'"' {
                    at += if document[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_put_into_the_objects_of_a_document() {
        let document = br#"{"definitions":{"a":{"paths":{"x":"\"paths\":{"}}},"paths":{}}"#;
        let at = |name: &str| begin_of(document, name).unwrap();
        let mut added = Vec::new();
        write_member(&mut added, b"\"b\"", b"1");
        let places = vec![(at("paths"), added.clone()), (at("definitions"), added)];
        let written = String::from_utf8(spliced(document, places)).unwrap();
        assert_eq!(
            written,
            r#"{"definitions":{"b":1,"a":{"paths":{"x":"\"paths\":{"}}},"paths":{"b":1}}"#
        );
        assert_eq!(begin_of(document, "x"), None);
    }
}
