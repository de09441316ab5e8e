//! A new state of an object that is there, whichever way it was computed. The steps are those of the
//! module's list.

use std::sync::Arc;

use api::schema::Empties;
use api::{Status, Value};

use super::Target;
use super::guarded_write::{self, Change, Planned};
use super::owners::{set_owners, take_owners};
use super::policy_parameters;
use super::preconditions;
use super::quota::{self, Charge};
use crate::admission::{self, Admitted, Operation};
use crate::allocation::{self, Reservation};
use crate::authorization::Granting;
use crate::cache::CachedObject;
use crate::context::Context;

/// Writes what `make` says the object should be. Tries again when somebody else wrote in between,
/// unless the caller named a resourceVersion (`conditional`).
pub(crate) async fn update(
    context: &Context,
    target: &Target<'_>,
    conditional: bool,
    make: impl FnMut(&Value) -> Result<Value, Status> + Send,
) -> Result<Arc<CachedObject>, Status> {
    let steps = Steps { context, target };
    let change = Update {
        steps,
        make,
        charge: Charge::default(),
        reservation: Reservation::none(),
    };
    let written = guarded_write::write(context, target, conditional, change).await?;
    Ok(written.entry)
}

struct Update<'a, M> {
    steps: Steps<'a>,
    make: M,
    /// What the planned write took in advance.
    charge: Charge,
    reservation: Reservation,
}

impl<M: FnMut(&Value) -> Result<Value, Status> + Send> Change for Update<'_, M> {
    async fn plan(&mut self, old: &Value) -> Result<Planned, Status> {
        let mut new = (self.make)(old)?;
        let steps = &self.steps;
        steps.check_preconditions(&mut new, old)?;
        steps.default(&mut new);
        let owners = take_owners(steps.context, steps.target, old, &mut new);
        let owners = steps.admit(&mut new, old, owners).await?;
        let sent_empty = steps.prepare(&mut new, old);
        steps.stamp(&mut new, old);
        set_owners(&mut new, owners);
        self.reservation = steps.allocate(&mut new, old)?;
        steps.validate(&new, old, &sent_empty)?;
        steps.warn(&new, old);
        steps.canonicalize(&mut new);
        steps.check_escalation(&new, old)?;
        self.charge = steps.admit_result(&mut new, old).await?;
        Ok(Planned::update(steps.target, new, old))
    }

    async fn abandon(&mut self) {
        self.reservation = Reservation::none();
        let charge = std::mem::take(&mut self.charge);
        charge.give_back(self.steps.context).await;
    }

    fn must_show(&self) -> bool {
        self.reservation.holds()
    }
}

struct Steps<'a> {
    context: &'a Context,
    target: &'a Target<'a>,
}

impl Steps<'_> {
    fn check_preconditions(&self, new: &mut Value, old: &Value) -> Result<(), Status> {
        preconditions::check(self.target, new, old, self.is_patch())
    }

    fn is_patch(&self) -> bool {
        self.context.info.verb == "patch"
    }

    fn default(&self, new: &mut Value) {
        api::schema::defaults(self.target.resource, new);
        self.target.requested.strategy().default(new);
    }

    /// Mutating admission. Returns who owns what after it.
    async fn admit(
        &self,
        new: &mut Value,
        old: &Value,
        owners: Option<Value>,
    ) -> Result<Option<Value>, Status> {
        let owners = match self.target.view {
            None => {
                let mut admitted = self.admitted(new, old);
                admitted.owners = owners;
                admission::mutate(&mut admitted).await?;
                admitted.owners
            }
            Some(view) => {
                let (mut shown, shown_old) = (view.of(new), view.of(old));
                admission::mutate(&mut self.admitted(&mut shown, &shown_old)).await?;
                view.put(new, &shown)?;
                owners
            }
        };
        // A patch is looked at only here, by when admission might have done it.
        let repeated = api::warnings::without_repeated_owners(new, self.is_patch());
        repeated
            .into_iter()
            .for_each(|word| self.context.warn(word));
        Ok(owners)
    }

    fn prepare(&self, new: &mut Value, old: &Value) -> Empties {
        let Target {
            resource,
            requested,
            subresource,
            ..
        } = self.target;
        let sent_empty = api::schema::forget_empty(resource, new);
        requested.strategy().prepare_update(new, old, subresource);
        sent_empty
    }

    fn stamp(&self, new: &mut Value, old: &Value) {
        let (strategy, now) = (
            self.target.requested.strategy(),
            self.context.server.timestamp(),
        );
        strategy.stamp(new, Some(old), self.target.subresource, &now);
        api::schema::forget_empty(self.target.resource, new);
    }

    fn allocate(&self, new: &mut Value, old: &Value) -> Result<Reservation, Status> {
        match self.target.subresource {
            "" => {
                let services = &self.context.server.services;
                allocation::reserve(services, self.target.resource, new, Some(old))
            }
            _ => Ok(Reservation::none()),
        }
    }

    fn validate(&self, new: &Value, old: &Value, sent_empty: &Empties) -> Result<(), Status> {
        let strategy = self.target.requested.strategy();
        let mut told = Vec::new();
        let errors = strategy.judge_update(new, old, self.target.subresource, &mut told);
        told.into_iter().for_each(|word| self.context.warn(word));
        if errors.is_empty() {
            return Ok(());
        }
        let errors = sent_empty.shown_in(errors);
        let kind = new.str_at(&["kind"]);
        Err(self
            .target
            .resource
            .invalid_as(kind, self.target.name, errors))
    }

    fn warn(&self, new: &Value, old: &Value) {
        let (resource, subresource) = (self.target.resource, self.target.subresource);
        for word in api::warnings::of(resource, new, Some(old), subresource) {
            self.context.warn(word);
        }
    }

    /// The object takes the form in which reading it from the store would show it.
    fn canonicalize(&self, new: &mut Value) {
        self.target.requested.strategy().default(new);
    }

    fn check_escalation(&self, new: &Value, old: &Value) -> Result<(), Status> {
        let context = self.context;
        context.server.authorizer.check_escalation(&Granting {
            identity: &context.identity,
            resource: self.target.resource,
            namespace: self.target.namespace,
            requested_name: &context.info.name,
            new,
            old: Some(old),
        })?;
        policy_parameters::check(context, self.target.resource, new, Some(old))
    }

    /// Validating admission.
    async fn admit_result(&self, new: &mut Value, old: &Value) -> Result<Charge, Status> {
        if let Some(view) = self.target.view {
            let (mut shown, shown_old) = (view.of(new), view.of(old));
            admission::validate(&self.admitted(&mut shown, &shown_old)).await?;
            return Ok(Charge::default());
        }
        let admitted = self.admitted(new, old);
        admission::validate(&admitted).await?;
        quota::charge(&admitted).await
    }

    fn admitted<'b>(&'b self, new: &'b mut Value, old: &'b Value) -> Admitted<'b> {
        let subresource = match self.target.view {
            Some(view) => view.subresource(),
            None => self.target.subresource,
        };
        Admitted {
            requested: self.target.requested,
            operation: Operation::Update,
            old: Some(old),
            dry_run: self.target.dry_run,
            ..Admitted::new(self.context, self.target.resource, subresource, new)
        }
    }
}
