//! A caller's watch: a cursor into the window. One that is older than the window reads a feed of its
//! own until it has caught up. It has no queue, so a slow one costs no memory.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::client::{Client, Pause};
use super::feed::{End, Feed, Item};
use super::window::{Committed, Look, Window};
use crate::{Error, KeyRange, Revision, WatchItem, WatchStream};

/// How many revisions a watcher takes at once.
const BUFFER: usize = 128;
/// How often a feed that is catching up is asked how far it has come.
const ASK: Duration = Duration::from_millis(100);

pub fn stream(
    client: Arc<Client>,
    window: Arc<Window>,
    range: KeyRange,
    from: Revision,
    feed: Option<Feed>,
) -> WatchStream {
    let cursor = Cursor {
        client,
        window,
        range,
        next: from,
        ready: VecDeque::new(),
        feed,
        pause: Pause::default(),
    };
    futures::stream::unfold(Some(cursor), |cursor| async {
        let mut cursor = cursor?;
        match cursor.next().await {
            Ok(item) => Some((Ok(item), Some(cursor))),
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

struct Cursor {
    client: Arc<Client>,
    window: Arc<Window>,
    range: KeyRange,
    /// The first revision not looked at.
    next: Revision,
    ready: VecDeque<WatchItem>,
    /// While catching up.
    feed: Option<Feed>,
    pause: Pause,
}

impl Cursor {
    async fn next(&mut self) -> Result<WatchItem, Error> {
        let window = self.window.clone();
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(item);
            }
            // Enabled before looking, so that a change in between wakes us.
            let mut changed = pin!(window.changed());
            changed.as_mut().enable();
            match window.look(self.next, BUFFER)? {
                Look::Nothing => changed.await,
                Look::Behind => self.catch_up().await?,
                Look::Changes(changes, head) => {
                    self.feed = None;
                    let complete = changes.len() < BUFFER;
                    let mut delivered = 0;
                    for committed in changes {
                        if self.add_revision(&committed) {
                            delivered = committed.revision;
                        }
                    }
                    if complete {
                        self.next = self.next.max(head + 1);
                    }
                    if self.next > head && delivered < head {
                        self.ready.push_back(WatchItem::Progress { revision: head });
                    }
                }
            }
        }
    }

    /// Adds the events of a revision; returns whether any of them is in the range.
    fn add_revision(&mut self, committed: &Committed) -> bool {
        self.next = committed.revision + 1;
        let events: Vec<_> = committed
            .events
            .iter()
            .filter(|event| self.range.contains(event.key()))
            .cloned()
            .collect();
        let touched = !events.is_empty();
        if touched {
            self.ready.push_back(WatchItem::Events {
                revision: committed.revision,
                events,
            });
        }
        touched
    }

    /// Takes one step towards the window.
    async fn catch_up(&mut self) -> Result<(), Error> {
        if self.next < self.window.compacted() {
            return Err(Error::SlowWatcher);
        }
        let feed = match &mut self.feed {
            Some(feed) => feed,
            None => match Feed::open(self.client.clone(), self.next).await {
                Ok(feed) => self.feed.insert(feed),
                Err(End::Compacted) => return Err(Error::SlowWatcher),
                Err(End::Lost(_)) => {
                    self.pause.rest().await;
                    return Ok(());
                }
            },
        };
        let item = match feed.reports_progress() {
            false => feed.next().await,
            true => match tokio::time::timeout(ASK, feed.next()).await {
                Ok(item) => item,
                Err(_) => {
                    feed.ask_progress();
                    return Ok(());
                }
            },
        };
        match item {
            Ok(Item::Changes(committed)) => {
                self.add_revision(&committed);
            }
            Ok(Item::Reached(revision)) => self.next = self.next.max(revision + 1),
            Err(End::Compacted) => return Err(Error::SlowWatcher),
            Err(End::Lost(_)) => {
                self.feed = None;
                self.pause.rest().await;
            }
        }
        Ok(())
    }
}
