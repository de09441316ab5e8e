//! The way to one hook: its connections, kept for reuse, and one call over them.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Reason, Status, Value};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::dial::{self, Connection, Message};
use super::resolve::{self, ResolveServices};
use super::target::{Place, Target};
use super::{Error, Failure, tls, words};

/// Calls of one hook that are under way at the same time; the others wait, within their time.
const MOST_CALLS: usize = 256;
/// Connections that are kept although they are idle, as upstream keeps them.
const MOST_IDLE: usize = 25;
/// How long an unused connection is kept.
const LONGEST_IDLE: Duration = Duration::from_secs(90);
/// How much of an answer that is no success is shown.
const MOST_SHOWN: usize = 2048;

/// The way to one hook. It is dialled when it is needed.
pub(crate) struct Channel {
    target: Target,
    connector: TlsConnector,
    services: Arc<dyn ResolveServices>,
    calls: Semaphore,
    /// Held for moments only, never across an await.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// HTTP/1.1, the one used last at the end.
    idle: VecDeque<(Connection, Instant)>,
    /// HTTP/2, shared by all calls.
    shared: Option<hyper::client::conn::http2::SendRequest<Full<Bytes>>>,
}

/// What one call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For everything from dialling to the end of the answer.
    pub time: Duration,
    /// Of the answer.
    pub bytes: usize,
}

/// Why a call has no answer, in the words of upstream's client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The hook could not be spoken to.
    #[error("Post \"{url}\": {problem}")]
    Unreachable { url: String, problem: String },
    /// Its answer broke off.
    #[error("unexpected error when reading response body. Please retry. Original error: {0}")]
    Broken(String),
    #[error("the answer of {url} is larger than {limit} bytes")]
    TooLarge { url: String, limit: usize },
    /// It answered something that is no success.
    #[error("{0}")]
    Refused(Status),
}

impl CallError {
    /// The HTTP code that is counted for it.
    pub fn code(&self) -> u16 {
        match self {
            CallError::Refused(status) => status.code(),
            _ => Reason::ServiceUnavailable.code(),
        }
    }
}

impl Channel {
    pub(super) fn new(
        target: Target,
        services: Arc<dyn ResolveServices>,
    ) -> Result<Channel, Error> {
        let connector = tls::connector(&target.ca_bundle, target.place.offers_http2())?;
        Ok(Channel {
            target,
            connector,
            services,
            calls: Semaphore::new(MOST_CALLS),
            kept: Mutex::default(),
        })
    }

    /// Posts a JSON document and returns the body of the answer.
    pub async fn post(&self, body: Bytes, limits: Limits) -> Result<Bytes, CallError> {
        let deadline = Instant::now() + limits.time;
        let url = self.url(limits.time);
        let unreachable = |Failure(problem)| CallError::Unreachable {
            url: url.clone(),
            problem,
        };
        let too_late = |_| unreachable(Failure(words::DEADLINE.to_string()));
        let permit = timeout_at(deadline, self.calls.acquire()).await;
        let _permit = permit.map_err(too_late)?;
        let message = self.message(&url, body).map_err(&unreachable)?;
        let asked = timeout_at(deadline, self.exchange(message)).await;
        let (answer, connection) = asked.map_err(too_late)?.map_err(&unreachable)?;
        let read = timeout_at(deadline, read(answer, &url, limits.bytes)).await;
        let read = read.map_err(|_| CallError::Broken(words::DEADLINE.to_string()))?;
        // Only a connection whose answer was read to its end can be used again.
        if !matches!(read, Err(CallError::Broken(_) | CallError::TooLarge { .. })) {
            self.keep(connection);
        }
        read
    }

    fn url(&self, time: Duration) -> String {
        let place = &self.target.place;
        // Whole seconds, rounded up.
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let (authority, path) = (place.authority(), place.path());
        format!("https://{authority}{path}?timeout={seconds}s")
    }

    fn message(&self, url: &str, body: Bytes) -> Result<Message, Failure> {
        let uri: http::Uri = url
            .parse()
            .map_err(|_| Failure("the URL is malformed".to_string()))?;
        Request::post(uri)
            .header(HOST, self.target.place.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|problem| Failure(problem.to_string()))
    }

    /// Sends a request over a connection that is kept, or over a new one.
    async fn exchange(
        &self,
        mut message: Message,
    ) -> Result<(Response<Incoming>, Connection), Failure> {
        // A kept connection may just have been closed by the other side. What was not sent over it
        // is sent over a new one; there are only so many that are kept.
        while let Some(mut connection) = self.take() {
            match connection.ask(for_connection(message, &connection)).await {
                Ok(answer) => return Ok((answer, connection)),
                Err(unanswered) => match unanswered.unsent {
                    Some(unsent) => message = *unsent,
                    None => return Err(unanswered.problem),
                },
            }
        }
        let place = self.resolve()?;
        let name = self.target.place.server_name();
        let mut connection = dial::connect(&self.connector, &place, &name).await?;
        if let Connection::Http2(sender) = &connection {
            self.kept.lock().shared = Some(sender.clone());
        }
        let message = for_connection(message, &connection);
        match connection.ask(message).await {
            Ok(answer) => Ok((answer, connection)),
            Err(unanswered) => Err(unanswered.problem),
        }
    }

    fn resolve(&self) -> Result<resolve::Place, Failure> {
        match &self.target.place {
            Place::Service {
                namespace,
                name,
                port,
                ..
            } => {
                let found = self.services.resolve(namespace, name, *port);
                found.map_err(|problem| Failure(problem.to_string()))
            }
            Place::Url { host, port, .. } => Ok(match host.parse::<IpAddr>() {
                Ok(address) => resolve::Place::Address((address, *port).into()),
                Err(_) => resolve::Place::Host(host.clone(), *port),
            }),
        }
    }

    /// A connection that is kept and, as far as is known, still open.
    fn take(&self) -> Option<Connection> {
        let mut kept = self.kept.lock();
        if let Some(shared) = &kept.shared {
            match shared.is_closed() {
                false => return Some(Connection::Http2(shared.clone())),
                true => kept.shared = None,
            }
        }
        while let Some((connection, since)) = kept.idle.pop_back() {
            if connection.is_open() && since.elapsed() < LONGEST_IDLE {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&self, connection: Connection) {
        if let Connection::Http2(_) = connection {
            return;
        }
        let mut kept = self.kept.lock();
        let is_stale = |(connection, since): &(Connection, Instant)| {
            !connection.is_open() || since.elapsed() >= LONGEST_IDLE
        };
        while kept.idle.front().is_some_and(is_stale) || kept.idle.len() >= MOST_IDLE {
            kept.idle.pop_front();
        }
        kept.idle.push_back((connection, Instant::now()));
    }
}

/// HTTP/1.1 has the path alone in its first line and the host in a header, HTTP/2 both in its own
/// fields.
fn for_connection(mut message: Message, connection: &Connection) -> Message {
    match connection {
        Connection::Http2(_) => {
            message.headers_mut().remove(HOST);
        }
        Connection::Http1(_) => {
            let path = message.uri().path_and_query().cloned();
            let host = message.uri().authority().map(ToString::to_string);
            if let Some(host) = host.and_then(|host| host.parse().ok()) {
                message.headers_mut().insert(HOST, host);
            }
            if let Some(path) = path {
                *message.uri_mut() = path.into();
            }
        }
    }
    message
}

/// The body of an answer that is a success; what other answers mean is told.
async fn read(answer: Response<Incoming>, url: &str, limit: usize) -> Result<Bytes, CallError> {
    let (parts, body) = answer.into_parts();
    let too_large = || CallError::TooLarge {
        url: url.to_string(),
        limit,
    };
    let collected = match Limited::new(body, limit).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(problem) if problem.is::<LengthLimitError>() => return Err(too_large()),
        Err(problem) => return Err(CallError::Broken(problem.to_string())),
    };
    match parts.status.as_u16() {
        200..=206 => Ok(collected),
        code => Err(CallError::Refused(refusal(
            code,
            &parts.headers,
            &collected,
        ))),
    }
}

/// What an answer that is no success means. Redirects are among them: they are not followed.
fn refusal(code: u16, headers: &HeaderMap, body: &[u8]) -> Status {
    let told = Value::from_json(body).ok();
    if let Some(told) = told.filter(|told| told.str_at(&["kind"]) == "Status")
        && told.str_at(&["status"]) != "Success"
        && !told.str_at(&["message"]).is_empty()
    {
        return Status::of_document(told);
    }
    let media_type = headers.get(CONTENT_TYPE);
    let is_text = media_type.is_none_or(|media_type| media_type.as_bytes().starts_with(b"text/"));
    let shown = &body[..body.len().min(MOST_SHOWN)];
    let shown = match is_text {
        true => String::from_utf8_lossy(shown).trim().to_string(),
        false => "unknown".to_string(),
    };
    let (reason, message) = match code {
        400 => (
            Reason::BadRequest,
            "the server rejected our request for an unknown reason",
        ),
        401 => (
            Reason::Unauthorized,
            "the server has asked for the client to provide credentials",
        ),
        403 => (Reason::Forbidden, shown.as_str()),
        404 => (
            Reason::NotFound,
            "the server could not find the requested resource",
        ),
        405 => (
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        ),
        406 if matches!(shown.as_str(), "" | "unknown") => (
            Reason::NotAcceptable,
            "the server was unable to respond with a content type that the client supports",
        ),
        406 => (Reason::NotAcceptable, shown.as_str()),
        409 => (Reason::AlreadyExists, "the server reported a conflict"),
        415 => (Reason::UnsupportedMediaType, shown.as_str()),
        422 => (
            Reason::Invalid,
            "the server rejected our request due to an error in our request",
        ),
        429 => (
            Reason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => (
            Reason::ServiceUnavailable,
            "the server is currently unable to handle the request",
        ),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        500.. => {
            let shown = api::field::quote(&shown);
            let message = format!(
                "an error on the server ({shown}) has prevented the request from succeeding"
            );
            return Status::new(Reason::InternalError, message);
        }
        _ => {
            let message = format!(
                "the server responded with the status code {code} but did not return more information"
            );
            return Status::new(Reason::Unknown, message);
        }
    };
    Status::new(reason, message)
}
