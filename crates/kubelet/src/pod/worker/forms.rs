//! The forms in which one pod is known: as the API wants it, with the resources that this node has
//! granted, and, for a static pod, the mirror pod that the API shows for it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::{
    pod::resize,
    pod_spec::{is_static, uid},
};

pub(super) struct PodForms {
    granted: Arc<Pod>,
    desired: Arc<Pod>,
    mirror: Option<Arc<Pod>>,
}

impl PodForms {
    pub fn new(pod: Arc<Pod>) -> PodForms {
        PodForms {
            granted: pod.clone(),
            desired: pod,
            mirror: None,
        }
    }

    /// The pod as the API has it, but with the resources that this node granted.
    pub fn granted(&self) -> &Arc<Pod> {
        &self.granted
    }

    /// The pod as the API has it.
    pub fn desired(&self) -> &Arc<Pod> {
        &self.desired
    }

    /// The object in the API that carries the status of this pod: the pod itself, or the mirror of
    /// a static pod.
    pub fn shown(&self) -> Option<&Arc<Pod>> {
        match is_static(&self.desired) {
            true => self.mirror.as_ref(),
            false => Some(&self.desired),
        }
    }

    /// Restores from its status which resources a pod that ran before this kubelet was granted.
    pub fn restore_granted(&mut self, status: &PodStatus) {
        if let Some(granted) = resize::from_status(&self.granted, status) {
            self.granted = Arc::new(granted);
        }
    }

    /// Replaces the pod by a newer form. It keeps the resources that it was granted.
    pub fn update(&mut self, desired: Arc<Pod>) {
        self.granted = match resize::as_granted(&desired, &self.granted) {
            Some(granted) => Arc::new(granted),
            None => desired.clone(),
        };
        self.desired = desired;
    }

    /// Whether the pod wants other resources than it was granted.
    pub fn wants_resize(&self) -> bool {
        resize::as_granted(&self.desired, &self.granted).is_some()
    }

    /// The resources that the pod wants have been granted.
    pub fn grant(&mut self) {
        self.granted = self.desired.clone();
    }

    /// Replaces the mirror pod. Returns whether it is another one than before.
    pub fn set_mirror(&mut self, mirror: Option<Arc<Pod>>) -> bool {
        let uid_of = |pod: &Option<Arc<Pod>>| pod.as_ref().map(|pod| uid(pod));
        let is_another = uid_of(&mirror) != uid_of(&self.mirror);
        self.mirror = mirror;
        is_another
    }

    pub fn mirror(&self) -> Option<&Arc<Pod>> {
        self.mirror.as_ref()
    }
}
