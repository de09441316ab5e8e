//! Gives every namespace its `default` ServiceAccount and the `kube-root-ca.crt` ConfigMap.

mod plan;

use client::controller::Reconciled;
use client::{ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue};
use crate::{Config, Error};
use plan::{DEFAULT, ROOT_CA};

/// One key per namespace.
pub async fn run(config: Config, shutdown: CancellationToken) {
    let namespaces = config.informers.of::<Namespace>();
    let accounts = config.informers.of::<ServiceAccount>();
    let config_maps = config
        .informers
        .with_selector::<ConfigMap>(&format!("metadata.name={ROOT_CA}"));
    let queue = WorkQueue::new();
    let feeds = futures::future::join3(
        enqueue(&namespaces, &queue, |namespace: &Namespace| {
            vec![ObjectKey::new(
                "",
                namespace.metadata.name.clone().unwrap_or_default(),
            )]
        }),
        enqueue(&accounts, &queue, |account: &ServiceAccount| {
            namespace_key(&account.metadata)
        }),
        enqueue(&config_maps, &queue, |map: &ConfigMap| {
            namespace_key(&map.metadata)
        }),
    );
    let reconcile = {
        let (namespaces, accounts, config_maps) =
            (namespaces.clone(), accounts.clone(), config_maps.clone());
        let publisher = config.clone().acting_as("root-ca-cert-publisher");
        move |key: ObjectKey| {
            let (config, publisher) = (config.clone(), publisher.clone());
            let namespaces = namespaces.clone();
            let (accounts, config_maps) = (accounts.clone(), config_maps.clone());
            async move {
                let Some(namespace) = namespaces.get("", &key.name) else {
                    return Ok(Reconciled::Done);
                };
                let missing = plan::missing(
                    &namespace,
                    accounts.get(&key.name, DEFAULT).as_deref(),
                    config_maps.get(&key.name, ROOT_CA).as_deref(),
                    &config.root_ca_pem,
                );
                if let Some(account) = missing.account {
                    create_account(&config, &key.name, &account).await?;
                }
                if let Some(map) = missing.root_ca {
                    publish_root_ca(&publisher, &key.name, &map).await?;
                }
                Ok::<_, Error>(Reconciled::Done)
            }
        }
    };
    // Creation conflicts with a namespace's end or a stale cache are retried by the queue; nothing
    // here depends on the caches being filled first.
    watching::run("serviceaccount", 2, queue, feeds, reconcile, shutdown).await;
}

fn namespace_key(meta: &ObjectMeta) -> Vec<ObjectKey> {
    vec![ObjectKey::new(
        "",
        meta.namespace.clone().unwrap_or_default(),
    )]
}

async fn create_account(
    config: &Config,
    namespace: &str,
    account: &ServiceAccount,
) -> Result<(), Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(config.client.clone(), namespace);
    ignore_expected(accounts.create(&PostParams::default(), account).await)
}

async fn publish_root_ca(config: &Config, namespace: &str, map: &ConfigMap) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(config.client.clone(), namespace);
    match maps.create(&PostParams::default(), map).await {
        Err(error) if retry::is_already_exists(&error) => {
            ignore_expected(maps.replace(ROOT_CA, &PostParams::default(), map).await)
        }
        result => ignore_expected(result),
    }
}

/// Ignores that the object exists already or that the namespace is being deleted.
fn ignore_expected<T>(result: Result<T, kube::Error>) -> Result<(), Error> {
    match result {
        Ok(_) => Ok(()),
        Err(error)
            if retry::is_already_exists(&error)
                || retry::is_namespace_terminating(&error)
                || retry::is_not_found(&error) =>
        {
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
