//! HorizontalPodAutoscaler: as many pods as their use of CPU and memory asks for, or metrics of the
//! custom and external metrics APIs.

mod behavior;
mod metrics;
mod other;
mod other_metrics;
mod plan;
mod selectors;
mod status;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use api::selector::LabelSelector;
use client::controller::Reconciled;
use client::{Change, Informer, ObjectKey, WorkQueue, events, retry};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
    MetricSpec, MetricStatus, MetricTarget,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use kube::core::GroupVersionKind;
use kube::discovery::oneshot;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::lookup::Labelled;
use crate::watching::{self, Reconciler};
use crate::{Config, Error};
use behavior::Memory;
use other::{Failed, Proposed, Scaled};
use plan::{Observed, Proposal, Target, Tolerance};
use selectors::Selectors;
use status::Conditions;

/// How often use is looked at.
const PERIOD: Duration = Duration::from_secs(15);
const TOLERANCE: f64 = 0.1;
const WRITE_ATTEMPTS: u32 = 5;

pub async fn run(config: Config, shutdown: CancellationToken) {
    let scalers = config.informers.of::<HorizontalPodAutoscaler>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = enqueue_changed_specs(scalers.clone(), queue.clone());
    let controller = Controller {
        events: config.events("horizontal-pod-autoscaler"),
        memory: Mutex::default(),
        selectors: Mutex::default(),
        config,
        scalers,
        labelled_pods: Labelled::of(&pods),
        pods,
    };
    watching::run("podautoscaler", 2, queue, feeds, controller, shutdown).await;
}

struct Controller {
    config: Config,
    scalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    labelled_pods: Labelled<Pod>,
    events: events::Recorder,
    /// By autoscaler; forgotten with it.
    memory: Mutex<BTreeMap<ObjectKey, Memory>>,
    /// By autoscaler, as last seen: no pod may follow two of them.
    selectors: Mutex<Selectors>,
}

/// The best of all metrics.
struct Recommendation {
    replicas: i32,
    metric: String,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.scalers.synced().await;
        self.pods.synced().await;
        let Some(scaler) = self.scalers.get(&key.namespace, &key.name) else {
            self.memory.lock().remove(key);
            self.selectors.lock().remove(key);
            return Ok(Reconciled::Done);
        };
        let now = self.config.environment.now();
        let mut status = scaler.status.clone().unwrap_or_default();
        let mut conditions = Conditions::of(&status, now);
        let result = self
            .scale(key, &scaler, &mut status, &mut conditions, now)
            .await;
        status.observed_generation = scaler.metadata.generation;
        status.conditions = Some(conditions.list);
        if scaler.status.as_ref() != Some(&status) {
            let mut updated = (*scaler).clone();
            updated.status = Some(status);
            let api: Api<HorizontalPodAutoscaler> =
                Api::namespaced(self.config.client.clone(), &key.namespace);
            match api
                .replace_status(&key.name, &PostParams::default(), &updated)
                .await
            {
                Ok(_) => {}
                Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Err(reason) = result {
            tracing::debug!(%key, reason, "not scaled");
        }
        Ok(Reconciled::After(PERIOD))
    }
}

impl Controller {
    async fn scale(
        &self,
        key: &ObjectKey,
        scaler: &HorizontalPodAutoscaler,
        status: &mut HorizontalPodAutoscalerStatus,
        conditions: &mut Conditions,
        now: Timestamp,
    ) -> Result<(), String> {
        let spec = scaler.spec.clone();
        let (path, scale) = match self.target(key, &spec).await {
            Ok(found) => found,
            Err(error) => {
                let cause = error.to_string();
                self.events.warning(scaler, "FailedGetScale", &cause);
                let message = format!(
                    "the HPA controller was unable to get the target's current scale: {cause}"
                );
                conditions.set("AbleToScale", false, "FailedGetScale", &message);
                return Err(cause);
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        conditions.set("AbleToScale", true, "SucceededGetScale", message);
        let current = scale
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(0);
        status.current_replicas = Some(current);
        status.current_metrics = None;
        let least = spec.min_replicas.unwrap_or(1);
        self.memory
            .lock()
            .entry(key.clone())
            .or_default()
            .begin(current, now);
        let (desired, reason) = if current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            conditions.set("ScalingActive", false, "ScalingDisabled", message);
            (0, String::new())
        } else if current > spec.max_replicas {
            let reason = "Current number of replicas above Spec.MaxReplicas";
            (spec.max_replicas, reason.to_owned())
        } else if current < least {
            let reason = "Current number of replicas below Spec.MinReplicas";
            (least, reason.to_owned())
        } else {
            let found = self
                .recommend(key, scaler, &scale, status, conditions, now)
                .await;
            let best = match found {
                Ok(best) => best,
                Err(cause) => {
                    let reason = "FailedComputeMetricsReplicas";
                    self.events.warning(scaler, reason, &cause);
                    return Err(cause);
                }
            };
            let decision = {
                let mut memory = self.memory.lock();
                let memory = memory.entry(key.clone()).or_default();
                memory.decide(&spec, current, best.replicas, now)
            };
            match decision.stabilized {
                Some((reason, message)) => conditions.set("AbleToScale", true, reason, message),
                None => {
                    let message = "recommended size matches current size";
                    conditions.set("AbleToScale", true, "ReadyForNewScale", message);
                }
            }
            let (reason, message) = decision.limit;
            conditions.set("ScalingLimited", decision.limited, reason, message);
            let reason = match best.replicas.cmp(&current) {
                Ordering::Greater => format!("{} above target", best.metric),
                Ordering::Less => "All metrics below target".to_owned(),
                Ordering::Equal => String::new(),
            };
            (decision.replicas, reason)
        };
        if desired == current {
            status.desired_replicas = desired;
            return Ok(());
        }
        if let Err(error) = self.write_scale(&path, &scale, desired).await {
            let cause = client::retry::sentence(&error);
            let about = format!("New size: {desired}; reason: {reason}; error: {cause}");
            self.events.warning(scaler, "FailedRescale", about);
            let message =
                format!("the HPA controller was unable to update the target scale: {cause}");
            conditions.set("AbleToScale", false, "FailedUpdateScale", &message);
            return Err(cause);
        }
        status.desired_replicas = desired;
        let message =
            format!("the HPA controller was able to update the target scale to {desired}");
        conditions.set("AbleToScale", true, "SucceededRescale", &message);
        let about = format!("New size: {desired}; reason: {reason}");
        self.events.normal(scaler, "SuccessfulRescale", about);
        status.last_scale_time = Some(Time(now));
        if let Some(memory) = self.memory.lock().get_mut(key) {
            memory.note_change(&spec, current, desired, now);
        }
        Ok(())
    }

    /// The path of the target's scale, and the scale.
    async fn target(
        &self,
        key: &ObjectKey,
        spec: &HorizontalPodAutoscalerSpec,
    ) -> Result<(String, Scale), Error> {
        let reference = &spec.scale_target_ref;
        let version = reference.api_version.as_deref().unwrap_or("v1");
        let (group, short) = version.rsplit_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, short, &reference.kind);
        let found = oneshot::pinned_kind(&self.config.client, &kind).await;
        let (resource, _) = found.map_err(|error| {
            if matches!(error, kube::Error::Discovery(_)) || retry::is_not_found(&error) {
                let kind = &reference.kind;
                return Error::Object(format!(
                    "no matches for kind \"{kind}\" in group \"{group}\""
                ));
            }
            error.into()
        })?;
        let prefix = if group.is_empty() { "/api" } else { "/apis" };
        let path = format!(
            "{prefix}/{version}/namespaces/{}/{}/{}/scale",
            key.namespace, resource.plural, reference.name
        );
        let request = http::Request::get(&path).body(Vec::new())?;
        Ok((path, self.config.client.request(request).await?))
    }

    /// Others write to the target too: a conflict is tried again on what is there now.
    async fn write_scale(
        &self,
        path: &str,
        scale: &Scale,
        replicas: i32,
    ) -> Result<(), kube::Error> {
        let mut wanted = scale.clone();
        let mut attempts = 1;
        loop {
            wanted.spec.get_or_insert_default().replicas = Some(replicas);
            let body = serde_json::to_vec(&wanted).map_err(kube::Error::SerdeError)?;
            let request = http::Request::put(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body)
                .map_err(kube::Error::HttpError)?;
            match self.config.client.request::<Scale>(request).await {
                Ok(_) => return Ok(()),
                Err(error) if retry::is_conflict(&error) && attempts < WRITE_ATTEMPTS => {
                    attempts += 1;
                    let request = http::Request::get(path)
                        .body(Vec::new())
                        .map_err(kube::Error::HttpError)?;
                    wanted = self.config.client.request(request).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn recommend(
        &self,
        key: &ObjectKey,
        scaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        status: &mut HorizontalPodAutoscalerStatus,
        conditions: &mut Conditions,
        now: Timestamp,
    ) -> Result<Recommendation, String> {
        let spec = &scaler.spec;
        let text = scale
            .status
            .as_ref()
            .and_then(|status| status.selector.clone());
        let text = text.unwrap_or_default();
        if text.is_empty() {
            let message = "the HPA target's scale is missing a selector";
            self.events
                .warning(scaler, "SelectorRequired", "selector is required");
            conditions.set("ScalingActive", false, "InvalidSelector", message);
            return Err("selector is required".to_owned());
        }
        let selector = LabelSelector::parse(&text).map_err(|error| {
            let message = format!(
                "couldn't convert selector into a corresponding internal selector object: {error}"
            );
            self.events.warning(scaler, "InvalidSelector", &message);
            conditions.set("ScalingActive", false, "InvalidSelector", &message);
            message
        })?;
        let pods = self.labelled_pods.matching(&key.namespace, &selector);
        let rivals = {
            let mut selectors = self.selectors.lock();
            selectors.set(key, selector);
            selectors.selecting(&pods)
        };
        if rivals.len() > 1 {
            let rivals: Vec<String> = rivals
                .iter()
                .map(|one| format!("{{{} {}}}", one.name, one.namespace))
                .collect();
            let message = format!(
                "pods by selector {text} are controlled by multiple HPAs: [{}]",
                rivals.join(" ")
            );
            self.events.warning(scaler, "AmbiguousSelector", &message);
            conditions.set("ScalingActive", false, "AmbiguousSelector", &message);
            return Err(message);
        }
        let current = scale
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(0);
        let rules = spec.behavior.as_ref();
        let tolerance = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
            let given = rules.and_then(|rules| rules.tolerance.as_ref());
            given.map_or(TOLERANCE, |given| plan::milli(&given.0) as f64 / 1000.0)
        };
        let tolerance = Tolerance {
            down: tolerance(rules.and_then(|rules| rules.scale_down.as_ref())),
            up: tolerance(rules.and_then(|rules| rules.scale_up.as_ref())),
        };
        let (mut best, mut failure) = (None::<(i32, String)>, None);
        let mut failures = 0;
        let mut statuses = Vec::new();
        let metrics = spec.metrics.clone().unwrap_or_default();
        let scaled = Scaled {
            namespace: &key.namespace,
            selector: &text,
            pods: &pods,
            replicas: current,
            running: scale.status.as_ref().map_or(0, |status| status.replicas),
            tolerance,
            now,
        };
        for metric in &metrics {
            let proposed = match other::propose(&self.config.client, metric, &scaled).await {
                Some(proposed) => proposed,
                None => self.of_metric(metric, &scaled).await,
            };
            match proposed {
                Ok((replicas, shown, name)) => {
                    statuses.push(shown);
                    if best.as_ref().is_none_or(|(most, _)| replicas > *most) {
                        best = Some((replicas, name));
                    }
                }
                Err(failed) => {
                    self.events.warning(scaler, failed.reason, &failed.cause);
                    statuses.push(MetricStatus::default());
                    failures += 1;
                    failure = failure.or(Some((failed, about(metric))));
                }
            }
        }
        status.current_metrics = Some(statuses);
        // With a metric unknown, the others must not ask for less.
        let decided = best.filter(|(replicas, _)| failure.is_none() || *replicas >= current);
        match (decided, failure) {
            (Some((replicas, metric)), _) => {
                let message = format!(
                    "the HPA was able to successfully calculate a replica count from {metric}"
                );
                conditions.set("ScalingActive", true, "ValidMetricFound", &message);
                Ok(Recommendation { replicas, metric })
            }
            (None, Some((failed, about))) => {
                let Failed {
                    reason,
                    cause,
                    error,
                } = failed;
                let message = format!("the HPA was unable to compute the replica count: {cause}");
                conditions.set("ScalingActive", false, reason, &message);
                Err(format!(
                    "invalid metrics ({failures} invalid out of {}), first error is: failed to \
                     get {about} value: {error}",
                    metrics.len()
                ))
            }
            (None, None) => Err("no metrics are given".to_owned()),
        }
    }

    /// What one metric of the resource metrics API proposes.
    async fn of_metric(
        &self,
        metric: &MetricSpec,
        scaled: &Scaled<'_>,
    ) -> Result<Proposed, Failed> {
        let proposed = self.of_resource(metric, scaled).await;
        let (proposal, name) = proposed.map_err(|(reason, cause)| Failed {
            reason,
            error: cause.clone(),
            cause,
        })?;
        let shown = status::of_metric(metric, &proposal);
        Ok((proposal.replicas, shown, name))
    }

    /// The number of pods that one metric proposes, and its name; or why there is none: reason and
    /// message.
    async fn of_resource(
        &self,
        metric: &MetricSpec,
        scaled: &Scaled<'_>,
    ) -> Result<(Proposal, String), (&'static str, String)> {
        let (resource, container, wanted, reason) =
            match (&metric.resource, &metric.container_resource) {
                (Some(source), _) => (
                    &source.name,
                    None,
                    &source.target,
                    "FailedGetResourceMetric",
                ),
                (_, Some(source)) => (
                    &source.name,
                    Some(source.container.as_str()),
                    &source.target,
                    "FailedGetContainerResourceMetric",
                ),
                _ => {
                    let message = format!("unknown metric source type {:?}", metric.type_);
                    return Err(("InvalidMetricSourceType", message));
                }
            };
        let (target, what) = target_of(wanted).ok_or_else(|| {
            let message = "invalid resource metric source: neither an average utilization target \
                           nor an average value (usage) target was set";
            (reason, message.to_owned())
        })?;
        let fails =
            |cause: &dyn Display| (reason, format!("failed to get {resource} {what}: {cause}"));
        let client = &self.config.client;
        let measures = metrics::fetch(
            client,
            scaled.namespace,
            scaled.selector,
            resource,
            container,
        )
        .await
        .map_err(|cause| {
            let cause = environment::chain(&cause);
            fails(&format!(
                "unable to get metrics for resource {resource}: {cause}"
            ))
        })?;
        let observed = Observed {
            current: scaled.replicas,
            pods: scaled.pods,
            measures,
            resource,
            container,
            now: scaled.now,
        };
        let proposal = plan::propose(observed, target, scaled.tolerance);
        let proposal = proposal.map_err(|cause| fails(&cause))?;
        let name = match (target, container) {
            (Target::Average(_), _) => format!("{resource} resource"),
            (_, None) => format!("{resource} resource utilization (percentage of request)"),
            (_, Some(_)) => {
                format!("{resource} container resource utilization (percentage of request)")
            }
        };
        Ok((proposal, name))
    }
}

/// A metric in the words of a message that it is not available.
fn about(metric: &MetricSpec) -> String {
    match (&metric.resource, &metric.container_resource) {
        (Some(source), _) => format!("{} resource metric", source.name),
        (_, Some(source)) => format!("{} container metric", source.container),
        _ => match (&metric.external, metric.type_.as_str()) {
            (Some(source), _) => format!("{} external metric", source.metric.name),
            (_, "Object") => "object metric".to_owned(),
            _ => "pods metric".to_owned(),
        },
    }
}

fn target_of(target: &MetricTarget) -> Option<(Target, &'static str)> {
    if let Some(average) = &target.average_value {
        return Some((Target::Average(plan::milli(&average.0)), "usage"));
    }
    let percent = target.average_utilization?;
    Some((Target::Utilization(percent), "utilization"))
}

/// A new autoscaler or another spec is looked at at once, our own status writes are not.
async fn enqueue_changed_specs(
    scalers: Informer<HorizontalPodAutoscaler>,
    queue: WorkQueue<ObjectKey>,
) {
    let mut changes = scalers.subscribe();
    loop {
        match changes.next().await {
            Change::Added(scaler) | Change::Deleted(scaler) => queue.add(ObjectKey::of(&*scaler)),
            Change::Modified { old, new } if old.spec != new.spec => {
                queue.add(ObjectKey::of(&*new));
            }
            Change::Modified { .. } | Change::Resynced => {}
        }
    }
}
