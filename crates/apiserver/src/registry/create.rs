//! A new object: from what was decoded to what is stored. The steps are those of the module's list.

use std::sync::Arc;

use api::schema::Empties;
use api::{Reason, Resource, Status, Value};

use super::Target;
use super::guarded_write::{self, InsertError};
use super::owners::{MANAGED_FIELDS, owners_after};
use super::policy_parameters;
use super::quota::{self, Charge};
use crate::admission::{self, Admitted};
use crate::allocation;
use crate::authorization::Granting;
use crate::cache::CachedObject;
use crate::context::Context;
use crate::converted;
use crate::hops::Hops;
use crate::server::Server;

/// Fresh names tried for `generateName` before giving up.
const NAME_ATTEMPTS: usize = 8;
/// Random characters appended to `generateName`, and the longest prefix kept.
const SUFFIX: usize = 5;
const LONGEST_PREFIX: usize = 63 - SUFFIX;

/// What only the server sets.
const SYSTEM_FIELDS: [&str; 5] = [
    "uid",
    "selfLink",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// An object to be created, already checked against the schema, in the version it is stored in.
pub(crate) struct New {
    pub object: Value,
    /// Whether its `managedFields` are settled, by apply.
    pub is_owned: bool,
}

impl From<Value> for New {
    fn from(object: Value) -> New {
        New {
            object,
            is_owned: false,
        }
    }
}

/// Creates an object in the namespace of the request.
pub(crate) async fn create(
    context: &Context,
    requested: &Arc<Resource>,
    new: New,
    hops: &mut Hops,
) -> Result<Arc<CachedObject>, Status> {
    let resource = api::conversion::storage_of(requested);
    let creation = Creation {
        context,
        resource,
        requested,
        is_owned: new.is_owned,
        has_generated_name: new.object.str_at(&["metadata", "name"]).is_empty(),
    };
    let mut object = new.object;
    settle_namespace(resource, &context.info.namespace, &mut object)?;
    // Fields that only the server sets have no manager.
    for field in SYSTEM_FIELDS {
        object.remove(&["metadata", field]);
    }
    let names_version = !matches!(object.str_at(&["metadata", "resourceVersion"]), "" | "0");
    let repeated = api::warnings::without_repeated_owners(&mut object, false);
    repeated.into_iter().for_each(|word| context.warn(word));

    creation.default(&mut object);
    let owners = creation.take_owners(&mut object);
    let owners = creation.admit(&mut object, owners).await?;
    // A hook may have moved it elsewhere, or set what only the server sets.
    settle_namespace(resource, &context.info.namespace, &mut object)?;
    for field in SYSTEM_FIELDS {
        object.remove(&["metadata", field]);
    }
    // Admission may have added what has defaults of its own.
    creation.default(&mut object);
    let sent_empty = api::schema::forget_empty(resource, &mut object);
    if let Some(owners) = owners {
        object.set(&MANAGED_FIELDS, owners);
    }
    let names = Names::of(&object);
    let mut attempts = names.attempts();
    loop {
        // Kept only where it may be needed again, under another name.
        let mut object = match attempts {
            1 => std::mem::take(&mut object),
            _ => object.clone(),
        };
        names.give(context, requested, &mut object);
        attempts -= 1;
        let result = creation.finish(&mut object, &sent_empty, names_version, hops);
        match result.await {
            Err(status) if status.reason == Reason::AlreadyExists && attempts > 0 => continue,
            Err(status) if status.reason == Reason::AlreadyExists && names.is_generated => {
                return Err(no_name_left(resource, &object, status));
            }
            other => return other,
        }
    }
}

struct Creation<'a> {
    context: &'a Context,
    /// The version that the object is stored in.
    resource: &'a Arc<Resource>,
    /// The version that was sent, whose rules hold.
    requested: &'a Arc<Resource>,
    is_owned: bool,
    has_generated_name: bool,
}

impl Creation<'_> {
    fn default(&self, object: &mut Value) {
        api::schema::defaults(self.resource, object);
        self.requested.strategy().default(object);
    }

    fn take_owners(&self, object: &mut Value) -> Option<Value> {
        match self.is_owned {
            true => object.remove(&MANAGED_FIELDS),
            false => owners_after(self.context, (self.requested, ""), None, object),
        }
    }

    /// Mutating admission. Returns who owns what after it.
    async fn admit(
        &self,
        object: &mut Value,
        owners: Option<Value>,
    ) -> Result<Option<Value>, Status> {
        let custom = self.requested.definition.custom();
        if custom.is_some_and(|custom| custom.kind.is_terminating) {
            let name = object.str_at(&["metadata", "name"]);
            return Err(converted::terminating(self.requested, name));
        }
        let mut admitted = self.admitted(object);
        admitted.owners = owners;
        admission::mutate(&mut admitted).await?;
        Ok(admitted.owners)
    }

    /// Validating admission.
    async fn admit_result(&self, object: &mut Value) -> Result<Charge, Status> {
        let admitted = self.admitted(object);
        admission::validate(&admitted).await?;
        quota::charge(&admitted).await
    }

    /// Everything after mutating admission, of an object that has its name.
    async fn finish(
        &self,
        object: &mut Value,
        sent_empty: &Empties,
        names_version: bool,
        hops: &mut Hops,
    ) -> Result<Arc<CachedObject>, Status> {
        let server = &self.context.server;
        self.prepare(object);
        self.stamp(object);
        let services = &self.context.server.services;
        let reservation = allocation::reserve(services, self.resource, object, None)?;
        self.validate(object, sent_empty)?;
        self.warn(object);
        self.canonicalize(object);
        self.check_escalation(object)?;
        let charge = self.admit_result(object).await?;
        if names_version {
            charge.give_back(self.context).await;
            // Found out late by upstream's storage, which has no reason to give.
            return Err(Status::new(
                Reason::Unknown,
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let result = self.insert(object, hops).await;
        if result.is_err() {
            charge.give_back(self.context).await;
        }
        if let (Ok(entry), true) = (&result, reservation.holds()) {
            // The reservation may go once the cache shows the service itself. The service is
            // written, also if the cache does not get there in time.
            let _ = server.objects.reach(entry.revision).await;
        }
        result
    }

    fn prepare(&self, object: &mut Value) {
        fill_system_fields(&self.context.server, object);
        self.requested.strategy().prepare_create(object);
    }

    fn stamp(&self, object: &mut Value) {
        let strategy = self.requested.strategy();
        strategy.record_requester(object, &self.context.identity.requester());
        strategy.stamp(object, None, "", &self.context.server.timestamp());
        api::schema::forget_empty(self.resource, object);
    }

    fn validate(&self, object: &Value, sent_empty: &Empties) -> Result<(), Status> {
        let errors = self.requested.strategy().validate_create(object);
        if errors.is_empty() {
            return Ok(());
        }
        let errors = sent_empty.shown_in(errors);
        let name = object.str_at(&["metadata", "name"]);
        let kind = object.str_at(&["kind"]);
        Err(self.resource.invalid_as(kind, name, errors))
    }

    fn warn(&self, object: &Value) {
        for word in api::warnings::of(self.resource, object, None, "") {
            self.context.warn(word);
        }
    }

    /// The object takes the form in which reading it from the store would show it.
    fn canonicalize(&self, object: &mut Value) {
        self.requested.strategy().default(object);
    }

    fn check_escalation(&self, object: &Value) -> Result<(), Status> {
        let context = self.context;
        context.server.authorizer.check_escalation(&Granting {
            identity: &context.identity,
            resource: self.resource,
            namespace: object.str_at(&["metadata", "namespace"]),
            requested_name: &context.info.name,
            new: object,
            old: None,
        })?;
        policy_parameters::check(context, self.resource, object, None)
    }

    async fn insert(
        &self,
        object: &mut Value,
        hops: &mut Hops,
    ) -> Result<Arc<CachedObject>, Status> {
        match self.try_insert(object, hops).await {
            // As upstream: the object matters more than who owns its fields.
            Err(InsertError::TooLarge) if !self.is_owned && object.has(&MANAGED_FIELDS) => {
                object.remove(&MANAGED_FIELDS);
                Ok(self.try_insert(object, hops).await?)
            }
            result => Ok(result?),
        }
    }

    async fn try_insert(
        &self,
        object: &Value,
        hops: &mut Hops,
    ) -> Result<Arc<CachedObject>, InsertError> {
        let target = Target {
            resource: self.resource,
            requested: self.requested,
            namespace: object.str_at(&["metadata", "namespace"]),
            name: object.str_at(&["metadata", "name"]),
            subresource: "",
            is_owned: self.is_owned,
            dry_run: self.context.dry_run,
            view: None,
        };
        guarded_write::insert(self.context, &target, object, hops).await
    }

    fn admitted<'b>(&'b self, object: &'b mut Value) -> Admitted<'b> {
        Admitted {
            requested: self.requested,
            has_generated_name: self.has_generated_name,
            ..Admitted::new(self.context, self.resource, "", object)
        }
    }
}

/// How an object gets its name.
struct Names {
    /// It has none, and may have a prefix for one.
    is_generated: bool,
    prefix: String,
}

impl Names {
    fn of(object: &Value) -> Names {
        Names {
            is_generated: object.str_at(&["metadata", "name"]).is_empty(),
            prefix: object.str_at(&["metadata", "generateName"]).to_string(),
        }
    }

    fn attempts(&self) -> usize {
        match self.is_generated && !self.prefix.is_empty() {
            true => NAME_ATTEMPTS,
            false => 1,
        }
    }

    /// Gives it another random name, if it is to have one.
    fn give(&self, context: &Context, requested: &Resource, object: &mut Value) {
        if !self.is_generated || self.prefix.is_empty() {
            return;
        }
        let kept: String = self.prefix.chars().take(LONGEST_PREFIX).collect();
        let suffix = match requested.strategy().generates_names() {
            true => context.server.environment.name_suffix(SUFFIX),
            false => String::new(),
        };
        object.set(&["metadata", "name"], format!("{kept}{suffix}"));
    }
}

fn no_name_left(resource: &Resource, object: &Value, mut status: Status) -> Status {
    let name = object.str_at(&["metadata", "name"]);
    status.message = format!(
        "{} {name:?} already exists, the server was not able to generate a unique name for the object",
        resource.qualified()
    );
    if let Some(details) = &mut status.details {
        details.retry_after_seconds = 1;
    }
    status
}

fn fill_system_fields(server: &Server, object: &mut Value) {
    object.set(&["metadata", "creationTimestamp"], server.timestamp());
    object.set(&["metadata", "uid"], server.environment.uuid());
    object.remove(&["metadata", "resourceVersion"]);
}

/// Puts the request's namespace into the object, or refuses a different one.
pub(crate) fn settle_namespace(
    resource: &Resource,
    namespace: &str,
    object: &mut Value,
) -> Result<(), Status> {
    if !matches!(object.get("metadata"), Some(Value::Object(_))) {
        object.set(&["metadata"], Value::object());
    }
    let given = object.str_at(&["metadata", "namespace"]);
    match (resource.namespaced, given) {
        (false, "") => Ok(()),
        (false, _) => {
            object.remove(&["metadata", "namespace"]);
            Ok(())
        }
        (true, "") => {
            object.set(&["metadata", "namespace"], namespace);
            Ok(())
        }
        (true, given) if given == namespace => Ok(()),
        (true, _) => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}
