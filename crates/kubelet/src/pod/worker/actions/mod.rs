//! The actions of a pod's worker, one file each: how the action begins, the work itself, which runs as
//! a task of its own, and what follows from its result. The work decides nothing.
//!
//! A new action is a variant of [`Action`], a file here, and its line in [`begin`].

pub(super) mod back_off;
mod container_config;
mod create_sandbox;
mod ensure_image;
mod finish;
mod kill_container;
mod mount_volumes;
pub(super) mod observe_pod;
pub(super) mod refresh_volumes;
mod release_volumes;
mod remove_container;
mod remove_sandbox;
pub(super) mod request_resize;
mod resize_container;
pub(super) mod run_probes;
mod sandbox_config;
pub(super) mod settle_resize;
mod start_container;
mod stop_sandbox;
mod termination_message;
pub(super) mod write_status;

use std::time::Duration;

use super::Worker;
use crate::pod::plan::Action;

use self::sandbox_config::pod_ips;

/// Pause before something that failed at the runtime or the API is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Begins an action that the plan asks for.
pub(super) fn begin(worker: &mut Worker, action: Action) {
    match action {
        Action::MountVolumes => mount_volumes::begin(worker),
        Action::CreateSandbox { attempt } => create_sandbox::begin(worker, attempt),
        Action::EnsureImage { container } => ensure_image::begin(worker, container),
        Action::StartContainer {
            container,
            image,
            restart_count,
        } => start_container::begin(worker, container, image, restart_count),
        Action::KillContainer {
            id,
            container,
            reason,
        } => kill_container::begin(worker, id, container, reason),
        Action::ResizeContainer { id, container } => resize_container::begin(worker, id, container),
        Action::BackOff { container, until } => back_off::begin(worker, &container, until),
        Action::RemoveContainer { id, keep_log } => remove_container::begin(worker, id, keep_log),
        Action::StopSandbox { id } => stop_sandbox::begin(worker, id),
        Action::RemoveSandbox { id } => remove_sandbox::begin(worker, id),
        Action::ReleaseVolumes => release_volumes::begin(worker),
        Action::Finish => finish::begin(worker),
        Action::WakeAt(at) => worker.wake.no_later_than(at),
    }
}
