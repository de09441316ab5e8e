//! What a caller may do: RBAC, evaluated from the watch cache.

mod escalation;
mod index;
mod rules;

use std::sync::Arc;

use api::Status;

use crate::cache::Cache;
use crate::identity::{Identity, MASTERS};
use crate::request::RequestInfo;

pub(crate) use rules::Rule;

/// A question to the authorizer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub verb: String,
    pub is_resource: bool,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub path: String,
}

impl Attributes {
    pub fn of(info: &RequestInfo) -> Attributes {
        Attributes {
            verb: info.verb.to_string(),
            is_resource: info.is_resource,
            group: info.group.clone(),
            resource: info.plural.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            path: info.path.clone(),
        }
    }

    fn resource_path(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    /// The answer to a caller who may not.
    pub fn forbidden(&self, identity: &Identity, reason: &str) -> Status {
        let user = &identity.user;
        let Attributes {
            verb,
            group,
            namespace,
            ..
        } = self;
        let mut message = match (self.is_resource, namespace.as_str()) {
            (false, _) => format!("User {user:?} cannot {verb} path {:?}", self.path),
            (true, "") => format!(
                "User {user:?} cannot {verb} resource {:?} in API group {group:?} at the cluster scope",
                self.resource_path()
            ),
            (true, _) => format!(
                "User {user:?} cannot {verb} resource {:?} in API group {group:?} in the namespace {namespace:?}",
                self.resource_path()
            ),
        };
        if !reason.is_empty() {
            message = format!("{message}: {reason}");
        }
        Status::forbidden(group, &self.resource, &self.name, message)
    }
}

pub(crate) struct Authorizer {
    index: index::Index,
}

impl Authorizer {
    pub fn new(cache: Arc<Cache>) -> Authorizer {
        Authorizer {
            index: index::Index::new(cache),
        }
    }

    /// The reason for allowing, or `None`.
    pub fn allows(&self, identity: &Identity, attributes: &Attributes) -> Option<String> {
        if identity.groups.iter().any(|group| group == MASTERS) {
            return Some(String::new());
        }
        self.index
            .find(identity, &attributes.namespace, |rule| {
                rule.allows(attributes)
            })
            .map(|source| format!("RBAC: allowed by {source}"))
    }

    pub fn check(&self, identity: &Identity, attributes: &Attributes) -> Result<(), Status> {
        match self.allows(identity, attributes) {
            Some(_) => Ok(()),
            None => Err(attributes.forbidden(identity, "")),
        }
    }

    /// Every rule that applies to the caller in `namespace`.
    pub fn rules(&self, identity: &Identity, namespace: &str) -> Vec<Rule> {
        let mut rules = Vec::new();
        if identity.groups.iter().any(|group| group == MASTERS) {
            rules.push(Rule::everything());
            rules.push(Rule::every_path());
        }
        self.index.find(identity, namespace, |rule| {
            rules.push(rule.clone());
            false
        });
        rules
    }

    /// Refuses a role, or a binding to one, that grants what the caller does not hold.
    pub fn check_escalation(
        &self,
        identity: &Identity,
        resource: &api::Resource,
        object: &api::Value,
        namespace: &str,
    ) -> Result<(), Status> {
        escalation::check(self, identity, resource, object, namespace)
    }

    fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        self.index.role_rules(kind, namespace, name)
    }
}
