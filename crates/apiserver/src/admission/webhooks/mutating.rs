//! The hooks that may change what was sent: called one after another, each with what the one before
//! it made of the object.

use std::sync::Arc;

use api::{Status, Value};
use tokio::time::Instant;

use super::call::{Asked, Failure, check_time};
use super::is_exempt;
use super::matching::matched;
use super::patch::{self, Patched};
use super::request::{Objects, Request, json_or_null};
use crate::admission::Admitted;
use crate::admission_hooks::{Compiled, Operation, Phase};

/// What is known between the two rounds of mutating admission. A change by a hook lets everything
/// run once more: all plugins, and those hooks that want to see what others changed after them.
#[derive(Default)]
pub(in crate::admission) struct Rounds {
    is_second: bool,
    /// Whether a hook, or a policy before the hooks, changed the object.
    is_changed: bool,
    /// The hooks as they were in the first round, by whose positions the others are known.
    hooks: Option<Arc<Compiled>>,
    /// Called, and to be called again should somebody change the object after them.
    called: Vec<usize>,
    /// To be called again.
    again: Vec<usize>,
    /// What the hooks of the first round left.
    output: Option<Value>,
}

impl Rounds {
    /// Somebody else changed the object before the hooks, so that there is to be a second round.
    pub fn require_second(&mut self) {
        self.is_changed = true;
    }

    /// Whether there is to be a second round, which then begins.
    pub fn begin_second(&mut self) -> bool {
        self.is_second = self.is_changed;
        self.is_second
    }

    fn note_change(&mut self) {
        self.is_changed = true;
        self.again.append(&mut self.called);
    }
}

/// Lets the hooks change what was sent.
pub(in crate::admission) async fn mutate(
    admitted: &mut Admitted<'_>,
    rounds: &mut Rounds,
) -> Result<(), Status> {
    let hooks = match &rounds.hooks {
        Some(hooks) => hooks.clone(),
        None => {
            let server = &admitted.context.server;
            server
                .hooks
                .mutating
                .current(&server.webhooks, &server.hooks.metrics)
        }
    };
    let concerned = hooks.concerning(&admitted.requested.plural);
    if concerned.is_empty() || is_exempt(admitted) {
        return Ok(());
    }
    if rounds.is_second && rounds.output.as_ref() != Some(admitted.object) {
        // The plugins themselves changed what the hooks left.
        rounds.note_change();
    }
    // Boxed: most requests never get here and need not carry it.
    let asked = Box::pin(ask(admitted, &hooks, concerned, rounds)).await;
    if rounds.is_changed && !rounds.is_second {
        rounds.output = Some(admitted.object.clone());
    }
    rounds.hooks = Some(hooks.clone());
    asked
}

async fn ask(
    admitted: &mut Admitted<'_>,
    hooks: &Compiled,
    concerned: &[usize],
    rounds: &mut Rounds,
) -> Result<(), Status> {
    let request = Request::of(admitted);
    let round = usize::from(rounds.is_second);
    for (index, &position) in concerned.iter().enumerate() {
        let hook = hooks.hook(position);
        let objects = objects(admitted);
        let Some(resource) = matched(&request, hook, Phase::Mutating, objects).await? else {
            continue;
        };
        // A hook is never called for the first time in the second round.
        if rounds.is_second && !rounds.again.contains(&position) {
            continue;
        }
        check_time(admitted.context)?;
        let asked = Asked {
            request: &request,
            phase: Phase::Mutating,
            hook,
            resource: &resource,
        };
        let began = Instant::now();
        let answered = call(admitted, &asked).await;
        asked.count(began, answered.as_ref().err());
        let is_changed = matches!(&answered, Ok(Some(patched)) if patched.is_change);
        annotate(&asked, round, index, is_changed);
        if is_changed {
            rounds.note_change();
        }
        if hook.is_reinvoked {
            rounds.called.push(position);
        }
        match answered {
            Ok(None) => {}
            Ok(Some(patched)) => {
                let key = format!("patch.webhook.admission.k8s.io/round_{round}_index_{index}");
                admitted.context.annotate(key, patched.told.clone());
                patched.take_place(admitted);
            }
            Err(failure) => match asked.consequence(failure, round, index) {
                Some(status) => return Err(status),
                // Its own time may have been over, or that of the whole request.
                None => check_time(admitted.context)?,
            },
        }
    }
    Ok(())
}

fn objects<'a>(admitted: &'a Admitted<'_>) -> Objects<'a> {
    match admitted.operation {
        Operation::Delete => Objects {
            new: None,
            old: Some(admitted.object),
        },
        _ => Objects {
            new: Some(admitted.object),
            old: admitted.old,
        },
    }
}

/// Calls one hook; what it makes of the object, if it has a patch.
async fn call(admitted: &Admitted<'_>, asked: &Asked<'_>) -> Result<Option<Patched>, Failure> {
    let (request, resource) = (asked.request, asked.resource);
    let objects = objects(admitted);
    let shown = request.both_shown(resource, objects).await;
    let [mut shown, old] = shown.map_err(Failure::Broken)?;
    if let (Some(shown), Some(owners)) = (&mut shown, &admitted.owners) {
        // The server keeps them beside the object until admission is over.
        shown
            .to_mut()
            .set(&["metadata", "managedFields"], owners.clone());
    }
    let verdict = asked
        .call(
            &json_or_null(shown.as_deref()),
            &json_or_null(old.as_deref()),
        )
        .await?;
    let Some(operations) = verdict.patch else {
        return Ok(None);
    };
    let Some(shown) = shown else {
        let problem = format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            asked.hook.name
        );
        return Err(Failure::Broken(super::call::internal(problem)));
    };
    let patched = patch::apply(asked, admitted, &shown, &operations).await;
    patched.map(Some).map_err(Failure::Broken)
}

fn annotate(asked: &Asked<'_>, round: usize, index: usize, is_changed: bool) {
    let value = api::document!({
        "configuration": asked.hook.configuration.as_str(), "webhook": asked.hook.name.as_str(),
        "mutated": is_changed,
    });
    let key = format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
    asked.request.context.annotate(key, value.to_string());
}
