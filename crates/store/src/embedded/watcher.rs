//! A watch: a cursor into the history and nothing more. It has no queue that a writer would fill,
//! so a slow one costs no memory; when history has gone past it, it ends.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use super::shared::{Look, Shared};
use crate::{Error, KeyRange, Revision, WatchItem, WatchStream};
use futures::StreamExt;

/// How many revisions a watcher takes at once.
const BUFFER: usize = 128;

pub fn stream(shared: Arc<Shared>, range: KeyRange, from: Revision) -> WatchStream {
    let watcher = Watcher {
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
            // Enabled before looking, so that a change in between wakes us.
            let mut changed = pin!(self.shared.changed());
            changed.as_mut().enable();
            match self.shared.look(self.next, BUFFER)? {
                Look::Nothing => changed.await,
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
