//! How many pods there should be, from what the present ones use. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use semantics::pod::sidecars;
use semantics::pod_resources::{self, Counted, may_be_pod_level};
use thiserror::Error;

/// A young pod's CPU counts only when it is ready, and for a whole window of measurement.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);
/// How soon after its start a pod may first become ready.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// The usage of one pod in thousandths, averaged over `window` up to `at`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    pub milli: i64,
    pub at: Timestamp,
    pub window: SignedDuration,
}

/// The usage that pods should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Percent of what it requests.
    Utilization(i32),
    /// Thousandths.
    Average(i64),
}

/// By how much the ratio may miss 1 without a reaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    pub down: f64,
    pub up: f64,
}

impl Tolerance {
    pub fn covers(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    pub replicas: i32,
    /// Percent of the request, when that is the target.
    pub utilization: Option<i32>,
    /// Thousandths per pod.
    pub average: i64,
}

pub struct Observed<'a> {
    pub current: i32,
    pub pods: &'a [Arc<Pod>],
    /// By pod name.
    pub measures: BTreeMap<String, Measure>,
    pub resource: &'a str,
    pub container: Option<&'a str>,
    pub now: Timestamp,
}

/// Why a metric proposes no number of pods. The messages are parts of conditions and Events.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ProposalError {
    #[error("no pods returned by selector while calculating replica count")]
    PodsMissing,
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    MetricsMissing,
    #[error("no metrics returned matched known pods")]
    RequestsUnknown,
    #[error("container {container} not found in Pod {pod}")]
    ContainerNotFound { container: String, pod: String },
    #[error("missing pod-level request for {resource} in Pod {pod}")]
    PodRequestMissing { resource: String, pod: String },
    #[error("missing request for {resource} in container {container} of Pod {pod}")]
    ContainerRequestMissing {
        resource: String,
        container: String,
        pod: String,
    },
}

pub fn propose(
    observed: Observed<'_>,
    target: Target,
    tolerance: Tolerance,
) -> Result<Proposal, ProposalError> {
    if observed.pods.is_empty() {
        return Err(ProposalError::PodsMissing);
    }
    let groups = Groups::of(&observed);
    let mut used: BTreeMap<String, i64> = observed
        .measures
        .iter()
        .filter(|(name, _)| !groups.ignored.contains(*name) && !groups.unready.contains(*name))
        .map(|(name, measure)| (name.clone(), measure.milli))
        .collect();
    if used.is_empty() {
        return Err(ProposalError::MetricsMissing);
    }
    let requests = match target {
        Target::Utilization(_) => requests(&observed)?,
        Target::Average(_) => BTreeMap::new(),
    };
    let first = ratio(&used, &requests, target)?;
    let proposal = |replicas| Proposal {
        replicas,
        utilization: first.utilization,
        average: first.average,
    };
    let up_with_unready = !groups.unready.is_empty() && first.ratio > 1.0;
    if !up_with_unready && groups.missing.is_empty() {
        if tolerance.covers(first.ratio) {
            return Ok(proposal(observed.current));
        }
        return Ok(proposal(
            (first.ratio * f64::from(groups.ready)).ceil() as i32
        ));
    }
    // Pods without metrics are assumed to speak against a change.
    for name in &groups.missing {
        let assumed = match target {
            _ if first.ratio > 1.0 => 0,
            _ if first.ratio == 1.0 => continue,
            Target::Average(average) => average,
            Target::Utilization(percent) => {
                let request = requests.get(name).copied().unwrap_or(0);
                request.saturating_mul(percent.max(100).into()) / 100
            }
        };
        used.insert(name.clone(), assumed);
    }
    if up_with_unready {
        let unready = groups.unready.iter().map(|name| (name.clone(), 0));
        used.extend(unready);
    }
    let second = ratio(&used, &requests, target)?.ratio;
    let turned = first.ratio < 1.0 && second > 1.0 || first.ratio > 1.0 && second < 1.0;
    if tolerance.covers(second) || turned {
        return Ok(proposal(observed.current));
    }
    let replicas = (second * used.len() as f64).ceil() as i32;
    let against =
        second < 1.0 && replicas > observed.current || second > 1.0 && replicas < observed.current;
    Ok(proposal(if against { observed.current } else { replicas }))
}

struct Groups {
    ready: i32,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl Groups {
    fn of(observed: &Observed<'_>) -> Groups {
        let mut groups = Groups {
            ready: 0,
            unready: BTreeSet::new(),
            missing: BTreeSet::new(),
            ignored: BTreeSet::new(),
        };
        for pod in observed.pods {
            let name = pod.metadata.name.clone().unwrap_or_default();
            if pod.metadata.deletion_timestamp.is_some() || semantics::pod::phase(pod) == "Failed" {
                groups.ignored.insert(name);
            } else if semantics::pod::phase(pod) == "Pending" {
                groups.unready.insert(name);
            } else if let Some(measure) = observed.measures.get(&name) {
                if observed.resource == "cpu" && is_starting(pod, measure, observed.now) {
                    groups.unready.insert(name);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name);
            }
        }
        groups
    }
}

fn is_starting(pod: &Pod, measure: &Measure, now: Timestamp) -> bool {
    let Some(status) = &pod.status else {
        return true;
    };
    let conditions = status.conditions.iter().flatten();
    let ready = conditions.into_iter().find(|one| one.type_ == "Ready");
    let (Some(ready), Some(started)) = (ready, &status.start_time) else {
        return true;
    };
    let changed = ready.last_transition_time.as_ref();
    let changed = changed.map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let not_ready = ready.status == "False";
    if started.0 + CPU_INITIALIZATION > now {
        not_ready || measure.at < changed + measure.window
    } else {
        not_ready && started.0 + INITIAL_READINESS > changed
    }
}

struct Ratio {
    ratio: f64,
    utilization: Option<i32>,
    average: i64,
}

fn ratio(
    used: &BTreeMap<String, i64>,
    requests: &BTreeMap<String, i64>,
    target: Target,
) -> Result<Ratio, ProposalError> {
    let count = used.len().max(1) as i64;
    match target {
        Target::Average(wanted) => {
            let average = used.values().sum::<i64>() / count;
            Ok(Ratio {
                ratio: average as f64 / wanted.max(1) as f64,
                utilization: None,
                average,
            })
        }
        Target::Utilization(wanted) => {
            let known = used.iter().filter(|(name, _)| requests.contains_key(*name));
            let total: i64 = known.clone().map(|(_, milli)| milli).sum();
            let requested: i64 = known
                .clone()
                .filter_map(|(name, _)| requests.get(name))
                .sum();
            if requested == 0 {
                return Err(ProposalError::RequestsUnknown);
            }
            let utilization = (total.saturating_mul(100) / requested) as i32;
            Ok(Ratio {
                ratio: f64::from(utilization) / f64::from(wanted.max(1)),
                utilization: Some(utilization),
                average: total / (known.count().max(1) as i64),
            })
        }
    }
}

fn requests(observed: &Observed<'_>) -> Result<BTreeMap<String, i64>, ProposalError> {
    let mut requests = BTreeMap::new();
    for pod in observed.pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let request = request(pod, observed.resource, observed.container)?;
        requests.insert(name, request);
    }
    Ok(requests)
}

fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i64, ProposalError> {
    let name = || pod.metadata.name.clone().unwrap_or_default();
    let Some(spec) = &pod.spec else {
        return Ok(0);
    };
    if container.is_none() && states_own_requests(spec) {
        return pod_resources::requests(spec, Counted::Spec)
            .get(resource)
            .map(Quantity::milli)
            .ok_or_else(|| ProposalError::PodRequestMissing {
                resource: resource.to_owned(),
                pod: name(),
            });
    }
    let counted: Vec<&Container> = spec
        .containers
        .iter()
        .chain(sidecars(spec))
        .filter(|one| container.is_none_or(|wanted| one.name == wanted))
        .collect();
    if let (Some(wanted), true) = (container, counted.is_empty()) {
        let container = wanted.to_owned();
        return Err(ProposalError::ContainerNotFound {
            container,
            pod: name(),
        });
    }
    let mut total = 0;
    for container in counted {
        let resources = container.resources.as_ref();
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        let Some(request) = requests.and_then(|requests| requests.get(resource)) else {
            return Err(ProposalError::ContainerRequestMissing {
                resource: resource.to_owned(),
                container: container.name.clone(),
                pod: name(),
            });
        };
        total += milli(&request.0);
    }
    Ok(total)
}

/// Whether the pod has requests as a whole. Its containers then speak only for what these leave
/// open, and need not all do so.
fn states_own_requests(spec: &PodSpec) -> bool {
    let own = spec.resources.as_ref();
    let own = own.and_then(|resources| resources.requests.as_ref());
    own.is_some_and(|own| own.keys().any(|name| may_be_pod_level(name)))
}

/// In thousandths; what is no quantity counts as nothing.
pub fn milli(quantity: &str) -> i64 {
    Quantity::parse(quantity).map_or(0, Quantity::milli)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, phase: &str) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": name},
                "spec": {"containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z", "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}]},
            }))
            .unwrap(),
        )
    }

    fn check(pods: &[Arc<Pod>], milli: &[(&str, i64)], target: Target, expected: i32) {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let window = SignedDuration::from_secs(30);
        let measures = milli.iter().map(|(name, milli)| {
            let measure = Measure {
                milli: *milli,
                at: now,
                window,
            };
            (name.to_string(), measure)
        });
        let observed = Observed {
            current: pods.len() as i32,
            pods,
            measures: measures.collect(),
            resource: "cpu",
            container: None,
            now,
        };
        let tolerance = Tolerance { down: 0.1, up: 0.1 };
        let proposal = propose(observed, target, tolerance).unwrap();
        assert_eq!(proposal.replicas, expected, "{milli:?} {target:?}");
    }

    #[test]
    fn usage_above_or_below_the_target_changes_the_number_of_pods() {
        let pods = [pod("a", "Running"), pod("b", "Running")];
        let half = Target::Utilization(50);
        check(&pods, &[("a", 500), ("b", 500)], half, 2);
        check(&pods, &[("a", 520), ("b", 540)], half, 2);
        check(&pods, &[("a", 1000), ("b", 1000)], half, 4);
        check(&pods, &[("a", 100), ("b", 100)], half, 1);
        check(&pods, &[("a", 900), ("b", 900)], Target::Average(300), 6);
    }

    #[test]
    fn pods_without_metrics_dampen_the_change() {
        let pods = [pod("a", "Running"), pod("b", "Running")];
        // Scaling down, the unmeasured pod is taken to use what it requests.
        check(&pods, &[("a", 100)], Target::Utilization(50), 2);
        // Scaling up, it is taken to use nothing.
        check(&pods, &[("a", 1500)], Target::Utilization(50), 3);
        let starting = [pod("a", "Running"), pod("b", "Pending")];
        check(&starting, &[("a", 900)], Target::Utilization(50), 2);
    }

    #[test]
    fn a_request_of_the_whole_pod_goes_before_its_containers() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a"},
            "spec": {
                "resources": {"requests": {"cpu": "2"}},
                "overhead": {"cpu": "100m"},
                "initContainers": [
                    {"name": "side", "restartPolicy": "Always",
                        "resources": {"requests": {"memory": "3"}}},
                    {"name": "init", "resources": {"requests": {"memory": "9"}}},
                ],
                "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "4"}}},
                    {"name": "d"},
                ],
            },
        }))
        .unwrap();
        assert_eq!(request(&pod, "cpu", None), Ok(2100));
        assert_eq!(request(&pod, "memory", None), Ok(12_000));
        assert_eq!(request(&pod, "cpu", Some("c")), Ok(1000));
        let failure = |resource, container| {
            let failure = request(&pod, resource, container).err();
            failure.map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(
            failure("cpu", Some("d")),
            "missing request for cpu in container d of Pod a"
        );
        assert_eq!(
            failure("gpu", None),
            "missing pod-level request for gpu in Pod a"
        );
    }
}
