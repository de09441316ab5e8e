//! Requests that take over their connection, and the joining of two connections.

use api::Status;
use bytes::Bytes;
use http::{Method, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use crate::body::Body;

/// A kubelet's refusal is never longer.
const LARGEST_REFUSAL: usize = 64 * 1024;

/// What of a request is not in its context.
pub(crate) struct Line {
    pub method: Method,
    pub uri: Uri,
    /// The connection itself, once it has been upgraded.
    pub upgrade: Option<OnUpgrade>,
}

/// Gives the next server's answer back; if it agreed, bytes flow from then on.
pub(crate) async fn join(
    near: OnUpgrade,
    mut answer: Response<Incoming>,
) -> Result<Response<Body>, Status> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        if answer.status().as_u16() < 400 {
            return Err(Status::internal(format_args!(
                "invalid upgrade response: status code {}",
                answer.status().as_u16()
            )));
        }
        response.headers_mut().remove(http::header::CONNECTION);
        *response.body_mut() = refusal(answer).await.into();
        return Ok(response);
    }
    let far = hyper::upgrade::on(&mut answer);
    tokio::spawn(async move {
        if let (Ok(near), Ok(far)) = tokio::join!(near, far) {
            streaming::proxy::join(TokioIo::new(near), TokioIo::new(far)).await;
        }
    });
    Ok(response)
}

/// The body of an answer that refuses.
pub(super) async fn refusal(answer: Response<Incoming>) -> Bytes {
    let body = Limited::new(answer.into_body(), LARGEST_REFUSAL).collect();
    body.await.map(|body| body.to_bytes()).unwrap_or_default()
}
