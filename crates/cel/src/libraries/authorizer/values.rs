//! The values that a check is built from. None of them can be compared.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{
    Attributes, Authorizer, Decision, ResourceAttributes, Subject, Target, authorizer_type,
    decision_type, group_check_type, path_check_type, resource_check_type,
};
use crate::types::Type;
use crate::value::{Opaque, Value};

/// The variable `authorizer`.
#[derive(Clone)]
pub struct AuthorizerValue {
    authorizer: Arc<dyn Authorizer>,
    user: Subject,
}

impl AuthorizerValue {
    /// Checks for the user of the request.
    pub fn new(authorizer: Arc<dyn Authorizer>) -> AuthorizerValue {
        AuthorizerValue {
            authorizer,
            user: Subject::Requester,
        }
    }

    pub(super) fn for_subject(&self, user: Subject) -> AuthorizerValue {
        AuthorizerValue {
            authorizer: Arc::clone(&self.authorizer),
            user,
        }
    }

    pub(super) fn check(&self, verb: &str, target: Target) -> Decision {
        self.authorizer.check(&Attributes {
            user: self.user.clone(),
            verb: verb.to_owned(),
            target,
        })
    }
}

/// A check of a resource; the variable `authorizer.requestResource` is one.
#[derive(Clone)]
pub struct ResourceCheck {
    pub authorizer: AuthorizerValue,
    pub attributes: ResourceAttributes,
}

pub(super) struct PathCheck {
    pub authorizer: AuthorizerValue,
    pub path: String,
}

pub(super) struct GroupCheck {
    pub authorizer: AuthorizerValue,
    pub group: String,
}

pub(super) struct DecisionValue(pub Decision);

impl From<AuthorizerValue> for Value<'_> {
    fn from(authorizer: AuthorizerValue) -> Self {
        Value::Opaque(Arc::new(authorizer))
    }
}

impl From<ResourceCheck> for Value<'_> {
    fn from(check: ResourceCheck) -> Self {
        Value::Opaque(Arc::new(check))
    }
}

macro_rules! opaque {
    ($value:ident, $type_of:ident) => {
        impl Opaque for $value {
            fn type_of(&self) -> Type {
                $type_of()
            }

            fn equals(&self, _other: &Value<'_>) -> Option<bool> {
                None
            }

            fn as_any(&self) -> &dyn Any {
                self
            }
        }

        impl fmt::Debug for $value {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str($type_of().name())
            }
        }
    };
}

opaque!(AuthorizerValue, authorizer_type);
opaque!(PathCheck, path_check_type);
opaque!(GroupCheck, group_check_type);
opaque!(ResourceCheck, resource_check_type);
opaque!(DecisionValue, decision_type);
