//! The admission chain, in upstream's order. A plugin may change the object or refuse the request;
//! what makes an object valid in itself is `api`'s.

mod namespace_lifecycle;
mod priority;
mod service_account;
mod toleration_seconds;

use api::{Resource, Status, Value};

use crate::server::Context;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

/// What is up for admission.
pub(crate) struct Admitted<'a> {
    pub context: &'a Context,
    pub resource: &'static Resource,
    pub subresource: &'a str,
    pub operation: Operation,
    pub object: &'a mut Value,
}

impl Admitted<'_> {
    fn namespace(&self) -> String {
        match self.resource.namespaced {
            true => self.object.str_at(&["metadata", "namespace"]).to_string(),
            false => String::new(),
        }
    }

    fn name(&self) -> &str {
        self.object.str_at(&["metadata", "name"])
    }

    fn is(&self, group: &str, kind: &str) -> bool {
        self.resource.group == group && self.resource.kind == kind
    }

    fn is_new_pod(&self) -> bool {
        self.is("", "Pod") && self.operation == Operation::Create && self.subresource.is_empty()
    }

    fn forbidden(&self, why: impl std::fmt::Display) -> Status {
        Status::forbidden(self.resource.group, self.resource.plural, self.name(), why)
    }
}

/// Runs the chain.
pub(crate) async fn admit(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    namespace_lifecycle::admit(admitted).await?;
    service_account::admit(admitted).await?;
    priority::admit(admitted)?;
    toleration_seconds::admit(admitted);
    Ok(())
}
