//! Nobody grants what they do not hold: the check on every write of roles and bindings.

use api::{Resource, Status, Value};

use super::{Attributes, Authorizer, Rule};
use crate::identity::{Identity, MASTERS};

const GROUP: &str = "rbac.authorization.k8s.io";
/// The lists of a rule multiply: a few thousand words in each would fill the memory.
const MOST_ATOMS: u128 = 100_000;

/// A write of an object, as it would be stored.
pub(crate) struct Granting<'a> {
    pub identity: &'a Identity,
    pub resource: &'a Resource,
    pub namespace: &'a str,
    /// The name in the request's path; "" where only the object has one.
    pub requested_name: &'a str,
    pub new: &'a Value,
    /// What an update would replace.
    pub old: Option<&'a Value>,
}

pub(super) fn check(authorizer: &Authorizer, granting: &Granting<'_>) -> Result<(), Status> {
    let Granting {
        identity,
        resource,
        namespace,
        new: object,
        old,
        ..
    } = *granting;
    if resource.group != GROUP || identity.groups.iter().any(|group| group == MASTERS) {
        return Ok(());
    }
    // Everything else counts: a label can make a role part of another.
    if old.is_some_and(|old| is_only_garbage_collection(object, old)) {
        return Ok(());
    }
    let name = object.str_at(&["metadata", "name"]);
    let (verb, target, target_name, granted) = match &*resource.kind {
        "ClusterRole" | "Role" => (
            "escalate",
            &*resource.plural,
            granting.requested_name,
            Some(Rule::parse_all(object)),
        ),
        _ => {
            let (kind, role) = (
                object.str_at(&["roleRef", "kind"]),
                object.str_at(&["roleRef", "name"]),
            );
            let plural = match kind {
                "Role" => "roles",
                _ => "clusterroles",
            };
            (
                "bind",
                plural,
                role,
                authorizer.role_rules(kind, namespace, role),
            )
        }
    };
    let may_anyway = authorizer.allows(
        identity,
        &Attributes {
            verb: verb.to_string(),
            is_resource: true,
            group: GROUP.to_string(),
            resource: target.to_string(),
            namespace: namespace.to_string(),
            name: target_name.to_string(),
            ..Attributes::default()
        },
    );
    if may_anyway.is_allowed() {
        return Ok(());
    }
    let Some(granted) = granted else {
        // Binding to a role that does not exist needs the `bind` verb.
        return Err(Status::not_found(GROUP, target, target_name));
    };
    let count = granted.iter().map(Rule::atom_count).sum::<u128>();
    if count > MOST_ATOMS {
        let why = format!(
            "the rules grant {count} single permissions, more than the {MOST_ATOMS} that can be compared with those currently held"
        );
        return Err(Status::forbidden(GROUP, &resource.plural, name, why));
    }
    let held = authorizer.rules(identity, namespace);
    let missing = missing(&granted, &held);
    let forbidden = |why: String| Err(Status::forbidden(GROUP, &resource.plural, name, why));
    if !missing.is_empty() {
        let list: Vec<String> = missing.iter().map(in_words).collect();
        return forbidden(format!(
            "user {:?} (groups={:?}) is attempting to grant RBAC permissions not currently held:\n{}",
            identity.user,
            identity.groups,
            list.join("\n")
        ));
    }
    // It can gather anything, and its absence can keep a role from being tightened.
    let aggregates = has_aggregation_rule(object) || old.is_some_and(has_aggregation_rule);
    match aggregates && !self::missing(&full_authority(), &held).is_empty() {
        true => {
            forbidden("must have cluster-admin privileges to use the aggregationRule".to_string())
        }
        false => Ok(()),
    }
}

/// What of `granted` is not in `held`, one verb, group, resource and name at a time.
fn missing(granted: &[Rule], held: &[Rule]) -> Vec<Rule> {
    let atoms = granted.iter().flat_map(Rule::atoms);
    atoms
        .filter(|atom| !held.iter().any(|rule| rule.covers(atom)))
        .collect()
}

/// Every verb on every resource and on every path.
fn full_authority() -> [Rule; 2] {
    let all = || vec!["*".to_string()];
    [
        Rule {
            verbs: all(),
            groups: all(),
            resources: all(),
            ..Rule::default()
        },
        Rule {
            verbs: all(),
            paths: all(),
            ..Rule::default()
        },
    ]
}

fn has_aggregation_rule(role: &Value) -> bool {
    let selectors = role.list_at(&["aggregationRule", "clusterRoleSelectors"]);
    !selectors.is_empty()
}

/// Whether a write changes only what the garbage collector needs to let the object go.
fn is_only_garbage_collection(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        for field in [
            "ownerReferences",
            "finalizers",
            "selfLink",
            "managedFields",
            "resourceVersion",
        ] {
            rest.remove(&["metadata", field]);
        }
        rest
    };
    rest(new) == rest(old)
}

fn in_words(rule: &Rule) -> String {
    let mut parts = Vec::new();
    for (name, list) in [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.names),
        ("NonResourceURLs", &rule.paths),
        ("Verbs", &rule.verbs),
    ] {
        if !list.is_empty() {
            parts.push(format!("{name}:{list:?}"));
        }
    }
    format!("{{{}}}", parts.join(", "))
}
