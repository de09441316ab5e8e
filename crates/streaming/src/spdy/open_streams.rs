//! The open streams of a connection, shared by its reading and its writing task.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// The most streams that one connection may have open at a time.
const MOST_STREAMS: usize = 1024;

/// The side that requested the connection is the client. Clients number their streams oddly, servers
/// evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

pub struct OpenStreams {
    state: Mutex<State>,
}

struct State {
    next: u32,
    known: BTreeMap<u32, OpenStream>,
}

struct OpenStream {
    /// `None` once the peer has finished.
    chunks: Option<mpsc::Sender<Bytes>>,
    replied: Option<oneshot::Sender<()>>,
    /// We have finished.
    finished: bool,
}

impl OpenStreams {
    pub fn new(role: Role) -> OpenStreams {
        let next = match role {
            Role::Client => 1,
            Role::Server => 2,
        };
        OpenStreams {
            state: Mutex::new(State {
                next,
                known: BTreeMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reserve(
        &self,
        chunks: mpsc::Sender<Bytes>,
        replied: oneshot::Sender<()>,
    ) -> Option<u32> {
        let mut state = self.state();
        if state.known.len() >= MOST_STREAMS || state.next > i32::MAX as u32 {
            return None;
        }
        let id = state.next;
        state.next += 2;
        let entry = OpenStream {
            chunks: Some(chunks),
            replied: Some(replied),
            finished: false,
        };
        state.known.insert(id, entry);
        Some(id)
    }

    /// Takes in a stream of the peer; false if there are too many or it exists.
    pub fn add(&self, id: u32, chunks: mpsc::Sender<Bytes>) -> bool {
        let mut state = self.state();
        if state.known.len() >= MOST_STREAMS || state.known.contains_key(&id) {
            return false;
        }
        let entry = OpenStream {
            chunks: Some(chunks),
            replied: None,
            finished: false,
        };
        state.known.insert(id, entry);
        true
    }

    pub fn replied(&self, id: u32) {
        let mut state = self.state();
        let entry = state.known.get_mut(&id);
        if let Some(replied) = entry.and_then(|entry| entry.replied.take()) {
            let _ = replied.send(());
        }
    }

    pub fn chunks(&self, id: u32) -> Option<mpsc::Sender<Bytes>> {
        self.state().known.get(&id)?.chunks.clone()
    }

    /// The peer sends no more on it.
    pub fn source_ended(&self, id: u32) {
        let mut state = self.state();
        if let Some(entry) = state.known.get_mut(&id) {
            entry.chunks = None;
            if entry.finished {
                state.known.remove(&id);
            }
        }
    }

    /// We send no more on it.
    pub fn sink_ended(&self, id: u32) {
        let mut state = self.state();
        if let Some(entry) = state.known.get_mut(&id) {
            entry.finished = true;
            if entry.chunks.is_none() {
                state.known.remove(&id);
            }
        }
    }

    pub fn forget(&self, id: u32) {
        self.state().known.remove(&id);
    }

    pub fn clear(&self) {
        self.state().known.clear();
    }
}
