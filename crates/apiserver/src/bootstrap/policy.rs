//! Reads `policy.txt`, the default roles and bindings in compact form:
//!
//! - `clusterrole NAME [to=admin,…] [from=admin,…]` or `role NAMESPACE/NAME`, then one indented line
//!   per rule: `verbs | groups | resources [| names]` (the core group written `core`) or
//!   `verbs | paths | paths`. `to` marks a role as part of an aggregated one, `from` makes one.
//! - `clusterbinding NAME ROLE SUBJECT…`, `binding NAMESPACE/NAME ROLE SUBJECT…`, a subject being
//!   `user:…`, `group:…` or `account:NAMESPACE/NAME`.
//! - `gate=GATE` at the end of a role or binding: it is there only while that feature gate is on.

use api::Value;
use api::features::FeatureGates;

const TEXT: &str = include_str!("policy.txt");
const GROUP: &str = "rbac.authorization.k8s.io";

/// The plural and the object of everything in the policy that these feature gates leave there.
pub(super) fn objects(gates: &FeatureGates) -> Vec<(&'static str, Value)> {
    let mut objects: Vec<(&'static str, Value)> = Vec::new();
    let mut is_left_out = false;
    for line in TEXT.lines() {
        if let Some(rule) = line.strip_prefix("  ") {
            if !is_left_out
                && let Some((_, role)) = objects.last_mut()
                && let Some(Value::Array(rules)) = role.get_mut("rules")
            {
                rules.push(parse_rule(rule));
            }
            continue;
        }
        let mut words = line.split(' ');
        let (what, name) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let mut rest: Vec<&str> = words.collect();
        let gate = rest.pop_if(|word| word.starts_with("gate="));
        let gate = gate.and_then(|word| word.strip_prefix("gate="));
        is_left_out = gate.is_some_and(|gate| !gates.is_on(gate));
        match what {
            _ if is_left_out => {}
            "clusterrole" | "role" => objects.push(role(what, name, &rest)),
            "clusterbinding" | "binding" => objects.push(binding(what, name, &rest)),
            _ => {}
        }
    }
    aggregate(&mut objects);
    objects
}

fn named(kind: &str, name: &str) -> Value {
    let mut object = api::document!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        },
    });
    match name.split_once('/') {
        Some((namespace, name)) if !kind.starts_with("Cluster") => {
            object.set(&["metadata", "namespace"], namespace);
            object.set(&["metadata", "name"], name);
        }
        _ => object.set(&["metadata", "name"], name),
    }
    object
}

fn role(what: &str, name: &str, options: &[&str]) -> (&'static str, Value) {
    let (plural, kind) = match what {
        "role" => ("roles", "Role"),
        _ => ("clusterroles", "ClusterRole"),
    };
    let mut role = named(kind, name);
    role.set(&["rules"], Vec::<Value>::new());
    for option in options {
        match option.split_once('=') {
            Some(("to", targets)) => {
                for target in targets.split(',') {
                    role.set(&["metadata", "labels", &aggregation_label(target)], "true");
                }
            }
            Some(("from", sources)) => {
                let selectors: Vec<Value> = sources
                    .split(',')
                    .map(|source| {
                        let mut selector = Value::object();
                        selector.set(&["matchLabels", &aggregation_label(source)], "true");
                        selector
                    })
                    .collect();
                role.set(&["aggregationRule", "clusterRoleSelectors"], selectors);
            }
            _ => {}
        }
    }
    (plural, role)
}

fn aggregation_label(target: &str) -> String {
    format!("{GROUP}/aggregate-to-{target}")
}

fn parse_rule(text: &str) -> Value {
    let parts: Vec<&str> = text.split('|').map(str::trim).collect();
    let list = |index: usize| -> Vec<Value> {
        let items = parts.get(index).copied().unwrap_or_default().split(',');
        items
            .map(|item| Value::from(if item == "core" { "" } else { item }))
            .collect()
    };
    let mut rule = Value::object();
    rule.set(&["verbs"], list(0));
    if parts.get(1) == Some(&"paths") {
        rule.set(&["nonResourceURLs"], list(2));
        return rule;
    }
    rule.set(&["apiGroups"], list(1));
    rule.set(&["resources"], list(2));
    if parts.len() > 3 {
        rule.set(&["resourceNames"], list(3));
    }
    rule
}

fn binding(what: &str, name: &str, rest: &[&str]) -> (&'static str, Value) {
    let (plural, kind, role_kind) = match what {
        "binding" => ("rolebindings", "RoleBinding", "Role"),
        _ => ("clusterrolebindings", "ClusterRoleBinding", "ClusterRole"),
    };
    let mut binding = named(kind, name);
    let (role, subjects) = rest.split_first().unwrap_or((&"", &[]));
    binding.set(
        &["roleRef"],
        api::document!({"apiGroup": GROUP, "kind": role_kind, "name": role}),
    );
    let subjects: Vec<Value> = subjects
        .iter()
        .filter_map(|subject| {
            let (kind, name) = subject.split_once(':')?;
            Some(match kind {
                "user" => api::document!({"apiGroup": GROUP, "kind": "User", "name": name}),
                "group" => api::document!({"apiGroup": GROUP, "kind": "Group", "name": name}),
                _ => {
                    let (namespace, name) = name.split_once('/')?;
                    api::document!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
                }
            })
        })
        .collect();
    binding.set(&["subjects"], subjects);
    (plural, binding)
}

/// Fills the aggregated roles with the rules of those marked for them. `view` is part of `edit`,
/// which is part of `admin`, so they are filled in that order.
fn aggregate(objects: &mut [(&'static str, Value)]) {
    for target in ["view", "edit", "admin"] {
        let label = aggregation_label(target);
        let rules: Vec<Value> = objects
            .iter()
            .filter(|(_, object)| object.at(&["metadata", "labels", &label]).is_some())
            .filter_map(|(_, object)| object.get("rules").and_then(Value::as_array))
            .flatten()
            .cloned()
            .collect();
        let found = objects.iter_mut().find(|(plural, object)| {
            *plural == "clusterroles" && object.str_at(&["metadata", "name"]) == target
        });
        if let Some((_, role)) = found {
            role.set(&["rules"], rules);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_of(name: &str) -> usize {
        let objects = objects(&FeatureGates::default());
        let (_, role) = objects
            .iter()
            .find(|(plural, object)| {
                *plural == "clusterroles" && object.str_at(&["metadata", "name"]) == name
            })
            .unwrap();
        role.get("rules").and_then(Value::as_array).unwrap().len()
    }

    #[test]
    fn aggregated_roles_contain_each_other() {
        assert!(rules_of("view") > 5);
        assert!(rules_of("edit") > rules_of("view"));
        assert!(rules_of("admin") > rules_of("edit"));
        assert_eq!(rules_of("cluster-admin"), 2);
    }
}
