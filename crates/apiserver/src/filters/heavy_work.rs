//! Moves requests over much data off the runtime's threads. How many run at once is
//! [`crate::heavy`]'s.

use std::future::Future;

use api::{Resource, Status};

use crate::cache::key_of;
use crate::context::Context;
use crate::heavy::{LARGE, LARGE_LIST};
use crate::identity::NODES;

/// Whether so much data has to be worked on that others would notice.
pub(super) fn is_heavy(context: &Context, resource: &Resource, body: &[u8]) -> bool {
    if body.len() >= LARGE {
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
            return kind.is_some_and(|kind| kind.len() >= LARGE_LIST);
        }
        _ => return false,
    }
    let key = key_of(&info.namespace, &info.name);
    let entry = server.cache.of(resource).and_then(|kind| kind.get(&key));
    entry.is_some_and(|entry| body.len() + entry.bytes.len() >= LARGE)
}

/// Runs the work of a heavy request in its turn.
pub(super) async fn run<T: Send + 'static>(
    context: &Context,
    in_process: bool,
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let identity = &context.identity;
    let is_own = in_process || identity.groups().iter().any(|group| group == NODES);
    let heavy = &context.server.heavy;
    heavy.run(identity.user(), is_own, work).await
}
