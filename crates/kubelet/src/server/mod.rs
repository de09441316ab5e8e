//! The kubelet's HTTPS server: logs, figures, health, the pods it works on, and the way to exec, attach
//! and port-forward. Every caller shows a client certificate or a token and is authorized by the API
//! server.

mod authorize;
mod cadvisor;
mod checkpoint;
mod figures;
pub mod health;
mod log_file;
mod log_query;
mod logs;
mod metrics;
mod node_logs;
mod own;
mod requests;
mod resources;
mod reviews;
mod running_pods;
mod sessions;

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use serving::{Bounds, Connected, Ledger, Slot};
use tokio::net::TcpListener;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use self::{authorize::User, reviews::Reviews};
use crate::{node_context::NodeContext, pods::Pods};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// As upstream's router says it.
const NOT_ALLOWED: &str = "405: Method Not Allowed";

/// Serves until `shutdown`.
pub async fn run(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    node: Arc<NodeContext>,
    pods: Pods,
    shutdown: CancellationToken,
) {
    let reviews = Arc::new(Reviews::new(node.environment.clone()));
    let connected = move |connected: Connected<'_>| {
        let user = authorize::user_of(connected.certificates);
        let slot = connected.slot.clone();
        if let Some(user) = &user {
            // Without a place as a user the connection stays a stranger's until its first request
            // is refused.
            let _ = slot.authenticated(&user.name);
        }
        let (node, pods, reviews) = (node.clone(), pods.clone(), reviews.clone());
        move |request: Request<Incoming>| {
            let (node, pods, reviews) = (node.clone(), pods.clone(), reviews.clone());
            let (user, slot) = (user.clone(), slot.clone());
            async move {
                let timed = requests::Timed::begin(&node.measures, request.method(), request.uri());
                let response = admit(&node, &pods, &reviews, (user, slot), request).await;
                drop(timed);
                response
            }
        }
    };
    let ledger = Ledger::new(Bounds::default());
    // Connections that are open end with the runtime: a kubelet that stops waits for nobody.
    serving::serve(listener, tls, ledger, shutdown, connected).await;
}

/// Who asks, and whether they may.
async fn admit(
    node: &Arc<NodeContext>,
    pods: &Pods,
    reviews: &Reviews,
    (user, slot): (Option<User>, Slot),
    request: Request<Incoming>,
) -> Response<Body> {
    let user = match user {
        Some(user) => Some(user),
        None => authorize::user_of_token(node, reviews, request.headers()).await,
    };
    let Some(user) = user else {
        return text(StatusCode::UNAUTHORIZED, "Unauthorized");
    };
    if slot.authenticated(&user.name).is_err() {
        let message = "this user has too many open connections to the kubelet";
        return text(StatusCode::TOO_MANY_REQUESTS, message);
    }
    let (method, path) = (request.method(), request.uri().path());
    match authorize::check(node, reviews, &user, method, path).await {
        Ok(()) => answer(node, pods, request).await,
        Err(refusal) => text(refusal.status, refusal.message),
    }
}

async fn answer(
    node: &Arc<NodeContext>,
    pods: &Pods,
    request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if !node.configuration.enable_debugging_handlers && is_for_debugging(&parts) {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "Debug endpoints are disabled.",
        );
    }
    if let Some(target) = sessions::Target::parse(&parts, request.uri().query()) {
        return match sessions::answer(node, pods, target, request).await {
            Ok(response) => response,
            Err(refusal) => text(refusal.status, refusal.message),
        };
    }
    if let ["checkpoint", namespace, name, container] = parts.as_slice()
        && request.method() == Method::POST
    {
        let query = request.uri().query().unwrap_or_default();
        return match checkpoint::make(node, pods, namespace, name, container, query).await {
            Ok(list) => json(list.to_string()),
            Err(refusal) => text(refusal.status, refusal.message),
        };
    }
    let is_head = request.method() == Method::HEAD && answers_head(&parts);
    if request.method() != Method::GET && !is_head {
        return text(StatusCode::METHOD_NOT_ALLOWED, NOT_ALLOWED);
    }
    match parts.as_slice() {
        ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] => health(
            pods.is_stuck(node.environment.now_micros()),
            parts.get(1).copied(),
        ),
        ["pods"] => {
            let items: Vec<_> = pods.list();
            let list = serde_json::json!({
                "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items,
            });
            json(list.to_string())
        }
        ["runningpods"] => match running_pods::list(node).await {
            Ok(list) => json(list.to_string()),
            Err(status) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                crate::images::rpc_error(&status),
            ),
        },
        ["logs", rest @ ..] if node.configuration.enable_system_log_handler => {
            let query = request.uri().query().unwrap_or_default();
            let asked = match node.configuration.enable_system_log_query {
                true => log_query::answer(query, rest.is_empty()).await,
                false => log_query::Asked::Path,
            };
            match asked {
                log_query::Asked::Answer(response) => *response,
                log_query::Asked::Path => node_logs::answer(rest, path.ends_with('/')).await,
                log_query::Asked::File(file) => {
                    let parts = file.split(['/', '\\']).filter(|part| !part.is_empty());
                    node_logs::answer(&parts.collect::<Vec<_>>(), false).await
                }
            }
        }
        ["logs", ..] => text(StatusCode::METHOD_NOT_ALLOWED, "logs endpoint is disabled."),
        ["stats", "summary"] | ["metrics", ..] | ["configz"] => {
            figures::answer(
                node,
                pods,
                &parts,
                request.uri().query().unwrap_or_default(),
            )
            .await
        }
        ["containerLogs", namespace, name, container] => {
            let query = request.uri().query().unwrap_or_default();
            let options = match logs::Options::parse(query, node.environment.now()) {
                Ok(options) => options,
                Err(message) => return text(StatusCode::BAD_REQUEST, message),
            };
            match logs::open(node, pods, namespace, name, container, options).await {
                Ok(chunks) => {
                    let frames = ReceiverStream::new(chunks).map(|chunk| Ok(Frame::data(chunk)));
                    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
                    let plain = http::HeaderValue::from_static("text/plain");
                    response
                        .headers_mut()
                        .insert(http::header::CONTENT_TYPE, plain);
                    response
                }
                Err(refusal) => text(refusal.status, refusal.message),
            }
        }
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

/// Upstream's router has routes for GET alone; what does not pass it takes any method.
fn answers_head(parts: &[&str]) -> bool {
    matches!(parts.first(), Some(&"healthz" | &"metrics" | &"configz"))
}

/// What `enableDebuggingHandlers: false` takes away.
fn is_for_debugging(parts: &[&str]) -> bool {
    let first = parts.first().copied().unwrap_or_default();
    [
        "run",
        "exec",
        "attach",
        "portForward",
        "containerLogs",
        "runningpods",
        "debug",
        "logs",
    ]
    .contains(&first)
}

/// `ok`, or what is wrong; `part` asks for one check alone.
fn health(stuck: bool, part: Option<&str>) -> Response<Body> {
    if stuck && matches!(part, None | Some("syncloop")) {
        let message = match part {
            None => {
                "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"
            }
            Some(_) => "internal server error: sync Loop took longer than expected\n",
        };
        return text(StatusCode::INTERNAL_SERVER_ERROR, message);
    }
    text(StatusCode::OK, "ok")
}

/// A request that is not served, and why.
pub struct Refusal {
    pub status: StatusCode,
    pub message: String,
}

fn text(status: StatusCode, message: impl Into<String>) -> Response<Body> {
    let body = Full::new(Bytes::from(message.into()));
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, plain);
    response
}

fn json(page: String) -> Response<Body> {
    let mut response = text(StatusCode::OK, page);
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_names_the_part_that_failed() {
        assert_eq!(health(false, None).status(), StatusCode::OK);
        assert_eq!(health(true, Some("ping")).status(), StatusCode::OK);
        for part in [None, Some("syncloop")] {
            let status = health(true, part).status();
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}
