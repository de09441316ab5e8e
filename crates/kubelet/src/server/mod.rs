//! The kubelet's HTTPS server: logs, figures, health, the pods it works on, and the way to exec, attach
//! and port-forward. Every caller shows a client certificate or a token and is authorized by the API
//! server.

mod authorize;
mod cadvisor;
mod checkpoint;
mod figures;
pub mod health;
mod log_file;
mod log_options;
mod log_query;
mod logs;
mod metrics;
mod node_logs;
mod own;
mod query;
mod requests;
mod resources;
mod reviews;
mod running_pods;
mod sessions;
mod user;

use std::{convert::Infallible, sync::Arc};

use crate::{
    cgroups::Cgroups, images::Images, node_settings::NodeSettings, pods::Pods, probes::ProbeCounts,
    shutdown_state::ShutdownState, stats::Sampler, telemetry::Telemetry, volumes::Volumes,
};
use bytes::Bytes;
use environment::Environment;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use serving::{Bounds, Connected, Ledger, Slot};
use tokio::net::TcpListener;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use self::{log_options::LogOptions, reviews::Reviews, user::User};

/// The parts of the kubelet that the server answers from.
pub struct Backend {
    pub settings: Arc<NodeSettings>,
    pub telemetry: Telemetry,
    pub environment: Environment,
    pub client: kube::Client,
    pub cri: cri::Client,
    pub pods: Pods,
    pub sampler: Arc<Sampler>,
    pub volumes: Volumes,
    pub images: Arc<Images>,
    pub cgroups: Cgroups,
    pub probe_counts: Arc<ProbeCounts>,
    pub shutdown: Arc<ShutdownState>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The message of upstream's router.
const NOT_ALLOWED: &str = "405: Method Not Allowed";

/// Serves until `shutdown`.
pub async fn run(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    backend: Arc<Backend>,
    shutdown: CancellationToken,
) {
    let reviews = Arc::new(Reviews::new(backend.environment.clone()));
    let connected = move |connected: Connected<'_>| {
        let user = user::of_certificate(connected.certificates);
        let slot = connected.slot.clone();
        if let Some(user) = &user {
            // Without a place as a user the connection stays a stranger's until its first request
            // is refused.
            let _ = slot.authenticated(&user.name);
        }
        let (backend, reviews) = (backend.clone(), reviews.clone());
        move |request: Request<Incoming>| {
            let (backend, reviews) = (backend.clone(), reviews.clone());
            let (user, slot) = (user.clone(), slot.clone());
            async move {
                let timed = requests::Timed::begin(
                    &backend.telemetry.measures,
                    request.method(),
                    request.uri(),
                );
                let response = admit(&backend, &reviews, (user, slot), request).await;
                drop(timed);
                response
            }
        }
    };
    let ledger = Ledger::new(Bounds::default());
    // Connections that are open end with the runtime: a kubelet that stops does not wait for clients.
    serving::serve(listener, tls, ledger, shutdown, connected).await;
}

/// Authenticates and authorizes a request, then answers it.
async fn admit(
    backend: &Arc<Backend>,
    reviews: &Reviews,
    (user, slot): (Option<User>, Slot),
    request: Request<Incoming>,
) -> Response<Body> {
    let user = match user {
        Some(user) => Some(user),
        None => authorize::user_of_token(backend, reviews, request.headers()).await,
    };
    let Some(user) = user else {
        return text(StatusCode::UNAUTHORIZED, "Unauthorized");
    };
    if slot.authenticated(&user.name).is_err() {
        let message = "this user has too many open connections to the kubelet";
        return text(StatusCode::TOO_MANY_REQUESTS, message);
    }
    let (method, path) = (request.method(), request.uri().path());
    match authorize::check(backend, reviews, &user, method, path).await {
        Ok(()) => answer(backend, request).await,
        Err(refusal) => text(refusal.status, refusal.message),
    }
}

async fn answer(backend: &Arc<Backend>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if !backend.settings.configuration.enable_debugging_handlers && is_for_debugging(&parts) {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "Debug endpoints are disabled.",
        );
    }
    if let Some(target) = sessions::Target::parse(&parts, request.uri().query()) {
        return match sessions::answer(backend, target, request).await {
            Ok(response) => response,
            Err(refusal) => text(refusal.status, refusal.message),
        };
    }
    if let ["checkpoint", namespace, name, container] = parts.as_slice()
        && request.method() == Method::POST
    {
        let query = request.uri().query().unwrap_or_default();
        return match checkpoint::make(backend, namespace, name, container, query).await {
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
            backend.pods.is_stuck(backend.environment.now_micros()),
            parts.get(1).copied(),
        ),
        ["pods"] => {
            let items: Vec<_> = backend.pods.list();
            let list = serde_json::json!({
                "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items,
            });
            json(list.to_string())
        }
        ["runningpods"] => match running_pods::list(&backend.cri).await {
            Ok(list) => json(list.to_string()),
            Err(status) => text(
                StatusCode::INTERNAL_SERVER_ERROR,
                crate::runtime::rpc_error(&status),
            ),
        },
        ["logs", rest @ ..] if backend.settings.configuration.enable_system_log_handler => {
            let query = request.uri().query().unwrap_or_default();
            let asked = match backend.settings.configuration.enable_system_log_query {
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
            figures::answer(backend, &parts, request.uri().query().unwrap_or_default()).await
        }
        ["containerLogs", namespace, name, container] => {
            let query = request.uri().query().unwrap_or_default();
            let options = match LogOptions::parse(query, backend.environment.now()) {
                Ok(options) => options,
                Err(error) => return text(StatusCode::BAD_REQUEST, error.to_string()),
            };
            match logs::open(backend, namespace, name, container, options).await {
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

/// Whether `enableDebuggingHandlers: false` switches the path off.
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
