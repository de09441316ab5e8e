//! The registry: the one way by which objects of all kinds are written. `verbs` reads requests and
//! encodes answers; nothing here knows HTTP.
//!
//! A write goes through these steps, in this order. [`create`] and [`update`] are written as that
//! list; patch, apply, scale and the other subresources only compute the new state that an update
//! then takes through it.
//!
//! 1. The new state is there: decoded by the verb, or computed from the stored object.
//! 2. **Default**: the schema's and the kind's defaults fill in what the user left out.
//! 3. **Settle the owners**: `managedFields` are computed from what the user sent; what the server
//!    changes from here on has no owner.
//! 4. **Mutating admission** may change the object.
//! 5. **Prepare**: the kind resets what this request may not write (status, generation, …).
//! 6. **Stamp**: the times that the server chooses, and who sent the request.
//! 7. **Allocate**: a Service gets its addresses and ports.
//! 8. **Validate**: the kind names everything that is wrong with the object.
//! 9. **Warn** about what is allowed and probably not meant.
//! 10. **Canonicalize**: the object takes the form in which reading it from the store would show it.
//! 11. **Check escalation**: nobody grants rights that they do not have.
//! 12. **Validating admission** may refuse the object, and charges quotas for it.
//! 13. **Write**, under the condition that nobody wrote in between. `guarded_write` has the only
//!     loop that compares and tries again: an update that names no resourceVersion starts over at
//!     step 1 with the newer object.
//!
//! A delete ([`delete`]) checks its preconditions, passes admission, and then either marks the
//! object (a grace period or a finalizer keeps it) or removes it, by the same guarded write.

mod apply;
mod create;
mod delete;
mod delete_options;
mod delete_unread;
mod finalizers;
mod guarded_write;
mod owners;
mod past_rules;
mod patch;
mod policy_parameters;
mod preconditions;
mod quota;
mod target;
mod update;

pub(crate) use apply::{Applied, Configuration, apply};
pub(crate) use create::{create, settle_namespace};
pub(crate) use delete::{Deleted, delete, delete_admitted};
pub(crate) use delete_options::DeleteOptions;
pub(crate) use delete_unread::delete_unread;
pub(crate) use owners::set_owners;
pub(crate) use past_rules::update_past_rules;
pub(crate) use patch::Patch;
pub(crate) use preconditions::check_name;
pub(crate) use target::{Target, View};
pub(crate) use update::update;
