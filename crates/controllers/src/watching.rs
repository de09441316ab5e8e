//! The loop of every controller: changes of informers feed a work queue, workers reconcile its
//! keys.

use std::future::Future;
use std::sync::Arc;

use std::time::Duration;

use client::controller::Reconciled;
use client::{Change, Informer, Object, ObjectKey, WorkQueue, retry};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::lookup::{Selecting, Selects, namespace_of};

const AFTER_CONFLICT: Duration = Duration::from_millis(20);

/// Brings the object of a key to its spec. Closures that take a key are reconcilers too.
pub trait Reconciler: Send + Sync + 'static {
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = Result<Reconciled, Error>> + Send;
}

impl<Reconcile, Work> Reconciler for Reconcile
where
    Reconcile: Fn(ObjectKey) -> Work + Send + Sync + 'static,
    Work: Future<Output = Result<Reconciled, Error>> + Send,
{
    fn reconcile(&self, key: &ObjectKey) -> impl Future<Output = Result<Reconciled, Error>> + Send {
        self(key.clone())
    }
}

/// Runs a controller until `shutdown`: `feeds` fill the queue, `workers` empty it.
pub async fn run(
    name: &'static str,
    workers: usize,
    queue: WorkQueue<ObjectKey>,
    feeds: impl Future,
    reconciler: impl Reconciler,
    shutdown: CancellationToken,
) {
    let reconciler = Arc::new(reconciler);
    let reconcile = move |key: ObjectKey| {
        let reconciler = reconciler.clone();
        async move {
            match reconciler.reconcile(&key).await {
                // Our cache was behind; the newer object is on its way to it.
                Err(Error::Api(error)) if retry::is_conflict(&error) => {
                    Ok(Reconciled::After(AFTER_CONFLICT))
                }
                // The queue logs it, with its causes.
                result => result.map_err(|error| environment::chain(&error).to_string()),
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        _ = feeds => {}
        () = client::controller::run(name, queue, workers, reconcile, shutdown.clone()) => {}
    }
}

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

/// The owners that might adopt an object without a controller: those whose selector matches it.
pub fn possible_owners<Owner: Selects, K: Object>(
    owners: &Selecting<Owner>,
    object: &K,
) -> Vec<ObjectKey> {
    let meta = object.meta();
    let (None, Some(labels)) = (semantics::owner::controller_of(meta), &meta.labels) else {
        return Vec::new();
    };
    let owners = owners
        .of_labels(namespace_of(meta), Some(labels))
        .into_iter();
    owners.map(|owner| ObjectKey::of(&*owner)).collect()
}

/// The object's own key.
pub fn own_key<K: Object>(object: &K) -> Vec<ObjectKey> {
    vec![ObjectKey::of(object)]
}

/// The key of the controlling owner, when it is of `kind`.
pub fn owner_key<K: Object>(kind: &'static str) -> impl Fn(&K) -> Vec<ObjectKey> + Send + 'static {
    move |object| {
        semantics::owner::controller_of(object.meta())
            .filter(|owner| owner.kind == kind)
            .map(|owner| {
                let namespace = object.meta().namespace.clone().unwrap_or_default();
                ObjectKey::new(namespace, owner.name.clone())
            })
            .into_iter()
            .collect()
    }
}
