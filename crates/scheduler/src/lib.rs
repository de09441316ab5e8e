//! The scheduler: gives every waiting pod a node (hops 6 to 8).
//!
//! One loop owns the queue and the snapshot and decides one pod at a time; bindings and status
//! writes go on outside it. It reads and writes only through the API.

pub mod configuration;
pub mod framework;
pub mod plugins;
pub mod volumes;

mod affinity_terms;
mod control;
mod counts;
mod cycle;
mod decide;
mod decision;
mod decisions;
mod disruption_budget;
mod node_info;
mod node_table;
mod pod_info;
mod preempt;
mod profile;
mod queue;
mod registry;
mod resources;
mod shapes;
mod snapshot;
mod spread_constraints;
mod storage_feed;
mod waiting;
mod workload_selectors;
mod writes;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod oracle;

use client::Informers;
use configuration::Configuration;
use environment::Environment;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub use affinity_terms::{AffinityTerms, Term};
pub use counts::{Count, Effect, HeldTerm, Question};
pub use decision::{NodeFit, NodeResult, SchedulingResult};
pub use decisions::{DecisionRecord, Decisions};
pub use disruption_budget::Budget;
pub use node_info::NodeInfo;
pub use pod_info::PodInfo;
pub use profile::{Framework, ProfileError};
pub use registry::{Made, Registry};
pub use resources::Resources;
pub use snapshot::Snapshot;
pub use spread_constraints::SpreadConstraint;
pub use waiting::WaitingPods;
pub use workload_selectors::WorkloadSelectors;

/// The scheduler's name in `spec.schedulerName`; pods that name another are left alone.
pub const SCHEDULER_NAME: &str = "default-scheduler";

/// A scheduler with everything that it needs.
pub struct Scheduler {
    pub client: kube::Client,
    pub informers: Informers,
    pub environment: Environment,
    pub recorder: trace::Recorder,
    pub configuration: Configuration,
    /// Where the latest decisions are left.
    pub decisions: Decisions,
    /// Through which plugins permit what they have held back.
    pub waiting: WaitingPods,
}

impl Scheduler {
    /// With upstream's defaults.
    pub fn new(
        client: kube::Client,
        informers: Informers,
        environment: Environment,
        recorder: trace::Recorder,
    ) -> Scheduler {
        Scheduler {
            client,
            informers,
            environment,
            recorder,
            configuration: Configuration::default(),
            decisions: Decisions::default(),
            waiting: WaitingPods::default(),
        }
    }

    /// Runs the scheduler until `shutdown`.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, Result<(), ProfileError>> {
        self.run_with(|_| {}, shutdown)
    }

    /// As [`Scheduler::run`], with plugins of one's own.
    pub fn run_with(
        self,
        add: impl FnOnce(&mut Registry) + Send + 'static,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, Result<(), ProfileError>> {
        // Boxed, so that it is compiled here, for speed: the body of an async function is compiled
        // where it is awaited.
        let run = |control: control::Control| -> BoxFuture<'static, ()> {
            Box::pin(control.run(shutdown))
        };
        Box::pin(async move {
            run(control::Control::new(self, add)?).await;
            Ok(())
        })
    }
}

/// Whether the profiles can be put together from the plugins that come with the scheduler.
pub fn check(configuration: &Configuration) -> Result<(), ProfileError> {
    let binder = std::sync::Arc::new(plugins::default_binder::NeverBinds);
    let registry = Registry::in_tree(binder, None, None);
    for profile in &configuration.profiles {
        Framework::new(profile, &registry)?;
    }
    Ok(())
}

/// Runs the scheduler until `shutdown`, with upstream's defaults.
pub async fn run(
    client: kube::Client,
    informers: Informers,
    environment: Environment,
    recorder: trace::Recorder,
    shutdown: CancellationToken,
) {
    let scheduler = Scheduler::new(client, informers, environment, recorder);
    if let Err(error) = scheduler.run(shutdown).await {
        tracing::error!(error = %environment::chain(&error), "the scheduler cannot run");
    }
}
