//! One GET to an extension API server in the background: bounded in time and size, as a user of the
//! aggregator's own.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Empty, Limited};

use crate::body::RequestBody;
use crate::extension_servers::Backend;
use crate::front_proxy_headers;
use crate::identity::Identity;

/// What is asked.
pub(super) struct Question<'a> {
    pub path: &'a str,
    pub accept: &'a str,
    /// Of the document that is known already.
    pub etag: Option<&'a str>,
    pub user: &'a str,
    pub groups: &'a [&'a str],
    pub timeout: Duration,
    pub most_bytes: usize,
}

pub(super) struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn etag(&self) -> Option<String> {
        let etag = self.headers.get(ETAG)?;
        etag.to_str().ok().map(str::to_string)
    }
}

/// Why there is no answer, in the words of upstream's client.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("Get \"{url}\": {problem}")]
    Failed { url: String, problem: String },
    #[error(
        "Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    )]
    Timeout { url: String },
}

/// Asks one endpoint.
pub(super) async fn get(
    backend: &Backend,
    address: SocketAddr,
    question: &Question<'_>,
) -> Result<Answer, FetchError> {
    let url = format!("https://{address}{}", question.path);
    let failed = |problem: &dyn std::error::Error| FetchError::Failed {
        url: url.clone(),
        problem: problem.to_string(),
    };
    let body: RequestBody = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::new(body);
    *request.uri_mut() = url
        .parse()
        .map_err(|problem: http::uri::InvalidUri| failed(&problem))?;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver"));
    for (name, value) in [
        (ACCEPT, Some(question.accept)),
        (IF_NONE_MATCH, question.etag),
    ] {
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
    let identity = Identity::exactly(question.user, question.groups);
    front_proxy_headers::set(headers, &identity);
    let asking = async {
        let answer = backend.send(request, false).await;
        let answer = answer.map_err(|problem| failed(&problem))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, question.most_bytes).collect().await;
        Ok(Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: body.map_err(|problem| failed(problem.as_ref()))?.to_bytes(),
        })
    };
    let asked = tokio::time::timeout(question.timeout, asking).await;
    asked.unwrap_or_else(|_| Err(FetchError::Timeout { url: url.clone() }))
}
