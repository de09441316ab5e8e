//! Probes: one task per probe of a running container, which reports to the pod's worker whenever the
//! result changes. The worker decides what follows from a result.

mod check;
mod counts;
mod grpc;
mod tally;

use std::{sync::Arc, time::Duration};

use client::events::Severity;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio_util::sync::CancellationToken;

use self::check::ProbeOutcome;
use crate::events::Events;
pub use counts::ProbeCounts;
use tally::Tally;

const TRIES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Readiness => "Readiness",
            Kind::Liveness => "Liveness",
        }
    }

    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Kind::Startup => container.startup_probe.as_ref(),
            Kind::Readiness => container.readiness_probe.as_ref(),
            Kind::Liveness => container.liveness_probe.as_ref(),
        }
    }
}

/// A result that differs from the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    pub container_id: String,
    pub kind: Kind,
    pub passed: bool,
}

/// The container that a probe asks, and what it needs for that.
pub struct Target {
    pub pod: Arc<Pod>,
    pub container: Container,
    pub container_id: String,
    pub pod_ip: String,
    /// When the container started, and now, in microseconds: the initial delay counts from then.
    pub started_at: i64,
    pub now: i64,
    /// Whether the probe had passed before, as an earlier kubelet reported it.
    pub passed: bool,
}

/// Probes until cancelled. `report` is called with each result that changed.
pub async fn run(
    cri: cri::Client,
    events: Events,
    counts: Arc<ProbeCounts>,
    kind: Kind,
    target: Target,
    report: impl Fn(ProbeResult) + Send + 'static,
    stop: CancellationToken,
) {
    let Some(probe) = kind.of(&target.container).cloned() else {
        return;
    };
    let seconds = |value: Option<i32>, default: i32| {
        Duration::from_secs(value.filter(|value| *value > 0).unwrap_or(default) as u64)
    };
    let period = seconds(probe.period_seconds, 10);
    let timeout = seconds(probe.timeout_seconds, 1);
    let delay = Duration::from_secs(probe.initial_delay_seconds.unwrap_or(0).max(0) as u64);
    let age = Duration::from_micros((target.now - target.started_at).max(0) as u64);
    let mut tally = Tally::new(
        kind,
        target.passed,
        probe.success_threshold.unwrap_or(1),
        probe.failure_threshold.unwrap_or(3),
    );
    let mut ticks = tokio::time::interval_at(
        tokio::time::Instant::now() + delay.saturating_sub(age),
        period,
    );
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let outcome = tokio::select! {
            () = stop.cancelled() => return,
            outcome = with_tries(|| check::run(&cri, &probe, &target, timeout)) => outcome,
        };
        let good = outcome.succeeded();
        if let Some(good) = good {
            counts.count(&target.pod, &target.container.name, kind.word(), good);
        }
        if let Some((reason, message)) = event_of(kind, outcome) {
            let name = &target.container.name;
            events.container(&target.pod, name, Severity::Warning, reason, message);
        }
        if let Some(good) = good.and_then(|good| tally.count(good)) {
            report(ProbeResult {
                container_id: target.container_id.clone(),
                kind,
                passed: good,
            });
            let decided = kind == Kind::Startup || (kind == Kind::Liveness && !good);
            if decided {
                // Started is final, and a container that is to be killed is not probed again.
                return;
            }
        }
    }
}

/// A probe that could not be made is tried again at once, a few times. What then still is an error
/// says nothing about the container.
async fn with_tries<F: Future<Output = ProbeOutcome>>(check: impl Fn() -> F) -> ProbeOutcome {
    let mut outcome = check().await;
    for _ in 1..TRIES {
        if !matches!(outcome, ProbeOutcome::Error(_)) {
            break;
        }
        outcome = check().await;
    }
    outcome
}

/// The event about one result, if there is one.
fn event_of(kind: Kind, outcome: ProbeOutcome) -> Option<(&'static str, String)> {
    let kind = kind.word();
    match outcome {
        ProbeOutcome::Success => None,
        ProbeOutcome::Warning(output) => {
            Some(("ProbeWarning", format!("{kind} probe warning: {output}")))
        }
        ProbeOutcome::Failure(output) => {
            Some(("Unhealthy", format!("{kind} probe failed: {output}")))
        }
        ProbeOutcome::Error(why) => Some((
            "Unhealthy",
            format!("{kind} probe errored and resulted in unknown state: {why}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_probes_that_could_not_be_made_are_tried_again() {
        let check = async |outcomes: &[ProbeOutcome], expected: (usize, Option<bool>)| {
            let made = std::cell::Cell::new(0);
            let outcome = with_tries(|| {
                let outcome = outcomes[made.get()].clone();
                made.set(made.get() + 1);
                std::future::ready(outcome)
            });
            let good = outcome.await.succeeded();
            assert_eq!((made.get(), good), expected);
        };
        let error = ProbeOutcome::Error("no runtime".to_owned());
        let bad = ProbeOutcome::Failure("no".to_owned());
        check(&[ProbeOutcome::Success], (1, Some(true))).await;
        check(std::slice::from_ref(&bad), (1, Some(false))).await;
        check(&[error.clone(), bad], (2, Some(false))).await;
        check(&[error.clone(), error.clone(), error], (3, None)).await;
    }

    #[test]
    fn results_are_reported_with_upstreams_messages() {
        let check = |outcome: ProbeOutcome, expected: Option<(&str, &str)>| {
            let found = event_of(Kind::Liveness, outcome);
            let found = found
                .as_ref()
                .map(|(reason, message)| (*reason, message.as_str()));
            assert_eq!(found, expected);
        };
        check(ProbeOutcome::Success, None);
        check(
            ProbeOutcome::Failure("HTTP probe failed with statuscode: 500".to_owned()),
            Some((
                "Unhealthy",
                "Liveness probe failed: HTTP probe failed with statuscode: 500",
            )),
        );
        check(
            ProbeOutcome::Warning("gone".to_owned()),
            Some(("ProbeWarning", "Liveness probe warning: gone")),
        );
        check(
            ProbeOutcome::Error("no such port".to_owned()),
            Some((
                "Unhealthy",
                "Liveness probe errored and resulted in unknown state: no such port",
            )),
        );
    }
}
