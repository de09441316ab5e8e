//! The command line: every flag is declared once, here, with its help.

mod apply;
mod connection;
mod delete;
mod describe;
mod get;
mod image;
mod logs;
mod resource;
mod snapshot;
mod trace;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// Kubernetes in one small binary.
#[derive(Parser)]
#[command(name = "coracle", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster in the background, or resume a stopped one
    Up(crate::up::UpArguments),
    /// Stop the cluster; its pods go on unless --delete removes every trace of it
    Down(crate::down::DownArguments),
    /// Run a server (control plane and node) in the foreground
    Server(crate::server::ServerArguments),
    /// Run a node that joins a server, in the foreground
    Agent(crate::agent::AgentArguments),
    /// Run the scheduler alone, for any Kubernetes API server
    Scheduler(crate::components::SchedulerArguments),
    /// Run the controllers alone, for any Kubernetes API server
    Controllers(crate::components::ControllersArguments),
    /// Make a ticket with which a node of another machine joins
    Invite(crate::ticket::InviteArguments),
    /// Keep a server running (started by `up`)
    #[command(hide = true)]
    Keeper(crate::keeper::KeeperArguments),
    /// Run the container runtime alone, for another kubelet or crictl
    Runtime(crate::runtime_command::RuntimeArguments),
    /// Create or change objects from files
    Apply(apply::ApplyArguments),
    /// Show objects
    Get(get::GetArguments),
    /// Show one object and its events in detail
    Describe(describe::DescribeArguments),
    /// Print a container's log
    Logs(logs::LogsArguments),
    /// Delete objects
    Delete(delete::DeleteArguments),
    /// Wait for a condition or for deletion
    Wait(wait::WaitArguments),
    /// Show a pod's life hop by hop, with times
    Trace(trace::TraceArguments),
    /// Simulate nodes and measure how fast pods are given to them
    Simulate(crate::simulate::SimulateArguments),
    /// Save all objects to a file, or make a store of such a file
    Snapshot(snapshot::SnapshotArguments),
    /// Import, pull, export, list, check and remove images
    Image(image::ImageArguments),
    #[command(hide = true)]
    Shim,
    #[command(hide = true)]
    Oci,
    #[command(hide = true)]
    Cni,
}

impl Command {
    /// Commands that print what a server says, and end when nobody reads it any more. Others go on:
    /// they change this machine, and must not stop half-way.
    pub fn only_asks(&self) -> bool {
        matches!(
            self,
            Command::Apply(_)
                | Command::Get(_)
                | Command::Describe(_)
                | Command::Logs(_)
                | Command::Delete(_)
                | Command::Wait(_)
                | Command::Trace(_)
        )
    }
}

/// Flags of every command that talks to a server.
#[derive(Args, Clone)]
pub struct ConnectionArguments {
    /// Kubeconfig to use [default: the files of $KUBECONFIG, else the data directory's]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Data directory whose kubeconfig to use
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Namespace [default: the kubeconfig's, else default]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

pub const DEFAULT_DATA_DIR: &str = "/var/lib/coracle";

pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Up(arguments) => crate::up::run(arguments),
        Command::Down(arguments) => crate::down::run(arguments),
        Command::Server(arguments) => crate::server::run(arguments),
        Command::Agent(arguments) => crate::agent::run(arguments),
        Command::Scheduler(arguments) => crate::components::run_scheduler(arguments),
        Command::Controllers(arguments) => crate::components::run_controllers(arguments),
        Command::Invite(arguments) => crate::ticket::invite(arguments),
        Command::Keeper(arguments) => crate::keeper::run(arguments),
        Command::Runtime(arguments) => crate::runtime_command::run(arguments),
        Command::Apply(arguments) => block_on(apply::run(arguments)),
        Command::Get(arguments) => block_on(get::run(arguments)),
        Command::Describe(arguments) => block_on(describe::run(arguments)),
        Command::Logs(arguments) => block_on(logs::run(arguments)),
        Command::Delete(arguments) => block_on(delete::run(arguments)),
        Command::Wait(arguments) => block_on(wait::run(arguments)),
        Command::Trace(arguments) => block_on(trace::run(arguments)),
        Command::Simulate(arguments) => crate::simulate::run(arguments),
        Command::Snapshot(arguments) => block_on(snapshot::run(arguments)),
        Command::Image(arguments) => image::run(arguments),
        // Handled before flags are parsed.
        Command::Shim | Command::Oci | Command::Cni => Ok(ExitCode::FAILURE),
    }
}

/// Runs a client command: one thread is enough.
pub fn block_on(future: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}
