//! What policies have to say about a request, one after another: those that match, with their matching
//! bindings and with each of their parameters. What cannot be found out is a step as well, since the
//! policy's failure policy decides about it.

use std::sync::Arc;

use api::expressions::policy::Uses;
use api::{Resource, Value};

use super::matching::matched;
use super::parameters::{self, ParameterError};
use crate::admission::webhooks::{Objects, Request};
use crate::admission_policies::{Binding, Bound, Compiled, Policy};

pub(super) enum Step<'s, E> {
    /// The policy or the binding cannot be used.
    Problem(Problem<'s, E>),
    Invoke(Invocation<'s, E>),
}

/// Why a policy, or one of its bindings, cannot be used.
pub(super) struct Problem<'s, E> {
    pub policy: &'s Policy<E>,
    pub binding: Option<&'s Binding>,
    pub message: String,
}

/// A policy that is asked, on account of one binding and with one parameter.
pub(super) struct Invocation<'s, E> {
    pub policy: &'s Policy<E>,
    pub binding: &'s Binding,
    /// The version that the policy is about.
    pub resource: Arc<Resource>,
    pub params: Option<Value>,
}

/// The steps in the order in which they are taken. `uses` tells what a policy reads.
pub(super) async fn steps<'s, E>(
    compiled: &'s Compiled<E>,
    request: &Request<'_>,
    objects: Objects<'_>,
    uses: fn(&E) -> Uses,
) -> Vec<Step<'s, E>> {
    let mut steps = Vec::new();
    for &position in compiled.concerning(&request.requested.plural) {
        let bound = compiled.bound(position);
        match matched(request, &bound.policy.constraints, objects).await {
            Ok(None) => {}
            Ok(Some(resource)) => {
                of_policy(bound, request, objects, &resource, uses, &mut steps).await;
            }
            Err(status) => steps.push(problem(&bound.policy, None, &status)),
        }
    }
    steps
}

async fn of_policy<'s, E>(
    bound: &'s Bound<E>,
    request: &Request<'_>,
    objects: Objects<'_>,
    resource: &Arc<Resource>,
    uses: fn(&E) -> Uses,
    steps: &mut Vec<Step<'s, E>>,
) {
    let policy = &*bound.policy;
    let server = &request.context.server;
    let kind = policy.param_kind.as_ref();
    let params_of = match kind.map(|kind| parameters::resource_of(server, kind)) {
        None => None,
        Some(Ok(found)) => Some(found),
        Some(Err(error)) => return steps.push(problem(policy, None, &error)),
    };
    for binding in &bound.bindings {
        if let Some(resources) = &binding.resources {
            match matched(request, resources, objects).await {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(status) => {
                    steps.push(problem(policy, Some(binding), &status));
                    continue;
                }
            }
        }
        let invocation = |params: Option<Value>| {
            Step::Invoke(Invocation {
                policy,
                binding,
                resource: resource.clone(),
                params,
            })
        };
        // A policy may be bound without the parameters that it knows, and a binding may name some that
        // the policy does not know.
        let (Some(params_of), Some(reference)) = (&params_of, &binding.params) else {
            steps.push(invocation(None));
            continue;
        };
        let is_read = uses(&policy.evaluator).params;
        let found: Result<Vec<Value>, ParameterError> =
            parameters::collect(server, params_of, reference, &request.namespace, is_read).await;
        match found {
            Ok(params) => steps.extend(params.into_iter().map(|one| invocation(Some(one)))),
            Err(error) => steps.push(problem(policy, Some(binding), &error)),
        }
    }
}

fn problem<'s, E>(
    policy: &'s Policy<E>,
    binding: Option<&'s Arc<Binding>>,
    error: &dyn std::error::Error,
) -> Step<'s, E> {
    let what = match binding {
        None => "policy",
        Some(_) => "binding",
    };
    Step::Problem(Problem {
        policy,
        binding: binding.map(|binding| &**binding),
        message: format!("failed to configure {what}: {error}"),
    })
}
