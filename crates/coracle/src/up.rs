//! `coracle up`: prepares the data directory, starts a keeper in the background, and returns as soon
//! as a pod could be applied.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use environment::Environment;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};

use crate::cluster_arguments::ClusterArguments;
use crate::first_start::{self, FirstStart};
use crate::host;
use crate::keeper::{self, Running};
use crate::kubeconfig::{self, Access};
use crate::layout::{DEFAULT_DATA_DIR, Layout, Settings};
use crate::log_tail::log_tail;
use crate::prepare::{self, Prepared, prepare};
use crate::privileges;
use crate::process::block_on;

/// A start that takes longer than this has failed.
const START_LIMIT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct UpArguments {
    /// Data directory of the cluster
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Kubeconfig to add the cluster's context to; its other contents stay
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

pub fn run(arguments: UpArguments) -> Result<ExitCode> {
    privileges::require_root("coracle up")?;
    let environment = Environment::system();
    let started = environment.now_micros();
    let missing = first_start::missing_directories(&arguments.data_dir)?;
    prepare::check(&arguments.data_dir, &arguments.cluster)?;
    if let Some(file) = &arguments.kubeconfig {
        kubeconfig::check(file)?;
    }
    let layout = Layout::create(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    let first = FirstStart::of(&layout, missing)?;
    let is_first = first.is_some();
    let result = start(&layout, &arguments, is_first, &environment);
    let (settings, already) = first_start::undo_failed(first, result)?;
    let milliseconds = (environment.now_micros() - started) / 1000;
    let kubeconfig = arguments.kubeconfig.unwrap_or_else(|| layout.kubeconfig());
    let directory = match arguments.data_dir.as_os_str() == DEFAULT_DATA_DIR {
        true => String::new(),
        false => format!(" --data-dir {}", layout.data_dir.display()),
    };
    let state = match already {
        Some(running) => format!("is already run by {running}"),
        None => "is running".to_string(),
    };
    let steps = [
        (format!("export KUBECONFIG={}", kubeconfig.display()), ""),
        ("kubectl get pods -A".to_string(), "list all pods"),
        (
            format!("coracle trace pod/NAME{directory}"),
            "show the life of a pod",
        ),
        (
            format!("coracle down{directory}"),
            "stop the cluster; its pods keep running",
        ),
        (
            format!("coracle down --delete{directory}"),
            "delete the cluster and its data",
        ),
    ];
    let width = steps[1..].iter().map(|(step, _)| step.len()).max();
    print_line!(
        "The cluster {state} after {milliseconds} ms: node {}, API server https://127.0.0.1:{}.\n",
        settings.node_name,
        settings.api_port,
    );
    for (step, purpose) in steps {
        let line = format!("  {step:width$}   {purpose}", width = width.unwrap_or(0));
        print_line!("{}", line.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the cluster unless it is running already, and waits until it can be used. Also returns
/// the process that was running it before.
fn start(
    layout: &Layout,
    arguments: &UpArguments,
    is_first: bool,
    environment: &Environment,
) -> Result<(Settings, Option<Running>)> {
    let cluster = &arguments.cluster;
    let already = keeper::running(layout)?;
    let prepared = prepare(layout, cluster, environment)?;
    for note in &prepared.notes {
        print_line!("{note}");
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
                    "the cluster did not become ready within {} s; the end of its log {} is:\n{}",
                    START_LIMIT.as_secs(),
                    layout.server_log().display(),
                    log_tail(&layout.server_log())
                ),
            },
            status = keeper_end(&mut keeper) => {
                bail!(
                    "the server ended during its start ({status}); the end of its log is:\n{}",
                    log_tail(&layout.server_log())
                );
            }
        }
        Ok(())
    });
    let ready = ready.and_then(|()| match &arguments.kubeconfig {
        Some(file) => publish(layout, &prepared, file),
        None => Ok(()),
    });
    if let Err(error) = ready {
        return match keeper::running(layout)? {
            // The cluster has not been used yet, so that it can be stopped and removed.
            Some(running) if is_first => {
                keeper::stop(layout, running)?;
                Err(error)
            }
            Some(_) => Err(error.context(format!(
                "the server is still starting in the background; its log is {}, and `coracle down` \
                 stops it",
                layout.server_log().display()
            ))),
            None => Err(error),
        };
    }
    Ok((prepared.settings, already))
}

/// Adds the administrator's access to a user's kubeconfig.
fn publish(layout: &Layout, prepared: &Prepared, file: &Path) -> Result<()> {
    let access = Access {
        server: format!("https://127.0.0.1:{}", prepared.settings.api_port),
        authority: &prepared.pki.authority,
        identity: &prepared.pki.admin,
    };
    kubeconfig::put(layout, &prepared.settings, file, &access)
}

/// Binds the API server's port, so that a port in use is an error now, and passes it to a new keeper.
fn start_keeper(layout: &Layout, prepared: &Prepared, cluster: &ClusterArguments) -> Result<Child> {
    let listener = host::listen(prepared.settings.api_port, "port")?;
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

/// Returns a description of the keeper's exit when it exits. Without a keeper it never returns.
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

/// Waits until a pod could run: until the default ServiceAccount exists and the node is Ready, as
/// far as this server's own controllers and node are responsible for them.
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
