//! `coracle server`: the control plane and a node in the foreground.
//!
//! Start order: store, API server, listener; then, side by side, controllers, scheduler and the
//! node. Shutdown runs in the opposite order and leaves the pods running.

mod control_plane;

use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use environment::Environment;
use tokio_util::sync::CancellationToken;
use trace::{Recorder, Timelines};
use tracing::info;

use crate::cluster_arguments::ClusterArguments;
use crate::descriptors;
use crate::first_start::{self, FirstStart};
use crate::host;
use crate::keeper::{self, Role};
use crate::layout::{DEFAULT_DATA_DIR, Layout, private_dir, write_private};
use crate::node::{self, NodeConfig};
use crate::prepare::{self, Prepared, prepare};
use crate::privileges;
use crate::process::{self, Tasks};
use crate::storage::Storage;
use control_plane::ControlPlane;

#[derive(Args)]
pub struct ServerArguments {
    /// Data directory of the cluster
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Use standard input as the API server's listening socket (set by the keeper)
    #[arg(long, hide = true)]
    inherit_socket: bool,
}

pub fn run(arguments: ServerArguments) -> Result<ExitCode> {
    privileges::require_root("coracle server")?;
    process::start_logging(&arguments.cluster.log, arguments.cluster.log_json)?;
    descriptors::raise();
    match arguments.inherit_socket {
        true => run_for_keeper(&arguments),
        false => run_in_foreground(&arguments),
    }
}

/// Runs as the child of a keeper, which has bound the API server's port.
fn run_for_keeper(arguments: &ServerArguments) -> Result<ExitCode> {
    let environment = Environment::system();
    // The server ends with its keeper: neither `up` nor `down` would find it afterwards.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
    let layout = Layout::create(&arguments.data_dir)?;
    let prepared = prepare(&layout, &arguments.cluster, &environment)?;
    let listener = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    run_prepared(&layout, prepared, listener, &arguments.cluster, environment)
}

fn run_in_foreground(arguments: &ServerArguments) -> Result<ExitCode> {
    let environment = Environment::system();
    let missing = first_start::missing_directories(&arguments.data_dir)?;
    prepare::check(&arguments.data_dir, &arguments.cluster)?;
    let layout = Layout::create(&arguments.data_dir)?;
    let starting = layout.lock()?;
    // `up` and `down` find the server by this, as they find a keeper.
    let _running = keeper::register(&layout, Role::Server)?;
    let first = FirstStart::of(&layout, missing)?;
    drop(starting);
    let result = prepare(&layout, &arguments.cluster, &environment).and_then(|prepared| {
        let _ = std::fs::remove_file(prepared.settings.ready_file());
        let listener = host::listen(prepared.settings.api_port, "port")?;
        run_prepared(&layout, prepared, listener, &arguments.cluster, environment)
    });
    let was_ready = layout
        .settings()?
        .is_some_and(|settings| settings.ready_file().exists());
    first_start::undo_failed(first.filter(|_| !was_ready), result)
}

fn run_prepared(
    layout: &Layout,
    prepared: Prepared,
    listener: TcpListener,
    cluster: &ClusterArguments,
    environment: Environment,
) -> Result<ExitCode> {
    for note in &prepared.notes {
        info!("{note}");
    }
    listener.set_nonblocking(true)?;
    process::run_on_all_cores(serve(layout, prepared, listener, cluster, environment))
}

/// 1. Opens the store, and the timelines.
/// 2. Starts the API server and listens.
/// 3. Starts controllers, scheduler and node, as far as they are enabled.
/// 4. Waits for a signal, or for a component that fails.
/// 5. Stops the components, then the API server, then the store.
async fn serve(
    layout: &Layout,
    prepared: Prepared,
    listener: TcpListener,
    cluster: &ClusterArguments,
    environment: Environment,
) -> Result<()> {
    let started = environment.now_micros();
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(shutdown.clone());
    let storage = Storage::open(&cluster.store, layout, &environment).await?;
    watch_store(&storage, &tasks);
    private_dir(&layout.timelines())?;
    let timelines = Timelines::open(Some(layout.timelines()), environment.clone())?;
    let recorder = Recorder::new(Arc::new(timelines.clone()));

    let plane = ControlPlane {
        layout,
        cluster,
        prepared: &prepared,
        environment: &environment,
        recorder: &recorder,
    };
    let api = plane.start_api_server(&storage, timelines).await?;
    let api_shutdown = CancellationToken::new();
    let api_tasks = Tasks::new(shutdown.clone());
    plane.listen(&api, listener, &api_shutdown, &api_tasks)?;
    let Prepared { settings, pki, .. } = &prepared;
    info!(
        "The API server of cluster {} listens on port {} after {} ms",
        settings.cluster_id,
        settings.api_port,
        (environment.now_micros() - started) / 1000
    );
    if cluster.enabled("controllers") {
        plane.start_controllers(&api, &tasks)?;
    }
    if cluster.enabled("scheduler") {
        plane.start_scheduler(&api, &tasks)?;
    }
    if cluster.enabled("node") {
        let config = NodeConfig {
            layout: layout.clone(),
            settings: settings.clone(),
            node_address: prepared.node_address,
            kubelet_tls: pki.server_tls(&pki.kubelet_server)?,
            proxy: cluster.enabled("proxy"),
            dns: cluster.enabled("dns"),
            // The API server keeps running when it rejects its own node.
            stops_when_rejected: false,
            certificates: None,
            came_with_ticket: false,
            environment: environment.clone(),
            recorder: recorder.clone(),
        };
        node::start(config, &tasks).await?;
    }
    write_private(&settings.ready_file(), b"")?;

    process::wait_for_shutdown(&shutdown).await?;
    info!("The server stops; its pods keep running");
    shutdown.cancel();
    tasks.finish().await;
    api_shutdown.cancel();
    api_tasks.finish().await;
    api.stop();
    storage.close().await?;
    if let Some(failure) = tasks.failure().or(api_tasks.failure()) {
        // The ready file stays, so that the keeper takes this for a crash and not for a start that
        // failed.
        bail!(failure);
    }
    let _ = tokio::fs::remove_file(settings.ready_file()).await;
    Ok(())
}

/// Ends the process when the store closes. A failed fsync is never retried: the next process reads
/// the files again.
fn watch_store(storage: &Storage, tasks: &Tasks) {
    let (storage, shutdown) = (storage.clone(), tasks.shutdown());
    tasks.spawn("store", async move {
        tokio::select! {
            () = shutdown.cancelled() => Ok(()),
            reason = storage.closed() => bail!("the store closed: {reason}"),
        }
    });
}
