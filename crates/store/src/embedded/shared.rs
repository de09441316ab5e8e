//! The state that readers, watchers and the committer share: the published (durable) state and
//! history, the leases' deadlines, and the signal of a new revision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::history::{History, Window, undo};
use super::state::{Committed, State, in_range};
use crate::{Error, KeyValue, LeaseId, RangeRequest, RangeResult, Revision};

pub struct Shared {
    /// Locked for moments only: readers take a snapshot and unlock it.
    published: RwLock<Published>,
    /// Something was published, or the store closed. Not a `watch` channel: that wakes those who
    /// wait in a random order, and a simulation could not repeat itself.
    changed: Notify,
    /// When each lease ends. Never held together with `published`.
    deadlines: Mutex<BTreeMap<LeaseId, Instant>>,
}

struct Published {
    state: State,
    history: History,
    closed: Option<String>,
}

/// What a watcher finds when it looks.
pub enum Look {
    /// Changes from the asked revision on (not all, if there are many), and the newest revision.
    Changes(Vec<Arc<Committed>>, Revision),
    Nothing,
}

impl Shared {
    pub fn new(state: State, history: History) -> Shared {
        let now = Instant::now();
        let deadlines = state
            .leases
            .iter()
            .map(|(lease, seconds)| (*lease, deadline(now, *seconds)))
            .collect();
        Shared {
            changed: Notify::new(),
            deadlines: Mutex::new(deadlines),
            published: RwLock::new(Published {
                state,
                history,
                closed: None,
            }),
        }
    }

    pub fn publish(
        &self,
        state: &State,
        committed: Vec<Arc<Committed>>,
        compact: Option<Revision>,
        window: Window,
    ) {
        {
            let mut published = self.published.write();
            published.state = state.clone();
            for committed in committed {
                published.history.push(committed);
            }
            if let Some(revision) = compact {
                published.history.compact(revision);
            }
            published.history.trim(window);
        }
        self.changed.notify_waiters();
    }

    /// Everything that is durable now.
    pub fn state(&self) -> Result<State, Error> {
        let published = self.published.read();
        published.open()?;
        Ok(published.state.clone())
    }

    /// Ends the store; the first reason stays.
    pub fn close(&self, reason: &str) {
        self.published
            .write()
            .closed
            .get_or_insert_with(|| reason.to_owned());
        self.changed.notify_waiters();
    }

    /// Ends at the first change after it was polled or enabled.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub fn closed_reason(&self) -> Option<String> {
        self.published.read().closed.clone()
    }

    pub fn history(&self) -> History {
        self.published.read().history.clone()
    }

    pub fn revision(&self) -> Result<Revision, Error> {
        let published = self.published.read();
        published.open()?;
        Ok(published.state.revision)
    }

    pub fn range(&self, request: &RangeRequest) -> Result<RangeResult, Error> {
        let (state, newer) = {
            let published = self.published.read();
            published.open()?;
            let newest = published.state.revision;
            let newer = match request.revision {
                None => Vec::new(),
                Some(requested) if requested > newest => {
                    return Err(Error::Future { requested, newest });
                }
                Some(requested) => {
                    published.history.check(requested)?;
                    published.history.from(requested + 1, usize::MAX)
                }
            };
            (published.state.clone(), newer)
        };
        let limit = match request.limit {
            0 => usize::MAX,
            limit => limit,
        };
        let mut items = Vec::new();
        let mut count = 0;
        let mut add = |item: &KeyValue| {
            count += 1;
            if items.len() < limit {
                items.push(item.clone());
            }
        };
        // Two ordered sequences merged: the newest keys, and what touched ones held before.
        let mut older = undo(&newer, Some(&request.range)).into_iter().peekable();
        for item in in_range(&state.items, &request.range) {
            while let Some((_, previous)) = older.next_if(|(key, _)| *key < item.key) {
                previous.iter().for_each(&mut add);
            }
            match older.next_if(|(key, _)| *key == item.key) {
                Some((_, previous)) => previous.iter().for_each(&mut add),
                None => add(item),
            }
        }
        for (_, previous) in older {
            previous.iter().for_each(&mut add);
        }
        Ok(RangeResult {
            items,
            count,
            revision: state.revision,
        })
    }

    /// Whether a watch may start at `from`.
    pub fn check_watch(&self, from: Revision) -> Result<(), Error> {
        let published = self.published.read();
        published.open()?;
        let newest = published.state.revision;
        if from > newest + 1 {
            return Err(Error::Future {
                requested: from,
                newest,
            });
        }
        published.history.check(from)
    }

    pub fn look(&self, from: Revision, limit: usize) -> Result<Look, Error> {
        let published = self.published.read();
        published.open()?;
        if published.history.check(from).is_err() {
            return Err(Error::SlowWatcher);
        }
        if from > published.state.revision {
            return Ok(Look::Nothing);
        }
        let changes = published.history.from(from, limit);
        Ok(Look::Changes(changes, published.state.revision))
    }

    pub fn next_lease_deadline(&self) -> Option<Instant> {
        self.deadlines.lock().values().min().copied()
    }

    /// Leases whose time is over; from now on they cannot be kept alive.
    pub fn take_expired_leases(&self) -> Vec<LeaseId> {
        let now = Instant::now();
        let mut expired = Vec::new();
        self.deadlines.lock().retain(|lease, deadline| {
            let over = *deadline <= now;
            if over {
                expired.push(*lease);
            }
            !over
        });
        expired
    }

    pub fn start_leases(&self, granted: &[(LeaseId, u64)], now: Instant) {
        let mut deadlines = self.deadlines.lock();
        for (lease, seconds) in granted {
            deadlines.insert(*lease, deadline(now, *seconds));
        }
    }

    pub fn keep_lease_alive(&self, lease: LeaseId) -> Result<(), Error> {
        let seconds = {
            let published = self.published.read();
            published.open()?;
            published.state.leases.get(&lease).copied()
        };
        let mut deadlines = self.deadlines.lock();
        match (seconds, deadlines.get_mut(&lease)) {
            (Some(seconds), Some(end)) => {
                *end = deadline(Instant::now(), seconds);
                Ok(())
            }
            _ => Err(Error::LeaseNotFound(lease)),
        }
    }
}

impl Published {
    fn open(&self) -> Result<(), Error> {
        match &self.closed {
            Some(reason) => Err(closed(reason)),
            None => Ok(()),
        }
    }
}

pub fn closed(reason: &str) -> Error {
    Error::Closed(reason.to_owned())
}

/// When a lease of `seconds` that starts at `now` ends. Absurdly long ones are cut to a century.
pub fn deadline(now: Instant, seconds: u64) -> Instant {
    now + Duration::from_secs(seconds.min(100 * 365 * 24 * 3600))
}
