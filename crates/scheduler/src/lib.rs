//! The scheduler: gives every waiting pod a node (hops 6 to 8).
//!
//! One loop owns the queue and the snapshot and decides one pod at a time; bindings and status
//! writes go on beside it. It reads and writes only through the API.

pub mod framework;
pub mod plugins;
pub mod volumes;

mod affinity_terms;
mod control;
mod counts;
mod cycle;
mod decide;
mod decisions;
mod node_info;
mod node_table;
mod pod_info;
mod preempt;
mod queue;
mod resources;
mod selecting;
mod shapes;
mod snapshot;
mod spread_constraints;
mod storage_feed;
mod workload_selectors;
mod writes;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod oracle;

use client::Informers;
use environment::Environment;
use tokio_util::sync::CancellationToken;

pub use affinity_terms::{AffinityTerms, Term};
pub use counts::{Count, Effect, Held, Question};
pub use decide::{NodeVerdict, Outcome, Verdict};
pub use decisions::{DecisionRecord, Decisions};
pub use node_info::NodeInfo;
pub use pod_info::PodInfo;
pub use resources::Resources;
pub use snapshot::Snapshot;
pub use spread_constraints::SpreadConstraint;
pub use workload_selectors::WorkloadSelectors;

/// The scheduler's name in `spec.schedulerName`; pods that name another are left alone.
pub const SCHEDULER_NAME: &str = "default-scheduler";

/// Runs the scheduler until `shutdown`.
pub async fn run(
    client: kube::Client,
    informers: Informers,
    environment: Environment,
    recorder: trace::Recorder,
    shutdown: CancellationToken,
) {
    let decisions = Decisions::default();
    run_recording(
        client,
        informers,
        environment,
        recorder,
        decisions,
        shutdown,
    )
    .await;
}

/// As [`run`], with the caller's handle on the latest decisions.
pub async fn run_recording(
    client: kube::Client,
    informers: Informers,
    environment: Environment,
    recorder: trace::Recorder,
    decisions: Decisions,
    shutdown: CancellationToken,
) {
    control::Scheduler::new(client, &informers, environment, recorder, decisions)
        .run(shutdown)
        .await;
}
