//! Who watches a resource, indexed so that an event's cost does not grow with the watchers that do
//! not want it: watches on one `spec.nodeName` or one `metadata.name` are found by that value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::cached_object::CachedObject;
use super::change::Change;

/// Events a watcher may lag behind before it is cut off (and watches again from where it was).
pub(crate) const QUEUE: usize = 1024;

/// The fields whose equality selectors are indexed.
const INDEXED: [&str; 2] = ["metadata.name", "spec.nodeName"];

/// What a watch requires by equality.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requirement {
    /// A field of [`INDEXED`] and its value, if the field selector demands one.
    pub field: Option<(&'static str, String)>,
}

impl Requirement {
    /// The first indexed field that `demanded` (field, value) pairs fix.
    pub fn of<'a>(demanded: impl IntoIterator<Item = (&'a str, &'a str)>) -> Requirement {
        let field = demanded.into_iter().find_map(|(field, value)| {
            let indexed = INDEXED.iter().find(|name| **name == field)?;
            Some((*indexed, value.to_string()))
        });
        Requirement { field }
    }
}

#[derive(Default)]
pub(crate) struct Watchers {
    next: u64,
    all: BTreeMap<u64, (mpsc::Sender<Arc<Change>>, Requirement)>,
    /// By field, then value.
    indexed: BTreeMap<&'static str, BTreeMap<String, BTreeSet<u64>>>,
    others: BTreeSet<u64>,
    /// How many watchers changes were handed to, or tried to.
    pub visits: u64,
}

impl Watchers {
    pub fn add(&mut self, requirement: Requirement) -> (u64, mpsc::Receiver<Arc<Change>>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let id = self.next;
        self.next += 1;
        match &requirement.field {
            Some((field, value)) => {
                let values = self.indexed.entry(field).or_default();
                values.entry(value.clone()).or_default().insert(id)
            }
            None => self.others.insert(id),
        };
        self.all.insert(id, (sender, requirement));
        (id, receiver)
    }

    pub fn remove(&mut self, id: u64) {
        let Some((_, requirement)) = self.all.remove(&id) else {
            return;
        };
        match requirement.field {
            Some((field, value)) => {
                if let Some(values) = self.indexed.get_mut(field)
                    && let Some(ids) = values.get_mut(&value)
                {
                    ids.remove(&id);
                    if ids.is_empty() {
                        values.remove(&value);
                    }
                }
            }
            None => {
                self.others.remove(&id);
            }
        }
    }

    /// Hands `change` to everyone it may concern. A full queue cuts its watcher off.
    pub fn dispatch(&mut self, change: &Arc<Change>) {
        // A watch may be found by what the object was and by what it is; it gets the event once.
        let mut found = BTreeSet::new();
        for entry in [&change.current, &change.previous].into_iter().flatten() {
            self.find(entry, &mut found);
        }
        self.visits += (self.others.len() + found.len()) as u64;
        let full: Vec<u64> = self
            .others
            .iter()
            .chain(&found)
            .copied()
            .filter(|id| match self.all.get(id) {
                Some((sender, _)) => sender.try_send(change.clone()).is_err(),
                None => false,
            })
            .collect();
        for id in full {
            self.remove(id);
        }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets everyone: their streams end.
    pub fn clear(&mut self) {
        self.all.clear();
        self.indexed.clear();
        self.others.clear();
    }

    fn find(&self, entry: &CachedObject, found: &mut BTreeSet<u64>) {
        for (field, values) in &self.indexed {
            if let Some(value) = entry.field(field)
                && let Some(ids) = values.get(value)
            {
                found.extend(ids);
            }
        }
    }
}
