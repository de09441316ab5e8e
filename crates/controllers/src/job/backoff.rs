//! How long a failed pod's successor waits: 10 s doubling to 10 min, from when it failed. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// Failures in a row, and when the last one was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    pub failures: u32,
    pub last: Option<Timestamp>,
}

impl Backoff {
    /// After these pods have ended: a success starts the count over.
    pub fn after(self, succeeded: &[&Pod], failed: &[&Pod]) -> Backoff {
        let last_success = succeeded.iter().map(|pod| finished_at(pod)).max();
        let failures = failed.iter().map(|pod| finished_at(pod));
        match last_success {
            None if failed.is_empty() => self,
            None => Backoff {
                failures: self.failures.saturating_add(failed.len() as u32),
                last: failures.max(),
            },
            Some(success) => {
                let later: Vec<Timestamp> = failures.filter(|failure| *failure > success).collect();
                Backoff {
                    failures: later.len() as u32,
                    last: later.into_iter().max(),
                }
            }
        }
    }

    pub fn remaining(self, now: Timestamp) -> Duration {
        let (Some(last), 1..) = (self.last, self.failures) else {
            return Duration::ZERO;
        };
        let doublings = (self.failures - 1).min(16);
        let delay = FIRST.saturating_mul(1 << doublings).min(LONGEST);
        let elapsed = now.as_millisecond() - last.as_millisecond();
        delay.saturating_sub(Duration::from_millis(elapsed.max(0) as u64))
    }
}

/// When a pod ended: its last container's end, or what comes nearest to it.
pub fn finished_at(pod: &Pod) -> Timestamp {
    let deleted = pod.metadata.deletion_timestamp.as_ref().map(|time| {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let seconds = time.0.as_second().saturating_sub(grace);
        Timestamp::from_second(seconds).unwrap_or(time.0)
    });
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    last_container_end(pod)
        .or_else(|| not_ready_since(pod))
        .or(deleted)
        .or(created)
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Nothing while a container (or a sidecar) still runs.
fn last_container_end(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let sidecars: Vec<&str> = pod
        .spec
        .iter()
        .flat_map(semantics::pod::sidecars)
        .map(|container| container.name.as_str())
        .collect();
    let init = status.init_container_statuses.iter().flatten();
    let containers: Vec<&ContainerStatus> = status
        .container_statuses
        .iter()
        .flatten()
        .chain(init.filter(|container| sidecars.contains(&container.name.as_str())))
        .collect();
    let ends: Option<Vec<Timestamp>> = containers
        .iter()
        .map(|container| {
            let terminated = container.state.as_ref()?.terminated.as_ref()?;
            Some(terminated.finished_at.as_ref()?.0)
        })
        .collect();
    ends?.into_iter().max()
}

fn not_ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")?;
    if ready.status != "False" {
        return None;
    }
    ready.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(finished: i64) -> Pod {
        serde_json::from_value(serde_json::json!({"status": {"containerStatuses": [{
            "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "finishedAt": at(finished).to_string()}},
        }]}}))
        .unwrap()
    }

    #[test]
    fn delays_double_and_a_success_starts_over() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.remaining(at(0)), Duration::ZERO);
        for (failures, delay) in [(1, 10), (2, 20), (3, 40), (7, 600), (40, 600)] {
            backoff = Backoff {
                failures,
                last: Some(at(100)),
            };
            assert_eq!(backoff.remaining(at(100)).as_secs(), delay, "{failures}");
            assert_eq!(backoff.remaining(at(101)).as_secs(), delay - 1);
            assert_eq!(backoff.remaining(at(1000)), Duration::ZERO);
        }
        let failed = backoff.after(&[], &[&pod(200), &pod(300)]);
        assert_eq!((failed.failures, failed.last), (42, Some(at(300))));
        let succeeded = failed.after(&[&pod(350)], &[&pod(340), &pod(360)]);
        assert_eq!((succeeded.failures, succeeded.last), (1, Some(at(360))));
        assert_eq!(succeeded.after(&[&pod(400)], &[]), Backoff::default());
    }
}
