//! Admission webhooks: hooks that may change what was sent, called one after another, and hooks that
//! may only refuse, called at the same time. Which hooks there are is `admission_hooks`'; how they
//! are reached is `webhook_client`'s.
//!
//! For each hook that concerns a request:
//!
//! 1. Its rules, selectors and match conditions decide whether it is called, and with which version
//!    of the object ([`matching`]).
//! 2. The object is converted to that version, and the `AdmissionReview` is written ([`request`]).
//! 3. The hook is called within its time and the request's ([`call`]), and its answer is checked
//!    ([`review`]).
//! 4. A patch is applied, and what came out is checked, defaulted and converted back ([`patch`]).
//!
//! Whoever changes webhook configurations and policies is never asked about: nobody could repair a
//! configuration that refuses its own repair.

mod call;
mod matching;
mod mutating;
mod patch;
mod request;
mod review;
mod validating;

use super::Admitted;
use crate::admission_hooks::GROUP;

pub(super) use matching::{is_in_selected_namespace, is_selected};
pub(super) use mutating::{Rounds, mutate};
pub(super) use patch::{OWNERS, Unknown, settled};
pub(super) use request::{Kind, Objects, Request};
pub(super) use validating::validate;

/// The kinds that admission itself is configured by.
const EXEMPT: [&str; 6] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
];

/// Whether hooks and policies are not asked about this.
pub(crate) fn is_exempt(admitted: &Admitted<'_>) -> bool {
    let is_configuration = admitted.requested.group == GROUP;
    let is_configuration = is_configuration && EXEMPT.contains(&&*admitted.requested.kind);
    is_configuration || admitted.context.is_internal
}
