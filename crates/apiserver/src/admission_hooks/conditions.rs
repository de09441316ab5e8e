//! Match conditions: expressions that decide whether a hook is called. What evaluates them stands
//! behind [`Conditions`]; what follows from it is decided in `admission::webhooks`.

use api::Value;

use crate::authorization::Authorizer;
use crate::identity::Identity;

/// What the expressions of all conditions of one hook may cost together.
#[allow(dead_code)] // For what evaluates them.
pub(crate) const COST_LIMIT: u64 = 2_500_000;

/// The compiled match conditions of one hook.
pub(crate) trait Conditions: Send + Sync {
    fn evaluate(&self, question: &Question<'_>) -> Evaluated;
}

/// What expressions can ask about.
#[allow(dead_code)] // For what evaluates them.
pub(crate) struct Question<'a> {
    /// `object`, in the version that the hook is called with.
    pub object: Option<&'a Value>,
    /// `oldObject`.
    pub old_object: Option<&'a Value>,
    /// `request`: the `AdmissionRequest` without the two objects.
    pub request: &'a Value,
    /// `authorizer`, on behalf of who sent the request.
    pub authorizer: &'a Authorizer,
    pub identity: &'a Identity,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Evaluated {
    /// All conditions hold.
    #[allow(dead_code)] // For what evaluates them.
    True,
    /// One of them does not hold; then errors of the others do not matter.
    #[allow(dead_code)] // For what evaluates them.
    False,
    /// None is false, and these could not be evaluated.
    Errors(Vec<String>),
}

/// Compiles the conditions of a hook; `None` where it has none.
pub(super) fn compile(conditions: &[Value]) -> Option<Box<dyn Conditions>> {
    match conditions {
        [] => None,
        conditions => Some(Box::new(Unevaluated(conditions.len()))),
    }
}

/// Conditions that nothing here can evaluate: the failure policy of the hook decides.
struct Unevaluated(usize);

impl Conditions for Unevaluated {
    fn evaluate(&self, _: &Question<'_>) -> Evaluated {
        let error = "match conditions are not evaluated by this server".to_string();
        Evaluated::Errors(vec![error; self.0.min(1)])
    }
}
