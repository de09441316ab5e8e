//! Which scheduled times have passed unused, and when the next one comes. Pure.

use std::time::Duration;

use api::cron::Schedule;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;

/// The clock may be a little behind the timer; a look just too early would be for nothing.
const AFTER_THE_TIME: Duration = Duration::from_millis(100);

#[derive(Debug, PartialEq)]
pub struct Missed {
    /// From when on times were looked for.
    pub since: Timestamp,
    /// The last time that has passed.
    pub latest: Option<Timestamp>,
    /// More than a hundred have passed.
    pub many: bool,
    /// Any at all have passed.
    pub any: bool,
}

/// With `within_deadline`, times before the starting deadline do not count.
pub fn missed(
    cron: &CronJob,
    schedule: &Schedule,
    within_deadline: bool,
    now: Timestamp,
) -> Missed {
    let created = cron.metadata.creation_timestamp.as_ref();
    let last = cron.status.as_ref();
    let last = last.and_then(|status| status.last_schedule_time.as_ref());
    let mut since = last.or(created).map_or(now, |time| time.0);
    let deadline = cron.spec.starting_deadline_seconds;
    if let Some(seconds) = deadline.filter(|_| within_deadline)
        && let Ok(limit) = now.checked_sub(SignedDuration::from_secs(seconds))
    {
        since = since.max(limit);
    }
    let mut missed = Missed {
        since,
        latest: None,
        many: false,
        any: false,
    };
    let Some(first) = schedule.next(since).filter(|first| *first <= now) else {
        return missed;
    };
    missed.latest = Some(first);
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return missed;
    };
    missed.any = true;
    // Walk only the last stretch: a schedule of every minute that was away for a year would take
    // half a million steps.
    let pause = (second.as_second() - first.as_second()).max(1);
    let times = (now.as_second() - first.as_second()) / pause + 1;
    missed.many = times > 100;
    let skipped = SignedDuration::from_secs((times - 2).max(0).saturating_mul(pause));
    let mut at = first.checked_add(skipped).unwrap_or(first);
    missed.latest = None;
    while let Some(next) = schedule.next(at).filter(|next| *next <= now) {
        missed.latest = Some(next);
        at = next;
    }
    missed
}

/// How long until the schedule has to be looked at again.
pub fn until_next(cron: &CronJob, schedule: &Schedule, now: Timestamp) -> Option<Duration> {
    let missed = missed(cron, schedule, false, now);
    let from = match missed.latest {
        Some(latest) => latest,
        None if missed.any => now,
        None => missed.since,
    };
    let next = schedule.next(from)?;
    let wait = now.duration_until(next);
    let wait = Duration::try_from(wait).unwrap_or(Duration::ZERO);
    Some(wait + AFTER_THE_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(created: &str, last: Option<&str>, deadline: Option<i64>) -> CronJob {
        serde_json::from_value(serde_json::json!({
            "metadata": {"creationTimestamp": created},
            "spec": {"schedule": "", "jobTemplate": {"spec": {"template": {}}},
                "startingDeadlineSeconds": deadline},
            "status": {"lastScheduleTime": last},
        }))
        .unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_latest_passed_time_counts() {
        let hourly = Schedule::parse("0 * * * *", None).unwrap();
        let new = cron("2026-01-01T00:10:00Z", None, None);
        for (now, latest, many) in [
            ("2026-01-01T00:59:00Z", None, false),
            ("2026-01-01T01:00:00Z", Some("2026-01-01T01:00:00Z"), false),
            ("2026-01-01T07:30:00Z", Some("2026-01-01T07:00:00Z"), false),
            ("2026-01-09T07:30:00Z", Some("2026-01-09T07:00:00Z"), true),
        ] {
            let missed = missed(&new, &hourly, true, time(now));
            assert_eq!(missed.latest, latest.map(time), "{now}");
            assert_eq!(missed.many, many, "{now}");
        }
        let ran = cron("2026-01-01T00:10:00Z", Some("2026-01-01T07:00:00Z"), None);
        assert_eq!(
            missed(&ran, &hourly, true, time("2026-01-01T07:30:00Z")).latest,
            None
        );
    }

    #[test]
    fn a_deadline_limits_how_far_back_is_looked() {
        let hourly = Schedule::parse("0 * * * *", None).unwrap();
        let strict = cron("2026-01-01T00:10:00Z", None, Some(60));
        let now = time("2026-01-09T07:30:00Z");
        assert_eq!(missed(&strict, &hourly, true, now).latest, None);
        assert!(!missed(&strict, &hourly, true, now).many);
    }

    #[test]
    fn the_next_look_is_just_after_the_next_time() {
        let hourly = Schedule::parse("0 * * * *", None).unwrap();
        let new = cron("2026-01-01T00:10:00Z", None, None);
        let wait = until_next(&new, &hourly, time("2026-01-01T00:59:00Z"));
        assert_eq!(wait, Some(Duration::from_millis(60_100)));
        let wait = until_next(&new, &hourly, time("2026-01-05T00:59:00Z"));
        assert_eq!(wait, Some(Duration::from_millis(60_100)));
    }
}
