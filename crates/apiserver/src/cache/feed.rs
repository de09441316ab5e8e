//! Fills the cache from the store and keeps it up to date from one watch over all keys.

use std::sync::Arc;
use std::time::Duration;

use api::Resource;
use api::Status;
use bytes::Bytes;
use futures::StreamExt;
use store::{Event, KeyRange, KeyValue, RangeRequest, Store, WatchItem};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::Cache;
use super::cached_object::CachedObject;
use super::keys::{DEFINITIONS, ROOT, storage_prefix};
use super::kinds::{KindCaches, Prefixes, stored_kinds};
use super::resource::{Content, Put, ResourceCache};
use super::unreadable::Unreadable;

/// A kind that is to have a cache, and who waits for it.
pub(crate) struct Addition {
    pub resource: Arc<Resource>,
    pub done: oneshot::Sender<Result<(), store::Error>>,
}

pub(crate) type Additions = mpsc::UnboundedReceiver<Addition>;

/// Reads everything there is of the built-in kinds, and of those that are defined by what was stored
/// with them: `defined` makes these from the definitions' bytes. [`follow`] takes the additions.
pub(crate) async fn fill(
    store: &dyn Store,
    built_in: &[Arc<Resource>],
    defined: impl FnOnce(&[Bytes]) -> Vec<Arc<Resource>>,
) -> Result<(Cache, Additions), store::Error> {
    let (items, revision) = read(store, KeyRange::prefix(ROOT), None).await?;
    let is_definition = |item: &&KeyValue| item.key.starts_with(DEFINITIONS.as_bytes());
    let definitions = items.iter().filter(is_definition);
    let definitions: Vec<Bytes> = definitions.map(|item| item.value.clone()).collect();
    let mut resources = built_in.to_vec();
    resources.extend(defined(&definitions));
    let mut kinds = Filling::new(stored_kinds(&resources));
    for item in items {
        kinds.take(item);
    }
    Ok(Cache::new(
        KindCaches::new(kinds.content, revision),
        revision,
    ))
}

/// What the store has in a range, at a revision or now.
async fn read(
    store: &dyn Store,
    range: KeyRange,
    revision: Option<u64>,
) -> Result<(Vec<KeyValue>, u64), store::Error> {
    let request = RangeRequest {
        range,
        revision,
        limit: 0,
    };
    let result = store.range(request).await?;
    Ok((result.items, result.revision))
}

/// Kinds that are being read.
struct Filling {
    places: Prefixes<usize>,
    content: Vec<(Arc<Resource>, Content)>,
}

impl Filling {
    fn new(resources: Vec<Arc<Resource>>) -> Filling {
        let mut places = Prefixes::default();
        for (place, resource) in resources.iter().enumerate() {
            places.insert(resource, place);
        }
        let content = resources
            .into_iter()
            .map(|resource| (resource, Content::default()));
        Filling {
            places,
            content: content.collect(),
        }
    }

    /// Puts an item where it belongs, if its kind is among these.
    fn take(&mut self, item: KeyValue) {
        let Some((place, key)) = self.places.find(&item.key) else {
            return;
        };
        let (resource, content) = &mut self.content[*place];
        match CachedObject::decode(resource, key, item.value, item.mod_revision) {
            Ok(entry) => {
                let entry = entry.into_shared();
                content.entries.insert(entry.key.clone(), entry);
            }
            Err(status) => {
                let unreadable = unreadable(resource, key, item.mod_revision, &status);
                content.unreadable.insert(key.into(), unreadable);
            }
        }
    }
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
    let (items, revision) = read(store, KeyRange::prefix(ROOT), None).await?;
    let resources = kinds.iter().map(|kind| kind.resource.clone());
    let mut filling = Filling::new(resources.collect());
    for item in items {
        filling.take(item);
    }
    for (kind, (_, content)) in kinds.iter().zip(filling.content) {
        kind.reset(content, revision);
    }
    cache.drafts.clear();
    cache.advance(revision);
    Ok(())
}

/// Takes in a kind as it was at the revision where the feed is, so that what follows in the feed is
/// all that is missing. Watches of the cache that it replaces end.
async fn add(
    cache: &Cache,
    store: &dyn Store,
    resource: Arc<Resource>,
) -> Result<(), store::Error> {
    let applied = cache.applied();
    let range = KeyRange::prefix(storage_prefix(&resource));
    let at = (applied > 0).then_some(applied);
    let (items, _) = read(store, range, at).await?;
    let mut filling = Filling::new(vec![resource]);
    for item in items {
        filling.take(item);
    }
    for (resource, content) in filling.content {
        let added = Arc::new(ResourceCache::new(resource, content, applied));
        let replaced = {
            let mut kinds = cache.kinds.write();
            let mut with = KindCaches::clone(&kinds);
            let replaced = with.insert(added);
            *kinds = Arc::new(with);
            replaced
        };
        if let Some(replaced) = replaced {
            replaced.retire(applied);
        }
    }
    Ok(())
}

fn apply(cache: &Cache, item: WatchItem) {
    let revision = match item {
        WatchItem::Progress { revision } => revision,
        WatchItem::Events { revision, events } => {
            let kinds = cache.kinds();
            let mut changed: Vec<(&Arc<ResourceCache>, Vec<_>)> = Vec::new();
            for event in events {
                let (key, value) = match event {
                    Event::Put { item, .. } => (item.key, Some(item.value)),
                    Event::Delete { key, .. } => (key, None),
                };
                let Some((kind, key)) = kinds.find(&key) else {
                    continue;
                };
                let resource = &kind.resource;
                let put = match value {
                    None => Put::Deleted,
                    Some(value) => match entry(cache, resource, key, value, revision) {
                        Ok(entry) => Put::Object(entry.into_shared()),
                        Err(status) => {
                            Put::Unreadable(unreadable(resource, key, revision, &status))
                        }
                    },
                };
                let known = changed
                    .iter()
                    .position(|(other, _)| Arc::ptr_eq(other, kind));
                // A revision is of one kind or few.
                let place = known.unwrap_or_else(|| {
                    changed.push((kind, Vec::new()));
                    changed.len() - 1
                });
                changed[place].1.push((Arc::from(key), put));
            }
            for (kind, puts) in changed {
                kind.apply(revision, puts);
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
