//! The hooks that may only refuse: called at the same time, and all of them must agree.

use std::sync::Arc;

use api::{Resource, Status};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::call::{Asked, check_time};
use super::is_exempt;
use super::matching::matched;
use super::request::{Objects, Request, json_or_null};
use crate::admission::Admitted;
use crate::admission_hooks::{Compiled, Operation, Phase};

/// How many hooks one request calls at the same time.
const MOST_AT_ONCE: usize = 64;

/// Asks the hooks whether what would be written is allowed.
pub(crate) async fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    let server = &admitted.context.server;
    let hooks = server
        .hooks
        .validating
        .current(&server.webhooks, &server.hooks.metrics);
    let concerned = hooks.concerning(&admitted.requested.plural);
    if concerned.is_empty() || is_exempt(admitted) {
        return Ok(());
    }
    // Boxed: most requests never get here and need not carry it.
    Box::pin(ask(admitted, &hooks, concerned)).await
}

/// A hook that is to be called, with the objects in the version that it is asked about.
struct Invocation {
    position: usize,
    resource: Arc<Resource>,
    objects: Arc<[Vec<u8>; 2]>,
}

async fn ask(admitted: &Admitted<'_>, hooks: &Compiled, concerned: &[usize]) -> Result<(), Status> {
    let request = Request::of(admitted);
    let objects = match admitted.operation {
        Operation::Delete => Objects {
            new: None,
            old: Some(admitted.object),
        },
        _ => Objects {
            new: Some(admitted.object),
            old: admitted.old,
        },
    };
    let mut invocations: Vec<Invocation> = Vec::new();
    for &position in concerned {
        let hook = hooks.hook(position);
        let Some(resource) = matched(&request, hook, Phase::Validating, objects).await? else {
            continue;
        };
        let known = invocations.iter().find(|known| known.resource == resource);
        let in_version = match known {
            Some(known) => known.objects.clone(),
            None => {
                let shown = request.both_shown(&resource, objects).await?;
                Arc::new(shown.map(|object| json_or_null(object.as_deref())))
            }
        };
        invocations.push(Invocation {
            position,
            resource,
            objects: in_version,
        });
    }
    if invocations.is_empty() {
        return Ok(());
    }
    check_time(admitted.context)?;
    let places = Semaphore::new(MOST_AT_ONCE);
    let calls: FuturesOrdered<_> = invocations
        .iter()
        .enumerate()
        .map(|(index, invocation)| call(&request, hooks, invocation, index, &places))
        .collect();
    // All are waited for. Where several refuse, the first in their order is told.
    let refusals: Vec<Option<Status>> = calls.collect().await;
    match refusals.into_iter().flatten().next() {
        Some(status) => Err(status),
        None => Ok(()),
    }
}

async fn call(
    request: &Request<'_>,
    hooks: &Compiled,
    invocation: &Invocation,
    index: usize,
    places: &Semaphore,
) -> Option<Status> {
    // The semaphore is never closed.
    let _place = places.acquire().await;
    let asked = Asked {
        request,
        phase: Phase::Validating,
        hook: hooks.hook(invocation.position),
        resource: &invocation.resource,
    };
    let began = Instant::now();
    let [object, old_object] = &*invocation.objects;
    let answered = asked.call(object, old_object).await;
    asked.count(began, answered.as_ref().err());
    match answered {
        Ok(_) => None,
        Err(failure) => asked.consequence(failure, 0, index),
    }
}
