//! Match conditions: expressions that decide whether a hook is called. What follows from it is decided
//! in `admission::webhooks`.

use std::sync::Arc;

use api::Value;
use api::expressions::admission::{self, AdmissionInput, AdmissionProgram, Available};
use cel::EvalError;
use cel::libraries::authorizer as checks;
use cel::types::Type;

use crate::authorization::{Attributes, Authorizer};
use crate::identity::Identity;

/// What the expressions of all conditions of one hook may cost together.
const COST_LIMIT: u64 = 2_500_000;

/// What one expression may cost.
const PER_CALL_LIMIT: u64 = 1_000_000;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The compiled match conditions of one hook.
pub(crate) struct Conditions(Vec<Condition>);

struct Condition {
    text: String,
    program: Result<AdmissionProgram, String>,
}

/// What expressions can ask about.
pub(crate) struct Question<'a> {
    /// `object`, in the version that the hook is called with.
    pub object: Option<&'a Value>,
    /// `oldObject`.
    pub old_object: Option<&'a Value>,
    /// `request`: the `AdmissionRequest` without the two objects.
    pub request: &'a Value,
    /// `authorizer`, on behalf of who sent the request.
    pub authorizer: &'a Arc<Authorizer>,
    pub identity: &'a Arc<Identity>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Evaluated {
    /// All conditions hold.
    True,
    /// One of them does not hold; then errors of the others do not matter.
    False,
    /// None is false, and these could not be evaluated.
    Errors(Vec<String>),
}

/// Compiles the conditions of a hook; `None` where it has none. They were accepted once, so that they
/// count as stored.
pub(super) fn compile(conditions: &[Value]) -> Option<Conditions> {
    let available = Available {
        authorizer: true,
        is_stored: true,
        ..Available::default()
    };
    let compiled = conditions.iter().map(|condition| {
        let text = condition.str_at(&["expression"]).trim().to_string();
        let program = admission::compile(&text, available, &[Type::Bool]);
        Condition {
            program: program.map_err(|error| error.to_string()),
            text,
        }
    });
    let compiled: Vec<Condition> = compiled.collect();
    (!compiled.is_empty()).then_some(Conditions(compiled))
}

impl Conditions {
    pub fn evaluate(&self, question: &Question<'_>) -> Evaluated {
        let input = AdmissionInput {
            object: question.object,
            old_object: question.old_object,
            request: question.request,
            namespace: None,
            params: None,
            authorizer: Some(Arc::new(RequestAuthorizer {
                authorizer: question.authorizer.clone(),
                identity: question.identity.clone(),
            })),
        };
        let mut left = COST_LIMIT;
        let mut errors = Vec::new();
        for condition in &self.0 {
            let program = match &condition.program {
                Ok(program) => program,
                Err(error) => {
                    errors.push(format!("compilation error: {error}"));
                    continue;
                }
            };
            let outcome = program.evaluate(&input, PER_CALL_LIMIT);
            if outcome.cost > left {
                errors.push(OUT_OF_BUDGET.to_string());
                break;
            }
            left -= outcome.cost;
            match outcome.value {
                Ok(cel::Value::Bool(false)) => return Evaluated::False,
                Ok(_) => {}
                Err(error) => errors.push(worded(&condition.text, &error)),
            }
        }
        match errors.is_empty() {
            true => Evaluated::True,
            false => Evaluated::Errors(errors),
        }
    }
}

fn worded(text: &str, error: &EvalError) -> String {
    format!("expression '{text}' resulted in error: {error}")
}

/// Asks the server's authorizer on behalf of who sent the request.
pub(crate) struct RequestAuthorizer {
    pub authorizer: Arc<Authorizer>,
    pub identity: Arc<Identity>,
}

impl checks::Authorizer for RequestAuthorizer {
    fn check(&self, asked: &checks::Attributes) -> checks::Decision {
        let attributes = match &asked.target {
            checks::Target::Path(path) => Attributes {
                verb: asked.verb.clone(),
                path: path.clone(),
                ..Attributes::default()
            },
            checks::Target::Resource(resource) => Attributes {
                verb: asked.verb.clone(),
                is_resource: true,
                group: resource.group.clone(),
                resource: resource.resource.clone(),
                subresource: resource.subresource.clone(),
                namespace: resource.namespace.clone(),
                name: resource.name.clone(),
                ..Attributes::default()
            },
        };
        let decision = match &asked.user {
            checks::Subject::Requester => self.authorizer.allows(&self.identity, &attributes),
            checks::Subject::ServiceAccount { namespace, name } => {
                let account = Identity::service_account(namespace, name);
                self.authorizer.allows(&account, &attributes)
            }
        };
        checks::Decision {
            allowed: decision.is_allowed(),
            reason: decision.reason().to_string(),
            error: None,
        }
    }
}
