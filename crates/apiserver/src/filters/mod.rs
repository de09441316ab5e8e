//! The filter chain: what every request passes before a verb handles it, in this order. One file per
//! filter; `chain` below is the list as code.
//!
//! 1. [`in_flight`] counts the request until it is answered, then its code and duration.
//! 2. [`crate::request`] reads the path once: what is authorized is what is acted on.
//! 3. [`deadline`] limits the time for an answer, or for its head if the answer is a stream.
//! 4. [`authentication`] finds out who sent the request.
//! 5. Audit is not implemented. Its place is here, where the authenticated user is known and nothing
//!    has been decided yet: it would note the request now and its answer in step 1.
//! 6. [`impersonation`] replaces the identity where a header asks for that and the user may.
//! 7. API priority and fairness is not implemented. Its place is here, where the identity is final
//!    and no work has been done: it would sort the request into a queue and wait for its turn.
//! 8. [`authorization`] refuses what the identity may not do.
//! 9. [`body_limit`] reads the body, up to upstream's limit.
//! 10. [`heavy_work`] moves requests over much data off the runtime's threads.
//!
//! What is refused before step 9 has its body discarded, so that the client reads the answer.
//! Requests for what an extension API server serves leave the chain after step 8 and are passed on
//! by [`crate::aggregation`].
//! Subresources that are connections (exec, attach, port-forward, proxy) leave the chain after step
//! 8: they read the body themselves and last as long as they like. All others end in [`dispatch`].
//!
//! [`dispatch`]: crate::dispatch

mod authentication;
mod authorization;
mod body_limit;
mod deadline;
mod heavy_work;
mod impersonation;
mod in_flight;

use std::sync::Arc;

use api::Status;
use futures::future::BoxFuture;
use http::header::{ACCEPT, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request, Response};

use crate::aggregation::{self, Destination};
use crate::body::{Body, RequestBody};
use crate::context::Context;
use crate::dispatch::{self, Routed};
use crate::front_proxy_headers;
use crate::metrics::Served;
use crate::query::Query;
use crate::request::RequestInfo;
use crate::response;
use crate::server::Server;
use crate::subresources::connect;
use in_flight::InFlight;

pub(crate) use authentication::Caller;

/// Answers a request. The future is boxed: its insides are deep, and callers need not know them to
/// know it is `Send`.
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
    let in_flight = InFlight::begin(&server, request.method());
    let query = Query::parse(request.uri().query());
    let (kinds, path) = (server.kinds.snapshot(), request.uri().path());
    let Some(info) = RequestInfo::parse(&kinds, request.method(), path, &query) else {
        return response::text(400, "400 Bad Request: the path is not properly encoded\n");
    };
    let served = Served::of(&info);
    // Most requests have one such header, for which this allocates nothing.
    let mut accept = request.headers().get_all(ACCEPT).iter().cloned();
    let (accept, more): (Option<HeaderValue>, Vec<HeaderValue>) = (accept.next(), accept.collect());
    let response = match chain(&server, request, (info, query), caller).await {
        Ok(response) => response,
        Err(status) => {
            let accept = accept.into_iter().chain(more);
            let accept = accept.map(|value| (ACCEPT, value));
            response::refused(&server, &status, &HeaderMap::from_iter(accept))
        }
    };
    in_flight.answered(served, response)
}

async fn chain(
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
    let in_process = caller.is_in_process();
    let mut context = match admit_caller(server, parts, about, caller) {
        Ok(context) => context,
        Err(refused) => {
            let (status, headers) = *refused;
            Box::pin(body_limit::discard(body, &headers)).await;
            return Err(status);
        }
    };
    if let Some(remote) = aggregation::route(&context) {
        return match Destination::of(&context, &remote) {
            Ok(destination) => {
                let forwarded = aggregation::forward(context, destination, line, body);
                deadline::within(limit, Box::pin(forwarded)).await
            }
            Err(answer) => {
                Box::pin(body_limit::discard(body, &context.headers)).await;
                Ok(*answer)
            }
        };
    }
    if connect::is_wanted(&context) {
        return Box::pin(connect::handle(context, line, body)).await;
    }
    context.deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
    deadline::within(limit, async move {
        let body = body_limit::read(&method, body, &context.headers).await?;
        let (context, resource) = match dispatch::route(context, &method, &body).await? {
            Routed::Answered(response) => return Ok(response),
            Routed::Verb(context, _, Err(status)) => {
                return Ok(dispatch::answer(&context, Err(status)));
            }
            Routed::Verb(context, resource, Ok(())) => (context, resource),
        };
        let result = match heavy_work::is_heavy(&context, &resource, &body) {
            true => {
                let work = {
                    let context = context.clone();
                    async move { dispatch::verb(&context, &resource, &body).await }
                };
                Box::pin(heavy_work::run(&context, in_process, work)).await
            }
            false => dispatch::verb(&context, &resource, &body).await,
        };
        Ok(dispatch::answer(&context, result))
    })
    .await
}

/// Steps 4 to 8: who asks, and whether they may.
fn admit_caller(
    server: &Arc<Server>,
    mut parts: Parts,
    (info, query): (RequestInfo, Query),
    caller: Caller,
) -> Result<Context, Box<(Status, HeaderMap)>> {
    let (authenticated, closing) = authentication::authenticate(server, caller, &parts.headers);
    let identity = authenticated
        .and_then(|identity| impersonation::assume(&server.authorizer, identity, &parts.headers));
    let identity = match identity {
        Ok(identity) => identity,
        Err(status) => return Err(Box::new((status, parts.headers))),
    };
    impersonation::forget(&mut parts.headers);
    front_proxy_headers::forget(&mut parts.headers);
    let mut context = Context::new(server.clone(), identity, info, query, parts.headers);
    context.closing = closing;
    match authorization::authorize(&context) {
        Ok(()) => Ok(context),
        Err(status) => Err(Box::new((status, context.headers))),
    }
}
