//! Random histories of Jobs against a world without I/O: pods start, succeed, fail and vanish, the
//! Job is suspended, resumed and scaled, and the controller crashes between its writes. Whatever
//! happens, no pod is counted twice or forgotten, and no index completes twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::backoff::Backoff;
use super::indexes::Indexes;
use super::plan::{self, plan};
use super::pod;
use super::tracking::{self, Counts, Suspension};
use super::view::{View, condition, is_finished};

struct World {
    job: Job,
    pods: BTreeMap<String, Pod>,
    backoff: Backoff,
    second: i64,
    made: u32,
    /// UIDs of tracked pods that have ended well or badly, and were not taken away by us.
    ended_well: BTreeSet<String>,
    ended_badly: BTreeSet<String>,
}

fn job(spec: serde_json::Value) -> Job {
    let mut fields = serde_json::json!({
        "selector": {"matchLabels": {"job": "j"}}, "parallelism": 2, "backoffLimit": 6,
        "template": {"metadata": {"labels": {"job": "j"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
    });
    let more = spec.as_object().unwrap().clone();
    fields.as_object_mut().unwrap().extend(more);
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "job"}, "spec": fields,
    }))
    .unwrap()
}

impl World {
    fn new(job: Job) -> World {
        World {
            job,
            pods: BTreeMap::new(),
            backoff: Backoff::default(),
            second: 1_000,
            made: 0,
            ended_well: BTreeSet::new(),
            ended_badly: BTreeSet::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.second).unwrap()
    }

    /// One round as the controller does it; with `crash_after` it ends after that many writes.
    fn round(&mut self, crash_after: usize) {
        let mut writes = 0;
        let mut crashes = || {
            writes += 1;
            writes > crash_after
        };
        let released = BTreeSet::new();
        let pods: Vec<Arc<Pod>> = self.pods.values().cloned().map(Arc::new).collect();
        let job = self.job.clone();
        if is_finished(&job) {
            return;
        }
        let view = View::new(&job, &pods, &released);
        let backoff = self
            .backoff
            .after(&view.newly_succeeded(), &view.newly_failed());
        let plan = plan(&view, backoff, true, self.now());
        let active = view.active();
        let mut counts = Counts {
            active: active.len() as i32,
            ready: 0,
            terminating: view.terminating().count() as i32,
        };
        for pod in &plan.delete {
            let name = pod.metadata.name.clone().unwrap();
            if plan.mark_deleted {
                self.mark(&name);
            }
            self.leave(&name);
            counts.active -= 1;
            counts.terminating += 1;
        }
        for mut pod in plan.create.clone() {
            self.made += 1;
            let name = format!("p{}", self.made);
            pod.metadata.name = Some(name.clone());
            pod.metadata.uid = Some(name.clone());
            pod.metadata.creation_timestamp = Some(Time(self.now()));
            pod.status.get_or_insert_default().phase = Some("Pending".to_owned());
            self.pods.insert(name, pod);
            counts.active += 1;
        }
        if crashes() {
            return;
        }
        let verdict = match &plan.verdict {
            Some(verdict) => Some(verdict.clone()),
            None => tracking::is_complete(&view, counts.active).then(|| {
                plan::condition("SuccessCriteriaMet", "CompletionsReached", "", self.now())
            }),
        };
        let suspension = Suspension::due(&view).filter(|_| verdict.is_none());
        let now = self.now();
        let tracking = tracking::track(&view, counts, verdict, &plan.delayed, suspension, now);
        self.check_status(tracking.status.completed_indexes.as_deref());
        self.job.status = Some(tracking.status.clone());
        if crashes() {
            // The controller's memory is lost with it.
            self.backoff = Backoff::default();
            return;
        }
        self.backoff = backoff;
        let mut let_go = BTreeSet::new();
        for pod in &tracking.release {
            let name = pod.metadata.name.clone().unwrap();
            self.release(&name);
            let_go.insert(name);
            if crashes() {
                return;
            }
        }
        let status = tracking.finish(self.job.status.clone().unwrap(), &let_go);
        self.job.status = Some(status);
    }

    /// Completed indexes never become uncompleted and stay in range.
    fn check_status(&self, completed: Option<&str>) {
        let completions = self
            .job
            .spec
            .as_ref()
            .unwrap()
            .completions
            .unwrap_or(i32::MAX);
        let status = self.job.status.clone().unwrap_or_default();
        let before = Indexes::parse(
            status.completed_indexes.as_deref().unwrap_or_default(),
            completions,
        );
        let after = Indexes::parse(completed.unwrap_or_default(), completions);
        assert_eq!(
            before.common(&after),
            before.total(),
            "{before} became {after}"
        );
    }

    fn release(&mut self, name: &str) {
        if let Some(pod) = self.pods.get_mut(name) {
            pod.metadata.finalizers = None;
            self.collect(name);
        }
    }

    fn mark(&mut self, name: &str) {
        if let Some(pod) = self.pods.get_mut(name) {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(pod::LEAVING.to_owned(), "true".to_owned());
        }
    }

    /// A deleted pod is gone when nothing runs or holds it any more.
    fn collect(&mut self, name: &str) {
        let pod = &self.pods[name];
        if pod.metadata.deletion_timestamp.is_some()
            && semantics::pod::is_terminal(pod)
            && !pod::is_tracked(pod)
        {
            self.pods.remove(name);
        }
    }

    fn leave(&mut self, name: &str) {
        let now = self.now();
        if let Some(pod) = self.pods.get_mut(name) {
            pod.metadata.deletion_timestamp.get_or_insert(Time(now));
        }
    }

    fn end(&mut self, name: &str, phase: &str) {
        let at = self.now().to_string();
        let pod = self.pods.get_mut(name).unwrap();
        if semantics::pod::is_terminal(pod) {
            return;
        }
        pod.status = serde_json::from_value(serde_json::json!({
            "phase": phase, "containerStatuses": [{"name": "c", "image": "", "imageID": "",
                "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 1, "finishedAt": at}}}],
        }))
        .unwrap();
        let tracked = pod::is_tracked(pod);
        if tracked && phase == "Succeeded" {
            self.ended_well.insert(name.to_owned());
        } else if tracked && !pod::is_leaving(pod) {
            self.ended_badly.insert(name.to_owned());
        }
        self.collect(name);
    }

    fn disturb(&mut self, random: &mut StdRng, failures: bool) {
        self.second += random.random_range(0..120);
        let names: Vec<String> = self.pods.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = names[random.random_range(0..names.len())].clone();
        let pod = &self.pods[&name];
        let leaving = pod.metadata.deletion_timestamp.is_some();
        // What we stop may have succeeded before it heard of it.
        let succeeds = !leaving || pod::is_leaving(pod);
        match random.random_range(0..6) {
            0..3 if succeeds => self.end(&name, "Succeeded"),
            3 if failures => self.end(&name, "Failed"),
            4 if failures => self.leave(&name),
            _ if leaving => self.end(&name, "Failed"),
            _ => {}
        }
    }

    fn edit(&mut self, random: &mut StdRng) {
        let spec = self.job.spec.as_mut().unwrap();
        match random.random_range(0..2) {
            0 => spec.suspend = Some(random.random()),
            _ => spec.parallelism = Some(random.random_range(0..4)),
        }
    }

    /// All is quiet: every pod succeeds, and the controller lives.
    fn settle(&mut self) {
        let spec = self.job.spec.as_mut().unwrap();
        spec.suspend = Some(false);
        spec.parallelism = Some(2);
        for _ in 0..60 {
            self.second += 700;
            self.round(usize::MAX);
            for name in self.pods.keys().cloned().collect::<Vec<_>>() {
                let leaving = self.pods[&name].metadata.deletion_timestamp.is_some();
                self.end(&name, if leaving { "Failed" } else { "Succeeded" });
            }
        }
    }
}

#[test]
fn pods_are_counted_exactly_once_through_crashes() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let indexed = seed % 2 == 0;
        let mut spec = serde_json::json!({"completions": 5, "backoffLimit": 1000});
        if indexed {
            spec["completionMode"] = "Indexed".into();
        }
        if seed % 3 == 0 {
            spec["podReplacementPolicy"] = "Failed".into();
        }
        let mut world = World::new(job(spec));
        for _ in 0..60 {
            if random.random_ratio(1, 12) {
                world.edit(&mut random);
            }
            world.disturb(&mut random, true);
            let crash_after = match random.random_ratio(1, 3) {
                true => random.random_range(0..4),
                false => usize::MAX,
            };
            world.round(crash_after);
        }
        world.settle();
        let status = world.job.status.clone().unwrap();
        assert!(
            condition(&status, "Complete").is_some(),
            "seed {seed}: {status:?}"
        );
        assert!(
            condition(&status, "SuccessCriteriaMet").is_some(),
            "seed {seed}"
        );
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        assert_eq!(
            (uncounted.succeeded, uncounted.failed),
            (None, None),
            "seed {seed}"
        );
        assert!(
            !world.pods.values().any(pod::is_tracked),
            "seed {seed}: a pod is held"
        );
        if indexed {
            assert_eq!(
                status.completed_indexes.as_deref(),
                Some("0-4"),
                "seed {seed}"
            );
            assert_eq!(status.succeeded, Some(5), "seed {seed}");
        } else {
            let ended = world.ended_well.len() as i32;
            assert_eq!(status.succeeded, Some(ended), "seed {seed}");
        }
        assert_eq!(status.terminating, Some(0), "seed {seed}");
    }
}

#[test]
fn failures_are_counted_until_the_limit_ends_the_job() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = World::new(job(
            serde_json::json!({"completions": 3, "backoffLimit": 2}),
        ));
        for _ in 0..400 {
            world.second += 1000;
            let names: Vec<String> = world.pods.keys().cloned().collect();
            for name in names {
                if random.random_ratio(1, 2) {
                    world.end(&name, "Failed");
                }
            }
            world.round(usize::MAX);
        }
        let status = world.job.status.clone().unwrap();
        let failed = condition(&status, "Failed").expect("it failed");
        assert_eq!(
            failed.reason.as_deref(),
            Some("BackoffLimitExceeded"),
            "seed {seed}"
        );
        assert!(condition(&status, "FailureTarget").is_some(), "seed {seed}");
        assert!(status.failed.unwrap() > 2, "seed {seed}");
        assert!(!world.pods.values().any(pod::is_tracked), "seed {seed}");
    }
}

#[test]
fn an_index_has_its_own_limit() {
    let spec = serde_json::json!({"completions": 2, "completionMode": "Indexed",
        "backoffLimit": 1000, "backoffLimitPerIndex": 1, "parallelism": 2});
    let mut world = World::new(job(spec));
    for _ in 0..40 {
        world.second += 1000;
        world.round(usize::MAX);
        for name in world.pods.keys().cloned().collect::<Vec<_>>() {
            let first = pod::index(&world.pods[&name]) == Some(0);
            world.end(&name, if first { "Failed" } else { "Succeeded" });
        }
    }
    let status = world.job.status.clone().unwrap();
    assert_eq!(status.completed_indexes.as_deref(), Some("1"));
    assert_eq!(status.failed_indexes.as_deref(), Some("0"));
    assert_eq!(status.failed, Some(2), "one failure and one retry");
    let failed = condition(&status, "Failed").unwrap();
    assert_eq!(failed.reason.as_deref(), Some("FailedIndexes"));
}

#[test]
fn a_success_policy_ends_the_job_early() {
    let spec = serde_json::json!({"completions": 4, "completionMode": "Indexed", "parallelism": 4,
        "successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]}});
    let mut world = World::new(job(spec));
    world.round(usize::MAX);
    let leader = world
        .pods
        .iter()
        .find(|(_, pod)| pod::index(pod) == Some(2));
    let leader = leader.unwrap().0.clone();
    world.end(&leader, "Succeeded");
    for _ in 0..5 {
        world.round(usize::MAX);
        for name in world.pods.keys().cloned().collect::<Vec<_>>() {
            if world.pods[&name].metadata.deletion_timestamp.is_some() {
                world.end(&name, "Failed");
            }
        }
    }
    let status = world.job.status.clone().unwrap();
    let types: Vec<&str> = status
        .conditions
        .iter()
        .flatten()
        .map(|c| c.type_.as_str())
        .collect();
    assert_eq!(types, ["SuccessCriteriaMet", "Complete"]);
    assert_eq!(status.completed_indexes.as_deref(), Some("2"));
    assert_eq!(status.failed, None, "what was cut short did not fail");
}

#[test]
fn suspension_takes_pods_away_without_counting_them() {
    let mut world = World::new(job(serde_json::json!({"completions": 2})));
    world.round(usize::MAX);
    assert_eq!(world.pods.len(), 2);
    world.job.spec.as_mut().unwrap().suspend = Some(true);
    world.round(usize::MAX);
    for name in world.pods.keys().cloned().collect::<Vec<_>>() {
        world.end(&name, "Failed");
    }
    world.round(usize::MAX);
    let status = world.job.status.clone().unwrap();
    assert_eq!((status.active, status.failed), (None, None));
    assert!(status.start_time.is_none());
    assert!(condition(&status, "Suspended").is_some());
    world.settle();
    let status = world.job.status.unwrap();
    assert!(condition(&status, "Complete").is_some());
    assert!(condition(&status, "Suspended").is_none());
    assert_eq!(status.failed, None);
}

#[test]
fn a_pod_that_was_stopped_too_late_counts_and_its_index_waits_for_it() {
    let spec = serde_json::json!({"completions": 1, "completionMode": "Indexed"});
    for (end, failed, pods) in [("Succeeded", None, 1), ("Failed", None, 2)] {
        let mut world = World::new(job(spec.clone()));
        world.round(usize::MAX);
        for suspended in [true, false] {
            world.job.spec.as_mut().unwrap().suspend = Some(suspended);
            world.round(usize::MAX);
        }
        assert_eq!(world.made, 1, "nobody knows yet how the first ended");
        world.end("p1", end);
        world.round(usize::MAX);
        world.settle();
        let status = world.job.status.unwrap();
        assert_eq!(status.completed_indexes.as_deref(), Some("0"));
        assert_eq!((status.failed, world.made), (failed, pods), "{end}");
    }
    // A node that never reports is not waited for without end.
    let mut world = World::new(job(spec));
    world.round(usize::MAX);
    world.job.spec.as_mut().unwrap().suspend = Some(true);
    world.round(usize::MAX);
    world.job.spec.as_mut().unwrap().suspend = Some(false);
    world.second += 301;
    world.round(usize::MAX);
    world.round(usize::MAX);
    assert_eq!(world.made, 2);
}
