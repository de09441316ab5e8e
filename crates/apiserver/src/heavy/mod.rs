//! Requests over much user data run on threads of their own, so that the runtime's few worker
//! threads stay free for health checks, watches and everybody's small requests.
//!
//! A small request never comes here. Of the large ones so many run at once; a user has at most half
//! of these places, and further ones wait. The cluster's own components have places of their own.
//! In a runtime of one thread, as the simulation has it, everything runs in place: there the order
//! of things must be the same every time.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use api::{Reason, Status};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// A request over this many bytes is large: decoding, defaulting, validating and merging them takes
/// milliseconds.
pub(crate) const LARGE: usize = 64 * 1024;
/// As many objects that have to be decoded for a list weigh as much.
pub(crate) const LARGE_LIST: usize = 256;
/// Places of the cluster's own components.
const OWN_PLACES: usize = 2;
/// A user's further large requests are refused while so many wait.
const WAITING: usize = 64;

pub(crate) struct Heavy {
    users: Lane,
    own: Lane,
    #[cfg(test)]
    gate: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

struct Lane {
    places: Arc<Semaphore>,
    per_user: usize,
    /// Only of users who have a request running or waiting.
    users: Arc<Mutex<HashMap<Box<str>, UserTurns>>>,
}

struct UserTurns {
    turns: Arc<Semaphore>,
    requests: usize,
}

/// A request that is counted with its user's.
struct Counted {
    users: Arc<Mutex<HashMap<Box<str>, UserTurns>>>,
    user: Box<str>,
}

impl Heavy {
    pub fn new() -> Heavy {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Heavy {
            users: Lane::new(cores.max(2)),
            own: Lane::new(OWN_PLACES),
            #[cfg(test)]
            gate: Mutex::new(None),
        }
    }

    /// Runs the work of a large request of `user`. Given up when the returned future is dropped, as
    /// soon as the work waits for something.
    pub async fn run<T: Send + 'static>(
        &self,
        user: &str,
        is_own: bool,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<T, Status> {
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return work.await;
        }
        let lane = if is_own { &self.own } else { &self.users };
        let permits = lane.admit(user).await?;
        let given_up = CancellationToken::new();
        let _give_up = given_up.clone().drop_guard();
        #[cfg(test)]
        let gate = self.gate.lock().take();
        let task = tokio::task::spawn_blocking(move || {
            // Until the work is done, also when nobody waits for it any more.
            let _permits = permits;
            #[cfg(test)]
            if let Some(gate) = gate {
                let _ = gate.recv();
            }
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = given_up.cancelled() => Err(Status::internal("given up")),
                    result = work => result,
                }
            })
        });
        task.await
            .unwrap_or_else(|problem| Err(Status::internal(problem)))
    }
}

impl Lane {
    fn new(places: usize) -> Lane {
        Lane {
            places: Arc::new(Semaphore::new(places)),
            per_user: (places / 2).max(1),
            users: Arc::default(),
        }
    }

    /// Waits for one of the user's places, then for one of all.
    async fn admit(
        &self,
        user: &str,
    ) -> Result<(Counted, OwnedSemaphorePermit, OwnedSemaphorePermit), Status> {
        let (counted, turns) = {
            let mut users = self.users.lock();
            let waiting = users.entry(user.into()).or_insert_with(|| UserTurns {
                turns: Arc::new(Semaphore::new(self.per_user)),
                requests: 0,
            });
            if waiting.requests >= self.per_user + WAITING {
                return Err(too_many());
            }
            waiting.requests += 1;
            let counted = Counted {
                users: self.users.clone(),
                user: user.into(),
            };
            (counted, waiting.turns.clone())
        };
        // Neither is ever closed.
        let turn = turns.acquire_owned().await.map_err(Status::internal)?;
        let place = self.places.clone().acquire_owned().await;
        Ok((counted, turn, place.map_err(Status::internal)?))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut users = self.users.lock();
        if let Some(turns) = users.get_mut(&self.user) {
            turns.requests -= 1;
            if turns.requests == 0 {
                users.remove(&self.user);
            }
        }
    }
}

fn too_many() -> Status {
    Status::new(
        Reason::TooManyRequests,
        "Too many requests, please try again later.",
    )
    .with_details(api::Details {
        retry_after_seconds: 1,
        ..api::Details::default()
    })
}

#[cfg(test)]
mod tests;
