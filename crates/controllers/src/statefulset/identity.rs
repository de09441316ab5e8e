//! The identity of a pod of a StatefulSet: its ordinal, its name, its claims. Pure.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};

use crate::{meta, owned_pods};

pub const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
pub const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// The ordinal in a pod's name, if it is named as a pod of `set` would be.
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, ordinal) = pod.metadata.name.as_deref()?.rsplit_once('-')?;
    if Some(parent) != set.metadata.name.as_deref() || !ordinal.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    ordinal.parse().ok()
}

pub fn start_ordinal(set: &StatefulSet) -> i32 {
    let spec = set.spec.as_ref();
    spec.and_then(|spec| spec.ordinals.as_ref()?.start)
        .unwrap_or(0)
}

pub fn replicas(set: &StatefulSet) -> i32 {
    let spec = set.spec.as_ref();
    spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0)
}

/// Whether the set as it is now wants a pod of that ordinal.
pub fn is_wanted(set: &StatefulSet, ordinal: i32) -> bool {
    let start = start_ordinal(set);
    ordinal >= start && ordinal < start.saturating_add(replicas(set))
}

pub fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    format!("{name}-{ordinal}")
}

pub fn revision(pod: &Pod) -> &str {
    meta::label(&pod.metadata, REVISION_LABEL).unwrap_or_default()
}

/// The pod of that ordinal, from `template`.
pub fn new_pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = owned_pods::from_template(set, template);
    let name = pod_name(set, ordinal);
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    pod.metadata.name = Some(name);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_LABEL.to_owned(), revision.to_owned());
    repair(set, &mut pod, ordinal);
    pod
}

/// Whether labels and volumes are those of the ordinal.
pub fn matches(set: &StatefulSet, pod: &Pod, ordinal: i32) -> bool {
    let mut repaired = pod.clone();
    repair(set, &mut repaired, ordinal);
    meta::label(&pod.metadata, POD_NAME_LABEL) == pod.metadata.name.as_deref()
        && repaired.spec.as_ref().map(|spec| sorted(&spec.volumes))
            == pod.spec.as_ref().map(|spec| sorted(&spec.volumes))
}

/// Gives the pod the labels and the claims' volumes of the ordinal.
pub fn repair(set: &StatefulSet, pod: &mut Pod, ordinal: i32) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME_LABEL.to_owned(), pod_name(set, ordinal));
    labels.insert(POD_INDEX_LABEL.to_owned(), ordinal.to_string());
    let templates = claim_templates(set);
    if templates.is_empty() {
        return;
    }
    let mut volumes: Vec<Volume> = templates
        .iter()
        .map(|template| Volume {
            name: template.metadata.name.clone().unwrap_or_default(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(set, template, ordinal),
                read_only: None,
            }),
            ..Volume::default()
        })
        .collect();
    let spec = pod.spec.get_or_insert_default();
    for volume in spec.volumes.take().unwrap_or_default() {
        if !volumes.iter().any(|claimed| claimed.name == volume.name) {
            volumes.push(volume);
        }
    }
    spec.volumes = Some(volumes);
}

pub fn claim_templates(set: &StatefulSet) -> &[PersistentVolumeClaim] {
    set.spec
        .as_ref()
        .and_then(|spec| spec.volume_claim_templates.as_deref())
        .unwrap_or_default()
}

pub fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    let template = template.metadata.name.as_deref().unwrap_or_default();
    format!("{template}-{}", pod_name(set, ordinal))
}

/// The claims a pod of that ordinal needs.
pub fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let selector = set.spec.as_ref().map(|spec| &spec.selector);
    let selected = selector.and_then(|selector| selector.match_labels.clone());
    claim_templates(set)
        .iter()
        .map(|template| {
            let mut claim = template.clone();
            claim.metadata.name = Some(claim_name(set, template, ordinal));
            claim.metadata.namespace = set.metadata.namespace.clone();
            let labels = claim.metadata.labels.get_or_insert_default();
            labels.extend(selected.clone().unwrap_or_default());
            claim.status = None;
            claim
        })
        .collect()
}

fn sorted(volumes: &Option<Vec<Volume>>) -> Vec<(String, Option<String>)> {
    let mut names: Vec<_> = volumes
        .iter()
        .flatten()
        .map(|volume| {
            let claim = volume.persistent_volume_claim.as_ref();
            (
                volume.name.clone(),
                claim.map(|claim| claim.claim_name.clone()),
            )
        })
        .collect();
    names.sort();
    names
}
