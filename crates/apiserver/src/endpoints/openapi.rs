//! `/openapi/v2` and `/openapi/v3`, with entity tags so that clients keep what they have.

use api::Status;
use api::openapi::{self, Document, Kinds};
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{Response, StatusCode};

use super::not_found;
use crate::aggregation;
use crate::body::Body;
use crate::context::Context;
use crate::custom::StoredDeclarations;
use crate::negotiate::JSON;
use crate::response;

pub(super) fn handle(context: &Context, rest: &[&str]) -> Result<Response<Body>, Status> {
    let headers = &context.headers;
    let documents = &context.server.kinds.documents;
    let snapshot = context.server.kinds.snapshot();
    let kinds = Kinds {
        snapshot: &snapshot,
        declarations: &StoredDeclarations(&context.server.cache),
    };
    let table = &*context.server.extensions.table();
    match rest {
        ["v2"] => {
            let accepts = |name: &str| {
                headers
                    .get_all(ACCEPT)
                    .iter()
                    .filter_map(|value| value.to_str().ok())
                    .any(|value| value.contains(name))
            };
            let protobuf = accepts(openapi::V2_PROTOBUF_ACCEPTED) || accepts(openapi::V2_PROTOBUF);
            let (document, kind) = match protobuf {
                true => (documents.v2_protobuf(kinds), openapi::V2_PROTOBUF),
                false => (documents.v2_json(kinds), "application/json"),
            };
            let document = aggregation::merged_v2(document, table, &snapshot, protobuf);
            Ok(answer(context, &document, kind, false))
        }
        ["v3"] => Ok(response::large(
            context,
            200,
            "text/plain; charset=utf-8",
            aggregation::merged_v3_index(&documents.v3_index(kinds), table, &snapshot).body,
        )),
        ["v3", path @ ..] => Ok(match documents.v3(kinds, &path.join("/")) {
            Some(document) => {
                let hash = context.query.get("hash");
                answer(
                    context,
                    &document,
                    "application/json",
                    hash == document.etag,
                )
            }
            None => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        }),
        _ => Ok(not_found()),
    }
}

pub(super) fn answer(
    context: &Context,
    document: &Document,
    content_type: &'static str,
    immutable: bool,
) -> Response<Body> {
    let tag = format!("\"{}\"", document.etag);
    let known = context
        .headers
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.contains(&tag));
    let mut response = match known {
        true => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false if content_type == "application/json" => {
            response::large(context, 200, JSON, document.body.clone())
        }
        false => response::bytes(200, content_type, document.body.clone()),
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    if immutable {
        // The address carries the content's hash.
        let forever = HeaderValue::from_static("public, immutable");
        response.headers_mut().insert(CACHE_CONTROL, forever);
    }
    response
}
