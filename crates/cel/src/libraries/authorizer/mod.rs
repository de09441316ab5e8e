//! Kubernetes' library for authorization checks: `authorizer.group("apps").resource("deployments")
//! .namespace("a").check("get").allowed()`. The host decides, behind [`Authorizer`].

mod values;

use std::sync::Arc;

pub use self::values::{AuthorizerValue, ResourceCheck};
use self::values::{DecisionValue, GroupCheck, PathCheck};
use crate::function::{EvalError, Overload};
use crate::libraries::declare::{member, message, object};
use crate::libraries::names;
use crate::types::Type;
use crate::value::Value;

/// Whoever is asked may do something.
pub trait Authorizer: Send + Sync {
    fn check(&self, attributes: &Attributes) -> Decision;
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub user: Subject,
    pub verb: String,
    pub target: Target,
}

/// For whom it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The user of the request.
    Requester,
    ServiceAccount {
        namespace: String,
        name: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Path(String),
    Resource(ResourceAttributes),
}

/// All versions of a resource are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceAttributes {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// As written; the host parses them, and one that it cannot read selects nothing less.
    pub field_selector: String,
    pub label_selector: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

pub fn authorizer_type() -> Type {
    object("kubernetes.authorization.Authorizer")
}

pub fn resource_check_type() -> Type {
    object("kubernetes.authorization.ResourceCheck")
}

fn path_check_type() -> Type {
    object("kubernetes.authorization.PathCheck")
}

fn group_check_type() -> Type {
    object("kubernetes.authorization.GroupCheck")
}

fn decision_type() -> Type {
    object("kubernetes.authorization.Decision")
}

pub fn overloads() -> Vec<Overload> {
    let resource = || [resource_check_type(), Type::String];
    let decision = || [decision_type()];
    vec![
        member(
            "path",
            "authorizer_path",
            [authorizer_type(), Type::String],
            path_check_type(),
        )
        .calls(path),
        member(
            "group",
            "authorizer_group",
            [authorizer_type(), Type::String],
            group_check_type(),
        )
        .calls(group),
        member(
            "serviceAccount",
            "authorizer_serviceaccount",
            [authorizer_type(), Type::String, Type::String],
            authorizer_type(),
        )
        .calls(service_account),
        member(
            "resource",
            "groupcheck_resource",
            [group_check_type(), Type::String],
            resource_check_type(),
        )
        .calls(group_resource),
        member(
            "subresource",
            "resourcecheck_subresource",
            resource(),
            resource_check_type(),
        )
        .calls(|arguments| narrowed(arguments, |check| &mut check.subresource)),
        member(
            "namespace",
            "resourcecheck_namespace",
            resource(),
            resource_check_type(),
        )
        .calls(|arguments| narrowed(arguments, |check| &mut check.namespace)),
        member(
            "name",
            "resourcecheck_name",
            resource(),
            resource_check_type(),
        )
        .calls(|arguments| narrowed(arguments, |check| &mut check.name)),
        member(
            "check",
            "pathcheck_check",
            [path_check_type(), Type::String],
            decision_type(),
        )
        .calls(check),
        member("check", "resourcecheck_check", resource(), decision_type()).calls(check),
        member("errored", "decision_errored", decision(), Type::Bool)
            .calls(|arguments| decided(arguments, |decision| decision.error.is_some().into())),
        member("error", "decision_error", decision(), Type::String).calls(|arguments| {
            decided(arguments, |decision| {
                decision.error.clone().unwrap_or_default().into()
            })
        }),
        member("allowed", "decision_allowed", decision(), Type::Bool)
            .calls(|arguments| decided(arguments, |decision| decision.allowed.into())),
        member("reason", "decision_reason", decision(), Type::String)
            .calls(|arguments| decided(arguments, |decision| decision.reason.clone().into())),
    ]
}

pub fn selector_overloads() -> Vec<Overload> {
    let resource = || [resource_check_type(), Type::String];
    vec![
        member(
            "fieldSelector",
            "authorizer_fieldselector",
            resource(),
            resource_check_type(),
        )
        .calls(|arguments| narrowed(arguments, |check| &mut check.field_selector)),
        member(
            "labelSelector",
            "authorizer_labelselector",
            resource(),
            resource_check_type(),
        )
        .calls(|arguments| narrowed(arguments, |check| &mut check.label_selector)),
    ]
}

fn downcast<'v, T: 'static>(value: &'v Value<'_>) -> Result<&'v T, EvalError> {
    let Value::Opaque(value) = value else {
        return Err(EvalError::NoSuchOverload);
    };
    let value = value.as_any().downcast_ref();
    value.ok_or(EvalError::NoSuchOverload)
}

fn path<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [authorizer, Value::String(path)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    if path.trim().is_empty() {
        return Err(message("path must not be empty"));
    }
    Ok(Value::Opaque(Arc::new(PathCheck {
        authorizer: downcast::<AuthorizerValue>(authorizer)?.clone(),
        path: path.to_string(),
    })))
}

fn group<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [authorizer, Value::String(group)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    Ok(Value::Opaque(Arc::new(GroupCheck {
        authorizer: downcast::<AuthorizerValue>(authorizer)?.clone(),
        group: group.to_string(),
    })))
}

fn service_account<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [authorizer, Value::String(namespace), Value::String(name)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let authorizer = downcast::<AuthorizerValue>(authorizer)?;
    if !names::dns_1123_subdomain(name.as_bytes()).is_empty() {
        return Err(message("Invalid service account name"));
    }
    if !names::dns_1123_label(namespace.as_bytes()).is_empty() {
        return Err(message("Invalid service account namespace"));
    }
    Ok(authorizer
        .for_subject(Subject::ServiceAccount {
            namespace: namespace.to_string(),
            name: name.to_string(),
        })
        .into())
}

fn group_resource<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [group, Value::String(resource)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let group = downcast::<GroupCheck>(group)?;
    if resource.trim().is_empty() {
        return Err(message("resource must not be empty"));
    }
    let check = ResourceCheck {
        authorizer: group.authorizer.clone(),
        attributes: ResourceAttributes {
            group: group.group.clone(),
            resource: resource.to_string(),
            ..ResourceAttributes::default()
        },
    };
    Ok(check.into())
}

fn narrowed<'a>(
    arguments: &[Value<'a>],
    field: fn(&mut ResourceAttributes) -> &mut String,
) -> Result<Value<'a>, EvalError> {
    let [check, Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let mut check = downcast::<ResourceCheck>(check)?.clone();
    *field(&mut check.attributes) = text.to_string();
    Ok(check.into())
}

fn check<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [check, Value::String(verb)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let (authorizer, target) = match downcast::<PathCheck>(check) {
        Ok(check) => (&check.authorizer, Target::Path(check.path.clone())),
        Err(_) => {
            let check = downcast::<ResourceCheck>(check)?;
            (
                &check.authorizer,
                Target::Resource(check.attributes.clone()),
            )
        }
    };
    let decision = authorizer.check(verb, target);
    Ok(Value::Opaque(Arc::new(DecisionValue(decision))))
}

fn decided<'a>(
    arguments: &[Value<'a>],
    read: impl Fn(&Decision) -> Value<'a>,
) -> Result<Value<'a>, EvalError> {
    match arguments {
        [decision] => Ok(read(&downcast::<DecisionValue>(decision)?.0)),
        _ => Err(EvalError::NoSuchOverload),
    }
}
