//! ClusterRole aggregation: a role with an aggregation rule has the rules of all roles it selects.

mod plan;

use client::controller::Reconciled;
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
    let aggregating = roles.index("aggregating", Terms::All(plan::terms_of));
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
                return Ok(Reconciled::Done);
            };
            let selected = |selector: &LabelSelector| labelled.selected_by("", selector);
            if let Some(rules) = plan::plan(&role, selected) {
                write(&config, &role, rules).await?;
            }
            Ok(Reconciled::Done)
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
