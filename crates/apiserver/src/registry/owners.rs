//! Who owns which fields (`managedFields`) after a write.

use api::apply::{Write, same_but_times};
use api::{Resource, Value};

use super::Target;
use crate::context::Context;
use crate::options;

pub(super) const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

/// The owners of a new state, taken out of it until the server has changed it.
pub(super) fn take_owners(
    context: &Context,
    target: &Target<'_>,
    old: &Value,
    new: &mut Value,
) -> Option<Value> {
    if target.is_owned {
        return new.remove(&MANAGED_FIELDS);
    }
    let write = (&**target.requested, target.subresource);
    owners_after(context, write, Some(old), new)
}

/// The owners after a write to a resource and subresource, in the version that was sent. Takes
/// `managedFields` out of the new state.
pub(super) fn owners_after(
    context: &Context,
    (requested, subresource): (&Resource, &str),
    old: Option<&Value>,
    new: &mut Value,
) -> Option<Value> {
    let manager = options::manager(context);
    let write = Write::new(requested, subresource, &manager, context.server.timestamp());
    if requested.is_stored_as_itself() {
        return api::apply::update(&write, old, new);
    }
    let shown = |object: &Value| api::conversion::from_storage(requested, object.clone());
    let (before, mut after) = (old.map(shown), shown(new));
    new.remove(&MANAGED_FIELDS);
    api::apply::update(&write, before.as_ref(), &mut after)
}

pub(crate) fn set_owners(new: &mut Value, owners: Option<Value>) {
    match owners {
        Some(owners) => new.set(&MANAGED_FIELDS, owners),
        None => drop(new.remove(&MANAGED_FIELDS)),
    }
}

/// A write that changes nothing but the times of its owners changes nothing at all.
pub(super) fn keep_times(new: &mut Value, old: &Value) {
    let (before, after) = (old.at(&MANAGED_FIELDS), new.at(&MANAGED_FIELDS));
    if before == after || !same_but_times(before, after) {
        return;
    }
    let fresh = new.remove(&MANAGED_FIELDS);
    let version = new.remove(&["metadata", "resourceVersion"]);
    let same_metadata = old
        .fields_at(&["metadata"])
        .filter(|(name, _)| !matches!(*name, "managedFields" | "resourceVersion"));
    let is_same = same_metadata.eq(new.fields_at(&["metadata"]))
        && old
            .fields_at(&[])
            .filter(|(name, _)| *name != "metadata")
            .eq(new.fields_at(&[]).filter(|(name, _)| *name != "metadata"));
    let owners = if is_same { before.cloned() } else { fresh };
    set_owners(new, owners);
    if let Some(version) = version {
        new.set(&["metadata", "resourceVersion"], version);
    }
}
