//! `/coracle/v1`: a pod's timeline out, other processes' spans in.

use api::Status;
use http::Response;
use serde::Deserialize;
use trace::{Sink, Span};

use crate::authorization::Attributes;
use crate::body::Body;
use crate::context::Context;
use crate::request::RequestInfo;
use crate::response;

/// Spans accepted in one request.
const MOST_SPANS: usize = 1000;

/// Namespace and name of the pod whose timeline `path`, which is decoded, is.
pub(super) fn target(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/coracle/v1/trace/namespaces/")?;
    match rest.split('/').collect::<Vec<_>>().as_slice() {
        [namespace, "pods", name] if !namespace.is_empty() && !name.is_empty() => {
            Some((namespace, name))
        }
        _ => None,
    }
}

/// What a request for a timeline is authorized as; `None` for other requests. A pod's timeline is for
/// those who may read the pod.
pub(crate) fn attributes(info: &RequestInfo) -> Option<Attributes> {
    let (namespace, name) = target(&info.path)?;
    matches!(info.verb, "get" | "head").then(|| Attributes {
        verb: "get".to_string(),
        is_resource: true,
        resource: "pods".to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
        ..Attributes::default()
    })
}

pub(super) fn show(context: &Context, path: &str) -> Result<Response<Body>, Status> {
    let (namespace, name) = target(path).unwrap_or_default();
    let timeline = context
        .server
        .timelines
        .find(namespace, name)
        .ok_or_else(|| Status::not_found("coracle", "traces", name))?;
    let bytes = serde_json::to_vec(&trace::to_json(&timeline)).map_err(Status::internal)?;
    Ok(response::bytes(200, "application/json", bytes))
}

#[derive(Deserialize)]
struct Reported {
    uid: String,
    span: Span,
}

pub(super) fn record(context: &Context, body: &[u8]) -> Result<Response<Body>, Status> {
    let spans: Vec<Reported> = serde_json::from_slice(body)
        .map_err(|problem| Status::bad_request(format!("spans cannot be read: {problem}")))?;
    if spans.len() > MOST_SPANS {
        return Err(Status::bad_request(format!(
            "at most {MOST_SPANS} spans at a time"
        )));
    }
    for reported in spans {
        context
            .server
            .timelines
            .record(&reported.uid, reported.span);
    }
    Ok(response::json(200, &api::document!({"status": "Success"})))
}
