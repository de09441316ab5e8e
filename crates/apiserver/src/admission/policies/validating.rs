//! Policies that may only refuse: what follows from what they say.

use std::time::Duration;

use api::expressions::policy::{Annotation, Decision, Judged, Said, ValidatingPolicy};
use api::{Cause, Reason, Status};
use tokio::time::Instant;

use super::is_exempt;
use super::steps::{Invocation, Step, steps};
use super::view::{Surroundings, View};
use crate::admission::webhooks::{Objects, Request};
use crate::admission::{Admitted, Operation};
use crate::admission_hooks::Phase;
use crate::admission_policies::{Action, Binding, Checked, Compiled, ErrorType, Policy};
use crate::context::Context;

/// Longer values of audit annotations are cut.
const LONGEST_ANNOTATION: usize = 10 * 1024;

const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Asks the policies whether what would be written is allowed.
pub(crate) async fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    let server = &admitted.context.server;
    let policies = server.policies.validating.current(&server.hooks.metrics);
    let concerned = policies.concerning(&admitted.requested.plural);
    if concerned.is_empty() || is_exempt(admitted) {
        return Ok(());
    }
    // Boxed: most requests never get here and need not carry it.
    Box::pin(ask(admitted, &policies)).await
}

/// Why a request is refused.
struct Denial<'s> {
    policy: &'s str,
    binding: Option<&'s str>,
    message: String,
    reason: Reason,
}

/// What came up so far.
struct Findings<'s> {
    context: &'s Context,
    denials: Vec<Denial<'s>>,
    /// The audit annotations of the policy that is being asked: for each key its values.
    annotations: Vec<(String, Vec<String>)>,
}

async fn ask(admitted: &Admitted<'_>, policies: &Compiled<ValidatingPolicy>) -> Result<(), Status> {
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
    let steps = steps(policies, &request, objects, |policy| policy.uses).await;
    let is_asked = steps.iter().any(|step| matches!(step, Step::Invoke(_)));
    let surroundings = match is_asked {
        true => Some(Surroundings::of(&request).await?),
        false => None,
    };
    let mut findings = Findings {
        context: admitted.context,
        denials: Vec::new(),
        annotations: Vec::new(),
    };
    let mut views: Vec<View<'_>> = Vec::new();
    let mut last = "";
    for step in &steps {
        let policy = match step {
            Step::Problem(problem) => &problem.policy.name,
            Step::Invoke(invocation) => &invocation.policy.name,
        };
        if policy != last {
            findings.publish(last);
            last = policy;
        }
        match step {
            Step::Problem(problem) if problem.policy.fails_open => {}
            Step::Problem(problem) => findings.denials.push(Denial {
                policy,
                binding: problem.binding.map(|binding| binding.name.as_str()),
                message: problem.message.clone(),
                reason: Reason::Invalid,
            }),
            Step::Invoke(invocation) => {
                let known = views
                    .iter()
                    .position(|view| view.resource == invocation.resource);
                let position = match known {
                    Some(known) => known,
                    None => {
                        let resource = invocation.resource.clone();
                        views.push(View::new(&request, resource, objects).await?);
                        views.len() - 1
                    }
                };
                let around = surroundings.as_ref();
                let judged = around.map(|around| judge(&views[position], around, invocation));
                let judged = judged.unwrap_or_default();
                findings.note(invocation.policy, invocation.binding, judged);
            }
        }
    }
    findings.publish(last);
    match findings.denials.into_iter().next() {
        None => Ok(()),
        Some(denial) => Err(refusal(admitted, denial)),
    }
}

/// What a policy says with one parameter.
fn judge(
    view: &View<'_>,
    surroundings: &Surroundings,
    invocation: &Invocation<'_, ValidatingPolicy>,
) -> Judged {
    let Invocation { policy, params, .. } = invocation;
    let evaluator = &policy.evaluator;
    let input = view.input(evaluator.uses, surroundings, params.as_ref());
    let conditions = (&evaluator.conditions, &evaluator.variables);
    let matched = view.conditions_hold(conditions, &policy.name, &input, Phase::Validating);
    match matched.error() {
        None if matched.is_no() => Judged::default(),
        None => {
            let began = Instant::now();
            evaluator.judge(&input, &|| began.elapsed())
        }
        Some(_) if policy.fails_open => Judged::default(),
        Some(message) => Judged {
            decisions: vec![Decision {
                said: Said::Error,
                message,
                reason: None,
                took: Duration::ZERO,
            }],
            annotations: Vec::new(),
        },
    }
}

impl<'s> Findings<'s> {
    fn note(&mut self, policy: &'s Policy<ValidatingPolicy>, binding: &'s Binding, judged: Judged) {
        for (index, decision) in judged.decisions.into_iter().enumerate() {
            match decision.said {
                Said::Admit => {}
                Said::Error if policy.fails_open => {
                    let error = ErrorType::of_message(&decision.message);
                    self.count(policy, binding, error, "allow", decision.took);
                }
                Said::Deny | Said::Error => self.act(policy, binding, index, decision),
            }
        }
        for annotation in judged.annotations {
            let (message, took) = match annotation {
                Annotation::Publish { key, value } => {
                    self.collect(key, value);
                    continue;
                }
                Annotation::Error { .. } if policy.fails_open => continue,
                Annotation::Error { message, took } | Annotation::WrongType { message, took } => {
                    (message, took)
                }
            };
            let error = ErrorType::of_message(&message);
            self.count(policy, binding, error, "deny", took);
            self.denials.push(Denial {
                policy: &policy.name,
                binding: Some(&binding.name),
                message,
                reason: Reason::Invalid,
            });
        }
    }

    /// Does what the binding says about a validation that failed.
    fn act(
        &mut self,
        policy: &'s Policy<ValidatingPolicy>,
        binding: &'s Binding,
        index: usize,
        decision: Decision,
    ) {
        let Decision {
            message,
            reason,
            took,
            ..
        } = decision;
        let error = ErrorType::of_message(&message);
        for action in &binding.actions {
            let word = match action {
                Action::Deny => {
                    self.denials.push(Denial {
                        policy: &policy.name,
                        binding: Some(&binding.name),
                        message: message.clone(),
                        reason: reason.unwrap_or(Reason::Invalid),
                    });
                    "deny"
                }
                Action::Warn => {
                    self.context.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    ));
                    "warn"
                }
                Action::Audit => {
                    let value = failure(policy, binding, index, &message);
                    self.context.annotate(FAILURE_ANNOTATION.to_string(), value);
                    "audit"
                }
            };
            self.count(policy, binding, error, word, took);
        }
    }

    fn count(
        &self,
        policy: &Policy<ValidatingPolicy>,
        binding: &Binding,
        error: ErrorType,
        action: &'static str,
        took: Duration,
    ) {
        let metrics = &self.context.server.policies.validating.metrics;
        metrics.checked(&Checked {
            policy: &policy.name,
            binding: &binding.name,
            error,
            action,
            took,
        });
    }

    /// Several bindings may come to the same value, which is told once.
    fn collect(&mut self, key: String, mut value: String) {
        if value.len() > LONGEST_ANNOTATION {
            value.truncate(value.floor_char_boundary(LONGEST_ANNOTATION));
        }
        let known = self.annotations.iter_mut().find(|(known, _)| *known == key);
        match known {
            None => self.annotations.push((key, vec![value])),
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
        }
    }

    /// Notes the annotations of a policy, all of whose bindings were asked.
    fn publish(&mut self, policy: &str) {
        for (key, values) in self.annotations.drain(..) {
            let key = format!("{policy}/{key}");
            self.context.annotate(key, values.join(", "));
        }
    }
}

/// What the audit log is told of a validation that failed.
fn failure(
    policy: &Policy<ValidatingPolicy>,
    binding: &Binding,
    index: usize,
    message: &str,
) -> String {
    let actions: Vec<&str> = binding.actions.iter().map(|action| action.text()).collect();
    let failure = api::document!([{
        "message": message,
        "policy": policy.name.as_str(),
        "binding": binding.name.as_str(),
        "expressionIndex": index as i64,
        "validationActions": actions,
    }]);
    String::from_utf8_lossy(&failure.to_json()).into_owned()
}

fn refusal(admitted: &Admitted<'_>, denial: Denial<'_>) -> Status {
    let Denial {
        policy,
        binding,
        message,
        reason,
    } = denial;
    let message = match binding {
        Some(binding) => format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
        ),
        None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
    };
    let mut status = admitted.forbidden(&message);
    status.reason = reason;
    let details = status.details.get_or_insert_default();
    details.causes.push(Cause {
        reason: "",
        message,
        field: String::new(),
    });
    status
}
