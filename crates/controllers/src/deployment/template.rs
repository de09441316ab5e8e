//! Identity of pod templates: equality without the hash label, and the hash itself.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;

use super::HASH_LABEL;
use crate::hash;

/// Whether a set was made from the Deployment's current template.
pub fn same(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let (Some(spec), Some(set_spec)) = (&deployment.spec, &set.spec) else {
        return false;
    };
    set_spec
        .template
        .as_ref()
        .is_some_and(|template| without_hash(template) == without_hash(&spec.template))
}

/// Ten characters of the alphabet of generated names, depending on the template and on how many
/// collisions there have been.
pub fn hash(deployment: &Deployment) -> String {
    let template = deployment
        .spec
        .as_ref()
        .map(|spec| without_hash(&spec.template))
        .unwrap_or_default();
    let collisions = deployment
        .status
        .as_ref()
        .and_then(|status| status.collision_count);
    let template = serde_json::to_vec(&template).unwrap_or_default();
    match collisions {
        Some(collisions) => hash::short(&[&template, &collisions.to_le_bytes()]),
        None => hash::short(&[&template]),
    }
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        if let Some(labels) = &mut meta.labels {
            labels.remove(HASH_LABEL);
            if labels.is_empty() {
                meta.labels = None;
            }
        }
        meta.creation_timestamp = None;
        if *meta == Default::default() {
            template.metadata = None;
        }
    }
    template
}
