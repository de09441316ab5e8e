//! Policies that change what was sent: made one after another, each with what the one before it made of
//! the object. Who owns the fields that they set is not changed: they belong to whoever sent the
//! request, or to nobody.

use api::apply::Target;
use api::custom::Schema;
use api::expressions::mutation::{MutatingPolicy, Mutation};
use api::{Cause, Reason, Resource, Status, Value, schema};
use tokio::time::Instant;

use super::is_exempt;
use super::steps::{Invocation, Step, steps};
use super::view::{Surroundings, View};
use crate::admission::webhooks::{Kind, OWNERS, Objects, Request, Unknown, settled};
use crate::admission::{Admitted, Operation};
use crate::admission_hooks::Phase;
use crate::admission_policies::{Checked, Compiled, ErrorType};

/// What is known between the two rounds of mutating admission, see [`super::super::mutate`].
#[derive(Default)]
pub(crate) struct Rounds {
    is_second: bool,
    /// Asked, and to be asked again should somebody change the object after them.
    asked: Vec<Key>,
    /// To be asked again.
    again: Vec<Key>,
    /// What the policies of the first round left, where it matters whether it is changed.
    output: Option<Value>,
}

/// Policy, binding and parameter.
#[derive(PartialEq, Eq)]
struct Key(String, String, String);

impl Rounds {
    pub fn begin_second(&mut self) {
        self.is_second = true;
    }

    fn note_change(&mut self) {
        self.again.append(&mut self.asked);
    }
}

/// Lets the policies change what was sent. Answers whether there has to be a second round: every
/// mutation that was made lets everybody run once more, also one that changed nothing, as upstream.
pub(crate) async fn mutate(
    admitted: &mut Admitted<'_>,
    rounds: &mut Rounds,
) -> Result<bool, Status> {
    if admitted.operation == Operation::Delete {
        return Ok(false);
    }
    let server = &admitted.context.server;
    let policies = server.policies.mutating.current(&server.hooks.metrics);
    let concerned = policies.concerning(&admitted.requested.plural);
    if concerned.is_empty() || is_exempt(admitted) {
        return Ok(false);
    }
    if !server.feature_gates.is_on("MutatingAdmissionPolicy") {
        return Ok(false);
    }
    // Boxed: most requests never get here and need not carry it.
    Box::pin(ask(admitted, &policies, rounds)).await
}

/// Why a policy would have a request refused.
struct Refusal {
    policy: String,
    binding: Option<String>,
    message: String,
    /// Whether the mutation failed rather than the configuration of the policy.
    is_mutation: bool,
}

impl Refusal {
    fn words(&self) -> String {
        let Refusal {
            policy, message, ..
        } = self;
        match &self.binding {
            Some(binding) => {
                format!("policy '{policy}' with binding '{binding}' denied request: {message}")
            }
            None => format!("policy {policy:?} denied request: {message}"),
        }
    }
}

async fn ask(
    admitted: &mut Admitted<'_>,
    policies: &Compiled<MutatingPolicy>,
    rounds: &mut Rounds,
) -> Result<bool, Status> {
    let request = Request::of(admitted);
    let steps = steps(policies, &request, objects(admitted), |policy| policy.uses).await;
    if steps.is_empty() {
        return Ok(false);
    }
    let has_changed = rounds.output.take();
    if rounds.is_second && has_changed.is_some_and(|output| output != *admitted.object) {
        // Plugins or hooks changed what the policies left.
        rounds.note_change();
    }
    let surroundings = Surroundings::of(&request).await?;
    let mut refusals = Vec::new();
    let mut is_made = false;
    for step in &steps {
        match step {
            Step::Problem(problem) if problem.policy.fails_open => {}
            Step::Problem(problem) => refusals.push(Refusal {
                policy: problem.policy.name.clone(),
                binding: problem.binding.map(|binding| binding.name.clone()),
                message: problem.message.clone(),
                is_mutation: false,
            }),
            Step::Invoke(invocation) => {
                let invoked = Invoked {
                    request: &request,
                    surroundings: &surroundings,
                    invocation,
                };
                is_made |= invoked.make(admitted, rounds, &mut refusals).await?;
            }
        }
    }
    if is_made {
        rounds.note_change();
    }
    if !rounds.is_second && !rounds.asked.is_empty() {
        rounds.output = Some(admitted.object.clone());
    }
    match refusals.is_empty() {
        true => Ok(is_made),
        false => Err(refused(admitted, &refusals)),
    }
}

fn objects<'a>(admitted: &'a Admitted<'_>) -> Objects<'a> {
    Objects {
        new: Some(admitted.object),
        old: admitted.old,
    }
}

/// A policy that is asked, on account of one binding and with one parameter.
struct Invoked<'s> {
    request: &'s Request<'s>,
    surroundings: &'s Surroundings,
    invocation: &'s Invocation<'s, MutatingPolicy>,
}

impl Invoked<'_> {
    /// Makes its mutations; answers whether one was made.
    async fn make(
        &self,
        admitted: &mut Admitted<'_>,
        rounds: &mut Rounds,
        refusals: &mut Vec<Refusal>,
    ) -> Result<bool, Status> {
        let Invocation {
            policy, binding, ..
        } = self.invocation;
        let refusal = |message: String| Refusal {
            policy: policy.name.clone(),
            binding: Some(binding.name.clone()),
            message,
            is_mutation: true,
        };
        let evaluator = &policy.evaluator;
        let matched = self.with_view(admitted, |view, input| {
            let conditions = (&evaluator.conditions, &evaluator.variables);
            view.conditions_hold(conditions, &policy.name, input, Phase::Mutating)
        });
        let matched = matched.await?;
        match matched.error() {
            None if matched.is_no() => return Ok(false),
            None => {}
            Some(_) if policy.fails_open => return Ok(false),
            Some(message) => {
                refusals.push(refusal(message));
                return Ok(false);
            }
        }
        let key = self.key();
        if rounds.is_second && !rounds.again.contains(&key) {
            return Ok(false);
        }
        let mut is_made = false;
        let mut is_changed = false;
        for mutation in &evaluator.mutations {
            let began = Instant::now();
            let made = self.mutate(admitted, mutation).await;
            let error = match &made {
                Ok(_) => ErrorType::None,
                Err(Failure::Mutation(message)) => ErrorType::of_message(message),
                Err(Failure::Status(_)) => ErrorType::Invalid,
            };
            let server = &admitted.context.server;
            server.policies.mutating.metrics.checked(&Checked {
                policy: &policy.name,
                binding: &binding.name,
                error,
                action: "",
                took: began.elapsed(),
            });
            match made {
                Ok(changed) => {
                    is_made = true;
                    is_changed |= changed;
                }
                Err(Failure::Status(status)) => return Err(*status),
                Err(Failure::Mutation(_)) if policy.fails_open => {}
                Err(Failure::Mutation(message)) => refusals.push(refusal(message)),
            }
        }
        if is_changed {
            rounds.note_change();
        }
        if evaluator.is_reinvoked {
            rounds.asked.push(key);
        }
        Ok(is_made)
    }

    /// Makes one mutation; answers whether the object is other than before.
    async fn mutate(
        &self,
        admitted: &mut Admitted<'_>,
        mutation: &Mutation,
    ) -> Result<bool, Failure> {
        let resource = &*self.invocation.resource;
        let variables = &self.invocation.policy.evaluator.variables;
        let target =
            target(self.request, resource).ok_or_else(|| unknown_kind(self.request, resource))?;
        let owners = admitted.owners.clone();
        let made = self.with_view(admitted, |_, input| {
            let mut live = input.object.cloned().unwrap_or_default();
            if let Some(owners) = owners {
                // The server keeps them beside the object until admission is over.
                live.set(&OWNERS, owners);
            }
            mutation.apply(variables, input, target, &live)
        });
        let made = made.await.map_err(Failure::status)?;
        let made = made.map_err(|error| Failure::Mutation(error.to_string()))?;
        let Some(made) = made else {
            return Ok(false);
        };
        let (object, owners) = settled(self.request, admitted, resource, made, Unknown::Refused)
            .await
            .map_err(Failure::status)?;
        let is_changed = object != *admitted.object || owners != admitted.owners;
        *admitted.object = object;
        admitted.owners = owners;
        Ok(is_changed)
    }

    /// Shows the object as it is now to expressions.
    async fn with_view<T>(
        &self,
        admitted: &Admitted<'_>,
        then: impl FnOnce(&View<'_>, &api::expressions::admission::AdmissionInput<'_>) -> T,
    ) -> Result<T, Status> {
        let Invocation {
            policy,
            resource,
            params,
            ..
        } = self.invocation;
        let view = View::new(self.request, resource.clone(), objects(admitted)).await?;
        let input = view.input(policy.evaluator.uses, self.surroundings, params.as_ref());
        Ok(then(&view, &input))
    }

    fn key(&self) -> Key {
        let Invocation {
            policy,
            binding,
            params,
            ..
        } = self.invocation;
        let param = params.as_ref().map_or(String::new(), |params| {
            let text = |field: &str| params.str_at(&["metadata", field]);
            format!("{}/{}", text("namespace"), text("name"))
        });
        Key(policy.name.clone(), binding.name.clone(), param)
    }
}

enum Failure {
    /// The failure policy decides about it.
    Mutation(String),
    /// The request fails whatever the failure policy says.
    Status(Box<Status>),
}

impl Failure {
    fn status(status: Status) -> Failure {
        Failure::Status(Box::new(status))
    }
}

/// Whose schema says how a configuration is merged.
fn target<'a>(request: &Request<'_>, resource: &'a Resource) -> Option<Target<'a>> {
    if !request.is_of_kind() {
        let kind = Kind::of(resource, request.subresource);
        let definition = schema::definition_of(kind.group, kind.version, kind.kind)?;
        return Some(Target::BuiltIn(definition));
    }
    match resource.definition.custom() {
        Some(custom) => custom.schema.get::<Schema>().map(Target::Custom),
        None => Some(Target::BuiltIn(resource.definition.name())),
    }
}

fn unknown_kind(request: &Request<'_>, resource: &Resource) -> Failure {
    let kind = Kind::of(resource, request.subresource);
    Failure::Status(Box::new(Status::new(
        Reason::ServiceUnavailable,
        format!(
            "Resource kind {}/{}, Kind={} not found. There can be a delay between when CustomResourceDefinitions are created and when they are available.",
            kind.group, kind.version, kind.kind
        ),
    )))
}

/// The answer to a request that policies refuse. The first refusal gives it its message and reason; the
/// code is that of a forbidden request all the same, as upstream.
fn refused(admitted: &Admitted<'_>, refusals: &[Refusal]) -> Status {
    let mut status = admitted.forbidden("admission request denied by policy");
    let code = status.code();
    if let Some(first) = refusals.first() {
        status.message = first.words();
        if first.is_mutation {
            status.reason = Reason::Invalid;
        }
    }
    let details = status.details.get_or_insert_default();
    let causes = refusals.iter().map(|refusal| Cause {
        reason: "",
        message: refusal.words(),
        field: String::new(),
    });
    details.causes.extend(causes);
    let mut document = status.to_document();
    document.set(&["code"], i64::from(code));
    Status::of_document(document)
}
