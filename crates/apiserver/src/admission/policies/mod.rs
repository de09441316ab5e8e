//! Admission policies. Which policies there are is `admission_policies`', what their expressions say is
//! `api::expressions::policy`'s.
//!
//! For each request that policies concern:
//!
//! 1. Rules and selectors decide which policies and bindings are asked, and about which version of the
//!    object ([`matching`]).
//! 2. The parameters of each binding are looked up ([`parameters`]); both together make the steps of
//!    the request ([`steps`]).
//! 3. The objects, the request and the namespace are shown to the expressions as far as they read them
//!    ([`view`]), and match conditions decide once more.
//! 4. What the policy says is carried out ([`validating`]).
//!
//! Nobody is asked about policies and bindings themselves: a policy that refuses its own repair could
//! not be repaired.

mod matching;
mod parameters;
mod steps;
mod validating;
mod view;

use super::Admitted;
use crate::admission_hooks::GROUP;

pub(super) use validating::validate;

/// The kinds that no policy is asked about.
const EXEMPT: [&str; 4] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

/// Whether policies are not asked about this.
fn is_exempt(admitted: &Admitted<'_>) -> bool {
    let requested = admitted.requested;
    let is_policy = requested.group == GROUP && EXEMPT.contains(&&*requested.plural);
    is_policy || admitted.context.is_internal
}
