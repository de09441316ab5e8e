//! `coracle simulate`: nodes that only pretend to run pods, for capacity planning and for measuring
//! a scheduler. Works on a cluster of its own, which is gone afterwards, or on any other.
//!
//! 1. Nodes register and keep their leases; all pods are created while no scheduler runs.
//! 2. The scheduler starts; one watcher counts the bindings as they appear.
//! 3. The nodes report their pods as running, and everything is removed.

mod cluster;
mod nodes;
mod pace;
mod requests;
mod watcher;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use environment::Environment;
use tokio_util::sync::CancellationToken;

use cluster::OwnCluster;
use nodes::Nodes;
use requests::Requests;
use workload::Workload;

#[derive(Args)]
pub struct SimulateArguments {
    /// How many nodes to simulate
    #[arg(long, value_name = "N", default_value_t = 100)]
    nodes: usize,
    /// How many pods to schedule
    #[arg(long, value_name = "M", default_value_t = 1000)]
    pods: usize,
    /// Cluster to work on [default: one of its own, removed at the end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// What the pods ask for
    #[arg(long, value_enum, default_value_t = Workload::Plain)]
    workload: Workload,
    /// When nodes report their pods as running
    #[arg(long, value_enum, default_value_t = Report::Afterwards)]
    report: Report,
    /// Where the cluster of its own lies [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    directory: Option<PathBuf>,
    /// Keep the nodes alive until interrupted
    #[arg(long)]
    stay: bool,
    /// Give up when no pod was bound for so long, e.g. 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::flags::duration)]
    patience: Duration,
}

/// When the simulated nodes write the status of pods that they were given.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Report {
    /// After the last binding, so that it is the scheduler that is measured
    Afterwards,
    /// As soon as they are bound
    AtOnce,
}

/// More would be accepted, but nobody has waited for the end of it.
const MOST: usize = 1_000_000;

pub fn run(arguments: SimulateArguments) -> Result<ExitCode> {
    if arguments.nodes == 0 || arguments.pods == 0 || arguments.nodes.max(arguments.pods) > MOST {
        bail!("--nodes and --pods must lie between 1 and {MOST}");
    }
    arguments.workload.check(arguments.nodes, arguments.pods)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let stop = CancellationToken::new();
        let signals = stop.clone();
        tokio::spawn(async move {
            if crate::server::wait_for_shutdown(&signals).await.is_ok() {
                signals.cancel();
            }
        });
        simulate(&arguments, &stop).await
    });
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

async fn simulate(arguments: &SimulateArguments, stop: &CancellationToken) -> Result<()> {
    let Some(kubeconfig) = &arguments.kubeconfig else {
        let mut own = OwnCluster::start(arguments.directory.as_deref()).await?;
        let kubeconfig = own.kubeconfig();
        let result = tokio::select! {
            biased;
            () = stop.cancelled() => Err(anyhow::anyhow!("interrupted")),
            result = measure(arguments, &kubeconfig, Some(&mut own), stop) => result,
        };
        own.remove()?;
        tell!("{}", result?);
        return Ok(());
    };
    let result = tokio::select! {
        biased;
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted")),
        result = measure(arguments, kubeconfig, None, stop) => result,
    };
    let requests = Requests::open(kubeconfig).await?;
    let cleaned = nodes::remove_all(&requests, arguments.nodes).await;
    tell!("{}", result?);
    cleaned
}

/// Runs the simulation; the line that sums it up.
async fn measure(
    arguments: &SimulateArguments,
    kubeconfig: &std::path::Path,
    mut own: Option<&mut OwnCluster>,
    stop: &CancellationToken,
) -> Result<String> {
    let environment = Environment::system();
    let requests = Requests::open(kubeconfig).await?;
    let started = environment.now_micros();
    workload::prepare(&requests).await?;
    let has_others = nodes::are_there(&requests).await?;
    let nodes = Nodes::register(&requests, arguments.nodes, &environment).await?;
    let registered = environment.now_micros();
    tell!(
        "{} nodes registered in {:.1} s",
        arguments.nodes,
        seconds(started, registered)
    );
    let fillers = arguments
        .workload
        .create_fillers(&requests, arguments.nodes)
        .await?;
    let mut watcher = watcher::Watcher::start(&requests, &nodes, arguments.report).await?;
    arguments
        .workload
        .create(&requests, arguments.nodes, arguments.pods, has_others)
        .await?;
    let created = environment.now_micros();
    tell!(
        "{} pods created in {:.1} s{}",
        arguments.pods,
        seconds(registered, created),
        match fillers {
            0 => String::new(),
            fillers => format!(", on nodes that run {fillers} others"),
        }
    );
    match own.as_deref_mut() {
        Some(own) => own.restart_with_scheduler().await?,
        None => tell!("pods wait for a scheduler"),
    }
    let patience = arguments.patience;
    let bound = watcher.wait_for(arguments.pods, patience).await?;
    let summary = bound.summary(arguments.nodes).context("no pod was bound")?;
    tell!("{}", bound.by_second());
    watcher.report_all();
    watcher.wait_until_running(patience).await?;
    tell!("{} pods run", arguments.pods);
    if arguments.stay {
        tell!(
            "{summary}\nstaying until interrupted; KUBECONFIG={}",
            kubeconfig.display()
        );
        stop.cancelled().await;
    }
    if let Some(own) = own {
        own.check()?;
    }
    Ok(summary)
}

fn seconds(from_micros: i64, to_micros: i64) -> f64 {
    (to_micros - from_micros) as f64 / 1e6
}
