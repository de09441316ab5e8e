//! The parts of the server, put together. Each part owns its state and is given the parts below it.

use std::sync::Arc;

use environment::Environment;
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    bundles::Bundles,
    container_table::ContainerTable,
    containers::Containers,
    events::Events,
    execution::Execution,
    exits::Exits,
    features::Features,
    host::Host,
    image_api::ImageApi,
    images::Images,
    metrics::Metrics,
    pause_process::PauseProcesses,
    pod_network::PodNetwork,
    recovery::Recovery,
    runtime_api::RuntimeApi,
    sandbox_table::SandboxTable,
    sandboxes::Sandboxes,
    stats::Stats,
    streams::{SessionParts, Streams},
};
use crate::{config::Config, records::Directory};

/// The parts that [`super::serve`] runs.
pub struct Assembly {
    pub host: Arc<Host>,
    pub recovery: Arc<Recovery>,
    pub streams: Arc<Streams>,
    pub runtime_api: RuntimeApi,
    pub image_api: ImageApi,
}

pub fn assemble(
    config: Config,
    environment: Environment,
    shutdown: CancellationToken,
) -> Result<Assembly, Error> {
    let host = Arc::new(Host::open(config, environment)?);
    let root = &host.config().root;
    let sandbox_table = Arc::new(SandboxTable::new(Directory::of_sandboxes(root)));
    let container_table = Arc::new(ContainerTable::new(Directory::of_containers(root)));
    let images = Arc::new(Images::open(host.clone(), container_table.clone())?);
    let events = Arc::new(Events::new(
        host.clone(),
        sandbox_table.clone(),
        container_table.clone(),
    ));
    let exits = Arc::new(Exits::new(
        host.clone(),
        sandbox_table.clone(),
        container_table.clone(),
        events.clone(),
        shutdown.clone(),
    ));
    let bundles = Arc::new(Bundles::open(
        host.clone(),
        container_table.clone(),
        images.clone(),
    )?);
    let containers = Arc::new(Containers::new(
        host.clone(),
        sandbox_table.clone(),
        container_table.clone(),
        images.clone(),
        bundles,
        events.clone(),
        exits.clone(),
    ));
    let network = Arc::new(PodNetwork::new(host.clone(), sandbox_table.clone()));
    let sandboxes = Arc::new(Sandboxes::new(
        host.clone(),
        sandbox_table.clone(),
        containers.clone(),
        network.clone(),
        PauseProcesses::new(host.clone(), sandbox_table.clone(), exits.clone()),
        events.clone(),
    ));
    let execution = Arc::new(Execution::new(
        host.clone(),
        sandbox_table.clone(),
        container_table.clone(),
    ));
    let streams = Arc::new(Streams::new(SessionParts {
        host: host.clone(),
        sandboxes: sandbox_table.clone(),
        containers: container_table.clone(),
        execution: execution.clone(),
    }));
    let runtime_api = RuntimeApi {
        host: host.clone(),
        sandbox_table: sandbox_table.clone(),
        container_table: container_table.clone(),
        sandboxes: sandboxes.clone(),
        containers,
        execution,
        streams: streams.clone(),
        stats: Arc::new(Stats::new(host.clone(), container_table.clone())),
        metrics: Arc::new(Metrics::new(host.clone(), container_table.clone())),
        features: Features::new(host.clone(), network.clone()),
        events,
        shutdown,
    };
    let recovery = Arc::new(Recovery {
        host: host.clone(),
        sandbox_table,
        container_table,
        sandboxes,
        exits,
        images: images.clone(),
        network,
    });
    Ok(Assembly {
        image_api: ImageApi::new(host.clone(), images),
        host,
        recovery,
        streams,
        runtime_api,
    })
}
