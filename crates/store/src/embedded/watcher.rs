//! A watch: a cursor into the history and nothing more. It has no queue that a writer would fill,
//! so a slow one costs nobody anything; when history has gone past it, it ends.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::watch;

use super::shared::{Look, Shared};
use crate::{Error, KeyRange, Revision, WatchItem, WatchStream};

/// How many revisions a watcher takes at once.
const BUFFER: usize = 128;

pub fn stream(shared: Arc<Shared>, range: KeyRange, from: Revision) -> WatchStream {
    let watcher = Watcher {
        changed: shared.subscribe(),
        shared,
        range,
        next: from,
        ready: VecDeque::new(),
    };
    futures::stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next().await {
            Ok(item) => Some((Ok(item), Some(watcher))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

struct Watcher {
    shared: Arc<Shared>,
    changed: watch::Receiver<Revision>,
    range: KeyRange,
    /// The first revision not looked at.
    next: Revision,
    ready: VecDeque<WatchItem>,
}

impl Watcher {
    async fn next(&mut self) -> Result<WatchItem, Error> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(item);
            }
            // Marked as seen before looking, so that a change in between wakes us.
            self.changed.mark_unchanged();
            match self.shared.look(self.next, BUFFER)? {
                // The sender lives in `shared`, which we hold: waiting cannot fail.
                Look::Nothing => drop(self.changed.changed().await),
                Look::Changes(changes, newest) => {
                    // The very first revision changed nothing and has no entry.
                    if changes.is_empty() {
                        self.next = newest + 1;
                    }
                    let mut delivered = 0;
                    for committed in changes {
                        self.next = committed.revision + 1;
                        let events: Vec<_> = committed
                            .events
                            .iter()
                            .filter(|event| self.range.contains(event.key()))
                            .cloned()
                            .collect();
                        if !events.is_empty() {
                            delivered = committed.revision;
                            self.ready.push_back(WatchItem::Events {
                                revision: committed.revision,
                                events,
                            });
                        }
                    }
                    if self.next > newest && delivered < newest {
                        self.ready
                            .push_back(WatchItem::Progress { revision: newest });
                    }
                }
            }
        }
    }
}
