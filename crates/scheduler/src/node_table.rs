//! The nodes by name, each in a slot that stays its own, with a bounded log of which slots changed:
//! who keeps something per node brings it up to date without looking at all of them.

use std::collections::{BTreeMap, VecDeque};

use environment::work;

use crate::node_info::NodeInfo;

/// Who is further behind than this looks at all nodes again.
const LONGEST_LOG: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct NodeTable {
    names: BTreeMap<String, usize>,
    slots: Vec<Option<NodeInfo>>,
    free: Vec<usize>,
    /// The slots that changed, the newest last.
    log: VecDeque<usize>,
    /// How many changes there have been.
    changes: u64,
}

impl NodeTable {
    pub(crate) fn get(&self, name: &str) -> Option<&NodeInfo> {
        self.at(self.slot(name)?)
    }

    pub(crate) fn slot(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    pub(crate) fn at(&self, slot: usize) -> Option<&NodeInfo> {
        work::visit(1);
        self.slots.get(slot)?.as_ref()
    }

    /// One more than the highest slot in use.
    pub(crate) fn width(&self) -> usize {
        self.slots.len()
    }

    /// For changes that are not logged.
    pub(crate) fn get_quietly(&mut self, name: &str) -> Option<&mut NodeInfo> {
        let slot = self.slot(name)?;
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut NodeInfo> {
        let slot = self.slot(name)?;
        self.note(slot);
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(crate) fn get_or_insert(&mut self, name: &str) -> &mut NodeInfo {
        let slot = match self.slot(name) {
            Some(slot) => slot,
            None => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(None);
                    self.slots.len() - 1
                });
                self.names.insert(name.to_owned(), slot);
                slot
            }
        };
        self.note(slot);
        self.slots[slot].get_or_insert_with(|| NodeInfo::new(name))
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(slot) = self.names.remove(name) {
            self.slots[slot] = None;
            self.free.push(slot);
            self.note(slot);
        }
    }

    /// In the order of their names.
    pub(crate) fn values(&self) -> impl Iterator<Item = &NodeInfo> + Clone {
        self.names.values().filter_map(|slot| self.at(*slot))
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The slots that changed since there were `changes`, some perhaps more than once; none if that
    /// is not known any more.
    pub(crate) fn changed_since(&self, changes: u64) -> Option<impl Iterator<Item = usize>> {
        let behind = usize::try_from(self.changes.checked_sub(changes)?).ok()?;
        let skipped = self.log.len().checked_sub(behind)?;
        Some(self.log.iter().skip(skipped).copied())
    }

    fn note(&mut self, slot: usize) {
        self.changes += 1;
        // A node that changes several times between two readings is one change to the reader.
        if self.log.len() == LONGEST_LOG {
            self.log.pop_front();
        }
        self.log.push_back(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reader_gets_each_change_once() {
        let mut table = NodeTable::default();
        table.get_or_insert("b");
        table.get_or_insert("a");
        let since = table.changes();
        let slots = |table: &NodeTable, since| -> Option<Vec<usize>> {
            table.changed_since(since).map(Iterator::collect)
        };
        assert_eq!(slots(&table, since), Some(vec![]));
        table.get_quietly("a");
        assert_eq!(slots(&table, since), Some(vec![]));
        let a = table.slot("a").expect("a slot");
        table.get_mut("a");
        assert_eq!(slots(&table, since), Some(vec![a]));
        table.remove("a");
        table.get_or_insert("c");
        assert_eq!(table.slot("c"), Some(a), "slots are used again");
        assert_eq!(slots(&table, since), Some(vec![a; 3]));
        let names: Vec<_> = table.values().map(|node| node.name.clone()).collect();
        assert_eq!(names, ["b", "c"]);
        for _ in 0..LONGEST_LOG {
            table.get_mut("b");
        }
        assert_eq!(slots(&table, since), None, "too long ago");
        assert_eq!(slots(&table, table.changes() + 1), None);
    }
}
