//! One request's way: authentication, authorization, dispatch to a verb, errors made answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::selector::FieldSelector;
use api::{Reason, Resource, Status};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

use crate::authentication::{Peer, Remembered};
use crate::authorization::Attributes;
use crate::body::{Body, RequestBody};
use crate::cache::key_of;
use crate::deadline;
use crate::endpoints;
use crate::heavy;
use crate::https;
use crate::identity::{Identity, NODES};
use crate::impersonation;
use crate::metrics::Served;
use crate::negotiate::Output;
use crate::options;
use crate::query::Query;
use crate::request::RequestInfo;
use crate::response;
use crate::reviews;
use crate::server::{Context, Server};
use crate::subresources::{self, connect, not_allowed, not_served};
use crate::usage;
use crate::verbs::{create, delete, get, list, patch, update, watch};

/// The largest request body, as upstream has it.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Who sent a request, before authentication.
pub(crate) enum Caller {
    InProcess(Arc<Identity>),
    Network {
        peer: Peer,
        remembered: Remembered,
        closing: CancellationToken,
        slot: serving::Slot,
    },
}

/// The future is boxed: its insides are deep, and callers need not know them to know it is `Send`.
pub(crate) fn handle(
    server: Arc<Server>,
    request: Request<RequestBody>,
    caller: Caller,
) -> BoxFuture<'static, Response<Body>> {
    Box::pin(answer(server, request, caller))
}

async fn answer(
    server: Arc<Server>,
    request: Request<RequestBody>,
    caller: Caller,
) -> Response<Body> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let _in_flight = InFlight::begin(&server, reads);
    let begun = tokio::time::Instant::now();
    let query = Query::parse(request.uri().query());
    let path = request.uri().path();
    let kinds = server.catalogue.snapshot();
    let Some(info) = RequestInfo::parse(&kinds, request.method(), path, &query) else {
        return response::text(400, "400 Bad Request: the path is not properly encoded\n");
    };
    let served = Served::of(&info);
    let accept: Vec<HeaderValue> = request.headers().get_all(ACCEPT).iter().cloned().collect();
    let mut response = match respond(&server, request, (info, query), caller).await {
        Ok(response) => response,
        Err(status) => {
            let accept = accept.into_iter().map(|value| (ACCEPT, value));
            server.fail(&status, &HeaderMap::from_iter(accept))
        }
    };
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache, private"));
    let code = response.status().as_u16();
    server.metrics.record(served, code, begun.elapsed());
    response
}

/// Counts a request until it is answered, or given up by a client that went away.
struct InFlight {
    server: Arc<Server>,
    reads: bool,
}

impl InFlight {
    fn begin(server: &Arc<Server>, reads: bool) -> InFlight {
        let counter = server.metrics.in_flight(reads);
        counter.fetch_add(1, Ordering::Relaxed);
        InFlight {
            server: server.clone(),
            reads,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let counter = self.server.metrics.in_flight(self.reads);
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn respond(
    server: &Arc<Server>,
    request: Request<RequestBody>,
    about: (RequestInfo, Query),
    caller: Caller,
) -> Result<Response<Body>, Status> {
    let limit = deadline::of(&about.0, &about.1)?;
    let (mut parts, body) = request.into_parts();
    let method = parts.method.clone();
    let line = connect::Line {
        uri: parts.uri.clone(),
        upgrade: parts.extensions.remove(),
        method: method.clone(),
    };
    let in_process = matches!(caller, Caller::InProcess(_));
    let context = match admit_caller(server, parts, about, caller).await {
        Ok(context) => context,
        Err((status, headers)) => {
            Box::pin(discard(body, &headers)).await;
            return Err(status);
        }
    };
    if connect::is_wanted(&context) {
        return Box::pin(connect::handle(context, line, body)).await;
    }
    let work = dispatch(context, method, body, in_process);
    match limit {
        // Of what lasts, the head of the answer comes quickly; its body is a stream.
        Some(limit) => match tokio::time::timeout(limit, work).await {
            Ok(result) => result,
            Err(_) => Err(Status::new(
                Reason::Timeout,
                "request did not complete within the allotted timeout",
            )),
        },
        None => work.await,
    }
}

/// Who asks, and whether they may.
async fn admit_caller(
    server: &Arc<Server>,
    parts: Parts,
    (info, query): (RequestInfo, Query),
    caller: Caller,
) -> Result<Context, (Status, HeaderMap)> {
    let (identity, closing) = match caller {
        Caller::InProcess(identity) => (Ok(identity), CancellationToken::new()),
        Caller::Network {
            peer,
            remembered,
            closing,
            slot,
        } => {
            let headers = &parts.headers;
            let authenticator = &server.authenticator;
            let authenticated = authenticator.authenticate(&peer, &remembered, headers);
            let noted = authenticated.and_then(|identity| {
                https::note_user(&slot, &identity)?;
                Ok(identity)
            });
            (noted, closing)
        }
    };
    let identity = identity
        .and_then(|identity| impersonation::assume(&server.authorizer, identity, &parts.headers));
    let identity = match identity {
        Ok(identity) => identity,
        Err(status) => return Err((status, parts.headers)),
    };
    let mut parts = parts;
    impersonation::forget(&mut parts.headers);
    let mut context = Context::new(server.clone(), identity, info, query, parts.headers);
    context.closing = closing;
    match authorize(&context) {
        Ok(()) => Ok(context),
        Err(status) => Err((status, context.headers)),
    }
}

/// Takes in the body of a request that was refused, so that the client, still sending over
/// HTTP/1.1, gets to read the answer instead of a reset connection. One that waits to be asked for
/// its body is not asked.
async fn discard(mut body: RequestBody, headers: &HeaderMap) {
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

fn authorize(context: &Context) -> Result<(), Status> {
    let info = &context.info;
    let attributes = match endpoints::trace_target(&info.path) {
        // A pod's timeline is for those who may read the pod.
        Some((namespace, name)) if matches!(info.verb, "get" | "head") => Attributes {
            verb: "get".to_string(),
            is_resource: true,
            resource: "pods".to_string(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            ..Attributes::default()
        },
        _ => selected(info, context.query.get("fieldSelector")),
    };
    context
        .server
        .authorizer
        .check(&context.identity, &attributes)
}

/// The question about a request, narrowed by its field selector where the verb honours one. The
/// selectors of watch paths do not count, as upstream has it.
fn selected(info: &RequestInfo, field_selector: &str) -> Attributes {
    let mut attributes = Attributes::of(info);
    let is_collection = matches!(info.verb, "list" | "watch" | "deletecollection");
    if !is_collection || !info.name.is_empty() || info.is_watch_path {
        return attributes;
    }
    let selector = FieldSelector::parse(field_selector).unwrap_or_default();
    let exact = selector.requirements().iter().filter(|one| !one.negated);
    attributes.fields = exact
        .map(|one| (one.field.clone(), one.value.clone()))
        .collect();
    // Asking for the one object of a name is allowed to those who may see that object.
    if let Some(name) = selector.exact("metadata.name")
        && info.verb != "deletecollection"
        && api::metadata::names::path_segment(name, false).is_empty()
    {
        attributes.name = name.to_string();
    }
    attributes
}

async fn dispatch(
    mut context: Context,
    method: Method,
    body: RequestBody,
    in_process: bool,
) -> Result<Response<Body>, Status> {
    let body = match method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => read_body(body, &context.headers).await?,
    };
    if method == Method::HEAD && !endpoints::answers_head(&context) {
        return Err(not_allowed());
    }
    if !context.info.is_resource {
        return Box::pin(endpoints::handle(&context, &body)).await;
    }
    let info = &context.info;
    let Some(resource) = info.resource.clone() else {
        if info.group == usage::GROUP {
            return usage::handle(&context).await;
        }
        return match endpoints::is_group(&context.server, &info.group) {
            true => Err(not_served()),
            false => Ok(endpoints::not_found()),
        };
    };
    info.check_names()?;
    if info.is_watch_path && !matches!(method, Method::GET | Method::HEAD) {
        return Err(not_allowed());
    }
    let needs_namespace = !matches!(info.verb, "list" | "watch");
    if resource.namespaced && info.namespace.is_empty() && needs_namespace {
        return Err(not_allowed());
    }
    let settled = settle(&mut context, &resource);
    let context = Arc::new(context);
    let result = match settled {
        Ok(()) if is_heavy(&context, &resource, &body) => {
            let identity = context.identity.clone();
            let is_own = in_process || identity.groups().iter().any(|group| group == NODES);
            let work = {
                let context = context.clone();
                let resource = resource.clone();
                async move { verb(&context, &resource, &body).await }
            };
            let heavy = &context.server.heavy;
            Box::pin(heavy.run(identity.user(), is_own, work)).await
        }
        Ok(()) => verb(&context, &resource, &body).await,
        Err(status) => Err(status),
    };
    // Who is refused is warned as well.
    let mut response = match result {
        Ok(response) => response,
        Err(status) => context.server.fail(&status, &context.headers),
    };
    response::warn(&mut response, &context.take_warnings());
    Ok(response)
}

/// Whether so much data has to be worked on that others would notice.
fn is_heavy(context: &Context, resource: &Resource, body: &[u8]) -> bool {
    if body.len() >= heavy::LARGE {
        return true;
    }
    let (info, server) = (&context.info, &context.server);
    // What is answered as it is stored is copied, not decoded.
    let decodes = !context.output.is_stored_form();
    match info.verb {
        "update" | "patch" | "delete" => {}
        "get" if decodes => {}
        "list" if decodes => {
            let kind = server.cache.of(resource);
            return kind.is_some_and(|kind| kind.len() >= heavy::LARGE_LIST);
        }
        _ => return false,
    }
    let key = key_of(&info.namespace, &info.name);
    let entry = server.cache.of(resource).and_then(|kind| kind.get(&key));
    entry.is_some_and(|entry| body.len() + entry.bytes.len() >= heavy::LARGE)
}

/// What holds for every verb: what can be sent and answered, and the options.
fn settle(context: &mut Context, resource: &Resource) -> Result<(), Status> {
    let verb = context.info.verb;
    let subresource = &context.info.subresource;
    if !subresource.is_empty() && resource.subresource(subresource).is_none() {
        return Err(not_served());
    }
    check_media_types(context)?;
    if resource.has_verb(verb)
        && context.info.subresource.is_empty()
        && !is_misplaced(&context.info)
        && let Some(word) = api::warnings::deprecation(resource)
    {
        context.warn(word);
    }
    context.dry_run = options::check(context)?;
    context.output = match verb {
        "watch" => Output::negotiate_stream(&context.headers)?,
        _ => Output::negotiate(&context.headers)?,
    };
    Ok(())
}

/// Upstream's router refuses what no handler of the path takes or gives, in its own words.
fn check_media_types(context: &Context) -> Result<(), Status> {
    if context.info.verb == "patch" {
        patch::PatchType::of_request(context)?;
    }
    let connects = matches!(
        context.info.subresource.as_str(),
        "log" | "exec" | "attach" | "portforward" | "proxy"
    );
    match connects {
        true => Ok(()),
        false => Output::check_router(&context.headers, context.info.verb),
    }
}

/// A watch of one object by its path is a watch all the same. What changes one object needs its
/// name, and what makes one must not have it.
fn is_misplaced(info: &RequestInfo) -> bool {
    match info.verb {
        "create" => !info.name.is_empty(),
        "update" | "patch" | "delete" => info.name.is_empty(),
        _ => false,
    }
}

async fn verb(
    context: &Arc<Context>,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let info = &context.info;
    if !info.subresource.is_empty() {
        return Box::pin(subresources::handle(context, resource, body)).await;
    }
    if is_misplaced(info) || !resource.has_verb(info.verb) {
        return Err(not_allowed());
    }
    if reviews::is_review(resource) {
        return Box::pin(reviews::create(context, resource, body)).await;
    }
    if resource.group.is_empty() && resource.plural == "bindings" {
        return Box::pin(subresources::bind(context, body)).await;
    }
    match info.verb {
        "get" => get::get(context, resource).await,
        // Boxed: their futures are many times as large as that of a get, which would carry them too.
        "list" => Box::pin(list::list(context, resource)).await,
        "watch" => Box::pin(watch::watch(context.clone(), resource)).await,
        "create" => Box::pin(create::create(context, resource, body)).await,
        "update" => Box::pin(update::update(context, resource, body)).await,
        "patch" => Box::pin(patch::patch(context, resource, body)).await,
        "delete" => Box::pin(delete::delete(context, resource, body)).await,
        "deletecollection" => Box::pin(delete::delete_collection(context, resource, body)).await,
        _ => Err(not_allowed()),
    }
}

async fn read_body(mut body: RequestBody, headers: &HeaderMap) -> Result<Bytes, Status> {
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
