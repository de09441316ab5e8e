//! `coracle up`: prepare the data directory, start a keeper in the background, and return as soon
//! as a pod could be applied.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use environment::Environment;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};

use crate::cli::{DEFAULT_DATA_DIR, block_on};
use crate::keeper;
use crate::layout::{Layout, Settings, write_private};
use crate::server::{self, ClusterArguments, Prepared};

/// A start that takes longer than this has gone wrong.
const START_LIMIT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct UpArguments {
    /// Where the cluster keeps its data
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Also write the kubeconfig there
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub fn run(arguments: UpArguments) -> Result<ExitCode> {
    let environment = Environment::system();
    let started = environment.now_micros();
    let layout = Layout::create(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    let already = keeper::running(&layout)?.is_some();
    let prepared = server::prepare(&layout, &arguments.cluster, &environment)?;
    for note in &prepared.notes {
        println!("{note}");
    }
    let mut keeper = match already {
        true => None,
        false => Some(start_keeper(&layout, &prepared, &arguments.cluster)?),
    };
    if let Some(file) = &arguments.kubeconfig {
        write_private(file, &std::fs::read(layout.kubeconfig())?)?;
    }
    let cluster = &arguments.cluster;
    let wanted = (cluster.enabled("controllers"), cluster.enabled("node"));
    block_on(async {
        let ready = wait_until_usable(&layout, &prepared.settings, wanted);
        tokio::select! {
            result = tokio::time::timeout(START_LIMIT, ready) => {
                result.context("the cluster did not become ready in time")
                    .and_then(|result| result)
                    .with_context(|| format!("see {}", layout.server_log().display()))?;
            }
            status = keeper_end(&mut keeper) => {
                bail!("the server ended while starting ({status})\n{}", log_tail(&layout.server_log()));
            }
        }
        Ok(ExitCode::SUCCESS)
    })?;
    let milliseconds = (environment.now_micros() - started) / 1000;
    let kubeconfig = arguments.kubeconfig.unwrap_or_else(|| layout.kubeconfig());
    let directory = match arguments.data_dir.as_os_str() == DEFAULT_DATA_DIR {
        true => String::new(),
        false => format!(" --data-dir {}", layout.data_dir.display()),
    };
    println!(
        "The cluster is {} (node {}, https://127.0.0.1:{}) after {milliseconds} ms.\n\n  \
         export KUBECONFIG={}\n  kubectl get pods -A      or: coracle get pods -A{directory}\n  \
         coracle trace pod/NAME{directory}\n  coracle down{directory}          stop; pods go on\n  \
         coracle down --delete{directory} remove everything",
        if already { "running already" } else { "up" },
        prepared.settings.node_name,
        prepared.settings.api_port,
        kubeconfig.display(),
    );
    Ok(ExitCode::SUCCESS)
}

/// Binds the API's port, so that a port in use is an error now, and hands it to a new keeper.
fn start_keeper(layout: &Layout, prepared: &Prepared, cluster: &ClusterArguments) -> Result<Child> {
    let port = prepared.settings.api_port;
    let listener = TcpListener::bind(("0.0.0.0", port))
        .with_context(|| format!("cannot listen on port {port}"))?;
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(layout.server_log())?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("keeper")
        .arg("--data-dir")
        .arg(&layout.data_dir)
        .arg("--")
        .args(cluster.forwarded())
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::from(log.try_clone()?))
        .stderr(Stdio::from(log))
        .current_dir("/");
    command.spawn().context("starting the keeper")
}

/// Ends when the keeper does, with a description of how; never when there is none to watch.
async fn keeper_end(keeper: &mut Option<Child>) -> String {
    let Some(keeper) = keeper else {
        return std::future::pending().await;
    };
    let mut child_ended = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child())
    {
        Ok(signal) => signal,
        Err(error) => return error.to_string(),
    };
    loop {
        match keeper.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) => {}
            Err(error) => return error.to_string(),
        }
        child_ended.recv().await;
    }
}

/// The default ServiceAccount exists and the node is Ready, as far as it is us who see to that: a
/// pod applied now would run.
async fn wait_until_usable(
    layout: &Layout,
    settings: &Settings,
    (account_wanted, node_wanted): (bool, bool),
) -> Result<()> {
    let client = client::connect::from_kubeconfig(&layout.kubeconfig()).await?;
    let informers = client::Informers::new(client, Environment::system());
    let accounts = informers.with_selector::<ServiceAccount>("metadata.name=default");
    if account_wanted {
        wait_for(&accounts, |accounts| {
            accounts
                .iter()
                .any(|account| account.metadata.namespace.as_deref() == Some("default"))
        })
        .await;
    }
    if node_wanted {
        let selector = format!("metadata.name={}", settings.node_name);
        let nodes = informers.with_selector::<Node>(&selector);
        wait_for(&nodes, |nodes| nodes.iter().any(|node| is_ready(node))).await;
    }
    Ok(())
}

async fn wait_for<K: client::Object>(
    informer: &client::Informer<K>,
    good: impl Fn(&[std::sync::Arc<K>]) -> bool,
) {
    let mut changes = informer.subscribe();
    while !good(&informer.list()) {
        changes.next().await;
    }
}

fn is_ready(node: &Node) -> bool {
    node.status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn log_tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
