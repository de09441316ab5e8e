//! Feeds changes of informers into a controller's work queue.

use std::future::Future;
use std::sync::Arc;

use client::{Change, Informer, Object, ObjectKey, WorkQueue};

/// For every change of `informer`, adds the keys that `affected` names for the object before and
/// after it. Runs for ever; drop it to stop.
pub fn enqueue<K: Object>(
    informer: &Informer<K>,
    queue: &WorkQueue<ObjectKey>,
    affected: impl Fn(&K) -> Vec<ObjectKey> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let mut changes = informer.subscribe();
    let queue = queue.clone();
    async move {
        loop {
            let touched: Vec<Arc<K>> = match changes.next().await {
                Change::Added(object) | Change::Deleted(object) => vec![object],
                Change::Modified { old, new } => vec![old, new],
                Change::Resynced => continue,
            };
            for object in touched {
                for key in affected(&object) {
                    queue.add(key);
                }
            }
        }
    }
}

/// The object's own key.
pub fn own_key<K: Object>(object: &K) -> Vec<ObjectKey> {
    vec![ObjectKey::of(object)]
}

/// The key of the controlling owner, when it is of `kind`.
pub fn owner_key<K: Object>(kind: &'static str) -> impl Fn(&K) -> Vec<ObjectKey> + Send + 'static {
    move |object| {
        crate::meta::controller_of(object.meta())
            .filter(|owner| owner.kind == kind)
            .map(|owner| {
                let namespace = object.meta().namespace.clone().unwrap_or_default();
                ObjectKey::new(namespace, owner.name.clone())
            })
            .into_iter()
            .collect()
    }
}
