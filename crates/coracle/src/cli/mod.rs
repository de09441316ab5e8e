//! The command line: all commands, and those that are clients of an API server.

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

use crate::layout::DEFAULT_DATA_DIR;
use crate::process::block_on;

/// Kubernetes in one binary
#[derive(Parser)]
#[command(name = "coracle", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a cluster in the background, or a stopped cluster again
    Up(crate::up::UpArguments),
    /// Stop a cluster; its pods keep running unless --delete is given
    Down(crate::down::DownArguments),
    /// Run a server in the foreground: the control plane and a node
    Server(crate::server::ServerArguments),
    /// Run a node in the foreground and join it to a server on another machine
    Agent(crate::agent::AgentArguments),
    /// Run only the scheduler, for any Kubernetes API server
    Scheduler(crate::components::SchedulerArguments),
    /// Run only the controllers, for any Kubernetes API server
    Controllers(crate::components::ControllersArguments),
    /// Create a ticket with which a node on another machine joins, or remove such a node
    Invite(crate::ticket::InviteArguments),
    /// Keep a server running (started by `up`)
    #[command(hide = true)]
    Keeper(crate::keeper::KeeperArguments),
    /// Run only the container runtime, for another kubelet or crictl
    Runtime(crate::runtime_command::RuntimeArguments),
    /// Create or update the objects in files
    Apply(apply::ApplyArguments),
    /// List objects, or show them as YAML or JSON
    Get(get::GetArguments),
    /// Show one object and its events in detail
    Describe(describe::DescribeArguments),
    /// Print the logs of a container
    Logs(logs::LogsArguments),
    /// Delete objects
    Delete(delete::DeleteArguments),
    /// Wait until objects meet a condition or are deleted
    Wait(wait::WaitArguments),
    /// Show the life of a pod as a timeline, hop by hop
    Trace(trace::TraceArguments),
    /// Simulate nodes and measure how fast a scheduler binds pods to them
    Simulate(crate::simulate::SimulateArguments),
    /// Save all objects to a file, or restore them from one
    Snapshot(snapshot::SnapshotArguments),
    /// Import, pull, export, list, verify and remove images
    Image(image::ImageArguments),
    #[command(hide = true)]
    Shim,
    #[command(hide = true)]
    Oci,
    #[command(hide = true)]
    Cni,
}

impl Command {
    /// Whether the command only talks to an API server. Such a command ends when its output is closed:
    /// nobody reads it any more. Other commands change this machine and must not stop half-way.
    pub fn is_client_command(&self) -> bool {
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

/// The flags of every command that talks to an API server.
#[derive(Args, Clone)]
pub struct ConnectionArguments {
    /// Kubeconfig to use [default: the files in $KUBECONFIG, or else the one in the data directory]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Data directory whose kubeconfig to use
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Namespace [default: the namespace of the kubeconfig's context, or else "default"]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
}

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
        // `main` runs these before it parses flags.
        Command::Shim | Command::Oci | Command::Cni => Ok(ExitCode::FAILURE),
    }
}
