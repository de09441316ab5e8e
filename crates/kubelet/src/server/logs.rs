//! `/containerLogs`: which container's log is meant, and the options it is read with.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use tokio::sync::mpsc;

use super::{Backend, Refusal, log_file, log_options::LogOptions};
use crate::{
    pod_spec,
    runtime::{ContainerRecord, observe},
};

/// Chunks of a log that may wait for a slow reader.
const CHUNKS: usize = 16;

/// Opens the log; its text comes through the channel until it ends or the reader goes away.
pub async fn open(
    backend: &Arc<Backend>,
    namespace: &str,
    name: &str,
    container: &str,
    options: LogOptions,
) -> Result<mpsc::Receiver<Bytes>, Refusal> {
    let pod = backend.pods.find(namespace, name).ok_or_else(|| Refusal {
        status: StatusCode::NOT_FOUND,
        message: format!("pod \"{name}\" does not exist"),
    })?;
    if pod_spec::find(&pod, container).is_none() {
        return Err(Refusal {
            status: StatusCode::NOT_FOUND,
            message: format!("container \"{container}\" not found in pod \"{name}\""),
        });
    }
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let observed = observe::pod(&backend.cri, &uid)
        .await
        .map_err(|status| Refusal {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: crate::runtime::rpc_error(&status),
        })?;
    let records: Vec<ContainerRecord> = observed
        .containers
        .into_iter()
        .filter(|record| record.name == container)
        .collect();
    let record = if options.previous {
        previous(&pod, container, &records).ok_or_else(|| {
            bad_request(format!(
                "previous terminated container \"{container}\" in pod \"{name}\" not found"
            ))
        })?
    } else {
        let found = records.first();
        found.ok_or_else(|| bad_request(waiting(&pod, name, container)))?
    };
    let record = record.clone();
    let path = if record.log_path.is_empty() {
        let file = format!("{}.log", record.restart_count);
        backend
            .settings
            .pod_log_dir(&pod)
            .join(container)
            .join(file)
    } else {
        record.log_path.clone().into()
    };
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let (backend, changed) = (backend.clone(), backend.pods.runtime_changed());
    tokio::spawn(async move {
        let running = || {
            let (backend, record) = (backend.clone(), record.clone());
            async move { is_running(&backend, record).await }
        };
        if let Err(error) = log_file::read(&path, &options, &sender, running, &changed).await {
            tracing::debug!(path = %path.display(), %error, "a log could not be read");
        }
    });
    Ok(receiver)
}

/// The one that the status shows as the last: while a container waits to run again that is the one
/// that ended just now.
fn previous<'a>(
    pod: &Pod,
    container: &str,
    records: &'a [ContainerRecord],
) -> Option<&'a ContainerRecord> {
    let waits = container_status(pod, container)
        .and_then(|status| status.state.as_ref())
        .is_some_and(|state| state.waiting.is_some());
    match records {
        [latest, ..] if waits && latest.ended() => Some(latest),
        [_, before, ..] => Some(before),
        _ => None,
    }
}

async fn is_running(backend: &Backend, record: ContainerRecord) -> bool {
    let found = observe::container(&backend.cri, record.id, record.sandbox_id).await;
    matches!(found, Ok(Some(record)) if !record.ended())
}

fn waiting(pod: &Pod, name: &str, container: &str) -> String {
    let Some(found) = container_status(pod, container) else {
        return format!("container \"{container}\" in pod \"{name}\" is not available");
    };
    let reason = found
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref())
        .and_then(|waiting| waiting.reason.as_deref())
        .unwrap_or("ContainerCreating");
    let why = match reason {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    };
    format!("container \"{container}\" in pod \"{name}\" is waiting to start: {why}")
}

fn container_status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let apps = status.container_statuses.iter().flatten();
    apps.chain(status.init_container_statuses.iter().flatten())
        .chain(status.ephemeral_container_statuses.iter().flatten())
        .find(|status| status.name == container)
}

fn bad_request(message: String) -> Refusal {
    Refusal {
        status: StatusCode::BAD_REQUEST,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_previous_log_is_that_of_the_last_state() {
        let pod = |state: serde_json::Value| -> Pod {
            serde_json::from_value(serde_json::json!({"status": {"containerStatuses": [
                {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1,
                    "state": state}]}}))
            .expect("a pod")
        };
        let record = |id: &str, state| ContainerRecord {
            id: id.to_owned(),
            name: "c".to_owned(),
            state,
            ..ContainerRecord::default()
        };
        use crate::runtime::ContainerState::{Exited, Running};
        let id = |pod: &Pod, records: &[ContainerRecord]| {
            previous(pod, "c", records).map(|record| record.id.clone())
        };
        let looping = pod(serde_json::json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        let running = pod(serde_json::json!({"running": {}}));
        let dead = [record("2", Exited), record("1", Exited)];
        assert_eq!(id(&looping, &dead).as_deref(), Some("2"));
        assert_eq!(id(&looping, &dead[..1]).as_deref(), Some("2"));
        let alive = [record("2", Running), record("1", Exited)];
        assert_eq!(id(&running, &alive).as_deref(), Some("1"));
        assert_eq!(id(&running, &alive[..1]), None);
    }
}
