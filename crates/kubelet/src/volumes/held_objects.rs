//! The ConfigMaps and Secrets that a pod refers to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};

use crate::{
    container::env,
    pod_spec,
    referenced::{Fixable, Held, Referenced},
};

/// The objects that one pod's volumes and environment refer to. They are watched while this lives.
#[derive(Clone, Default)]
pub struct HeldObjects {
    pub config_maps: BTreeMap<String, Held<ConfigMap>>,
    pub secrets: BTreeMap<String, Held<Secret>>,
}

impl HeldObjects {
    /// Watches everything that the pod refers to; watches that run already are kept.
    pub fn of(
        pod: &Pod,
        config_maps: &Referenced<ConfigMap>,
        secrets: &Referenced<Secret>,
    ) -> HeldObjects {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (mut map_names, mut secret_names) = (Vec::new(), Vec::new());
        let Some(spec) = &pod.spec else {
            return HeldObjects::default();
        };
        let ephemeral = pod_spec::ephemeral(pod);
        let containers = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .chain(&ephemeral);
        for container in containers {
            let (maps, secrets) = env::references(container);
            map_names.extend(maps);
            secret_names.extend(secrets);
        }
        for volume in spec.volumes.iter().flatten() {
            map_names.extend(volume.config_map.iter().map(|source| source.name.clone()));
            let secret = volume.secret.as_ref();
            secret_names.extend(secret.and_then(|source| source.secret_name.clone()));
            let projected = volume.projected.as_ref();
            for source in projected.iter().flat_map(|p| p.sources.iter().flatten()) {
                map_names.extend(source.config_map.iter().map(|source| source.name.clone()));
                secret_names.extend(source.secret.iter().map(|source| source.name.clone()));
            }
        }
        let pull = spec.image_pull_secrets.iter().flatten();
        secret_names.extend(pull.map(|reference| reference.name.clone()));
        HeldObjects {
            config_maps: hold(config_maps, namespace, map_names),
            secrets: hold(secrets, namespace, secret_names),
        }
    }
}

fn hold<K: Fixable>(
    referenced: &Referenced<K>,
    namespace: &str,
    names: Vec<String>,
) -> BTreeMap<String, Held<K>> {
    names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| (name.clone(), referenced.hold(namespace, &name)))
        .collect()
}
