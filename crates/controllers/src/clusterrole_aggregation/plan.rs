//! The rules that a role with an aggregation rule should have. Pure.

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The rules the role should have, if it has others.
pub fn plan(
    role: &ClusterRole,
    selected: impl Fn(&LabelSelector) -> Vec<Arc<ClusterRole>>,
) -> Option<Vec<PolicyRule>> {
    let rule = role.aggregation_rule.as_ref()?;
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in rule.cluster_role_selectors.iter().flatten() {
        for other in selected(selector) {
            if other.metadata.name == role.metadata.name {
                continue;
            }
            for found in other.rules.iter().flatten() {
                if !rules.contains(found) {
                    rules.push(found.clone());
                }
            }
        }
    }
    (role.rules.as_deref().unwrap_or_default() != rules).then_some(rules)
}

/// The labels by which a role that aggregates is found from those that it may select: for each of
/// its selectors one that must be there, or nothing where none must.
pub fn terms_of(role: &ClusterRole) -> Vec<String> {
    let rule = role.aggregation_rule.as_ref();
    let selectors = rule.and_then(|rule| rule.cluster_role_selectors.as_ref());
    let mut terms = Vec::new();
    for selector in selectors.into_iter().flatten() {
        let exact = selector.match_labels.iter().flatten().next();
        let mut expressions = selector.match_expressions.iter().flatten();
        let needed = expressions.find(|one| matches!(one.operator.as_str(), "In" | "Exists"));
        match (exact, needed) {
            (Some((key, value)), _) => terms.push(format!("{key}={value}")),
            (None, Some(needed)) => terms.push(needed.key.clone()),
            (None, None) => terms.push(String::new()),
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, label: &str, resource: &str) -> Arc<ClusterRole> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "labels": {"to": label}},
                "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}],
            }))
            .unwrap(),
        )
    }

    #[test]
    fn a_role_has_each_rule_of_the_selected_roles_once() {
        let mut whole: ClusterRole = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "whole", "labels": {"to": "whole"}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "whole"}}]},
        }))
        .unwrap();
        let all = [
            role("a", "whole", "pods"),
            role("b", "whole", "pods"),
            role("c", "other", "nodes"),
            role("d", "whole", "services"),
            Arc::new(whole.clone()),
        ];
        let selected = |selector: &LabelSelector| -> Vec<Arc<ClusterRole>> {
            let matches = |role: &&Arc<ClusterRole>| {
                let labels = role.metadata.labels.clone().unwrap_or_default();
                semantics::label_selector::matches(selector, &labels)
            };
            all.iter().filter(matches).cloned().collect()
        };
        let rules = plan(&whole, selected).unwrap();
        assert_eq!(rules.len(), 2);
        whole.rules = Some(rules);
        assert_eq!(plan(&whole, selected), None);
        assert_eq!(plan(&all[0], selected), None);
    }
}
