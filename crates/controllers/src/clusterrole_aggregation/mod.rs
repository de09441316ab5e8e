//! ClusterRole aggregation: a role with an aggregation rule has the rules of all roles it selects.

use std::sync::Arc;

use client::controller::Outcome;
use client::{ObjectKey, Terms, WorkQueue, retry};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::lookup::Labelled;
use crate::watching::{self, enqueue};
use crate::{Config, Error};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let roles = config.informers.of::<ClusterRole>();
    let queue = WorkQueue::new();
    let labelled = Labelled::of(&roles);
    let aggregating = roles.index("aggregating", Terms::All(terms_of));
    // A role that changed may be part of those whose selectors it matches, and be one itself.
    let feed = enqueue(&roles, &queue, move |role: &ClusterRole| {
        let mut keys = vec![ObjectKey::of(role)];
        let mut terms = vec![String::new()];
        for (key, value) in role.metadata.labels.iter().flatten() {
            terms.push(key.clone());
            terms.push(format!("{key}={value}"));
        }
        let aggregating = aggregating.get_any(&terms);
        keys.extend(aggregating.iter().map(|role| ObjectKey::of(&**role)));
        keys
    });
    let reconcile = move |key: ObjectKey| {
        let (config, roles, labelled) = (config.clone(), roles.clone(), labelled.clone());
        async move {
            roles.synced().await;
            let Some(role) = roles.get("", &key.name) else {
                return Ok(Outcome::Done);
            };
            let selected = |selector: &LabelSelector| labelled.selected_by("", selector);
            if let Some(rules) = plan(&role, selected) {
                write(&config, &role, rules).await?;
            }
            Ok(Outcome::Done)
        }
    };
    watching::run(
        "clusterrole-aggregation",
        1,
        queue,
        feed,
        reconcile,
        shutdown,
    )
    .await;
}

/// The rules the role should have, if it has others.
fn plan(
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
fn terms_of(role: &ClusterRole) -> Vec<String> {
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

async fn write(config: &Config, role: &ClusterRole, rules: Vec<PolicyRule>) -> Result<(), Error> {
    let mut updated = role.clone();
    updated.rules = Some(rules);
    let roles: Api<ClusterRole> = Api::all(config.client.clone());
    let name = role.metadata.name.as_deref().unwrap_or_default();
    match roles.replace(name, &PostParams::default(), &updated).await {
        Err(error) if !retry::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
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
    fn rules_are_gathered_once_each_from_what_is_selected() {
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
                crate::meta::selects_or_all(selector, &labels)
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
