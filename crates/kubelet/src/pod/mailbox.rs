//! The mailbox of a pod's worker: the newest form of the pod and hints to look again. The latest
//! message wins, so that it is bounded no matter what the senders do.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::termination::Termination;
use crate::{probes, runtime::ReportedSandbox};

const REPORTED_KEPT: usize = 16;

/// Everything that came since the worker last looked.
#[derive(Default)]
pub struct Messages {
    pub pod: Option<Arc<Pod>>,
    /// The mirror pod that the API has of a static pod now.
    pub mirror: Option<Option<Arc<Pod>>>,
    /// The API no longer has the pod.
    pub deleted: bool,
    /// Something changed in the runtime, and it is not known what.
    pub runtime: bool,
    /// The states that the runtime described when it announced changes.
    pub reported: Vec<ReportedSandbox>,
    /// Another part of the kubelet has decided that the pod must end.
    pub end: Option<Termination>,
    /// Another pod released resources.
    pub room: bool,
    /// A ConfigMap or Secret the pod refers to changed.
    pub objects: bool,
    /// Whether each probe whose result changed passed, by container id and kind. The newest counts.
    pub probe_results: BTreeMap<(String, probes::Kind), bool>,
}

#[derive(Default)]
pub struct Mailbox {
    messages: Mutex<Messages>,
    wake: Notify,
}

impl Mailbox {
    pub fn pod(&self, pod: Arc<Pod>) {
        self.put(|messages| messages.pod = Some(pod));
    }

    pub fn mirror(&self, mirror: Option<Arc<Pod>>) {
        self.put(|messages| messages.mirror = Some(mirror));
    }

    pub fn deleted(&self) {
        self.put(|messages| messages.deleted = true);
    }

    /// Without a reported state, or with too many of them, the pod is read again.
    pub fn runtime_changed(&self, reported: Option<ReportedSandbox>) {
        self.put(|messages| match reported {
            Some(reported) if messages.reported.len() < REPORTED_KEPT => {
                messages.reported.push(reported);
            }
            _ => messages.runtime = true,
        });
    }

    pub fn objects_changed(&self) {
        self.put(|messages| messages.objects = true);
    }

    pub fn end(&self, termination: Termination) {
        self.put(|messages| messages.end = Some(termination));
    }

    pub fn room(&self) {
        self.put(|messages| messages.room = true);
    }

    pub fn probe_result(&self, result: probes::ProbeResult) {
        self.put(|messages| {
            let key = (result.container_id, result.kind);
            messages.probe_results.insert(key, result.passed);
        });
    }

    /// Waits for something new. Dropping the future loses nothing.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    pub fn take_messages(&self) -> Messages {
        std::mem::take(&mut *self.messages.lock())
    }

    fn put(&self, change: impl FnOnce(&mut Messages)) {
        change(&mut self.messages.lock());
        self.wake.notify_one();
    }
}
