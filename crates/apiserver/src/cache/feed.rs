//! Fills the cache from the store and keeps it up to date from one watch over all keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Resource;
use api::Status;
use bytes::Bytes;
use futures::StreamExt;
use store::{Event, KeyRange, RangeRequest, Store, WatchItem};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::Cache;
use super::cached_object::CachedObject;
use super::keys::{ROOT, storage_prefix};
use super::kinds::{KindCaches, Places, stored_kinds};
use super::resource::{Content, Put, ResourceCache};
use super::unreadable::Unreadable;

/// A kind that is to have a cache, and who waits for it.
pub(crate) struct Addition {
    pub resource: Arc<Resource>,
    pub done: oneshot::Sender<Result<(), store::Error>>,
}

pub(crate) type Additions = mpsc::UnboundedReceiver<Addition>;

/// Reads everything there is of these kinds. [`follow`] takes the additions.
pub(crate) async fn fill(
    store: &dyn Store,
    resources: &[Arc<Resource>],
) -> Result<(Cache, Additions), store::Error> {
    let stored = stored_kinds(resources);
    let places = Places::of(stored.iter());
    let resource_at = |place: usize| &*stored[place];
    let whole = KeyRange::prefix(ROOT);
    let (content, revision) = read(store, whole, None, &places, resource_at).await?;
    let mut content = content;
    let kinds = stored.iter().enumerate().map(|(place, resource)| {
        let content = content.remove(&place).unwrap_or_default();
        (resource.clone(), content)
    });
    Ok(Cache::new(KindCaches::new(kinds, revision), revision))
}

/// What the store has in a range, at a revision or now, by the place of its kind.
async fn read<'a>(
    store: &dyn Store,
    range: KeyRange,
    revision: Option<u64>,
    places: &Places,
    resource_at: impl Fn(usize) -> &'a Resource,
) -> Result<(BTreeMap<usize, Content>, u64), store::Error> {
    let result = store
        .range(RangeRequest {
            range,
            revision,
            limit: 0,
        })
        .await?;
    let mut kinds: BTreeMap<usize, Content> = BTreeMap::new();
    for item in result.items {
        let Some((place, key)) = places.find(&item.key) else {
            continue;
        };
        let resource = resource_at(place);
        let content = kinds.entry(place).or_default();
        match CachedObject::decode(resource, key, item.value, item.mod_revision) {
            Ok(entry) => {
                content
                    .entries
                    .insert(entry.key.clone(), entry.into_shared());
            }
            Err(status) => {
                let unreadable = unreadable(resource, key, item.mod_revision, &status);
                content.unreadable.insert(key.into(), unreadable);
            }
        }
    }
    Ok((kinds, result.revision))
}

/// Follows the store until `stop`, or until the store is closed.
pub(crate) async fn follow(
    cache: Arc<Cache>,
    mut additions: Additions,
    store: Arc<dyn Store>,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        let from = cache.applied() + 1;
        let end = match store.watch(KeyRange::prefix(ROOT), from).await {
            Ok(mut stream) => loop {
                let item = tokio::select! {
                    biased;
                    _ = stop.cancelled() => return,
                    Some(addition) = additions.recv() => {
                        let added = add(&cache, &*store, addition.resource).await;
                        let _ = addition.done.send(added);
                        continue;
                    }
                    item = stream.next() => item,
                };
                match item {
                    Some(Ok(item)) => apply(&cache, item),
                    Some(Err(problem)) => break Some(problem),
                    None => break None,
                }
            },
            Err(problem) => Some(problem),
        };
        match end {
            None => warn!("the store's watch ended; watching again"),
            Some(store::Error::SlowWatcher) => warn!("the watch cache fell behind the store"),
            Some(store::Error::Compacted { .. }) => {
                if let Err(problem) = refill(&cache, &*store).await {
                    error!(%problem, "the watch cache cannot be refilled");
                }
            }
            Some(problem @ store::Error::Closed(_)) => {
                error!(%problem, "the watch cache stops");
                return;
            }
            Some(problem) => error!(%problem, "the watch cache lost the store"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Reads everything anew, when the history in between is lost.
async fn refill(cache: &Cache, store: &dyn Store) -> Result<(), store::Error> {
    let kinds = cache.kinds();
    let resource_at = |place: usize| &*kinds.at(place).resource;
    let whole = KeyRange::prefix(ROOT);
    let (mut content, revision) = read(store, whole, None, kinds.places(), resource_at).await?;
    for place in 0..kinds.len() {
        let content = content.remove(&place).unwrap_or_default();
        kinds.at(place).reset(content, revision);
    }
    cache.drafts.clear();
    cache.advance(revision);
    Ok(())
}

/// Takes in a kind as it was at the revision where the feed is, so that what follows in the feed is
/// all that is missing.
async fn add(
    cache: &Cache,
    store: &dyn Store,
    resource: Arc<Resource>,
) -> Result<(), store::Error> {
    let applied = cache.applied();
    let range = KeyRange::prefix(storage_prefix(&resource));
    let places = Places::of([&resource].into_iter());
    let at = (applied > 0).then_some(applied);
    let (mut content, _) = read(store, range, at, &places, |_| &*resource).await?;
    let content = content.remove(&0).unwrap_or_default();
    let added = ResourceCache::new(resource.clone(), content, applied);
    let mut kinds = cache.kinds.write();
    *kinds = Arc::new(kinds.with(added));
    Ok(())
}

fn apply(cache: &Cache, item: WatchItem) {
    let revision = match item {
        WatchItem::Progress { revision } => revision,
        WatchItem::Events { revision, events } => {
            let kinds = cache.kinds();
            let mut changed: BTreeMap<usize, Vec<_>> = BTreeMap::new();
            for event in events {
                let (key, value) = match event {
                    Event::Put { item, .. } => (item.key, Some(item.value)),
                    Event::Delete { key, .. } => (key, None),
                };
                let Some((place, key)) = kinds.places().find(&key) else {
                    continue;
                };
                let resource = &kinds.at(place).resource;
                let put = match value {
                    None => Put::Deleted,
                    Some(value) => match entry(cache, resource, key, value, revision) {
                        Ok(entry) => Put::Object(entry.into_shared()),
                        Err(status) => {
                            Put::Unreadable(unreadable(resource, key, revision, &status))
                        }
                    },
                };
                let puts = changed.entry(place).or_default();
                puts.push((Arc::from(key), put));
            }
            for (place, puts) in changed {
                kinds.at(place).apply(revision, puts);
            }
            revision
        }
    };
    cache.advance(revision);
}

fn unreadable(resource: &Resource, key: &str, revision: u64, status: &Status) -> Unreadable {
    error!(kind = &*resource.kind, key, %status, "a stored object cannot be read");
    Unreadable {
        revision,
        problem: status.message.clone(),
    }
}

/// By what its writer left of it, or else by decoding it.
fn entry(
    cache: &Cache,
    resource: &Resource,
    key: &str,
    value: Bytes,
    revision: u64,
) -> Result<CachedObject, Status> {
    match cache.drafts.claim(&value) {
        Some(outline) => Ok(CachedObject::with_outline(key, value, revision, outline)),
        None => CachedObject::decode(resource, key, value, revision),
    }
}
