//! When a Job's time is over. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use crate::job;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Never,
    In(Duration),
    Due,
}

pub fn has_ttl(job: &Job) -> bool {
    job.spec
        .as_ref()
        .is_some_and(|spec| spec.ttl_seconds_after_finished.is_some())
}

pub fn expiry(job: &Job, now: Timestamp) -> Expiry {
    let ttl = job.spec.as_ref();
    let ttl = ttl.and_then(|spec| spec.ttl_seconds_after_finished);
    let status = job.status.clone().unwrap_or_default();
    let ended = job::condition(&status, "Complete").or_else(|| job::condition(&status, "Failed"));
    let ended = ended.and_then(|condition| condition.last_transition_time.as_ref());
    let (Some(ttl), Some(ended), None) = (ttl, ended, &job.metadata.deletion_timestamp) else {
        return Expiry::Never;
    };
    let left = ended.0.as_millisecond() + i64::from(ttl) * 1000 - now.as_millisecond();
    match u64::try_from(left) {
        Ok(left) if left > 0 => Expiry::In(Duration::from_millis(left)),
        _ => Expiry::Due,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ended_jobs_with_a_ttl_expire() {
        let check = |ttl: Option<i32>, ended: Option<&str>, now: &str, expected: Expiry| {
            let conditions = ended.map(|at| {
                serde_json::json!([{"type": "Failed", "status": "True", "lastTransitionTime": at}])
            });
            let job: Job = serde_json::from_value(serde_json::json!({
                "spec": {"template": {}, "ttlSecondsAfterFinished": ttl},
                "status": {"conditions": conditions},
            }))
            .unwrap();
            assert_eq!(expiry(&job, now.parse().unwrap()), expected);
        };
        let (end, soon) = (Some("2026-01-01T00:00:00Z"), "2026-01-01T00:00:04Z");
        check(None, end, soon, Expiry::Never);
        check(Some(5), None, soon, Expiry::Never);
        check(Some(5), end, soon, Expiry::In(Duration::from_secs(1)));
        check(Some(4), end, soon, Expiry::Due);
        check(Some(0), end, soon, Expiry::Due);
    }
}
