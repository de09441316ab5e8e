//! A pod template as the content of a ControllerRevision, in upstream's form: a patch that
//! replaces `spec.template`, so that `kubectl rollout undo` can apply it. Pure.

use client::Object;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;

use crate::{hash, meta};

/// The longest part of an owner's name that goes into a revision's.
const LONGEST_PREFIX: usize = 223;

pub struct Snapshot {
    template: serde_json::Value,
    labels: std::collections::BTreeMap<String, String>,
}

impl Snapshot {
    pub fn of(template: &PodTemplateSpec) -> Snapshot {
        let labels = template.metadata.as_ref();
        let labels = labels.and_then(|meta| meta.labels.clone());
        let mut template = serde_json::to_value(template).unwrap_or_default();
        if let Some(fields) = template.as_object_mut() {
            fields.insert("$patch".into(), "replace".into());
        }
        Snapshot {
            template,
            labels: labels.unwrap_or_default(),
        }
    }

    /// Whether a revision holds this template; what a decoder would fill in does not count.
    pub fn equals(&self, revision: &ControllerRevision) -> bool {
        template_of(revision).is_some_and(|other| Snapshot::of(&other).template == self.template)
    }

    /// The revision object; its name depends on the content and on earlier `collisions`, and its
    /// label `hash_label` carries that hash.
    pub fn revision<Owner: Object>(
        &self,
        owner: &Owner,
        hash_label: &str,
        number: i64,
        collisions: i32,
    ) -> ControllerRevision {
        let data = serde_json::json!({"spec": {"template": self.template}});
        let hash = hash::short(&[data.to_string().as_bytes(), &collisions.to_le_bytes()]);
        let mut name = owner.meta().name.clone().unwrap_or_default();
        name.truncate(LONGEST_PREFIX);
        let mut labels = self.labels.clone();
        labels.insert(hash_label.to_owned(), hash.clone());
        ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{name}-{hash}")),
                namespace: owner.meta().namespace.clone(),
                labels: Some(labels),
                annotations: owner.meta().annotations.clone(),
                owner_references: Some(vec![meta::owner_reference(owner)]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data)),
            revision: number,
        }
    }
}

/// The template a revision holds.
pub fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let data = &revision.data.as_ref()?.0;
    let mut template = data.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}
