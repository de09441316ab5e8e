//! The cache of one kind: a persistent ordered map of entries, the recent changes, the watchers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Resource;
use api::Status;
use environment::work;
use imbl::OrdMap;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::cached_object::CachedObject;
use super::change::Change;
use super::unreadable::{self, AllUnreadable, Unreadable};
use super::watchers::{Requirement, Watchers};

/// Changes remembered for watches that begin in the past.
const HISTORY: usize = 4096;
/// They are forgotten earlier where the objects are large: old revisions of a definition with a long
/// schema would otherwise take more memory than all definitions.
const HISTORY_BYTES: usize = 8 << 20;
/// Changes that are news: what watchers share of them is kept.
const RECENT: usize = 64;

pub(crate) type Entries = OrdMap<Arc<str>, Arc<CachedObject>>;

pub(crate) struct ResourceCache {
    pub resource: Arc<Resource>,
    /// The revision of the newest change of this kind; behind the state for a moment at most.
    changed: AtomicU64,
    /// Held for moments only; never across an await.
    state: Mutex<State>,
}

/// What the store has of a kind.
#[derive(Default)]
pub(crate) struct Content {
    pub entries: Entries,
    pub unreadable: AllUnreadable,
}

/// What became of a key.
pub(crate) enum Put {
    Object(Arc<CachedObject>),
    Unreadable(Unreadable),
    Deleted,
}

/// The recent changes, the oldest first.
#[derive(Default)]
struct History {
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
}

impl History {
    fn after(&self, revision: u64) -> impl Iterator<Item = &Arc<Change>> {
        let first = self
            .changes
            .partition_point(|change| change.revision <= revision);
        self.changes.range(first..)
    }

    /// Adds a change. Returns the revision of the newest one that had to go for it.
    fn push(&mut self, change: Arc<Change>) -> Option<u64> {
        self.bytes += change.bytes();
        self.changes.push_back(change);
        if let Some(older) = self.changes.len().checked_sub(RECENT + 1) {
            self.changes[older].grow_old();
        }
        let mut gone = None;
        while self.changes.len() > HISTORY
            || self.bytes > HISTORY_BYTES && self.changes.len() > RECENT
        {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes();
            gone = Some(oldest.revision);
        }
        gone
    }

    fn clear(&mut self) {
        *self = History::default();
    }
}

struct State {
    entries: Entries,
    unreadable: AllUnreadable,
    /// The keys of objects that name a node (pods that are bound), by that name.
    by_node: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// The revision of the newest change of this kind.
    changed: u64,
    history: History,
    /// Watches may begin at this revision or later.
    floor: u64,
    watchers: Watchers,
    /// The kind was removed, or another cache took the place of this one: watches end as soon as they
    /// begin.
    is_closed: bool,
    /// The revision at which another cache took the place of this one.
    retired: Option<u64>,
}

/// All entries of a kind at one moment.
#[derive(Clone)]
pub(crate) struct Snapshot {
    /// Read through the methods, which count what is looked at.
    entries: Entries,
    /// Every change up to this revision is in.
    pub revision: u64,
}

impl Snapshot {
    /// These entries, as the state at a revision.
    pub fn of(entries: impl IntoIterator<Item = Arc<CachedObject>>, revision: u64) -> Snapshot {
        let entries = entries.into_iter().map(|entry| (entry.key.clone(), entry));
        Snapshot {
            entries: entries.collect(),
            revision,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Arc<CachedObject>> {
        work::visit(1);
        self.entries.get(key)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries, in the order of their keys. Whoever does this for each of many events makes
    /// their cost grow with the number of objects: see [`ResourceCache::changes_since`].
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<CachedObject>)> {
        self.entries.iter().inspect(|_| work::visit(1))
    }

    /// The entries whose key begins with `prefix`, from `start` on.
    pub fn range<'a>(
        &'a self,
        prefix: &'a str,
        start: &str,
    ) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
        let from = if start.is_empty() { prefix } else { start };
        // The end is found once: looking at each key would be most of the work.
        let mut end = [0; LONGEST_PREFIX];
        let end = match after(prefix, &mut end) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        self.entries
            .range::<_, str>((Bound::Included(from), end))
            .map(|(_, entry)| entry)
            .inspect(|_| work::visit(1))
            .take_while(move |entry| prefix.len() < LONGEST_PREFIX || entry.key.starts_with(prefix))
    }
}

/// Names of namespaces have at most 63 letters.
const LONGEST_PREFIX: usize = 64;

/// The first text after all that begin with `prefix`, if that is a namespace and a slash.
fn after<'a>(prefix: &str, text: &'a mut [u8; LONGEST_PREFIX]) -> Option<&'a str> {
    let stem = prefix.strip_suffix('/')?.as_bytes();
    let text = text.get_mut(..stem.len() + 1)?;
    text[..stem.len()].copy_from_slice(stem);
    // What follows the slash in the alphabet.
    text[stem.len()] = b'0';
    std::str::from_utf8(text).ok()
}

const NODE_FIELD: &str = "spec.nodeName";

/// The node that an object names.
fn node_of(entry: &CachedObject) -> Option<&str> {
    entry.field(NODE_FIELD).filter(|node| !node.is_empty())
}

fn by_node(entries: &Entries) -> BTreeMap<String, BTreeSet<Arc<str>>> {
    let mut nodes: BTreeMap<String, BTreeSet<Arc<str>>> = BTreeMap::new();
    for (key, entry) in entries {
        if let Some(node) = node_of(entry) {
            nodes
                .entry(node.to_owned())
                .or_default()
                .insert(key.clone());
        }
    }
    nodes
}

impl State {
    /// The revision of the entries, where the feed has delivered `applied` to all kinds.
    fn revision(&self, applied: u64) -> u64 {
        self.retired.unwrap_or(applied.max(self.changed))
    }

    /// Keeps `by_node` in step with a change of one object.
    fn follow_node(&mut self, previous: Option<&CachedObject>, current: Option<&CachedObject>) {
        let (before, after) = (previous.and_then(node_of), current.and_then(node_of));
        if before == after {
            return;
        }
        if let (Some(node), Some(entry)) = (before, previous)
            && let Some(keys) = self.by_node.get_mut(node)
        {
            keys.remove(&entry.key);
            if keys.is_empty() {
                self.by_node.remove(node);
            }
        }
        if let (Some(node), Some(entry)) = (after, current) {
            let keys = self.by_node.entry(node.to_owned()).or_default();
            keys.insert(entry.key.clone());
        }
    }
}

/// A watch's beginning.
pub(crate) struct Subscription {
    pub id: u64,
    pub initial: Initial,
    pub changes: mpsc::Receiver<Arc<Change>>,
}

pub(crate) enum Initial {
    /// The state to begin with, told as additions.
    State(Snapshot),
    /// The changes since the revision the watcher named.
    Changes(VecDeque<Arc<Change>>),
}

/// From where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    State,
    After(u64),
}

/// The history before `oldest` is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    pub oldest: u64,
}

impl ResourceCache {
    pub fn new(resource: Arc<Resource>, content: Content, revision: u64) -> ResourceCache {
        let Content {
            entries,
            unreadable,
        } = content;
        ResourceCache {
            resource,
            changed: AtomicU64::new(revision),
            state: Mutex::new(State {
                by_node: by_node(&entries),
                entries,
                unreadable,
                changed: revision,
                history: History::default(),
                floor: revision,
                watchers: Watchers::default(),
                is_closed: false,
                retired: None,
            }),
        }
    }

    pub fn get(&self, key: &str) -> Option<Arc<CachedObject>> {
        work::visit(1);
        self.state.lock().entries.get(key).cloned()
    }

    /// The object of this key, if it is there and cannot be read.
    pub fn unreadable(&self, key: &str) -> Option<Unreadable> {
        self.state.lock().unreadable.get(key).cloned()
    }

    /// Refuses a list of the keys that begin with `prefix`, from `start` on and up to `end`, if one
    /// of them cannot be read. `name` narrows it to the objects of that name.
    pub fn check_readable(
        &self,
        prefix: &str,
        start: &str,
        end: Option<&str>,
        name: Option<&str>,
    ) -> Result<(), Status> {
        let state = self.state.lock();
        if state.unreadable.is_empty() {
            return Ok(());
        }
        let found = unreadable::range(&state.unreadable, prefix, start, end);
        let found =
            found.filter(|(key, _)| name.is_none_or(|name| key.rsplit('/').next() == Some(name)));
        unreadable::check_list(&self.resource, found)
    }

    /// The objects whose `spec.nodeName` is this, in the order of their keys.
    pub fn on_node(&self, node: &str) -> Vec<Arc<CachedObject>> {
        let state = self.state.lock();
        let keys = state.by_node.get(node).into_iter().flatten();
        let found: Vec<_> = keys
            .filter_map(|key| state.entries.get(key).cloned())
            .collect();
        work::visit(found.len());
        found
    }

    /// `applied`: the revision up to which the feed has delivered to all kinds, read by the caller
    /// before this call.
    pub fn snapshot(&self, applied: u64) -> Snapshot {
        let state = self.state.lock();
        Snapshot {
            entries: state.entries.clone(),
            revision: state.revision(applied),
        }
    }

    pub fn subscribe(
        &self,
        from: From,
        applied: u64,
        requirement: Requirement,
    ) -> Result<Subscription, TooOld> {
        let mut state = self.state.lock();
        let initial = match from {
            From::State => Initial::State(Snapshot {
                entries: state.entries.clone(),
                revision: state.revision(applied),
            }),
            From::After(revision) if revision < state.floor => {
                return Err(TooOld {
                    oldest: state.floor,
                });
            }
            From::After(revision) => {
                Initial::Changes(state.history.after(revision).cloned().collect())
            }
        };
        let (id, changes) = state.watchers.add(requirement);
        if state.is_closed {
            state.watchers.clear();
        }
        Ok(Subscription {
            id,
            initial,
            changes,
        })
    }

    /// The changes after `revision`, the oldest first; none if they are not remembered any more.
    pub fn changes_since(&self, revision: u64) -> Option<Vec<Arc<Change>>> {
        let state = self.state.lock();
        if revision < state.floor {
            return None;
        }
        let changes: Vec<_> = state.history.after(revision).cloned().collect();
        work::visit(changes.len());
        Some(changes)
    }

    /// The revision of the newest change of this kind.
    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Acquire)
    }

    pub fn unsubscribe(&self, id: u64) {
        self.state.lock().watchers.remove(id);
    }

    pub fn watchers(&self) -> usize {
        self.state.lock().watchers.len()
    }

    /// How many watchers changes were handed to so far.
    pub fn visits(&self) -> u64 {
        self.state.lock().watchers.visits
    }

    pub fn len(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Takes in all changes of this kind at one revision.
    pub fn apply(&self, revision: u64, puts: Vec<(Arc<str>, Put)>) {
        let mut state = self.state.lock();
        for (key, put) in puts {
            if !state.unreadable.is_empty() {
                state.unreadable.remove(&key);
            }
            let (entry, previous) = match put {
                Put::Object(entry) => {
                    let previous = state.entries.insert(key, entry.clone());
                    (Some(entry), previous)
                }
                Put::Deleted => (None, state.entries.remove(&key)),
                Put::Unreadable(unreadable) => {
                    state.unreadable.insert(key.clone(), unreadable);
                    if let Some(previous) = state.entries.remove(&key) {
                        state.follow_node(Some(&previous), None);
                        // Nobody can be told what it is now: watchers have to list again, and
                        // are told then.
                        state.floor = revision;
                        state.history.clear();
                        state.watchers.clear();
                    }
                    continue;
                }
            };
            if entry.is_none() && previous.is_none() {
                continue;
            }
            state.follow_node(previous.as_deref(), entry.as_deref());
            let change = Arc::new(Change::new(revision, entry, previous));
            state.watchers.dispatch(&change);
            if let Some(gone) = state.history.push(change) {
                state.floor = gone;
            }
        }
        state.changed = revision;
        self.changed.store(revision, Ordering::Release);
    }

    /// Ends every watch and forgets everything: the kind was removed.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.entries = Entries::default();
        state.by_node.clear();
        state.unreadable.clear();
        state.history.clear();
        state.watchers.clear();
    }

    /// Ends every watch: another cache took the place of this one at `revision`. Those who hold this one
    /// still read what it had.
    pub fn retire(&self, revision: u64) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.retired = Some(revision);
        state.watchers.clear();
    }

    /// Ends every watch and forgets history: used when the feed itself lost its place.
    pub fn reset(&self, content: Content, revision: u64) {
        let mut state = self.state.lock();
        state.by_node = by_node(&content.entries);
        state.entries = content.entries;
        state.unreadable = content.unreadable;
        state.changed = revision;
        self.changed.store(revision, Ordering::Release);
        state.floor = revision;
        state.history.clear();
        state.watchers.clear();
    }
}

#[cfg(test)]
mod tests {
    use api::Value;

    use super::*;

    fn change(revision: u64, length: usize) -> Arc<Change> {
        let resource = api::catalogue::built_in().find("", "v1", "configmaps");
        let object = api::document!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "x".repeat(length)},
            "metadata": {"name": "m", "namespace": "n", "uid": "u"},
        });
        let bytes = Value::to_json(&object).into();
        let entry = CachedObject::new(resource.unwrap(), "n/m", bytes, revision, &object);
        Arc::new(Change::new(revision, Some(Arc::new(entry.unwrap())), None))
    }

    #[test]
    fn history_is_bounded_in_bytes_and_in_changes() {
        let mut history = History::default();
        let mut oldest = 0;
        for revision in 1..=400 {
            oldest = history.push(change(revision, 100_000)).unwrap_or(oldest);
        }
        assert!(history.bytes <= HISTORY_BYTES);
        assert_eq!(history.changes.len() as u64, 400 - oldest);
        assert_eq!(history.after(399).count(), 1);
        // Few large ones are remembered all the same.
        let mut history = History::default();
        for revision in 1..=100 {
            history.push(change(revision, 1_000_000));
        }
        assert_eq!(history.changes.len(), RECENT);
        let mut history = History::default();
        for revision in 1..=5_000 {
            history.push(change(revision, 1));
        }
        assert_eq!(history.changes.len(), HISTORY);
    }
}
