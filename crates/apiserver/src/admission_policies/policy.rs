//! A policy and a binding, made ready to be matched.

use std::fmt;

use api::Value;
use api::selector::LabelSelector;

use super::match_resources::MatchResources;
use crate::admission_hooks::Selector;

/// A policy; `E` is what it says, compiled.
pub(crate) struct Policy<E> {
    pub name: String,
    /// Whether a request goes on when the policy cannot be evaluated.
    pub fails_open: bool,
    pub constraints: MatchResources,
    pub param_kind: Option<ParamKind>,
    pub evaluator: E,
    uid: String,
    generation: Option<i64>,
}

/// The kind of the parameters of a policy.
#[derive(Debug)]
pub(crate) struct ParamKind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// As upstream writes a kind.
impl fmt::Display for ParamKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}/{}, Kind={}",
            self.group, self.version, self.kind
        )
    }
}

pub(crate) struct Binding {
    pub name: String,
    /// The name of the policy that is bound.
    pub policy: String,
    pub resources: Option<MatchResources>,
    pub params: Option<ParamRef>,
    /// What follows when a validation fails; mutating policies have none.
    pub actions: Vec<Action>,
}

/// Which parameters a binding means.
pub(crate) struct ParamRef {
    pub namespace: String,
    pub named: Named,
    /// Whether a request is refused when there is none.
    pub must_exist: bool,
}

pub(crate) enum Named {
    One(String),
    Selected(Selector),
    /// What no binding that was accepted says.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Deny,
    Warn,
    Audit,
}

impl Action {
    pub fn text(self) -> &'static str {
        match self {
            Action::Deny => "Deny",
            Action::Warn => "Warn",
            Action::Audit => "Audit",
        }
    }
}

impl<E> Policy<E> {
    pub fn of_document(policy: &Value, compile: fn(&Value) -> E) -> Policy<E> {
        let spec = policy.get("spec").unwrap_or(&Value::Null);
        let constraints = spec.get("matchConstraints").unwrap_or(&Value::Null);
        Policy {
            name: policy.str_at(&["metadata", "name"]).to_string(),
            fails_open: spec.str_at(&["failurePolicy"]) == "Ignore",
            constraints: MatchResources::of_document(constraints),
            param_kind: present(spec, "paramKind").map(ParamKind::of_document),
            evaluator: compile(policy),
            uid: policy.str_at(&["metadata", "uid"]).to_string(),
            generation: policy.i64_at(&["metadata", "generation"]),
        }
    }

    /// Whether it says what this document says.
    pub fn is_same(&self, policy: &Value) -> bool {
        let generation = policy.i64_at(&["metadata", "generation"]);
        self.generation.is_some()
            && self.generation == generation
            && self.uid == policy.str_at(&["metadata", "uid"])
    }
}

impl ParamKind {
    fn of_document(kind: &Value) -> ParamKind {
        let api_version = kind.str_at(&["apiVersion"]);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        ParamKind {
            group: group.to_string(),
            version: version.to_string(),
            kind: kind.str_at(&["kind"]).to_string(),
        }
    }
}

impl Binding {
    pub fn of_document(binding: &Value) -> Binding {
        let spec = binding.get("spec").unwrap_or(&Value::Null);
        let actions = spec.list_at(&["validationActions"]).iter();
        let actions = actions.filter_map(|action| match action.as_str()? {
            "Deny" => Some(Action::Deny),
            "Warn" => Some(Action::Warn),
            "Audit" => Some(Action::Audit),
            _ => None,
        });
        Binding {
            name: binding.str_at(&["metadata", "name"]).to_string(),
            policy: spec.str_at(&["policyName"]).to_string(),
            resources: present(spec, "matchResources").map(MatchResources::of_document),
            params: present(spec, "paramRef").map(ParamRef::of_document),
            actions: actions.collect(),
        }
    }
}

impl ParamRef {
    fn of_document(reference: &Value) -> ParamRef {
        ParamRef {
            namespace: reference.str_at(&["namespace"]).to_string(),
            named: match (reference.str_at(&["name"]), present(reference, "selector")) {
                ("", None) => Named::Nothing,
                ("", Some(selector)) => Named::Selected(
                    LabelSelector::from_document(selector).map_err(|problem| problem.to_string()),
                ),
                (name, _) => Named::One(name.to_string()),
            },
            must_exist: reference.str_at(&["parameterNotFoundAction"]) == "Deny",
        }
    }
}

fn present<'a>(of: &'a Value, field: &str) -> Option<&'a Value> {
    of.get(field).filter(|given| !given.is_null())
}
