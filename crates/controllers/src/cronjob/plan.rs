//! What to do next about a CronJob: note what ended, clean up, start the Job that is due. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::cron::{Schedule, find_zone};
use client::events::Severity;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::missed::{missed, until_next};
use crate::{job, meta};

pub const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

pub struct Observed<'a> {
    pub cron: &'a CronJob,
    /// The Jobs it controls.
    pub jobs: &'a [Arc<Job>],
    /// UIDs of active Jobs that exist no more.
    pub missing: &'a BTreeSet<String>,
    pub now: Timestamp,
}

#[derive(Debug, Default)]
pub struct Plan {
    /// Without the Job that is to be created.
    pub status: CronJobStatus,
    pub delete: Vec<Arc<Job>>,
    pub create: Option<(Box<Job>, Timestamp)>,
    pub retry: Option<Duration>,
    pub events: Vec<(Severity, &'static str, String)>,
}

pub fn plan(observed: &Observed<'_>) -> Plan {
    let mut plan = Plan {
        status: observed.cron.status.clone().unwrap_or_default(),
        ..Plan::default()
    };
    plan.note_ended(observed);
    plan.clean_up(observed);
    if observed.cron.metadata.deletion_timestamp.is_none() {
        plan.start_due(observed);
    }
    plan
}

impl Plan {
    fn note_ended(&mut self, observed: &Observed<'_>) {
        for job in observed.jobs {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let listed = is_active(&self.status, job);
            if !job::is_finished(job) {
                if !listed {
                    let message =
                        format!("Saw a job that the controller did not create or forgot: {name}");
                    self.warn("UnexpectedJob", message);
                }
                continue;
            }
            let status = job.status.clone().unwrap_or_default();
            let succeeded = job::condition(&status, "Complete").is_some();
            if listed {
                let condition = if succeeded { "Complete" } else { "Failed" };
                let message = format!("Saw completed job: {name}, condition: {condition}");
                self.record_event("SawCompletedJob", message);
                drop_active(&mut self.status, job.metadata.uid.as_deref());
            }
            let last = self.status.last_successful_time.as_ref();
            if let Some(ended) = status.completion_time.filter(|_| succeeded)
                && last.is_none_or(|last| ended.0 > last.0)
            {
                self.status.last_successful_time = Some(ended);
            }
        }
        for uid in observed.missing {
            let active = self.status.active.iter().flatten();
            let mut active = active.filter(|one| one.uid.as_ref() == Some(uid));
            if let Some(name) = active
                .next()
                .map(|one| one.name.clone().unwrap_or_default())
            {
                self.record_event("MissingJob", format!("Active job went missing: {name}"));
                drop_active(&mut self.status, Some(uid));
            }
        }
    }

    /// Ended Jobs beyond the history limits, the oldest first.
    fn clean_up(&mut self, observed: &Observed<'_>) {
        let spec = observed.cron.spec.clone();
        for (condition, limit) in [
            ("Complete", spec.successful_jobs_history_limit),
            ("Failed", spec.failed_jobs_history_limit),
        ] {
            let Some(limit) = limit else {
                continue;
            };
            let mut ended: Vec<&Arc<Job>> = observed
                .jobs
                .iter()
                .filter(|job| {
                    let status = job.status.clone().unwrap_or_default();
                    job.metadata.deletion_timestamp.is_none()
                        && job::condition(&status, condition).is_some()
                })
                .collect();
            ended.sort_by_key(|job| {
                let started = job.status.as_ref().and_then(|s| s.start_time.clone());
                let started = started.map_or(i64::MAX, |time| time.0.as_second());
                (started, job.metadata.name.clone())
            });
            let surplus = ended.len().saturating_sub(limit.max(0) as usize);
            self.delete.extend(ended.into_iter().take(surplus).cloned());
        }
    }

    fn start_due(&mut self, observed: &Observed<'_>) {
        let (cron, now) = (observed.cron, observed.now);
        let spec = cron.spec.clone();
        let zone = spec.time_zone.as_deref();
        if let Some(zone) = zone.filter(|zone| find_zone(zone).is_err()) {
            let message = format!("invalid timeZone: {zone:?}: unknown time zone {zone}");
            return self.warn("UnknownTimeZone", message);
        }
        if spec.suspend == Some(true) {
            return;
        }
        let schedule = match Schedule::parse(&spec.schedule, zone) {
            Ok(schedule) => schedule,
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
                return self.warn("UnparseableSchedule", message);
            }
        };
        self.retry = until_next(cron, &schedule, now);
        let missed = missed(cron, &schedule, true, now);
        if missed.many {
            let message = "too many missed start times. Set or decrease \
                           .spec.startingDeadlineSeconds or check clock skew";
            self.warn("TooManyMissedTimes", message.to_owned());
        }
        let Some(due) = missed.latest else {
            return;
        };
        let limit = spec.starting_deadline_seconds;
        if limit.is_some_and(|seconds| {
            let latest = due.checked_add(SignedDuration::from_secs(seconds));
            latest.is_ok_and(|latest| latest < now)
        }) {
            let due = due.strftime("%a, %d %b %Y %H:%M:%S +0000");
            let message = format!("Missed scheduled time to start a job: {due}");
            return self.warn("MissSchedule", message);
        }
        let name = job_name(cron, due);
        let active = self.status.active.clone().unwrap_or_default();
        let last = self.status.last_schedule_time.as_ref();
        if active.iter().any(|one| one.name.as_ref() == Some(&name))
            || last.is_some_and(|last| last.0 == due)
        {
            return;
        }
        match spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and \
                               concurrency policy is Forbid";
                return self.record_event("JobAlreadyActive", message.to_owned());
            }
            Some("Replace") => {
                let replaced = observed.jobs.iter();
                let replaced = replaced.filter(|job| is_active(&self.status, job));
                self.delete.extend(replaced.cloned());
            }
            _ => {}
        }
        self.create = Some((Box::new(new_job(cron, name, due)), due));
    }

    fn record_event(&mut self, reason: &'static str, message: String) {
        self.events.push((Severity::Normal, reason, message));
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.events.push((Severity::Warning, reason, message));
    }
}

/// Takes a Job off the list of active ones.
pub fn drop_active(status: &mut CronJobStatus, uid: Option<&str>) {
    if let Some(active) = &mut status.active {
        active.retain(|one| one.uid.as_deref() != uid);
        if active.is_empty() {
            status.active = None;
        }
    }
}

pub fn is_active(status: &CronJobStatus, job: &Job) -> bool {
    let active = status.active.iter().flatten();
    active
        .into_iter()
        .any(|one| one.uid.is_some() && one.uid == job.metadata.uid)
}

/// The same scheduled time gives the same name, so that it never starts two Jobs.
fn job_name(cron: &CronJob, due: Timestamp) -> String {
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    format!("{name}-{}", due.as_second() / 60)
}

fn new_job(cron: &CronJob, name: String, due: Timestamp) -> Job {
    let spec = cron.spec.clone();
    let template = spec.job_template;
    let from = template.metadata.unwrap_or_default();
    let zone = spec.time_zone.as_deref();
    let zone = zone.and_then(|zone| find_zone(zone).ok());
    let at = match zone {
        Some(zone) => due
            .to_zoned(zone)
            .strftime("%Y-%m-%dT%H:%M:%S%:z")
            .to_string(),
        None => due.to_string(),
    };
    let mut annotations = from.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_AT.to_owned(), at.replace("+00:00", "Z"));
    Job {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: cron.metadata.namespace.clone(),
            labels: from.labels,
            annotations: Some(annotations),
            creation_timestamp: Some(Time(due)),
            owner_references: Some(vec![meta::owner_reference(cron)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(policy: &str, active: &[&str]) -> CronJob {
        let active: Vec<_> = active
            .iter()
            .map(|name| serde_json::json!({"name": name, "uid": name}))
            .collect();
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:30Z"},
            "spec": {
                "schedule": "*/5 * * * *", "concurrencyPolicy": policy,
                "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0,
                "jobTemplate": {"spec": {"template": {}}},
            },
            "status": {"active": active},
        }))
        .unwrap()
    }

    fn job(name: &str, condition: Option<&str>, started: i64) -> Arc<Job> {
        let started = Timestamp::from_second(started).unwrap().to_string();
        let conditions =
            condition.map(|kind| serde_json::json!([{"type": kind, "status": "True"}]));
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name, "uid": name},
                "status": {"conditions": conditions, "startTime": started,
                    "completionTime": condition.map(|_| started.clone())},
            }))
            .unwrap(),
        )
    }

    fn planned(cron: &CronJob, jobs: &[Arc<Job>], now: &str) -> Plan {
        plan(&Observed {
            cron,
            jobs,
            missing: &BTreeSet::new(),
            now: now.parse().unwrap(),
        })
    }

    #[test]
    fn a_due_time_starts_one_job_of_its_name() {
        let cron = cron("Allow", &[]);
        assert!(planned(&cron, &[], "2026-01-01T00:04:59Z").create.is_none());
        let plan = planned(&cron, &[], "2026-01-01T00:05:00.1Z");
        let (job, due) = plan.create.unwrap();
        assert_eq!(due, "2026-01-01T00:05:00Z".parse().unwrap());
        let minutes = due.as_second() / 60;
        assert_eq!(job.metadata.name, Some(format!("c-{minutes}")));
        assert_eq!(
            job.metadata.annotations.unwrap()[SCHEDULED_AT],
            "2026-01-01T00:05:00Z"
        );
        assert!(plan.retry.unwrap() <= Duration::from_secs(301));
    }

    #[test]
    fn concurrency_follows_the_policy() {
        let now = "2026-01-01T00:05:01Z";
        let running = [job("earlier", None, 1)];
        let allow = planned(&cron("Allow", &["earlier"]), &running, now);
        assert!(allow.create.is_some() && allow.delete.is_empty());
        let forbid = planned(&cron("Forbid", &["earlier"]), &running, now);
        assert!(forbid.create.is_none());
        assert_eq!(forbid.events[0].1, "JobAlreadyActive");
        let replace = planned(&cron("Replace", &["earlier"]), &running, now);
        assert!(replace.create.is_some());
        assert_eq!(replace.delete, running);
    }

    #[test]
    fn ended_jobs_leave_the_list_and_old_ones_are_deleted() {
        let jobs = [
            job("one", Some("Complete"), 10),
            job("two", Some("Complete"), 20),
            job("bad", Some("Failed"), 30),
        ];
        let plan = planned(
            &cron("Allow", &["two", "bad"]),
            &jobs,
            "2026-01-01T00:01:00Z",
        );
        assert_eq!(plan.status.active, None);
        let last = plan.status.last_successful_time.unwrap();
        assert_eq!(last.0.as_second(), 20);
        let gone: Vec<_> = plan
            .delete
            .iter()
            .filter_map(|job| job.metadata.name.clone())
            .collect();
        assert_eq!(gone, ["one", "bad"]);
    }

    #[test]
    fn suspended_and_unknown_zones_start_nothing() {
        let mut suspended = cron("Allow", &[]);
        suspended.spec.suspend = Some(true);
        assert!(
            planned(&suspended, &[], "2026-01-01T00:05:01Z")
                .create
                .is_none()
        );
        let mut lost = cron("Allow", &[]);
        lost.spec.time_zone = Some("Moon/Crater".to_owned());
        let plan = planned(&lost, &[], "2026-01-01T00:05:01Z");
        assert_eq!(plan.events[0].1, "UnknownTimeZone");
    }
}
