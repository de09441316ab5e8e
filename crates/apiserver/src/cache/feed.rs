//! Fills the cache from the store and keeps it up to date from one watch over all keys.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use api::catalogue::{self, Resource};
use bytes::Bytes;
use futures::StreamExt;
use store::{Event, KeyRange, RangeRequest, Store, WatchItem};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::entry::Entry;
use super::keys::{ROOT, storage_prefix};
use super::resource::{Content, Put};
use super::unreadable::Unreadable;
use super::{Cache, is_stored};

type Kinds = BTreeMap<(&'static str, &'static str), Content>;

/// Knows which kind a store key belongs to.
struct Places(BTreeMap<String, &'static Resource>);

impl Places {
    fn new() -> Places {
        Places(
            catalogue::resources()
                .iter()
                .filter(|resource| is_stored(resource))
                .map(|resource| (storage_prefix(resource), resource))
                .collect(),
        )
    }

    /// The kind, and the key inside it.
    fn find<'a>(&self, key: &'a [u8]) -> Option<(&'static Resource, &'a str)> {
        let key = std::str::from_utf8(key).ok()?;
        let slashes = key.match_indices('/').map(|(index, _)| index);
        // Prefixes have two or three segments: "/registry/pods/", "/registry/services/specs/".
        slashes.skip(2).take(2).find_map(|slash| {
            let (prefix, rest) = key.split_at(slash + 1);
            Some((*self.0.get(prefix)?, rest))
        })
    }
}

/// Reads everything.
pub(crate) async fn fill(store: &dyn Store) -> Result<Cache, store::Error> {
    let (kinds, revision) = read(store).await?;
    Ok(Cache::new(kinds, revision))
}

async fn read(store: &dyn Store) -> Result<(Kinds, u64), store::Error> {
    let places = Places::new();
    let result = store
        .range(RangeRequest {
            range: KeyRange::prefix(ROOT),
            revision: None,
            limit: 0,
        })
        .await?;
    let mut kinds = Kinds::new();
    for item in result.items {
        let Some((resource, key)) = places.find(&item.key) else {
            continue;
        };
        let content = kinds.entry((resource.group, resource.plural)).or_default();
        match Entry::decode(resource, key, item.value, item.mod_revision) {
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
pub(crate) async fn follow(cache: Arc<Cache>, store: Arc<dyn Store>, stop: CancellationToken) {
    let places = Places::new();
    while !stop.is_cancelled() {
        let from = cache.applied() + 1;
        let end = match store.watch(KeyRange::prefix(ROOT), from).await {
            Ok(mut stream) => loop {
                let item = tokio::select! {
                    biased;
                    _ = stop.cancelled() => return,
                    item = stream.next() => item,
                };
                match item {
                    Some(Ok(item)) => take(&cache, &places, item),
                    Some(Err(problem)) => break Some(problem),
                    None => break None,
                }
            },
            Err(problem) => Some(problem),
        };
        match end {
            None => warn!("the store's watch ended; watching again"),
            Some(store::Error::SlowWatcher) => warn!("the watch cache fell behind the store"),
            Some(store::Error::Compacted { .. }) => match read(&*store).await {
                Ok((mut kinds, revision)) => {
                    for kind in cache.kinds() {
                        let id = (kind.resource.group, kind.resource.plural);
                        kind.reset(kinds.remove(&id).unwrap_or_default(), revision);
                    }
                    cache.drafts.clear();
                    cache.advance(revision);
                }
                Err(problem) => error!(%problem, "the watch cache cannot be refilled"),
            },
            Some(problem @ store::Error::Closed(_)) => {
                error!(%problem, "the watch cache stops");
                return;
            }
            Some(problem) => error!(%problem, "the watch cache lost the store"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn take(cache: &Cache, places: &Places, item: WatchItem) {
    let revision = match item {
        WatchItem::Progress { revision } => revision,
        WatchItem::Events { revision, events } => {
            let mut kinds: BTreeMap<_, (&Resource, Vec<_>)> = BTreeMap::new();
            for event in events {
                let (key, value) = match event {
                    Event::Put { item, .. } => (item.key, Some(item.value)),
                    Event::Delete { key, .. } => (key, None),
                };
                let Some((resource, key)) = places.find(&key) else {
                    continue;
                };
                let put = match value {
                    None => Put::Deleted,
                    Some(value) => match entry(cache, resource, key, value, revision) {
                        Ok(entry) => Put::Entry(entry.into_shared()),
                        Err(status) => {
                            Put::Unreadable(unreadable(resource, key, revision, &status))
                        }
                    },
                };
                kinds
                    .entry((resource.group, resource.plural))
                    .or_insert_with(|| (resource, Vec::new()))
                    .1
                    .push((Arc::from(key), put));
            }
            for (resource, puts) in kinds.into_values() {
                if let Some(kind) = cache.of(resource) {
                    kind.apply(revision, puts);
                }
            }
            revision
        }
    };
    cache.advance(revision);
}

fn unreadable(resource: &Resource, key: &str, revision: u64, status: &Status) -> Unreadable {
    error!(kind = resource.kind, key, %status, "a stored object cannot be read");
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
) -> Result<Entry, Status> {
    match cache.drafts.take(&value) {
        Some(outline) => Ok(Entry::with_outline(key, value, revision, outline)),
        None => Entry::decode(resource, key, value, revision),
    }
}
