//! Reports which pods changed in the runtime: the CRI event stream, and a slow period as a safety
//! net. An event is only a hint to read that pod again, and not even that when the pod's worker
//! knows everything that it describes.

use std::{sync::Arc, time::Duration};

use cri::v1;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{ReportedSandbox, observe};
use crate::measures::{Counter, Histogram, Measures};

/// A hint that something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    Pod {
        uid: String,
        reported: Option<ReportedSandbox>,
    },
    /// Anything may have changed: the stream was connected again, or the period has passed.
    All,
}

const RELIST: Duration = Duration::from_secs(60);
/// The period for a runtime without an event stream.
const RELIST_WITHOUT_STREAM: Duration = Duration::from_secs(1);
const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_LAST: Duration = Duration::from_secs(2);

/// Sends hints until `shutdown`.
pub async fn run(
    cri: cri::Client,
    measures: Arc<Measures>,
    hints: mpsc::Sender<Hint>,
    shutdown: CancellationToken,
) {
    let mut relist = RELIST;
    let mut reconnect = RECONNECT_FIRST;
    let mut next_relist = Instant::now() + relist;
    let mut last: Option<Instant> = None;
    let mut relisting = || {
        let now = Instant::now();
        if let Some(last) = last.replace(now) {
            measures.time(Histogram::PlegRelistInterval, &[], now - last);
        }
    };
    loop {
        let began = Instant::now();
        let mut runtime = cri.runtime.clone();
        // Some runtimes answer with the first event, whenever that is.
        let stream = tokio::select! {
            () = shutdown.cancelled() => return,
            stream = runtime.get_container_events(v1::GetEventsRequest {}) => stream,
        };
        match stream {
            Ok(stream) => {
                measures.count(Counter::EventedPlegConnections, &[]);
                let took = began.elapsed();
                measures.time(Histogram::EventedPlegConnectionLatency, &[], took);
                reconnect = RECONNECT_FIRST;
                relist = RELIST;
                let mut stream = stream.into_inner();
                // Changes before the stream was connected are found by reading everything once.
                relisting();
                if hints.send(Hint::All).await.is_err() {
                    return;
                }
                loop {
                    let message = tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = tokio::time::sleep_until(next_relist) => {
                            next_relist = Instant::now() + relist;
                            relisting();
                            if hints.send(Hint::All).await.is_err() {
                                return;
                            }
                            continue;
                        }
                        message = stream.message() => message,
                    };
                    let Ok(Some(event)) = message else { break };
                    if hints.send(hint_of(event)).await.is_err() {
                        return;
                    }
                }
            }
            Err(status) if status.code() == tonic::Code::Unimplemented => {
                relist = RELIST_WITHOUT_STREAM;
                reconnect = relist;
                relisting();
                if hints.send(Hint::All).await.is_err() {
                    return;
                }
            }
            Err(status) => {
                measures.count(Counter::EventedPlegConnectionErrors, &[]);
                tracing::debug!(%status, "the runtime's event stream is not available");
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(reconnect) => {}
        }
        if relist != RELIST_WITHOUT_STREAM {
            reconnect = (reconnect * 2).min(RECONNECT_LAST);
        }
    }
}

fn hint_of(event: v1::ContainerEventResponse) -> Hint {
    let Some(sandbox) = event.pod_sandbox_status else {
        return Hint::All;
    };
    // An event without the state of its container only says that something happened.
    let tells = event.container_id == sandbox.id
        || (event.containers_statuses.iter()).any(|status| status.id == event.container_id);
    let reported = observe::reported(&sandbox, &event.containers_statuses).filter(|_| tells);
    match sandbox.metadata {
        Some(metadata) if !metadata.uid.is_empty() => Hint::Pod {
            uid: metadata.uid,
            reported,
        },
        _ => Hint::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_without_its_container_is_ignored() {
        let status = |id: &str| v1::ContainerStatus {
            id: id.into(),
            ..Default::default()
        };
        let describes = |container: &str, containers: &[&str]| {
            let hint = hint_of(v1::ContainerEventResponse {
                container_id: container.into(),
                pod_sandbox_status: Some(v1::PodSandboxStatus {
                    id: "s".into(),
                    metadata: Some(v1::PodSandboxMetadata {
                        uid: "u".into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                containers_statuses: containers.iter().map(|id| status(id)).collect(),
                ..Default::default()
            });
            matches!(
                hint,
                Hint::Pod {
                    reported: Some(_),
                    ..
                }
            )
        };
        assert!(describes("s", &[]));
        assert!(describes("a", &["a", "b"]));
        assert!(!describes("a", &[]));
        assert!(!describes("a", &["b"]));
    }
}
