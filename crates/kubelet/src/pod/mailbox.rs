//! The mailbox of a pod's worker: the newest form of the pod and hints to look again. The latest
//! message wins, so that it is bounded whatever the senders do.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::termination::Termination;
use crate::{probes, runtime::Sighting};

const SIGHTINGS_KEPT: usize = 16;

/// Everything that came since the worker last looked.
#[derive(Default)]
pub struct News {
    pub pod: Option<Arc<Pod>>,
    /// The mirror pod that the API has of a static pod now.
    pub mirror: Option<Option<Arc<Pod>>>,
    /// The API no longer has the pod.
    pub removed: bool,
    /// Something changed in the runtime, and it is not known what.
    pub runtime: bool,
    /// The states that the runtime described when it announced changes.
    pub sightings: Vec<Sighting>,
    /// Somebody else on this node has decided that the pod must end.
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
    news: Mutex<News>,
    wake: Notify,
}

impl Mailbox {
    pub fn pod(&self, pod: Arc<Pod>) {
        self.put(|news| news.pod = Some(pod));
    }

    pub fn mirror(&self, mirror: Option<Arc<Pod>>) {
        self.put(|news| news.mirror = Some(mirror));
    }

    pub fn removed(&self) {
        self.put(|news| news.removed = true);
    }

    /// Without a sighting, or with too many of them, the pod is read again.
    pub fn runtime_changed(&self, sighting: Option<Sighting>) {
        self.put(|news| match sighting {
            Some(sighting) if news.sightings.len() < SIGHTINGS_KEPT => {
                news.sightings.push(sighting);
            }
            _ => news.runtime = true,
        });
    }

    pub fn objects_changed(&self) {
        self.put(|news| news.objects = true);
    }

    pub fn end(&self, termination: Termination) {
        self.put(|news| news.end = Some(termination));
    }

    pub fn room(&self) {
        self.put(|news| news.room = true);
    }

    pub fn probe_result(&self, result: probes::ProbeResult) {
        self.put(|news| {
            let key = (result.container_id, result.kind);
            news.probe_results.insert(key, result.passed);
        });
    }

    /// Waits for something new. Dropping the future loses nothing.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    pub fn take_news(&self) -> News {
        std::mem::take(&mut *self.news.lock())
    }

    fn put(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.news.lock());
        self.wake.notify_one();
    }
}
