//! ClusterRole aggregation: a role with an aggregation rule has the rules of all roles it selects.

use std::sync::Arc;

use client::controller::Outcome;
use client::{ObjectKey, WorkQueue, retry};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue};
use crate::{Config, Error, meta};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let roles = config.informers.of::<ClusterRole>();
    let queue = WorkQueue::new();
    let feed = enqueue(&roles, &queue, {
        let roles = roles.clone();
        // Any role may be part of any aggregated one; there are few of those.
        move |_: &ClusterRole| {
            let aggregated = roles.list().into_iter();
            aggregated
                .filter(|role| role.aggregation_rule.is_some())
                .map(|role| ObjectKey::of(&*role))
                .collect()
        }
    });
    let reconcile = move |key: ObjectKey| {
        let (config, roles) = (config.clone(), roles.clone());
        async move {
            roles.synced().await;
            let Some(role) = roles.get("", &key.name) else {
                return Ok(Outcome::Done);
            };
            if let Some(rules) = plan(&role, &roles.list()) {
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
fn plan(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let rule = role.aggregation_rule.as_ref()?;
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in rule.cluster_role_selectors.iter().flatten() {
        let selected = all
            .iter()
            .filter(|other| other.metadata.name != role.metadata.name && selects(selector, other));
        for found in selected.flat_map(|other| other.rules.iter().flatten()) {
            if !rules.contains(found) {
                rules.push(found.clone());
            }
        }
    }
    (role.rules.as_deref().unwrap_or_default() != rules).then_some(rules)
}

fn selects(selector: &LabelSelector, role: &ClusterRole) -> bool {
    let labels = role.metadata.labels.clone().unwrap_or_default();
    *selector == LabelSelector::default() || meta::selects(selector, &labels)
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
        let rules = plan(&whole, &all).unwrap();
        assert_eq!(rules.len(), 2);
        whole.rules = Some(rules);
        assert_eq!(plan(&whole, &all), None);
        assert_eq!(plan(&all[0], &all), None);
    }
}
