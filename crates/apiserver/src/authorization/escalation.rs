//! Nobody grants what they do not hold: the check on writing roles and bindings.

use api::{Resource, Status, Value};

use super::{Attributes, Authorizer, Rule};
use crate::identity::{Identity, MASTERS};

const GROUP: &str = "rbac.authorization.k8s.io";
/// The lists of a rule multiply: a few thousand words in each would fill the memory.
const MOST_ATOMS: u128 = 100_000;

pub(super) fn check(
    authorizer: &Authorizer,
    identity: &Identity,
    resource: &Resource,
    object: &Value,
    namespace: &str,
) -> Result<(), Status> {
    if resource.group != GROUP || identity.groups.iter().any(|group| group == MASTERS) {
        return Ok(());
    }
    let name = object.str_at(&["metadata", "name"]);
    let (verb, target, target_name, granted) = match resource.kind {
        "ClusterRole" | "Role" => (
            "escalate",
            resource.plural,
            name,
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
        return Err(Status::forbidden(GROUP, resource.plural, name, why));
    }
    let held = authorizer.rules(identity, namespace);
    let missing: Vec<Rule> = granted
        .iter()
        .flat_map(Rule::atoms)
        .filter(|atom| !held.iter().any(|rule| rule.covers(atom)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = missing.iter().map(in_words).collect();
    Err(Status::forbidden(
        GROUP,
        resource.plural,
        name,
        format!(
            "user {:?} (groups={:?}) is attempting to grant RBAC permissions not currently held:\n{}",
            identity.user,
            identity.groups,
            list.join("\n")
        ),
    ))
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
