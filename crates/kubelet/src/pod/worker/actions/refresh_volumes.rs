//! Brings volumes up to date when what they show has changed or a token grows old. A source that is
//! gone leaves the files as they are.

use super::mount_volumes::{self, report_failures};
use crate::{
    pod::worker::{Worker, volume_state::DueRefresh},
    volumes::{Mounted, VolumeFailure},
};

pub fn begin_if_due(worker: &mut Worker) {
    if worker.is_ending() {
        return;
    }
    let now = worker.now();
    match worker.volumes.due(now) {
        DueRefresh::Nothing => {}
        DueRefresh::MountAgain => mount_volumes::begin(worker),
        DueRefresh::Refresh => begin(worker, now),
    }
    if let Some(at) = worker.volumes.refresh_at() {
        worker.wake.no_later_than(at);
    }
}

fn begin(worker: &mut Worker, now: i64) {
    worker.volumes.refresh_begins(now);
    let (services, pod) = (worker.services.clone(), worker.pod().clone());
    let (held, mounted) = (worker.watches.held(), worker.volumes.mounted().clone());
    let work = async move {
        let facts = services.settings.facts(Vec::new());
        services.volumes.set_up(&pod, &facts, &held, mounted).await
    };
    worker.tasks.spawn_preparation(work, ended);
}

fn ended(worker: &mut Worker, (mounted, failures): (Mounted, Vec<VolumeFailure>)) {
    let now = worker.now();
    worker
        .volumes
        .refresh_ended(mounted, failures.is_empty(), now);
    report_failures(worker, &failures);
}
