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
use crate::first_start::{self, FirstStart};
use crate::keeper::{self, Running};
use crate::kubeconfig::{self, Access};
use crate::layout::{Layout, Settings};
use crate::privileges;
use crate::server::{self, ClusterArguments, Prepared};

/// A start that takes longer than this has gone wrong.
const START_LIMIT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct UpArguments {
    /// Where the cluster keeps its data
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Kubeconfig to put this cluster's context into; everything else in it stays
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub fn run(arguments: UpArguments) -> Result<ExitCode> {
    privileges::need_root("coracle up")?;
    let environment = Environment::system();
    let started = environment.now_micros();
    let missing = first_start::missing_directories(&arguments.data_dir)?;
    server::check(&arguments.data_dir, &arguments.cluster)?;
    if let Some(file) = &arguments.kubeconfig {
        kubeconfig::check(file)?;
    }
    let layout = Layout::create(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    let first = FirstStart::of(&layout, missing)?;
    let is_first = first.is_some();
    let result = start(&layout, &arguments, is_first, &environment);
    let (settings, already) = first_start::settle(first, result)?;
    let milliseconds = (environment.now_micros() - started) / 1000;
    let kubeconfig = arguments.kubeconfig.unwrap_or_else(|| layout.kubeconfig());
    let directory = match arguments.data_dir.as_os_str() == DEFAULT_DATA_DIR {
        true => String::new(),
        false => format!(" --data-dir {}", layout.data_dir.display()),
    };
    tell!(
        "The cluster is {} (node {}, https://127.0.0.1:{}) after {milliseconds} ms.\n\n  \
         export KUBECONFIG={}\n  kubectl get pods -A      or: coracle get pods -A{directory}\n  \
         coracle trace pod/NAME{directory}\n  coracle down{directory}          stop; pods go on\n  \
         coracle down --delete{directory} remove everything",
        match already {
            Some(running) => format!("run by {running} already"),
            None => "up".to_string(),
        },
        settings.node_name,
        settings.api_port,
        kubeconfig.display(),
    );
    Ok(ExitCode::SUCCESS)
}

/// Starts the cluster unless it runs, and waits until it can be used. Also what ran it before.
fn start(
    layout: &Layout,
    arguments: &UpArguments,
    is_first: bool,
    environment: &Environment,
) -> Result<(Settings, Option<Running>)> {
    let cluster = &arguments.cluster;
    let already = keeper::running(layout)?;
    let prepared = server::prepare(layout, cluster, environment)?;
    for note in &prepared.notes {
        tell!("{note}");
    }
    let mut keeper = match already {
        Some(_) => None,
        None => Some(start_keeper(layout, &prepared, cluster)?),
    };
    let ready = block_on(async {
        let wanted = (cluster.enabled("controllers"), cluster.enabled("node"));
        let ready = wait_until_usable(layout, &prepared.settings, wanted);
        tokio::select! {
            result = tokio::time::timeout(START_LIMIT, ready) => match result {
                Ok(result) => result?,
                Err(_) => bail!(
                    "the cluster did not become ready within {} s\n{}",
                    START_LIMIT.as_secs(),
                    log_tail(&layout.server_log())
                ),
            },
            status = keeper_end(&mut keeper) => {
                bail!("the server ended while starting ({status})\n{}", log_tail(&layout.server_log()));
            }
        }
        Ok(ExitCode::SUCCESS)
    });
    let ready = ready.and_then(|_| match &arguments.kubeconfig {
        Some(file) => publish(layout, &prepared, file),
        None => Ok(()),
    });
    if let Err(error) = ready {
        return match keeper::running(layout)? {
            // Nobody has used it yet.
            Some(running) if is_first => {
                keeper::stop(layout, running)?;
                Err(error)
            }
            Some(_) => Err(error.context(format!(
                "the server goes on starting in the background; `coracle down` stops it, and its log is {}",
                layout.server_log().display()
            ))),
            None => Err(error),
        };
    }
    Ok((prepared.settings, already))
}

/// Puts the administrator's access into a user's kubeconfig.
fn publish(layout: &Layout, prepared: &Prepared, file: &Path) -> Result<()> {
    let access = Access {
        server: format!("https://127.0.0.1:{}", prepared.settings.api_port),
        authority: &prepared.pki.authority,
        identity: &prepared.pki.admin,
    };
    kubeconfig::put(layout, &prepared.settings, file, &access)
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
