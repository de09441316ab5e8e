//! Updates past admission and the rules of the kind: for subresources that are rules of their own, such
//! as `binding`, and for what the server counts in an object's status.

use std::sync::Arc;

use api::{Status, Value};

use super::Target;
use super::guarded_write::{self, Change, Planned};
use super::owners::{set_owners, take_owners};
use super::preconditions;
use crate::cache::CachedObject;
use crate::context::Context;

/// As [`super::update`], past admission and the rules of the kind.
pub(crate) async fn update_past_rules(
    context: &Context,
    target: &Target<'_>,
    conditional: bool,
    make: impl FnMut(&Value) -> Result<Value, Status> + Send,
) -> Result<Arc<CachedObject>, Status> {
    let change = UpdatePastRules {
        context,
        target,
        make,
    };
    let written = guarded_write::write(context, target, conditional, change).await?;
    Ok(written.entry)
}

struct UpdatePastRules<'a, M> {
    context: &'a Context,
    target: &'a Target<'a>,
    make: M,
}

impl<M: FnMut(&Value) -> Result<Value, Status> + Send> Change for UpdatePastRules<'_, M> {
    async fn plan(&mut self, old: &Value) -> Result<Planned, Status> {
        let mut new = (self.make)(old)?;
        let is_patch = self.context.info.verb == "patch";
        preconditions::check(self.target, &mut new, old, is_patch)?;
        let owners = take_owners(self.context, self.target, old, &mut new);
        set_owners(&mut new, owners);
        Ok(Planned::update(self.target, new, old))
    }
}
