//! Removes a dead container, and its log unless that is to stay until the pod is removed.

use crate::{pod::worker::Worker, runtime};

pub(super) fn begin(worker: &mut Worker, id: String, keep_log: bool) {
    worker.tasks.busy_mut().removing.insert(id.clone());
    let log = worker
        .runtime
        .observed()
        .into_iter()
        .flat_map(|observed| &observed.containers)
        .find(|record| record.id == id && !keep_log)
        .map(|record| record.log_path.clone())
        .unwrap_or_default();
    let (services, for_task) = (worker.services.clone(), id.clone());
    let work = async move { runtime::remove_container(&services.cri, for_task, log).await };
    worker
        .tasks
        .spawn(work, move |worker, is_done| ended(worker, &id, is_done));
}

fn ended(worker: &mut Worker, id: &str, is_done: bool) {
    worker.tasks.busy_mut().removing.remove(id);
    worker.resizing.forget(id);
    if let Some(observed) = worker.runtime.own_change().filter(|_| is_done) {
        observed.containers.retain(|record| record.id != id);
    }
}
