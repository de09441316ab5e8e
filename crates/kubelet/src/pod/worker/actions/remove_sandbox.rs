//! Removes a sandbox that has stopped.

use crate::{pod::worker::Worker, runtime};

pub(super) fn begin(worker: &mut Worker, id: String) {
    worker.tasks.busy_mut().removing.insert(id.clone());
    let (services, for_task) = (worker.services.clone(), id.clone());
    let work = async move { runtime::remove_sandbox(&services.cri, for_task).await };
    worker
        .tasks
        .spawn(work, move |worker, is_done| ended(worker, &id, is_done));
}

fn ended(worker: &mut Worker, id: &str, is_done: bool) {
    worker.tasks.busy_mut().removing.remove(id);
    if let Some(observed) = worker.runtime.own_change().filter(|_| is_done) {
        observed.sandboxes.retain(|sandbox| sandbox.id != id);
    }
}
