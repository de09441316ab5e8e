//! Marks and then removes tokens that an old cluster made by itself (those that a ServiceAccount
//! lists in `secrets`) when nobody has used them for a year. Tokens that somebody asked for stay.

mod plan;

use std::time::Duration;

use client::retry;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use tokio_util::sync::CancellationToken;

use crate::serviceaccount_token::OF_TYPE;
use crate::{Config, Error};
use plan::Step;

const PERIOD: Duration = Duration::from_secs(24 * 3600);
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let accounts = config.informers.of::<ServiceAccount>();
    let secrets = config.informers.with_selector::<Secret>(OF_TYPE);
    let pods = config.informers.of::<Pod>();
    let work = async {
        accounts.synced().await;
        secrets.synced().await;
        pods.synced().await;
        loop {
            for secret in secrets.list() {
                let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
                let account = plan::account_of(&secret);
                let account = account.and_then(|name| accounts.get(namespace, name));
                if !plan::may_be_forgotten(&secret, account.as_deref()) {
                    continue;
                }
                if let Err(error) = clean(&config, &secret, &pods.list_in(namespace)).await {
                    let name = secret.metadata.name.as_deref().unwrap_or_default();
                    tracing::warn!(namespace, name, %error, "an old token could not be judged");
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = work => {}
    }
}

async fn clean(
    config: &Config,
    secret: &Secret,
    pods: &[std::sync::Arc<Pod>],
) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(config.client.clone(), "kube-system");
    let tracking = maps.get(TRACKING).await?;
    let since = tracking.data.as_ref().and_then(|data| data.get("since"));
    let step = plan::step(
        secret,
        pods,
        since.map_or("", String::as_str),
        config.environment.now(),
    );
    let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
    let name = secret.metadata.name.as_deref().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(config.client.clone(), namespace);
    let done = match step {
        Step::Keep => return Ok(()),
        Step::Mark(day) => {
            let patch = serde_json::json!({"metadata": {
                "uid": secret.metadata.uid, "labels": {plan::INVALID_SINCE: day}}});
            let parameters = PatchParams::default();
            let marked = secrets.patch(name, &parameters, &Patch::Merge(patch)).await;
            marked.map(drop)
        }
        Step::Delete => {
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    resource_version: secret.metadata.resource_version.clone(),
                    uid: None,
                }),
                ..DeleteParams::default()
            };
            secrets.delete(name, &parameters).await.map(drop)
        }
    };
    match done {
        Err(error) if !retry::is_not_found(&error) && !retry::is_conflict(&error) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}
