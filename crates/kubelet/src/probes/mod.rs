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

use self::check::Outcome;
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

/// What one probe is asked of.
pub struct Target {
    pub pod: Arc<Pod>,
    pub container: Container,
    pub container_id: String,
    pub pod_ip: String,
    /// When the container started, and now, in microseconds: the initial delay counts from then.
    pub started_at: i64,
    pub now: i64,
    /// What was known of it before this probe began, where an earlier kubelet told it.
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
        let good = outcome.is_good();
        if let Some(good) = good {
            counts.count(&target.pod, &target.container.name, kind.word(), good);
        }
        if let Some((reason, message)) = told(kind, outcome) {
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
                // Started is for good, and a condemned container gets no second opinion.
                return;
            }
        }
    }
}

/// A probe that could not be made is tried again at once, a few times. What then still is an error
/// says nothing about the container.
async fn with_tries<F: Future<Output = Outcome>>(check: impl Fn() -> F) -> Outcome {
    let mut outcome = check().await;
    for _ in 1..TRIES {
        if !matches!(outcome, Outcome::Error(_)) {
            break;
        }
        outcome = check().await;
    }
    outcome
}

/// The event about one result, if there is anything to tell.
fn told(kind: Kind, outcome: Outcome) -> Option<(&'static str, String)> {
    let kind = kind.word();
    match outcome {
        Outcome::Good => None,
        Outcome::Warning(output) => {
            Some(("ProbeWarning", format!("{kind} probe warning: {output}")))
        }
        Outcome::Bad(output) => Some(("Unhealthy", format!("{kind} probe failed: {output}"))),
        Outcome::Error(why) => Some((
            "Unhealthy",
            format!("{kind} probe errored and resulted in unknown state: {why}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_could_not_be_probed_is_tried_again() {
        let check = async |outcomes: &[Outcome], expected: (usize, Option<bool>)| {
            let made = std::cell::Cell::new(0);
            let outcome = with_tries(|| {
                let outcome = outcomes[made.get()].clone();
                made.set(made.get() + 1);
                std::future::ready(outcome)
            });
            let good = outcome.await.is_good();
            assert_eq!((made.get(), good), expected);
        };
        let error = Outcome::Error("no runtime".to_owned());
        let bad = Outcome::Bad("no".to_owned());
        check(&[Outcome::Good], (1, Some(true))).await;
        check(std::slice::from_ref(&bad), (1, Some(false))).await;
        check(&[error.clone(), bad], (2, Some(false))).await;
        check(&[error.clone(), error.clone(), error], (3, None)).await;
    }

    #[test]
    fn results_are_told_in_upstreams_words() {
        let check = |outcome: Outcome, expected: Option<(&str, &str)>| {
            let found = told(Kind::Liveness, outcome);
            let found = found
                .as_ref()
                .map(|(reason, message)| (*reason, message.as_str()));
            assert_eq!(found, expected);
        };
        check(Outcome::Good, None);
        check(
            Outcome::Bad("HTTP probe failed with statuscode: 500".to_owned()),
            Some((
                "Unhealthy",
                "Liveness probe failed: HTTP probe failed with statuscode: 500",
            )),
        );
        check(
            Outcome::Warning("gone".to_owned()),
            Some(("ProbeWarning", "Liveness probe warning: gone")),
        );
        check(
            Outcome::Error("no such port".to_owned()),
            Some((
                "Unhealthy",
                "Liveness probe errored and resulted in unknown state: no such port",
            )),
        );
    }
}
