//! Equal nodes and equal names exist once. The tables only know what is there (weak references);
//! what is no longer used is removed when the tables have doubled, or when half of the schemas
//! are gone.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::node::{Name, Node};

static TABLES: LazyLock<Mutex<Tables>> = LazyLock::new(|| Mutex::new(Tables::default()));

/// Below this many entries nothing is swept.
const FEW: usize = 1024;

#[derive(Default)]
struct Tables {
    hasher: RandomState,
    nodes: HashMap<u64, Weak<Node>>,
    names: HashMap<u64, Weak<str>>,
    /// How many entries there were after the last sweep.
    entries_kept: usize,
    schemas: usize,
    /// The most schemas that there were since the last sweep.
    schemas_kept: usize,
}

/// The tables, held while a schema is compiled.
pub(super) struct Interner(MutexGuard<'static, Tables>);

impl Interner {
    pub fn lock() -> Interner {
        Interner(TABLES.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The node that says this; the nodes below it have been interned before.
    pub fn node(&mut self, node: Node) -> Arc<Node> {
        let hash = self.0.hasher.hash_one(&node);
        let known = self.0.nodes.get(&hash).and_then(Weak::upgrade);
        match known {
            Some(known) if *known == node => known,
            // Another node with the same hash keeps its place: this one is not shared.
            Some(_) => Arc::new(node),
            None => {
                let node = Arc::new(node);
                self.0.nodes.insert(hash, Arc::downgrade(&node));
                self.0.sweep_if_grown();
                node
            }
        }
    }

    pub fn name(&mut self, name: &str) -> Name {
        let hash = self.0.hasher.hash_one(name);
        let known = self.0.names.get(&hash).and_then(Weak::upgrade);
        match known {
            Some(known) if *known == *name => known,
            Some(_) => Arc::from(name),
            None => {
                let name: Name = Arc::from(name);
                self.0.names.insert(hash, Arc::downgrade(&name));
                name
            }
        }
    }
}

impl Tables {
    fn sweep_if_grown(&mut self) {
        let entries = self.nodes.len() + self.names.len();
        if entries > FEW.max(2 * self.entries_kept) {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        self.nodes.retain(|_, node| node.strong_count() > 0);
        self.names.retain(|_, name| name.strong_count() > 0);
        if self.nodes.capacity() > 4 * self.nodes.len() + FEW {
            self.nodes.shrink_to_fit();
            self.names.shrink_to_fit();
        }
        self.entries_kept = self.nodes.len() + self.names.len();
        self.schemas_kept = self.schemas;
    }
}

/// Counts a schema as long as it is there.
#[derive(Debug)]
pub(super) struct Counted(());

impl Counted {
    pub fn new() -> Counted {
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        tables.schemas += 1;
        tables.schemas_kept = tables.schemas_kept.max(tables.schemas);
        Counted(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        tables.schemas -= 1;
        if 2 * tables.schemas < tables.schemas_kept {
            tables.sweep();
        }
    }
}

/// How many nodes and names are in the tables, for tests and measurements.
pub fn entries() -> (usize, usize) {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    tables.sweep();
    (tables.nodes.len(), tables.names.len())
}
