//! The admission chain, in upstream's order: first every plugin that may change the object, then,
//! when the object has proven valid, every plugin that may only refuse. One file per plugin; what
//! makes an object valid in itself is `api`'s.

mod certificates;
mod claim_resize;
mod default_class;
mod external_ips;
mod limit_ranger;
mod local_path;
pub(crate) mod namespace_lifecycle;
mod node_restriction;
mod node_taint;
mod pod_security;
mod policies;
mod priority;
mod runtime_class;
mod service_account;
mod storage_protection;
mod toleration_seconds;
mod topology_labels;
mod webhooks;

use std::fmt;
use std::sync::Arc;

use api::{Resource, Status, Value};

use crate::cache::CachedObject;
use crate::context::Context;

pub(crate) use crate::admission_hooks::Operation;

/// What is up for admission.
pub(crate) struct Admitted<'a> {
    pub context: &'a Context,
    /// The version that the object is stored in.
    pub resource: &'a Arc<Resource>,
    /// The version that was sent, which hooks are asked about.
    pub requested: &'a Arc<Resource>,
    pub subresource: &'a str,
    pub operation: Operation,
    /// What is to be; for a deletion, what is to go; for a connection, its options.
    pub object: &'a mut Value,
    /// What an update would replace.
    pub old: Option<&'a Value>,
    /// The `managedFields` of the object, where they are kept beside it until admission is over. A
    /// hook sees them and may change them.
    pub owners: Option<Value>,
    /// The options of a deletion.
    pub options: Option<&'a Value>,
    pub dry_run: bool,
    /// Whether the server chooses the name of a new object, by its prefix.
    pub has_generated_name: bool,
}

impl<'a> Admitted<'a> {
    /// A creation at a resource or below an object, in the version that was sent.
    pub fn new(
        context: &'a Context,
        resource: &'a Arc<Resource>,
        subresource: &'a str,
        object: &'a mut Value,
    ) -> Admitted<'a> {
        Admitted {
            context,
            resource,
            requested: resource,
            subresource,
            operation: Operation::Create,
            object,
            old: None,
            owners: None,
            options: None,
            dry_run: context.dry_run,
            has_generated_name: false,
        }
    }
}

impl Admitted<'_> {
    pub fn namespace(&self) -> String {
        if !self.resource.namespaced {
            return String::new();
        }
        match self.object.str_at(&["metadata", "namespace"]) {
            "" => self.context.info.namespace.clone(),
            namespace => namespace.to_string(),
        }
    }

    /// The object's name; below an object, that object's.
    fn name(&self) -> &str {
        match self.object.str_at(&["metadata", "name"]) {
            "" => &self.context.info.name,
            name => name,
        }
    }

    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.resource.group == group && self.resource.kind == kind
    }

    /// An object of this kind itself, not one of its subresources.
    fn is_whole(&self, group: &str, kind: &str) -> bool {
        self.is(group, kind) && self.subresource.is_empty()
    }

    /// A Pod proper, not one of its subresources.
    fn is_pod(&self) -> bool {
        self.is_whole("", "Pod")
    }

    fn is_new(&self, group: &str, kind: &str) -> bool {
        self.is_whole(group, kind) && self.operation == Operation::Create
    }

    fn is_new_pod(&self) -> bool {
        self.is_new("", "Pod")
    }

    pub fn forbidden(&self, why: impl fmt::Display) -> Status {
        let name = match (
            self.name(),
            self.object.str_at(&["metadata", "generateName"]),
        ) {
            ("", "") => "Unknown",
            ("", prefix) => prefix,
            (name, _) => name,
        };
        self.resource.forbidden(name, why)
    }

    /// All objects of a kind, or of it in one namespace; none where the kind is not served.
    pub fn all(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<CachedObject>> {
        let cache = &self.context.server.cache;
        let Some(kind) = cache.find(group, plural) else {
            return Vec::new();
        };
        let prefix = match namespace {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        };
        let snapshot = cache.snapshot(&kind);
        snapshot.range(&prefix, "").cloned().collect()
    }

    /// One object; `None` where it or its kind is missing.
    async fn one(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let entry = self.entry(group, plural, namespace, name).await?;
        entry.map(|entry| entry.object()).transpose()
    }

    /// The same as it lies in the cache.
    async fn entry(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<CachedObject>>, Status> {
        let server = &self.context.server;
        let Some(kind) = server.cache.find(group, plural) else {
            return Ok(None);
        };
        match server.objects.find(&kind.resource, namespace, name).await {
            Ok(entry) => Ok(Some(entry)),
            Err(status) if status.reason == api::Reason::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }
}

/// Lets plugins and hooks change what was sent. When a hook did, all plugins and the hooks that ask
/// for it run once more, so that they see what came after them.
pub(crate) async fn mutate(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    let mut rounds = webhooks::Rounds::default();
    plugins(admitted).await?;
    // MutatingAdmissionPolicy stands here, between the plugins and the hooks.
    webhooks::mutate(admitted, &mut rounds).await?;
    if rounds.begin_second() {
        plugins(admitted).await?;
        webhooks::mutate(admitted, &mut rounds).await?;
    }
    Ok(())
}

/// Asks hooks about a question that is answered on the spot; no plugin has anything to say about it.
pub(crate) async fn review(
    context: &Context,
    resource: &Arc<Resource>,
    question: &mut Value,
) -> Result<(), Status> {
    let mut admitted = Admitted::new(context, resource, "", question);
    webhooks::mutate(&mut admitted, &mut webhooks::Rounds::default()).await?;
    webhooks::validate(&admitted).await
}

/// Asks hooks about a connection to a pod, service or node; `options` are those of the connection.
pub(crate) async fn connect(
    context: &Context,
    resource: &Arc<Resource>,
    mut options: Value,
) -> Result<(), Status> {
    let mut admitted = Admitted {
        operation: Operation::Connect,
        ..Admitted::new(context, resource, &context.info.subresource, &mut options)
    };
    mutate(&mut admitted).await?;
    validate(&admitted).await
}

async fn plugins(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    if admitted.operation == Operation::Connect {
        return Ok(());
    }
    namespace_lifecycle::admit(admitted).await?;
    local_path::admit(admitted)?;
    if admitted.operation == Operation::Delete {
        return node_restriction::admit(admitted).await;
    }
    limit_ranger::mutate(admitted)?;
    service_account::admit(admitted).await?;
    node_restriction::admit(admitted).await?;
    node_taint::admit(admitted);
    priority::admit(admitted)?;
    toleration_seconds::admit(admitted);
    default_class::storage(admitted)?;
    storage_protection::admit(admitted);
    runtime_class::mutate(admitted).await?;
    default_class::ingress(admitted)?;
    topology_labels::admit(admitted).await
}

/// Lets plugins and hooks refuse what would be written. ResourceQuota, the last of upstream's, is the
/// registry's: it writes.
pub(crate) async fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    if !matches!(admitted.operation, Operation::Delete | Operation::Connect) {
        validating_plugins(admitted).await?;
    }
    policies::validate(admitted).await?;
    webhooks::validate(admitted).await
}

async fn validating_plugins(admitted: &Admitted<'_>) -> Result<(), Status> {
    limit_ranger::validate(admitted)?;
    pod_security::validate(admitted).await?;
    priority::validate(admitted)?;
    claim_resize::validate(admitted).await?;
    runtime_class::validate(admitted).await?;
    certificates::validate(admitted)?;
    external_ips::validate(admitted)
}
