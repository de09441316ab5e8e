//! The built-in provisioner: volumes that are directories on the node where their first pod runs.
//! It only writes the objects; the node itself makes and removes the directory.

mod plan;

pub use plan::host_name;

use std::sync::Arc;

use client::controller::Reconciled;
use client::events::Recorder;
use client::{Index, Informer, ObjectKey, Terms, WorkQueue, retry};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use tokio_util::sync::CancellationToken;

use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error};
use plan::Fate;

/// The name that classes and volumes carry.
pub const PROVISIONER: &str = "coracle.dev/local-path";
/// Held by the node until the directory is gone.
pub const FINALIZER: &str = "coracle.dev/local-path";
/// Where a node keeps such volumes, on its Node object.
pub const DIRECTORY_ANNOTATION: &str = "coracle.dev/local-path-directory";
const CLASS: &str = "local-path";

pub async fn run(config: Config, shutdown: CancellationToken) {
    let volumes = config.informers.of::<PersistentVolume>();
    let claims = config.informers.of::<PersistentVolumeClaim>();
    let classes = config.informers.of::<StorageClass>();
    let nodes = config.informers.of::<Node>();
    let queue = WorkQueue::new();
    // The key that stands for our class: no claim has an empty name.
    queue.add(ObjectKey::default());
    let feeds = futures::future::join3(
        enqueue(&claims, &queue, own_key),
        enqueue(&volumes, &queue, own_key),
        enqueue(&nodes, &queue, {
            let leaving = volumes.index("leaving-host", Terms::All(leaving_host));
            move |node: &Node| {
                let hosts = host_names(node);
                let leaving = leaving.get_any(&hosts);
                leaving
                    .iter()
                    .map(|volume| ObjectKey::of(&**volume))
                    .collect()
            }
        }),
    );
    let controller = Arc::new(Controller {
        events: config.events(PROVISIONER),
        config,
        volumes,
        claims,
        classes,
        hosts: nodes.index("host-name", Terms::All(host_names)),
        nodes,
    });
    let reconcile = move |key: ObjectKey| {
        let controller = controller.clone();
        async move {
            match (key.namespace.as_str(), key.name.as_str()) {
                ("", "") => controller.ensure_class().await?,
                ("", name) => controller.reconcile_volume(name).await?,
                _ => controller.reconcile_claim(&key).await?,
            }
            Ok(Reconciled::Done)
        }
    };
    watching::run("local-path", 2, queue, feeds, reconcile, shutdown).await;
}

struct Controller {
    config: Config,
    events: Recorder,
    volumes: Informer<PersistentVolume>,
    claims: Informer<PersistentVolumeClaim>,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    hosts: Index<Node>,
}

/// The host name that volumes on a node name it by.
fn host_names(node: &Node) -> Vec<String> {
    let name = crate::meta::label(&node.metadata, plan::HOST_NAME);
    Vec::from_iter(name.map(str::to_owned))
}

/// Where the directory is of a volume that is being deleted.
fn leaving_host(volume: &PersistentVolume) -> Vec<String> {
    let host = plan::host_name(volume).filter(|_| volume.metadata.deletion_timestamp.is_some());
    Vec::from_iter(host.map(str::to_owned))
}

impl Controller {
    /// The cluster's default class, made where it lacks; what a user changes about it stays.
    async fn ensure_class(&self) -> Result<(), Error> {
        let class = StorageClass {
            metadata: ObjectMeta {
                name: Some(CLASS.to_string()),
                annotations: Some(
                    [(
                        "storageclass.kubernetes.io/is-default-class".to_string(),
                        "true".to_string(),
                    )]
                    .into(),
                ),
                ..ObjectMeta::default()
            },
            provisioner: PROVISIONER.to_string(),
            reclaim_policy: Some("Delete".to_string()),
            volume_binding_mode: Some("WaitForFirstConsumer".to_string()),
            ..StorageClass::default()
        };
        let classes: Api<StorageClass> = Api::all(self.config.client.clone());
        match classes.create(&PostParams::default(), &class).await {
            Err(error) if !retry::is_already_exists(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn reconcile_claim(&self, key: &ObjectKey) -> Result<(), Error> {
        self.volumes.synced().await;
        self.classes.synced().await;
        self.nodes.synced().await;
        let Some(claim) = self.claims.get(&key.namespace, &key.name) else {
            return Ok(());
        };
        if !plan::is_asked(&claim) || self.volumes.get("", &plan::volume_name(&claim)).is_some() {
            return Ok(());
        }
        let class = semantics::volume::claim_class(&claim);
        let Some(class) = self.classes.get("", class) else {
            return Ok(());
        };
        let failed = |message: String| {
            let message = format!(
                "failed to provision volume with StorageClass {:?}: {message}",
                class.metadata.name.as_deref().unwrap_or_default()
            );
            self.events.warning(&*claim, "ProvisioningFailed", message);
        };
        let Some(node) = plan::selected_node(&claim) else {
            failed("the class must have volumeBindingMode WaitForFirstConsumer".to_string());
            return Ok(());
        };
        let Some(node) = self.nodes.get("", node) else {
            failed(format!("node {node:?} not found"));
            return Ok(());
        };
        let volume = match plan::volume(&claim, &class, &node) {
            Ok(volume) => volume,
            Err(problem) => {
                failed(problem.to_string());
                return Ok(());
            }
        };
        let volumes: Api<PersistentVolume> = Api::all(self.config.client.clone());
        match volumes.create(&PostParams::default(), &volume).await {
            Ok(created) => {
                let name = created.metadata.name.as_deref().unwrap_or_default();
                let message = format!("Successfully provisioned volume {name}");
                self.events
                    .normal(&*claim, "ProvisioningSucceeded", message);
                Ok(())
            }
            Err(error) if retry::is_already_exists(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn reconcile_volume(&self, name: &str) -> Result<(), Error> {
        self.nodes.synced().await;
        let Some(volume) = self.volumes.get("", name) else {
            return Ok(());
        };
        let volumes: Api<PersistentVolume> = Api::all(self.config.client.clone());
        let node_exists = |host_name: &str| self.hosts.count(host_name) > 0;
        match plan::fate(&volume, node_exists) {
            Fate::Keep => Ok(()),
            Fate::Delete => {
                let parameters = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: volume.metadata.uid.clone(),
                        resource_version: volume.metadata.resource_version.clone(),
                    }),
                    ..DeleteParams::default()
                };
                match volumes.delete(name, &parameters).await {
                    Err(error) if !retry::is_not_found(&error) => Err(error.into()),
                    _ => Ok(()),
                }
            }
            Fate::Forget => {
                let mut updated = (*volume).clone();
                if let Some(finalizers) = &mut updated.metadata.finalizers {
                    finalizers.retain(|finalizer| finalizer != FINALIZER);
                }
                match volumes
                    .replace(name, &PostParams::default(), &updated)
                    .await
                {
                    Err(error) if !retry::is_not_found(&error) => Err(error.into()),
                    _ => Ok(()),
                }
            }
        }
    }
}
