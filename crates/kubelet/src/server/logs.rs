//! `/containerLogs`: which container's log is meant, and the options it is read with.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    jiff::{SignedDuration, Timestamp},
};
use tokio::sync::mpsc;

use super::{Refusal, log_file};
use crate::{
    node_context::NodeContext,
    pods::Pods,
    runtime::{ContainerRecord, observe},
};

/// Chunks of a log that may wait for a slow reader.
const CHUNKS: usize = 16;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub tail_lines: Option<usize>,
    pub since: Option<Timestamp>,
    pub limit_bytes: Option<usize>,
}

impl Options {
    pub fn parse(query: &str, now: Timestamp) -> Result<Options, String> {
        let mut options = Options::default();
        for (key, value) in pairs(query) {
            let bad = || format!("invalid value {value:?} for {key}");
            let flag = || {
                value.parse::<bool>().or_else(|_| match value.as_str() {
                    "1" | "" => Ok(true),
                    "0" => Ok(false),
                    _ => Err(bad()),
                })
            };
            let number = || {
                let number = value.parse::<i64>().map_err(|_| bad())?;
                usize::try_from(number).map_err(|_| bad())
            };
            match key.as_str() {
                "follow" => options.follow = flag()?,
                "previous" => options.previous = flag()?,
                "timestamps" => options.timestamps = flag()?,
                "tailLines" => options.tail_lines = Some(number()?),
                "limitBytes" => options.limit_bytes = Some(number()?),
                "sinceSeconds" => {
                    let seconds = number()? as i64;
                    options.since = now.checked_sub(SignedDuration::from_secs(seconds)).ok();
                }
                "sinceTime" => options.since = Some(value.parse().map_err(|_| bad())?),
                _ => {}
            }
        }
        Ok(options)
    }
}

/// Opens the log; its text comes through the channel until it ends or nobody reads.
pub async fn open(
    node: &Arc<NodeContext>,
    pods: &Pods,
    namespace: &str,
    name: &str,
    container: &str,
    options: Options,
) -> Result<mpsc::Receiver<Bytes>, Refusal> {
    let pod = pods.find(namespace, name).ok_or_else(|| Refusal {
        status: StatusCode::NOT_FOUND,
        message: format!("pod \"{name}\" cannot be found - no logs available"),
    })?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let observed = observe::pod(&node.cri, &uid)
        .await
        .map_err(|status| Refusal {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: crate::images::rpc_error(&status),
        })?;
    let mut records = observed
        .containers
        .into_iter()
        .filter(|record| record.name == container);
    let record = if options.previous {
        records.next();
        records.next().ok_or_else(|| {
            bad_request(format!(
                "previous terminated container \"{container}\" in pod \"{name}\" not found"
            ))
        })?
    } else {
        let found = records.next();
        found.ok_or_else(|| bad_request(waiting(&pod, name, container)))?
    };
    let path = if record.log_path.is_empty() {
        let file = format!("{}.log", record.restart_count);
        node.pod_log_dir(&pod).join(container).join(file)
    } else {
        record.log_path.clone().into()
    };
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let (node, changed) = (node.clone(), pods.runtime_changed());
    tokio::spawn(async move {
        let running = || {
            let (node, record) = (node.clone(), record.clone());
            async move { is_running(&node, record).await }
        };
        if let Err(error) = log_file::read(&path, &options, &sender, running, &changed).await {
            tracing::debug!(path = %path.display(), %error, "a log could not be read");
        }
    });
    Ok(receiver)
}

async fn is_running(node: &NodeContext, record: ContainerRecord) -> bool {
    let found = observe::container(&node.cri, record.id, record.sandbox_id).await;
    matches!(found, Ok(Some(record)) if !record.ended())
}

fn waiting(pod: &Pod, name: &str, container: &str) -> String {
    let status = pod.status.as_ref();
    let found: Option<&ContainerStatus> = status.and_then(|status| {
        let apps = status.container_statuses.iter().flatten();
        apps.chain(status.init_container_statuses.iter().flatten())
            .find(|status| status.name == container)
    });
    let Some(found) = found else {
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

fn bad_request(message: String) -> Refusal {
    Refusal {
        status: StatusCode::BAD_REQUEST,
        message,
    }
}

/// Decoded `key=value` pairs of a query.
pub(super) fn pairs(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut result = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = bytes
            .get(index + 1..index + 3)
            .filter(|_| bytes[index] == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (hex, bytes[index]) {
            (Some(byte), _) => {
                result.push(byte);
                index += 2;
            }
            (None, b'+') => result.push(b' '),
            (None, byte) => result.push(byte),
        }
        index += 1;
    }
    String::from_utf8_lossy(&result).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let options = Options::parse("follow=true&tailLines=5&sinceSeconds=60&timestamps=1", now)
            .expect("options");
        assert!(options.follow && options.timestamps && !options.previous);
        assert_eq!(options.tail_lines, Some(5));
        assert_eq!(
            options.since,
            Some("2026-01-01T00:00:00Z".parse().expect("a time"))
        );
        let options = Options::parse("sinceTime=2026-01-01T00%3A00%3A00Z", now).expect("options");
        assert!(options.since.is_some());
        assert!(Options::parse("tailLines=-1", now).is_err());
        assert!(Options::parse("follow=maybe", now).is_err());
    }
}
