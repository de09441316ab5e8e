//! Whether a hook is called for a request, and about which version of its resource.

use std::sync::Arc;

use api::{Reason, Resource, Status};
use tokio::time::Instant;

use super::request::{Objects, Request};
use crate::admission_hooks::{
    Attributes, Evaluated, Excluded, Hook, Operation, Phase, Question, Selector,
};

/// The version that a hook is to be asked about; `None` if it is not called.
pub(super) async fn matched(
    request: &Request<'_>,
    hook: &Hook,
    phase: Phase,
    objects: Objects<'_>,
) -> Result<Option<Arc<Resource>>, Status> {
    let Some(resource) = matched_version(request, hook) else {
        return Ok(None);
    };
    let selected = is_in_selected_namespace(request, &hook.namespaces, objects).await?
        && is_selected(&hook.objects, objects)?;
    if !selected {
        return Ok(None);
    }
    let holds = conditions_hold(request, hook, phase, &resource, objects).await?;
    Ok(holds.then_some(resource))
}

/// The version that the rules of the hook are about: that of the request, or an equivalent one.
fn matched_version(request: &Request<'_>, hook: &Hook) -> Option<Arc<Resource>> {
    let requested = request.attributes(request.requested);
    if hook.matches(&requested) {
        return Some(request.requested.clone());
    }
    if !hook.may_match_equivalent(&requested) {
        return None;
    }
    let equivalents = request.equivalents();
    let attributes: Vec<Attributes<'_>> = equivalents
        .iter()
        .map(|resource| request.attributes(resource))
        .collect();
    let found = hook.first_match(&attributes)?;
    equivalents.get(found).cloned()
}

/// What has no namespace is in all of them.
pub(in crate::admission) async fn is_in_selected_namespace(
    request: &Request<'_>,
    selector: &Selector,
    objects: Objects<'_>,
) -> Result<bool, Status> {
    let about_namespaces = request.requested.plural == "namespaces";
    if request.namespace.is_empty() && !about_namespaces {
        return Ok(true);
    }
    let selector = selector.as_ref().map_err(Status::internal)?;
    if selector.is_everything() {
        return Ok(true);
    }
    // What a write makes of a namespace counts, not what the namespace is until then.
    let is_written = matches!(request.operation, Operation::Create | Operation::Update);
    if about_namespaces
        && request.subresource.is_empty()
        && is_written
        && let Some(namespace) = objects.new
    {
        return Ok(selector.matches_object(namespace));
    }
    let server = &request.context.server;
    let namespaces = server.cache.resource("", "namespaces");
    let found = server.objects.find(&namespaces, "", &request.namespace);
    match found.await {
        Ok(entry) => Ok(selector.matches(|key| entry.label(key))),
        Err(status) if status.reason == Reason::NotFound => Err(status),
        Err(status) => Err(Status::internal(status)),
    }
}

/// Either object may be the one that is selected.
pub(in crate::admission) fn is_selected(
    selector: &Selector,
    objects: Objects<'_>,
) -> Result<bool, Status> {
    let selector = selector.as_ref().map_err(Status::internal)?;
    let mut either = [objects.new, objects.old].into_iter().flatten();
    Ok(selector.is_everything() || either.any(|object| selector.matches_object(object)))
}

async fn conditions_hold(
    request: &Request<'_>,
    hook: &Hook,
    phase: Phase,
    resource: &Resource,
    objects: Objects<'_>,
) -> Result<bool, Status> {
    let Some(conditions) = &hook.conditions else {
        return Ok(true);
    };
    let began = Instant::now();
    let [new, old] = request.both_shown(resource, objects).await?;
    let context = request.context;
    let evaluated = conditions.evaluate(&Question {
        object: new.as_deref(),
        old_object: old.as_deref(),
        request: &request.document("", resource),
        authorizer: &context.server.authorizer,
        identity: &context.identity,
    });
    let errors = match &evaluated {
        Evaluated::Errors(errors) => errors.len(),
        Evaluated::True | Evaluated::False => 0,
    };
    context.server.hooks.metrics.evaluated(&Excluded {
        phase,
        hook: &hook.name,
        operation: request.operation,
        took: began.elapsed(),
        errors,
        // A hook that is left out for its errors counts as well.
        is_excluded: evaluated == Evaluated::False || errors > 0 && hook.fails_open,
    });
    match evaluated {
        Evaluated::True => Ok(true),
        Evaluated::False => Ok(false),
        Evaluated::Errors(_) if hook.fails_open => Ok(false),
        Evaluated::Errors(errors) => {
            let why = match errors.as_slice() {
                [only] => only.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            Err(request.requested.forbidden(&request.name, why))
        }
    }
}
