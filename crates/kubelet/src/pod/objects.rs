//! The API objects that pods of this node refer to: ConfigMaps, Secrets, and the Services that their
//! environment names.

use std::sync::Arc;

use client::{Informer, Informers};
use environment::Environment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};

use crate::{referenced::Referenced, volumes::HeldObjects};

pub struct ApiObjects {
    config_maps: Referenced<ConfigMap>,
    secrets: Referenced<Secret>,
    services: Informer<Service>,
}

impl ApiObjects {
    pub fn new(
        client: kube::Client,
        environment: Environment,
        informers: &Informers,
    ) -> ApiObjects {
        ApiObjects {
            config_maps: Referenced::new(client.clone(), environment.clone()),
            secrets: Referenced::new(client, environment),
            services: informers.of::<Service>(),
        }
    }

    /// The ConfigMaps and Secrets that the pod refers to. They are watched while they are held.
    pub fn referred_to_by(&self, pod: &Pod) -> HeldObjects {
        HeldObjects::of(pod, &self.config_maps, &self.secrets)
    }

    /// The Services of a namespace, and the Service `kubernetes`. Waits until they have been read once.
    pub async fn services(&self, namespace: &str) -> (Vec<Arc<Service>>, Option<Arc<Service>>) {
        self.services.synced().await;
        let services = self.services.list_in(namespace);
        let kubernetes = self.services.get("default", "kubernetes");
        (services, kubernetes)
    }
}
