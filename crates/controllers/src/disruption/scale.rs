//! How many pods the controllers of some pods want together: from the cache for the kinds we know,
//! by the `scale` subresource for all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Informer, Informers};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::GroupVersionKind;
use kube::discovery::oneshot;

use crate::Error;

pub struct Scales {
    client: kube::Client,
    pub deployments: Informer<Deployment>,
    pub replica_sets: Informer<ReplicaSet>,
    pub stateful_sets: Informer<StatefulSet>,
    pub replication_controllers: Informer<ReplicationController>,
}

impl Scales {
    pub fn new(client: kube::Client, informers: &Informers) -> Scales {
        Scales {
            client,
            deployments: informers.of(),
            replica_sets: informers.of(),
            stateful_sets: informers.of(),
            replication_controllers: informers.of(),
        }
    }

    pub async fn synced(&self) {
        self.deployments.synced().await;
        self.replica_sets.synced().await;
        self.stateful_sets.synced().await;
        self.replication_controllers.synced().await;
    }

    /// The sum over all controllers, and the names of pods that have none.
    pub async fn of_pods(&self, pods: &[Arc<Pod>]) -> Result<(i32, Vec<String>), Error> {
        let mut by_controller: BTreeMap<String, i32> = BTreeMap::new();
        let mut asked: BTreeMap<String, ()> = BTreeMap::new();
        let mut unmanaged = Vec::new();
        for pod in pods {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let Some(controller) = semantics::owner::controller_of(&pod.metadata) else {
                unmanaged.push(name);
                continue;
            };
            if asked.insert(controller.uid.clone(), ()).is_some() {
                continue;
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let Some((uid, scale)) = self.of_controller(namespace, controller).await? else {
                let message = format!("found no controllers for pod {name:?}");
                return Err(Error::Object(message));
            };
            by_controller.insert(uid, scale);
        }
        Ok((by_controller.values().sum(), unmanaged))
    }

    /// The UID and the wanted number of pods of a controller; of a ReplicaSet, those of its
    /// Deployment.
    async fn of_controller(
        &self,
        namespace: &str,
        controller: &OwnerReference,
    ) -> Result<Option<(String, i32)>, Error> {
        let group = controller
            .api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        let name = &controller.name;
        let uid = &controller.uid;
        Ok(match (group, controller.kind.as_str()) {
            ("apps", "ReplicaSet") => self.replica_set(namespace, controller),
            ("apps", "StatefulSet") => {
                let set = self.stateful_sets.get(namespace, name);
                let set = set.filter(|set| set.metadata.uid.as_ref() == Some(uid));
                set.map(|set| {
                    let spec = set.spec.as_ref();
                    let replicas = spec.and_then(|spec| spec.replicas);
                    (uid.clone(), replicas.unwrap_or(1))
                })
            }
            ("", "ReplicationController") => {
                let set = self.replication_controllers.get(namespace, name);
                let set = set.filter(|set| set.metadata.uid.as_ref() == Some(uid));
                set.map(|set| {
                    let spec = set.spec.as_ref();
                    let replicas = spec.and_then(|spec| spec.replicas);
                    (uid.clone(), replicas.unwrap_or(1))
                })
            }
            _ => self.by_subresource(namespace, controller).await?,
        })
    }

    fn replica_set(&self, namespace: &str, controller: &OwnerReference) -> Option<(String, i32)> {
        let set = self.replica_sets.get(namespace, &controller.name)?;
        if set.metadata.uid.as_ref() != Some(&controller.uid) {
            return None;
        }
        if let Some(owner) = semantics::owner::controller_of(&set.metadata)
            && owner.kind == "Deployment"
        {
            let deployment = self.deployments.get(namespace, &owner.name)?;
            let spec = deployment.spec.as_ref();
            let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let uid = deployment.metadata.uid.clone()?;
            return (uid == owner.uid).then_some((uid, replicas));
        }
        let spec = set.spec.as_ref();
        let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
        Some((controller.uid.clone(), replicas))
    }

    async fn by_subresource(
        &self,
        namespace: &str,
        controller: &OwnerReference,
    ) -> Result<Option<(String, i32)>, Error> {
        let (group, version) = match controller.api_version.rsplit_once('/') {
            Some((group, version)) => (group, version),
            None => ("", controller.api_version.as_str()),
        };
        let kind = GroupVersionKind::gvk(group, version, &controller.kind);
        let (resource, _) = oneshot::pinned_kind(&self.client, &kind).await?;
        let prefix = if group.is_empty() { "/api" } else { "/apis" };
        let path = format!(
            "{prefix}/{}/namespaces/{namespace}/{}/{}/scale",
            controller.api_version, resource.plural, controller.name
        );
        let request = http::Request::get(path).body(Vec::new())?;
        let scale: Scale = match self.client.request(request).await {
            Ok(scale) => scale,
            Err(error) if client::retry::is_not_found(&error) => {
                let message = format!(
                    "{}.{group} does not implement the scale subresource",
                    resource.plural
                );
                return Err(Error::Object(message));
            }
            Err(error) => return Err(error.into()),
        };
        let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        Ok((scale.metadata.uid.as_ref() == Some(&controller.uid))
            .then(|| (controller.uid.clone(), replicas)))
    }
}
