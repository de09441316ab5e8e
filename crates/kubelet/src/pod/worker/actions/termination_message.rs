//! Adds the termination message that an ended container wrote to its record.

use k8s_openapi::api::core::v1::Pod;

use crate::{
    container::termination_message,
    pod_spec,
    runtime::{ContainerRecord, ContainerState},
    volumes::{Volumes, mounts},
};

pub async fn complete(volumes: &Volumes, pod: &Pod, record: &mut ContainerRecord) {
    if record.state != ContainerState::Exited {
        return;
    }
    let Some(container) = pod_spec::find(pod, &record.name) else {
        return;
    };
    let container = &container;
    let file = mounts::termination_message_file(volumes, pod, container, record.restart_count);
    let log = std::path::Path::new(&record.log_path);
    let text = termination_message::read(container, &file, log, record.exit_code).await;
    if !text.is_empty() {
        record.message = if record.message.is_empty() {
            text
        } else {
            format!("{}: {text}", record.message)
        };
    }
}
