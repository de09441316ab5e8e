//! Passes requests on to the extension API server that serves their group version, in the name of
//! the user who sent them, with bodies streamed both ways.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use futures::StreamExt;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyStream;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use streaming::upgrade;

use super::resolve;
use crate::body::{Body, RequestBody};
use crate::context::Context;
use crate::extension_servers::{Backend, Remote};
use crate::front_proxy_headers;
use crate::response;
use crate::subresources::connect::Line;
use crate::subresources::join;
use crate::webhook_client::{Failure, words};

/// Every client asks for discovery before anything else; it must not wait long.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Headers that are about one connection only.
const OF_CONNECTION: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Which pages may read an answer is this server's own decision.
const OF_OTHER_SITES: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];
const REDIRECTED: &str = "the backend attempted to redirect this request, which is not permitted";

/// Where a request goes.
pub(crate) struct Destination {
    backend: Arc<Backend>,
    address: SocketAddr,
}

/// The extension server that a request belongs to, if that is not this one.
pub(crate) fn route(context: &Context) -> Option<Arc<Remote>> {
    let path = context.info.path.as_str();
    let extensions = &context.server.extensions;
    if let Some(of_document) = path.strip_prefix("/openapi/v3/apis/") {
        let remote = extensions.of_path(&format!("/apis/{of_document}"))?;
        let discovered = remote.lasting.discovered.lock();
        let is_known = discovered.v3.contains_key(&format!("apis/{of_document}"));
        drop(discovered);
        return is_known.then_some(remote);
    }
    extensions.of_path(path)
}

impl Destination {
    /// The endpoint that a request is sent to, or the answer that there is none.
    pub fn of(context: &Context, remote: &Remote) -> Result<Destination, Box<Response<Body>>> {
        let unavailable = || Box::new(failure(503, "service unavailable"));
        if !remote.is_available {
            return Err(unavailable());
        }
        let backend = match &remote.backend {
            Ok(backend) => backend.clone(),
            Err(problem) => {
                let problem = environment::chain(problem.as_ref()).to_string();
                return Err(Box::new(failure(500, &problem)));
            }
        };
        match resolve::endpoint(&context.server, remote) {
            Ok(address) => Ok(Destination { backend, address }),
            Err(problem) => {
                tracing::warn!(api_service = remote.name, %problem, "no endpoint to pass a request on to");
                Err(unavailable())
            }
        }
    }
}

/// Passes a request on and gives the answer back.
pub(crate) async fn forward(
    context: Context,
    destination: Destination,
    mut line: Line,
    body: RequestBody,
) -> Result<Response<Body>, Status> {
    let Destination { backend, address } = destination;
    let near = line.upgrade.take();
    let near = near.filter(|_| upgrade::is_upgrade(&context.headers));
    let path = line.uri.path_and_query().map_or("/", |path| path.as_str());
    let target = match near.is_some() {
        true => path.parse(),
        false => format!("https://{address}{path}").parse(),
    };
    let mut request = Request::new(body);
    *request.method_mut() = line.method.clone();
    *request.uri_mut() = target.map_err(|_| Status::bad_request("the path cannot be passed on"))?;
    *request.headers_mut() = headers(&context, address, near.is_some());
    if let Some(near) = near {
        return match ask_alone(&backend, address, request).await {
            Ok(answer) if is_redirect(&answer) => Ok(redirected()),
            Ok(answer) => join(near, answer).await,
            Err(Failure(problem)) => Ok(failure(503, &problem)),
        };
    }
    let lasts = context.info.is_resource && context.info.verb == "watch";
    let sending = backend.send(request, lasts);
    let is_discovery =
        !context.info.is_resource && context.info.path.trim_matches('/').split('/').count() == 3;
    let answer = match is_discovery {
        true => tokio::time::timeout(DISCOVERY_TIMEOUT, sending)
            .await
            .unwrap_or_else(|_| Err(Failure(words::DEADLINE.to_string()))),
        false => sending.await,
    };
    Ok(match answer {
        Ok(answer) if is_redirect(&answer) => redirected(),
        Ok(answer) => give_back(&context, answer),
        Err(Failure(problem)) => failure(503, &problem),
    })
}

/// Asks on a connection of its own, which the answer may take over.
async fn ask_alone(
    backend: &Backend,
    address: SocketAddr,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, Failure> {
    let stream = backend.connect(address).await?;
    let words = |problem: hyper::Error| Failure(problem.to_string());
    let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(words)?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(words)
}

fn headers(context: &Context, address: SocketAddr, is_upgrade: bool) -> HeaderMap {
    let mut headers = context.headers.clone();
    if !is_upgrade {
        forget_connection(&mut headers);
    }
    headers.remove(header::HOST);
    if is_upgrade && let Ok(host) = HeaderValue::from_str(&address.to_string()) {
        headers.insert(header::HOST, host);
    }
    front_proxy_headers::set(&mut headers, &context.identity);
    headers
}

/// Takes away what was about the connection that a message came over.
fn forget_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.into_iter().chain(OF_CONNECTION) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

fn is_redirect(answer: &Response<Incoming>) -> bool {
    answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION)
}

fn redirected() -> Response<Body> {
    let mut response = Response::new(Body::from(REDIRECTED.as_bytes().to_vec()));
    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
    response
}

fn give_back(context: &Context, answer: Response<Incoming>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    forget_connection(&mut parts.headers);
    for name in OF_OTHER_SITES {
        parts.headers.remove(name);
    }
    parts.version = http::Version::HTTP_11;
    // What lasts ends with the listener.
    let closing = context.closing.clone();
    let chunks = BodyStream::new(body).filter_map(|frame| async {
        match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(problem) => Some(Err(problem.into())),
        }
    });
    let chunks = chunks.take_until(Box::pin(closing.cancelled_owned()));
    Response::from_parts(parts, Body::stream(chunks))
}

/// A failure as Go's HTTP server writes it: one line of text.
fn failure(code: u16, text: &str) -> Response<Body> {
    let mut response = response::text(code, format!("{text}\n"));
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "1"),
            ("transfer-encoding", "chunked"),
            ("accept", "application/json"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        forget_connection(&mut headers);
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["accept"]);
    }
}
