//! Gives every namespace its `default` ServiceAccount and the `kube-root-ca.crt` ConfigMap.

use client::controller::Outcome;
use client::{ObjectKey, WorkQueue, retry};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue};
use crate::{Config, Error};

const ROOT_CA: &str = "kube-root-ca.crt";
const DEFAULT: &str = "default";

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
                    return Ok(Outcome::Done);
                };
                if namespace.metadata.deletion_timestamp.is_some() {
                    return Ok(Outcome::Done);
                }
                if accounts.get(&key.name, DEFAULT).is_none() {
                    create_account(&config, &key.name).await?;
                }
                let published = config_maps.get(&key.name, ROOT_CA);
                let current = published
                    .as_ref()
                    .and_then(|map| map.data.as_ref()?.get("ca.crt"));
                if current != Some(&config.root_ca_pem) {
                    publish_root_ca(&publisher, &key.name).await?;
                }
                Ok::<_, Error>(Outcome::Done)
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

async fn create_account(config: &Config, namespace: &str) -> Result<(), Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(config.client.clone(), namespace);
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some(DEFAULT.to_string()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    ignore_expected(accounts.create(&PostParams::default(), &account).await)
}

async fn publish_root_ca(config: &Config, namespace: &str) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(config.client.clone(), namespace);
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(ROOT_CA.to_string()),
            annotations: Some(
                [(
                    "kubernetes.io/description".to_string(),
                    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.".to_string(),
                )]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        data: Some([("ca.crt".to_string(), config.root_ca_pem.clone())].into()),
        ..ConfigMap::default()
    };
    match maps.create(&PostParams::default(), &map).await {
        Err(error) if retry::is_already_exists(&error) => {
            ignore_expected(maps.replace(ROOT_CA, &PostParams::default(), &map).await)
        }
        result => ignore_expected(result),
    }
}

/// Somebody else was quicker, or the namespace is going away: both are fine.
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
