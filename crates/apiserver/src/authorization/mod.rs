//! What a caller may do: the Node authorizer for nodes, then RBAC, both evaluated from the watch
//! cache.

mod escalation;
mod index;
mod node;
mod rules;

use std::sync::Arc;

use api::Status;

use crate::cache::Cache;
use crate::identity::{Identity, MASTERS};
use crate::request::RequestInfo;

pub(crate) use escalation::Granting;
pub(crate) use node::node_name;
pub(crate) use rules::Rule;

/// An authorizer's answer, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed(String),
    NoOpinion(String),
}

impl Decision {
    fn allowed(reason: impl Into<String>) -> Decision {
        Decision::Allowed(reason.into())
    }

    fn no_opinion(reason: impl Into<String>) -> Decision {
        Decision::NoOpinion(reason.into())
    }

    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allowed(_))
    }

    pub fn reason(&self) -> &str {
        let (Decision::Allowed(reason) | Decision::NoOpinion(reason)) = self;
        reason
    }
}

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
    /// The fields a list is restricted to by equality, with their values.
    pub fields: Vec<(String, String)>,
}

impl Attributes {
    /// Whether only objects whose `field` is `value` are asked for.
    fn demands(&self, field: &str, value: &str) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|(name, wanted)| name == field && wanted == value)
    }

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
            fields: Vec::new(),
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

/// Whether the user may do everything.
fn is_master(identity: &Identity) -> bool {
    identity.groups.iter().any(|group| group == MASTERS)
}

pub(crate) struct Authorizer {
    nodes: node::NodeAuthorizer,
    index: index::Index,
}

impl Authorizer {
    /// `node_rules`: what every node may do, regardless of what runs on it.
    pub fn new(cache: Arc<Cache>, node_rules: Vec<Rule>) -> Authorizer {
        Authorizer {
            nodes: node::NodeAuthorizer::new(cache.clone(), node_rules),
            index: index::Index::new(cache),
        }
    }

    /// The first authorizer that allows decides; otherwise the reasons of all are told.
    pub fn allows(&self, identity: &Identity, attributes: &Attributes) -> Decision {
        if is_master(identity) {
            return Decision::allowed("");
        }
        let refusal = match self.nodes.decide(identity, attributes) {
            Decision::NoOpinion(reason) => reason,
            allowed => return allowed,
        };
        let found = self.index.find(identity, &attributes.namespace, |rule| {
            rule.allows(attributes)
        });
        match found {
            Ok(source) => Decision::allowed(format!("RBAC: allowed by {source}")),
            Err(problems) => {
                let mut reasons = vec![refusal];
                match problems.as_slice() {
                    [] => {}
                    [only] => reasons.push(format!("RBAC: {only}")),
                    several => reasons.push(format!("RBAC: [{}]", several.join(", "))),
                }
                reasons.retain(|reason| !reason.is_empty());
                Decision::no_opinion(reasons.join("\n"))
            }
        }
    }

    /// As [`Authorizer::check`]; the question is not made for a user who may do everything.
    pub fn check_request(
        &self,
        identity: &Identity,
        attributes: impl FnOnce() -> Attributes,
    ) -> Result<(), Status> {
        match is_master(identity) {
            true => Ok(()),
            false => self.check(identity, &attributes()),
        }
    }

    pub fn check(&self, identity: &Identity, attributes: &Attributes) -> Result<(), Status> {
        match self.allows(identity, attributes) {
            Decision::Allowed(_) => Ok(()),
            Decision::NoOpinion(reason) => Err(attributes.forbidden(identity, &reason)),
        }
    }

    /// Every rule that applies to the caller in `namespace`.
    pub fn rules(&self, identity: &Identity, namespace: &str) -> Vec<Rule> {
        let mut rules = Vec::new();
        // Nothing satisfies this visitor, so it sees every rule.
        let _ = self.index.find(identity, namespace, |rule| {
            rules.push(rule.clone());
            false
        });
        rules
    }

    /// Refuses a role, or a binding to one, that grants what the caller does not hold.
    pub fn check_escalation(&self, granting: &Granting<'_>) -> Result<(), Status> {
        escalation::check(self, granting)
    }

    fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        self.index.role_rules(kind, namespace, name)
    }
}
