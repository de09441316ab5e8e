//! Who binds policies to parameters must be allowed to read the parameters: what a policy says about
//! requests tells what is in them.

use std::fmt::Write;

use api::field::{FieldError, Path};
use api::{Resource, Status, Value};

use crate::authorization::Attributes;
use crate::context::Context;
use crate::identity::{Identity, MASTERS};

const GROUP: &str = "admissionregistration.k8s.io";

/// Refuses a policy or a binding with parameters that its author cannot read. `old` is what an update
/// would replace.
pub(super) fn check(
    context: &Context,
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let identity = &*context.identity;
    if resource.group != GROUP || identity.groups.iter().any(|group| group == MASTERS) {
        return Ok(());
    }
    let (field, problem) = match &*resource.kind {
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            let kind = param_kind(new);
            if kind.is_none() || old.is_some_and(|old| param_kind(old) == kind) {
                return Ok(());
            }
            ("paramKind", of_policy(context, new))
        }
        "ValidatingAdmissionPolicyBinding" => {
            let policies = "validatingadmissionpolicies";
            ("paramRef", of_binding(context, new, policies, false))
        }
        "MutatingAdmissionPolicyBinding" => {
            let policies = "mutatingadmissionpolicies";
            ("paramRef", of_binding(context, new, policies, true))
        }
        _ => return Ok(()),
    };
    match problem {
        None => Ok(()),
        Some(problem) => {
            let error = FieldError::forbidden(&Path::new("spec").child(field), problem);
            let name = new.str_at(&["metadata", "name"]);
            Err(resource.invalid(name, vec![error]))
        }
    }
}

fn param_kind(policy: &Value) -> Option<&Value> {
    policy
        .at(&["spec", "paramKind"])
        .filter(|kind| !kind.is_null())
}

/// What parameters are of: group and plural, `*` where it is not known.
struct Parameters {
    group: String,
    plural: String,
    is_served: bool,
}

impl Parameters {
    fn of_kind(context: &Context, kind: &Value) -> Parameters {
        let api_version = kind.str_at(&["apiVersion"]);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kinds = context.server.kinds.snapshot();
        let found = kinds.find_kind(group, version, kind.str_at(&["kind"]));
        Parameters {
            group: group.to_string(),
            plural: found.map_or_else(|| "*".to_string(), |found| found.plural.to_string()),
            is_served: found.is_some(),
        }
    }

    fn unknown() -> Parameters {
        Parameters {
            group: "*".to_string(),
            plural: "*".to_string(),
            is_served: true,
        }
    }

    fn may(&self, context: &Context, verb: &str, namespace: &str, name: &str) -> bool {
        let attributes = Attributes {
            verb: verb.to_string(),
            is_resource: true,
            group: self.group.clone(),
            resource: self.plural.clone(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            ..Attributes::default()
        };
        let authorizer = &context.server.authorizer;
        let decision = authorizer.allows(&context.identity, &attributes);
        decision.is_allowed()
    }
}

fn of_policy(context: &Context, policy: &Value) -> Option<String> {
    let kind = param_kind(policy)?;
    let parameters = Parameters::of_kind(context, kind);
    if parameters.may(context, "get", "*", "*") {
        return None;
    }
    Some(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(&context.identity),
        kind.str_at(&["kind"]),
        kind.str_at(&["apiVersion"]),
    ))
}

fn of_binding(
    context: &Context,
    binding: &Value,
    policies: &str,
    is_mutating: bool,
) -> Option<String> {
    let reference = binding.at(&["spec", "paramRef"])?;
    if reference.is_null() {
        return None;
    }
    let policy_name = binding.str_at(&["spec", "policyName"]);
    let found = context.server.cache.find(GROUP, policies);
    let entry = found.and_then(|kind| kind.get(policy_name));
    let policy = entry.and_then(|entry| entry.object().ok());
    let kind = policy.as_ref().and_then(param_kind);
    let parameters = match kind {
        Some(kind) => Parameters::of_kind(context, kind),
        None => Parameters::unknown(),
    };
    let name = reference.str_at(&["name"]);
    let verb = if name.is_empty() { "list" } else { "get" };
    if parameters.may(context, verb, reference.str_at(&["namespace"]), name) {
        return None;
    }
    let user = shown(&context.identity);
    let all = format!(
        "user {user} does not have \"{verb}\" permission for all groups, versions and resources"
    );
    Some(match kind {
        _ if policy.is_none() => format!(
            "unable to get policy {policy_name} to determine minimum required permissions and {all}"
        ),
        Some(kind) if !parameters.is_served => format!(
            "unable to resolve paramKind &ParamKind{{APIVersion:{},Kind:{},}} to determine minimum required permissions and {all}",
            kind.str_at(&["apiVersion"]),
            kind.str_at(&["kind"]),
        ),
        // As upstream's, which has the two the other way round here.
        _ if is_mutating => format!(
            "user {verb} does not have \"{user}\" permission on the object referenced by paramRef"
        ),
        _ => format!(
            "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
        ),
    })
}

/// A user as Go shows one.
fn shown(identity: &Identity) -> String {
    let mut text = format!(
        "&{{{} {} [{}] map[",
        identity.user,
        identity.uid,
        identity.groups.join(" ")
    );
    for (index, (key, values)) in identity.extra.iter().enumerate() {
        let space = if index == 0 { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{space}{key}:[{}]", values.join(" "));
    }
    text.push_str("]}");
    text
}
