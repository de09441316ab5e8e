//! The OpenAPI documents of an extension API server: where those of v3 are, which it serves itself,
//! and its part of the v2 document, cut down to its group version and made ready to be put in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use api::Value;
use api::document::Object;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::fetch::{self, FetchError, Question};
use crate::extension_servers::{Backend, Specification, V2Part};

const TIMEOUT: Duration = Duration::from_secs(60);
const MOST_BYTES: usize = 32 << 20;
const USER: &str = "system:aggregator";
const REFERENCE: &str = "#/definitions/";

#[derive(Debug, thiserror::Error)]
pub(super) enum OpenApiError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("failed to retrieve openAPI spec, http error: {0}")]
    Code(u16),
    #[error("the document cannot be read")]
    Syntax(#[source] serde_json::Error),
}

fn question<'a>(path: &'a str, etag: Option<&'a str>) -> Question<'a> {
    Question {
        path,
        accept: "application/json",
        etag,
        user: USER,
        groups: &[],
        timeout: TIMEOUT,
        most_bytes: MOST_BYTES,
    }
}

/// The addresses of the server's v3 documents about its group, by their path; none if it has none.
pub(super) async fn fetch_v3(
    backend: &Backend,
    address: SocketAddr,
    specification: &Specification,
) -> Result<BTreeMap<String, String>, OpenApiError> {
    let answer = fetch::get(backend, address, &question("/openapi/v3", None)).await?;
    match answer.code {
        200 => {}
        404 => return Ok(BTreeMap::new()),
        code => return Err(OpenApiError::Code(code)),
    }
    let index = Value::from_json(&answer.body).map_err(OpenApiError::Syntax)?;
    let own = specification.root();
    let own = own.trim_start_matches('/');
    let paths = index.fields_at(&["paths"]);
    Ok(paths
        .filter(|(path, _)| *path == own)
        .map(|(path, entry)| {
            let url = entry.str_at(&["serverRelativeURL"]);
            (path.to_string(), url.to_string())
        })
        .collect())
}

/// The server's part of the v2 document; `None` if it is the one that is known.
pub(super) async fn fetch_v2(
    backend: &Backend,
    address: SocketAddr,
    specification: &Specification,
    known: Option<&V2Part>,
) -> Result<Option<V2Part>, OpenApiError> {
    let etag = known.map(|known| known.etag.as_str());
    let asked = question("/openapi/v2", etag.filter(|etag| etag.starts_with('"')));
    let answer = fetch::get(backend, address, &asked).await?;
    match answer.code {
        200 => {}
        304 => return Ok(None),
        404 => {
            return Ok(known
                .is_some()
                .then(|| part(&Value::Null, specification, "")));
        }
        code => return Err(OpenApiError::Code(code)),
    }
    // A server that tags nothing is told apart by what it sends.
    let tag = answer.etag().unwrap_or_else(|| {
        let digest = Sha256::digest(&answer.body);
        digest.iter().map(|byte| format!("{byte:02X}")).collect()
    });
    if Some(tag.as_str()) == etag {
        return Ok(None);
    }
    let document = Value::from_json(&answer.body).map_err(OpenApiError::Syntax)?;
    Ok(Some(part(&document, specification, &tag)))
}

/// Cuts a document down to the paths of one group version and what they need.
fn part(document: &Value, specification: &Specification, etag: &str) -> V2Part {
    let prefix = format!("{}/", specification.root());
    let paths = document.fields_at(&["paths"]);
    let mut paths: Vec<(String, Value)> = paths
        .filter(|(path, _)| path.starts_with(&prefix))
        .map(|(path, item)| (path.to_string(), item.clone()))
        .collect();
    let needed = reachable(document, paths.iter().map(|(_, item)| item));
    let mut definitions: Vec<(String, Value)> = Vec::new();
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    for name in needed {
        let Some(definition) = document.at(&["definitions", &name]) else {
            continue;
        };
        match api::openapi::built_in_definition(&name) {
            Some(ours) if is_same(&ours, definition) => {}
            Some(_) => {
                let other = format!("{name}_v2");
                renamed.insert(name, other.clone());
                definitions.push((other, definition.clone()));
            }
            None => definitions.push((name, definition.clone())),
        }
    }
    if !renamed.is_empty() {
        let values = paths.iter_mut().chain(definitions.iter_mut());
        values.for_each(|(_, value)| rename(value, &renamed));
    }
    let mut whole = Value::object();
    whole.set(&["paths"], paths.iter().cloned().collect::<Object>());
    let all = definitions.iter().cloned().collect::<Object>();
    whole.set(&["definitions"], all);
    let written = |pairs: Vec<(String, Value)>| {
        let json = |value: Value| Bytes::from(value.to_json());
        let pairs = pairs.into_iter();
        pairs
            .map(|(name, value)| (json(name.into()), json(value)))
            .collect()
    };
    V2Part {
        etag: etag.to_string(),
        protobuf: api::openapi::v2_protobuf_part(&whole).into(),
        definitions: written(definitions),
        paths: written(paths),
    }
}

/// The names of all definitions that the values need, directly or not.
fn reachable<'a>(document: &Value, values: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut open: Vec<String> = Vec::new();
    for value in values {
        references(value, &mut |name| open.push(name.to_string()));
    }
    while let Some(name) = open.pop() {
        if names.contains(&name) {
            continue;
        }
        if let Some(definition) = document.at(&["definitions", &name]) {
            references(definition, &mut |name| open.push(name.to_string()));
        }
        names.insert(name);
    }
    names
}

/// Calls `found` with the name of every definition that a value refers to. Documents are bounded in
/// depth where they are decoded, so that this ends.
fn references(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter() {
                match value {
                    Value::String(text) if name == "$ref" => {
                        text.strip_prefix(REFERENCE)
                            .into_iter()
                            .for_each(&mut *found);
                    }
                    value => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn rename(value: &mut Value, renamed: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if name == "$ref" => {
                        let of = text.strip_prefix(REFERENCE);
                        if let Some(other) = of.and_then(|name| renamed.get(name)) {
                            *text = format!("{REFERENCE}{other}");
                        }
                    }
                    value => rename(value, renamed),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, renamed)),
        _ => {}
    }
}

/// Whether two definitions of one name say the same, apart from their prose and the kinds that they
/// are used for.
fn is_same(one: &Value, other: &Value) -> bool {
    const IGNORED: [&str; 3] = ["description", "default", "x-kubernetes-group-version-kind"];
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            fn counted(fields: &Object) -> impl Iterator<Item = (&str, &Value)> {
                fields.iter().filter(|(name, _)| !IGNORED.contains(name))
            }
            counted(one).count() == counted(other).count()
                && counted(one)
                    .zip(counted(other))
                    .all(|((name, value), (known, other))| name == known && is_same(value, other))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_cut_down_to_the_group_version_and_what_it_needs() {
        let reference = |name: &str| api::document!({"$ref": format!("{REFERENCE}{name}")});
        let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        let document = api::document!({
            "paths": {
                "/apis/a.io/v1/flunders": {"get": {"schema": reference("a.Flunder")}},
                "/apis/a.io/v2/flunders": {"get": {"schema": reference("a.Other")}},
                "/version/": {},
            },
            "definitions": {
                "a.Flunder": {"properties": {
                    "metadata": {"$ref": format!("{REFERENCE}{meta}")},
                    "spec": reference("a.Spec"),
                }},
                "a.Spec": {"type": "object"}, "a.Other": {"type": "object"},
                meta: {"type": "object", "properties": {"odd": {"type": "string"}}},
            },
        });
        let part = part(&document, &Specification::example(), "1");
        let text = |pairs: &[(Bytes, Bytes)]| -> Vec<String> {
            let utf8 = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            pairs.iter().map(|(name, _)| utf8(name)).collect()
        };
        assert_eq!(text(&part.paths), [r#""/apis/a.io/v1/flunders""#]);
        let renamed = format!("\"{meta}_v2\"");
        assert_eq!(
            text(&part.definitions),
            [r#""a.Flunder""#, r#""a.Spec""#, renamed.as_str()]
        );
        let flunder = Value::from_json(&part.definitions[0].1).unwrap();
        let found = flunder.str_at(&["properties", "metadata", "$ref"]);
        assert_eq!(found, format!("{REFERENCE}{meta}_v2"));
    }

    #[test]
    fn definitions_that_differ_in_prose_alone_are_the_same() {
        let one = api::document!({"type": "object", "description": "a",
            "properties": {"x": {"type": "string"}}});
        let same = api::document!({"type": "object", "properties": {"x": {"type": "string",
            "description": "b"}}});
        let other = api::document!({"type": "object", "properties": {"x": {"type": "integer"}}});
        assert!(is_same(&one, &same));
        assert!(!is_same(&one, &other));
    }
}
