//! Reads a request's body, or discards it when the request is refused.

use std::time::Duration;

use api::{Reason, Status};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};
use http_body_util::BodyExt;

use crate::body::RequestBody;

/// The largest request body, as upstream has it.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The whole body; requests that read have none.
pub(super) async fn read(
    method: &Method,
    mut body: RequestBody,
    headers: &HeaderMap,
) -> Result<Bytes, Status> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(Bytes::new());
    }
    let too_large = || {
        Status::new(
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: limit is {BODY_LIMIT}"),
        )
    };
    let announced = headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > BODY_LIMIT) {
        return Err(too_large());
    }
    let mut collected = BytesMut::with_capacity(announced.unwrap_or_default());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|problem| {
            Status::bad_request(format!("unable to read the body: {problem}"))
        })?;
        if let Ok(data) = frame.into_data() {
            if collected.len() + data.len() > BODY_LIMIT {
                return Err(too_large());
            }
            collected.extend_from_slice(&data);
        }
    }
    Ok(collected.freeze())
}

/// Takes in the body of a request that was refused, so that the client, still sending over
/// HTTP/1.1, gets to read the answer instead of a reset connection. One that waits to be asked for
/// its body is not asked.
pub(super) async fn discard(mut body: RequestBody, headers: &HeaderMap) {
    if headers.contains_key(http::header::EXPECT) {
        return;
    }
    let all = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > BODY_LIMIT {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, all).await;
}
