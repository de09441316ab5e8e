//! Which group versions gained or lost kinds, for the one who follows that.

use std::collections::BTreeSet;

use api::Resource;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Group versions that changed since they were last taken; each is in here once.
#[derive(Default)]
pub(crate) struct ChangedVersions {
    changed: Mutex<BTreeSet<(String, String)>>,
    notify: Notify,
}

impl ChangedVersions {
    /// A kind of this version came or went.
    pub fn note(&self, resource: &Resource) {
        let version = (resource.group.to_string(), resource.version.to_string());
        self.changed.lock().insert(version);
        self.notify.notify_one();
    }

    /// Waits for changes and takes them.
    pub async fn next(&self) -> Vec<(String, String)> {
        loop {
            let changed = std::mem::take(&mut *self.changed.lock());
            if !changed.is_empty() {
                return changed.into_iter().collect();
            }
            self.notify.notified().await;
        }
    }
}
