//! `coracle simulate`: simulated nodes that run no containers, for capacity planning and for
//! measuring a scheduler. It uses a temporary cluster, or the cluster of a kubeconfig.
//!
//! 1. Nodes register and renew their leases; all pods are created while no scheduler runs.
//! 2. The scheduler starts; one watcher counts the bindings as they appear.
//! 3. The nodes report their pods as running, and everything is deleted.

mod cluster;
mod names;
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
    /// Number of nodes to simulate
    #[arg(long, value_name = "N", default_value_t = 100)]
    nodes: usize,
    /// Number of pods to schedule
    #[arg(long, value_name = "M", default_value_t = 1000)]
    pods: usize,
    /// Kubeconfig of the cluster to use [default: a temporary cluster]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kind of pods to schedule
    #[arg(long, value_enum, default_value_t = Workload::Plain)]
    workload: Workload,
    /// When the nodes report their pods as running
    #[arg(long, value_enum, default_value_t = Report::Afterwards)]
    report: Report,
    /// Parent directory of the temporary cluster's data [default: the system's temporary directory]
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    directory: Option<PathBuf>,
    /// Keep the simulated nodes running until interrupted
    #[arg(long)]
    stay: bool,
    /// Give up when no pod was bound for this time, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = crate::flags::duration)]
    patience: Duration,
}

/// When the simulated nodes write the status of their pods.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Report {
    /// After the last binding, so that only the scheduler is measured
    Afterwards,
    /// As soon as a pod is bound
    AtOnce,
}

/// The largest number of nodes and of pods.
const MOST: usize = 1_000_000;

pub fn run(arguments: SimulateArguments) -> Result<ExitCode> {
    if arguments.nodes == 0 || arguments.pods == 0 || arguments.nodes.max(arguments.pods) > MOST {
        bail!("--nodes and --pods must be between 1 and {MOST}");
    }
    arguments.workload.check(arguments.nodes, arguments.pods)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let stop = CancellationToken::new();
        let signals = stop.clone();
        tokio::spawn(async move {
            if crate::process::wait_for_shutdown(&signals).await.is_ok() {
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
        print_line!("{}", result?);
        return Ok(());
    };
    let result = tokio::select! {
        biased;
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted")),
        result = measure(arguments, kubeconfig, None, stop) => result,
    };
    let requests = Requests::open(kubeconfig).await?;
    let cleaned = nodes::remove_all(&requests, arguments.nodes).await;
    print_line!("{}", result?);
    cleaned
}

/// Runs the simulation. Returns its summary line.
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
    let has_others = nodes::has_nodes(&requests).await?;
    let nodes = Nodes::register(&requests, arguments.nodes, &environment).await?;
    let registered = environment.now_micros();
    print_line!(
        "Registered {} nodes in {:.1} s.",
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
    print_line!(
        "Created {} pods in {:.1} s{}.",
        arguments.pods,
        seconds(registered, created),
        match fillers {
            0 => String::new(),
            fillers => format!("; the nodes already run {fillers} others"),
        }
    );
    match own.as_deref_mut() {
        Some(own) => own.restart_with_scheduler().await?,
        None => print_line!("The pods wait for a scheduler."),
    }
    let patience = arguments.patience;
    let bound = watcher.wait_for(arguments.pods, patience).await?;
    let summary = bound
        .summary(arguments.nodes)
        .context("the scheduler bound no pod")?;
    print_line!("{}", bound.by_second());
    watcher.report_all();
    watcher.wait_until_running(patience).await?;
    print_line!("All {} pods are running.", arguments.pods);
    if arguments.stay {
        print_line!(
            "{summary}\nThe nodes keep running until this command is interrupted. Kubeconfig: {}",
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
