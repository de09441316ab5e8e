//! The fields of pods that a Job reads and writes. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};

use super::failure_policy;
use crate::{meta, owned_pods};

/// Keeps a pod from going before it is counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Says of a pod that is being deleted that the Job had no use for it any more: only its success
/// counts, not that it was stopped.
pub const LEAVING: &str = "coracle.dev/job-leaving";
/// How long past its grace period a terminating pod is waited for. Its node may never report how it
/// ended.
const LEAVING_PATIENCE: SignedDuration = SignedDuration::from_mins(5);
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest prefix of a generated name that leaves room for its random end.
const LONGEST_PREFIX: usize = 58;

pub fn is_tracked(pod: &Pod) -> bool {
    let finalizers = pod.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|one| one == TRACKING)
}

/// Whether the Job itself deleted the pod before it had ended.
pub fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && meta::annotation(&pod.metadata, LEAVING).is_some()
}

/// How long a terminating pod may still succeed; `None` once it has ended or no report will come.
pub fn may_still_succeed(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let until = pod.metadata.deletion_timestamp.as_ref()?.0 + LEAVING_PATIENCE;
    if semantics::pod::is_terminal(pod) || pod.metadata.deletion_grace_period_seconds == Some(0) {
        return None;
    }
    let left = Duration::try_from(now.duration_until(until)).ok()?;
    Some(left).filter(|left| !left.is_zero())
}

/// The completion index, if the pod has one.
pub fn index(pod: &Pod) -> Option<i32> {
    let index: i32 = meta::annotation(&pod.metadata, INDEX)?.parse().ok()?;
    (index >= 0).then_some(index)
}

/// Failures of the index before this pod, without the ignored ones.
pub fn index_failures(pod: &Pod) -> i32 {
    number(pod, INDEX_FAILURES)
}

/// Failures of the index before this pod.
pub fn all_index_failures(pod: &Pod) -> i32 {
    number(pod, INDEX_FAILURES).saturating_add(number(pod, INDEX_IGNORED_FAILURES))
}

/// A new pod of the Job.
pub fn new(job: &Job) -> Pod {
    let template = job.spec.clone().unwrap_or_default().template;
    let mut pod = owned_pods::from_template(job, &template);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|one| one == TRACKING) {
        finalizers.push(TRACKING.to_owned());
    }
    pod
}

/// A new pod for an index. `counts_failures` says that indexes have backoff limits of their own;
/// then the pod carries on the count of the one it replaces.
pub fn new_for_index(job: &Job, index: i32, counts_failures: bool, replaced: Option<&Pod>) -> Pod {
    let mut pod = new(job);
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let suffix = format!("-{index}-");
    let mut prefix = name.to_owned();
    prefix.truncate(LONGEST_PREFIX.saturating_sub(suffix.len()));
    pod.metadata.generate_name = Some(prefix + &suffix);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(INDEX.to_owned(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if counts_failures {
        let (failures, ignored) = match replaced {
            None => (0, 0),
            Some(former) => {
                let counted = i32::from(failure_policy::action_for(job, former).counts());
                (
                    index_failures(former).saturating_add(counted),
                    number(former, INDEX_IGNORED_FAILURES).saturating_add(1 - counted),
                )
            }
        };
        annotations.insert(INDEX_FAILURES.to_owned(), failures.to_string());
        if ignored > 0 {
            annotations.insert(INDEX_IGNORED_FAILURES.to_owned(), ignored.to_string());
        }
    }
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(format!("{name}-{index}"));
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        add_index_variable(container);
    }
    pod
}

fn add_index_variable(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|one| one.name == INDEX_VARIABLE) {
        return;
    }
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: format!("metadata.labels['{INDEX}']"),
            }),
            ..EnvVarSource::default()
        }),
    });
}

fn number(pod: &Pod, annotation: &str) -> i32 {
    let number = meta::annotation(&pod.metadata, annotation);
    let number: i32 = number.and_then(|text| text.parse().ok()).unwrap_or(0);
    number.max(0)
}
