//! The tasks that a worker has under way. A task returns a function that the worker calls with
//! itself, so that what follows from a result is written next to the work.

use std::{collections::BTreeMap, future::Future};

use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Worker;
use crate::pod::plan::Busy;

/// Applies the result of a task to its worker.
pub(super) type TaskResult = Box<dyn FnOnce(&mut Worker) + Send>;

pub(super) struct Tasks {
    all: JoinSet<TaskResult>,
    /// The tasks that end early when the pod is to end: pulls and mounts.
    preparations: Vec<AbortHandle>,
    /// The kills under way with their grace period in seconds, by container id.
    kills: BTreeMap<String, (AbortHandle, i64)>,
    /// Cancelled when the pod is to end.
    ending: CancellationToken,
    busy: Busy,
}

impl Tasks {
    pub fn new() -> Tasks {
        Tasks {
            all: JoinSet::new(),
            preparations: Vec::new(),
            kills: BTreeMap::new(),
            ending: CancellationToken::new(),
            busy: Busy::default(),
        }
    }

    pub fn busy(&self) -> &Busy {
        &self.busy
    }

    pub fn busy_mut(&mut self) -> &mut Busy {
        &mut self.busy
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Cancelled when the pod is to end.
    pub fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }

    /// Begins `work`. `apply` is called with its result when the worker next looks.
    pub fn spawn<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
        apply: impl FnOnce(&mut Worker, T) + Send + 'static,
    ) -> AbortHandle {
        self.all.spawn(async move {
            let result = work.await;
            Box::new(move |worker: &mut Worker| apply(worker, result)) as TaskResult
        })
    }

    /// Begins work that is aborted when the pod is to end.
    pub fn spawn_preparation<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
        apply: impl FnOnce(&mut Worker, T) + Send + 'static,
    ) {
        let handle = self.spawn(work, apply);
        self.preparations.retain(|handle| !handle.is_finished());
        self.preparations.push(handle);
    }

    /// Begins the kill of a container that gets `grace` seconds to end.
    pub fn spawn_kill<T: Send + 'static>(
        &mut self,
        id: String,
        grace: i64,
        work: impl Future<Output = T> + Send + 'static,
        apply: impl FnOnce(&mut Worker, T) + Send + 'static,
    ) {
        self.busy.killing.insert(id.clone());
        let handle = self.spawn(work, apply);
        self.kills.insert(id, (handle, grace));
    }

    pub fn kill_ended(&mut self, id: &str) {
        self.busy.killing.remove(id);
        self.kills.remove(id);
    }

    /// The pod is to end: preparations are aborted, and so are kills that would take longer than
    /// `grace` seconds, so that they begin again with less time.
    pub fn end_pod(&mut self, grace: i64) {
        self.ending.cancel();
        for handle in self.preparations.drain(..) {
            handle.abort();
        }
        let busy = &mut self.busy;
        self.kills.retain(|id, (handle, allowed)| {
            let is_overdue = grace < *allowed;
            if is_overdue {
                handle.abort();
                busy.killing.remove(id);
            }
            !is_overdue
        });
    }

    /// Waits for the next task to end; `None` while there is none.
    pub async fn next(&mut self) -> Option<Result<TaskResult, JoinError>> {
        self.all.join_next().await
    }

    /// A task that has ended, if there is one.
    pub fn try_next(&mut self) -> Option<Result<TaskResult, JoinError>> {
        self.all.try_join_next()
    }
}
