//! Answers: status documents, JSON and plain text, warnings, compression.

use std::io::Write;
use std::sync::atomic::Ordering;

use api::{Status, Value};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use crate::body::Body;
use crate::context::Context;
use crate::negotiate::{Encoding, JSON};
use crate::server::Server;

/// Bodies from this size on are compressed for those who accept it, as upstream does.
pub(crate) const COMPRESS_FROM: usize = 128 * 1024;

pub(crate) fn bytes(
    code: u16,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn json(code: u16, value: &Value) -> Response<Body> {
    bytes(code, JSON, value.to_json())
}

/// A document that names its own kind.
pub(crate) fn encoded(
    code: u16,
    value: &Value,
    encoding: Encoding,
) -> Result<Response<Body>, Status> {
    let body = encode(value, encoding)?;
    Ok(bytes(code, encoding.media_type(), body))
}

/// As [`encoded`], compressed when it is large and the client accepts that.
pub(crate) fn encoded_for(
    context: &Context,
    code: u16,
    value: &Value,
    encoding: Encoding,
) -> Result<Response<Body>, Status> {
    let body = encode(value, encoding)?;
    Ok(large(context, code, encoding.media_type(), body))
}

fn encode(value: &Value, encoding: Encoding) -> Result<Vec<u8>, Status> {
    match encoding {
        Encoding::Json => Ok(value.to_json()),
        Encoding::Yaml => Ok(api::document::yaml::to_yaml(value).into_bytes()),
        Encoding::Protobuf => api::protobuf::encode_object(value).map_err(Status::internal),
    }
}

pub(crate) fn text(code: u16, text: impl Into<String>) -> Response<Body> {
    bytes(code, "text/plain; charset=utf-8", text.into().into_bytes())
}

/// The answer to a request that failed, as its sender accepts it.
pub(crate) fn refused(server: &Server, status: &Status, headers: &HeaderMap) -> Response<Body> {
    server.metrics.failures.fetch_add(1, Ordering::Relaxed);
    failure(status, Encoding::of_plain_object(headers))
}

pub(crate) fn failure(status: &Status, encoding: Encoding) -> Response<Body> {
    let document = status.to_document();
    let mut response = encoded(status.code(), &document, encoding)
        .unwrap_or_else(|_| json(status.code(), &document));
    let retry = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// As upstream: when all warnings together have more letters than this, each is cut, and those beyond
/// are left out.
const MOST_WARNING_LETTERS: usize = 4096;
const MOST_LETTERS_OF_CUT: usize = 256;

/// Adds RFC 7234 warnings with code 299.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let letters = |text: &str| text.chars().count();
    let is_cut = warnings.iter().map(|text| letters(text)).sum::<usize>() > MOST_WARNING_LETTERS;
    let mut written = 0;
    for warning in warnings {
        let mut warning = warning.as_str();
        if is_cut && written >= MOST_WARNING_LETTERS {
            return;
        }
        if is_cut && let Some((end, _)) = warning.char_indices().nth(MOST_LETTERS_OF_CUT) {
            warning = &warning[..end];
        }
        written += letters(warning);
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// A body that may be large: then it is gzip-compressed when the client accepts that.
pub(crate) fn large(
    context: &Context,
    code: u16,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let body = body.into();
    if body.len() < COMPRESS_FROM || !accepts_gzip(context) {
        return bytes(code, content_type, body);
    }
    let compressed_bytes = &context.server.metrics.compressed_bytes;
    compressed_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    let mut encoder = flate2::write::GzEncoder::new(
        Vec::with_capacity(body.len() / 4),
        flate2::Compression::fast(),
    );
    match encoder.write_all(&body).and_then(|()| encoder.finish()) {
        Ok(done) => compressed(code, content_type, Body::from(Bytes::from(done))),
        Err(_) => bytes(code, content_type, body),
    }
}

/// A body that is compressed already.
pub(crate) fn compressed(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = bytes(code, content_type, body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

pub(crate) fn accepts_gzip(context: &Context) -> bool {
    let accepts = context
        .headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        // With a quality it is not recognised, as upstream has it.
        .any(|coding| coding.trim() == "gzip");
    accepts && context.server.feature_gates.is_on("APIResponseCompression")
}
