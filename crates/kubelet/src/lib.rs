//! The kubelet: takes the pods bound to this node from the API, runs them through CRI, and tells
//! the API what became of them. It reaches containers only over CRI, and keeps nothing it could
//! not find again in the runtime, on disk and in the API.

mod admission;
mod backoff;
mod cgroups;
mod configuration;
mod container;
mod container_gc;
mod events;
mod eviction;
mod http_get;
mod image_gc;
mod images;
mod leftovers;
mod lifecycle;
mod log_format;
mod log_rotation;
mod measures;
mod node;
mod node_context;
mod notices;
mod pod;
mod pods;
mod probes;
mod referenced;
mod resources;
mod runtime;
mod server;
mod shutdown;
mod spans;
mod static_pods;
mod stats;
mod token_bucket;
mod volumes;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use client::{Informers, events::Severity, retry};
use cri::v1;
use environment::Environment;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use configuration::{Configuration, Error as ConfigurationError, ShutdownGracePeriod};
pub use shutdown::SystemBus;

use crate::{
    admission::Admission,
    cgroups::{Cgroups, Driver},
    events::Events,
    images::Providers,
    measures::Measures,
    node::{Capacity, lease, registration},
    node_context::NodeContext,
    pods::Pods,
    referenced::Referenced,
    spans::Spans,
    static_pods::Manifests,
    volumes::{Shares, Tokens, Volumes},
};

/// Hints from the runtime that may wait; more are the same as one to look at everything.
const HINTS: usize = 1024;
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_millis(500);
/// As upstream.
const LAST_REGISTRATION_RETRY: Duration = Duration::from_secs(7);

pub struct Config {
    pub node_name: String,
    pub node_ip: IpAddr,
    /// Pods and their volumes.
    pub root: PathBuf,
    /// In memory, for volumes that must not reach a disk; without it each has a tmpfs of its own.
    pub secret_root: Option<PathBuf>,
    /// Logs are `<log_dir>/<namespace>_<name>_<uid>/<container>/<n>.log`.
    pub log_dir: PathBuf,
    pub cri_socket: PathBuf,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    pub listen: std::net::TcpListener,
    /// Must ask for client certificates.
    pub tls: Arc<rustls::ServerConfig>,
    /// e.g. `/coracle-1a2b3c`; `kubepods` is made below it.
    pub cgroup_root: String,
    pub pod_cidr: String,
    pub labels: BTreeMap<String, String>,
    pub configuration: Configuration,
    /// Whether to end when the API server refuses the node for good, instead of asking for ever.
    pub gives_up: bool,
    /// Where word of the machine's shutdown comes from.
    pub system_bus: SystemBus,
    pub environment: Environment,
    pub recorder: trace::Recorder,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the kubelet's directory {path} could not be made")]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the server refuses node {node}: {why}")]
    Refused { node: String, why: String },
    #[error("the runtime client could not be made")]
    Cri(#[from] cri::Error),
    #[error(
        "running with swap on is not supported, please disable swap or set failSwapOn to false"
    )]
    Swap,
    #[error("whether the machine swaps could not be read")]
    Swaps(#[source] std::io::Error),
    #[error("the image credential providers")]
    CredentialProviders(#[from] images::ProvidersError),
    #[error("the kubelet's server could not listen")]
    Listen(#[source] std::io::Error),
}

/// Runs until `shutdown`. Pods go on running; a kubelet started later finds them again.
pub async fn run(
    config: Config,
    client: kube::Client,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let (configuration, gives_up) = (config.configuration, config.gives_up);
    for key in configuration.unheeded() {
        tracing::warn!(key, "the kubelet's configuration sets what is not obeyed");
    }
    if configuration.fail_swap_on == Some(true) && stats::has_swap().map_err(Error::Swaps)? {
        return Err(Error::Swap);
    }
    let set_or = |set: &str, given: String| match set {
        "" => given,
        set => set.to_owned(),
    };
    let log_dir = match configuration.pod_logs_dir.as_os_str().is_empty() {
        true => config.log_dir,
        false => configuration.pod_logs_dir.clone(),
    };
    let cluster_dns = match configuration.cluster_dns.as_slice() {
        [] => config.cluster_dns,
        set => set.to_vec(),
    };
    let pods_root = config.root.join("pods");
    for path in [&pods_root, &log_dir] {
        std::fs::create_dir_all(path).map_err(|source| Error::Directory {
            path: path.clone(),
            source,
        })?;
    }
    let tokens = Tokens::new(client.clone(), config.environment.clone());
    let measures = Arc::new(Measures::default());
    let providers = Providers::open(
        &configuration,
        client.clone(),
        tokens.clone(),
        config.environment.clone(),
        measures.clone(),
    )?;
    config.listen.set_nonblocking(true).map_err(Error::Listen)?;
    let listener = tokio::net::TcpListener::from_std(config.listen).map_err(Error::Listen)?;
    let kubelet_port = listener.local_addr().map_err(Error::Listen)?.port();
    let cri = cri::Client::observed(&config.cri_socket, measures.clone())?;
    cri.set_deadline(configuration.runtime_request_timeout());
    let environment = config.environment;

    // The watches begin before the runtime answers, so that neither waits for the other.
    let informers = Informers::new(client.clone(), environment.clone());
    let selector = format!("spec.nodeName={}", config.node_name);
    let pod_informer = informers.with_selector::<Pod>(&selector);
    let services = informers.of::<Service>();
    let own_node = format!("metadata.name={}", config.node_name);
    let nodes = informers.with_selector::<Node>(&own_node);
    let Some(version) = wait_for_runtime(&cri, &shutdown).await else {
        return Ok(());
    };
    let recorder = client::events::Recorder::paced(
        client.clone(),
        environment.clone(),
        "kubelet",
        Some(&config.node_name),
        (configuration.event_record_qps > 0).then(|| client::events::Pace {
            per_second: configuration.event_record_qps.into(),
            burst: configuration.event_burst.into(),
        }),
    );
    let driver = cgroup_driver(&cri, &configuration).await;
    let Some(capacity) = read_capacity(&config.root, &configuration, &shutdown).await else {
        return Ok(());
    };
    let admission = Admission::new(
        capacity.clone(),
        &config.node_name,
        configuration.allowed_unsafe_sysctls.clone(),
    );
    let shares = Shares::of(config.secret_root.as_deref(), capacity.pods());
    let context = Arc::new(NodeContext {
        admission,
        api_pods: pod_informer.clone(),
        nodes: nodes.clone(),
        last_node: Default::default(),
        pressure: Default::default(),
        shutting_down: Default::default(),
        rates: Default::default(),
        runtime_places: Default::default(),
        images_seen: Default::default(),
        probe_counts: Default::default(),
        measures: measures.clone(),
        node_name: config.node_name.clone(),
        host_ip: config.node_ip.to_string(),
        log_dir,
        cluster_dns,
        cluster_domain: set_or(&configuration.cluster_domain, config.cluster_domain),
        capacity,
        runtime_name: version.runtime_name,
        cri: cri.clone(),
        events: Events(recorder),
        spans: Spans {
            recorder: config.recorder,
            environment: environment.clone(),
        },
        volumes: Volumes {
            pods_root,
            shares: Arc::new(shares),
            secret_root: config.secret_root,
            tokens,
            client: client.clone(),
            environment: environment.clone(),
            nodes,
            node_name: config.node_name,
            claims: Default::default(),
        },
        pulls: images::Pulls::open(&config.root, &configuration, providers),
        cgroups: Cgroups::new(&config.cgroup_root, &configuration, driver),
        configuration,
        config_maps: Referenced::new(client.clone(), environment.clone()),
        secrets: Referenced::new(client.clone(), environment.clone()),
        services,
        client: client.clone(),
        environment: environment.clone(),
    });
    context.events.node(
        &context.node_name,
        Severity::Normal,
        "Starting",
        "Starting kubelet.",
    );
    let (cgroups, reserved) = (context.cgroups.clone(), &context.configuration);
    if reserved.enforces_allocatable() {
        cgroups.enforce_allocatable(
            context.capacity.memory - reserved.reserved_milli("memory") / 1000,
            context.capacity.allocatable_milli_cpu(),
        );
    }
    cgroups.forbid_swap();
    let identity = registration::Identity {
        pod_cidr: config.pod_cidr,
        labels: config.labels,
        kubelet_port,
        runtime_version: version.runtime_version,
    };

    context.remember_node(registration::initial(&context, &identity));
    let pods = Pods::default();
    let mut manifests = Manifests::new(&context.configuration, context.node_name.clone());
    manifests.fetch().await;
    // Read before the API's pods are taken: what the runtime has without an owner is ended then.
    let (manifest_sender, manifest_pods) = watch::channel(manifests.read());
    let static_pods = async {
        if manifests.has_source() {
            manifests.run(manifest_sender, shutdown.clone()).await;
        }
    };
    let (hint_sender, hints) = mpsc::channel(HINTS);
    let changes =
        runtime::changes::run(cri, context.measures.clone(), hint_sender, shutdown.clone());
    let node = async {
        let registered = wait_for_registration(&context, &identity, gives_up, &shutdown).await;
        let node = match registered {
            Ok(Some(node)) => node,
            Ok(None) => return Ok(()),
            Err(error) => {
                shutdown.cancel();
                return Err(error);
            }
        };
        let lease = lease::run(
            client,
            environment,
            context.node_name.clone(),
            context.nodes.clone(),
            context.configuration.node_lease_duration_seconds,
            shutdown.clone(),
        );
        let status = registration::run(context.clone(), identity, node, shutdown.clone());
        tokio::join!(lease, status);
        Ok(())
    };
    let server = server::run(
        listener,
        config.tls,
        context.clone(),
        pods.clone(),
        shutdown.clone(),
    );
    let health = server::health::run(
        &context.configuration.healthz_bind_address,
        context.configuration.healthz_port,
        shutdown.clone(),
    );
    let eviction = eviction::run(context.clone(), pods.clone(), shutdown.clone());
    let image_gc = image_gc::run(context.clone(), shutdown.clone());
    let shutting_down = shutdown::run(
        context.clone(),
        pods.clone(),
        config.system_bus,
        config.root,
        shutdown.clone(),
    );
    let log_rotation = log_rotation::run(context.clone(), shutdown.clone());
    let work = pods.run(
        context.clone(),
        pod_informer,
        hints,
        manifest_pods,
        shutdown.clone(),
    );
    let (_, registered, ..) = tokio::join!(
        changes,
        node,
        server,
        health,
        work,
        static_pods,
        eviction,
        image_gc,
        log_rotation,
        shutting_down
    );
    registered
}

async fn wait_for_runtime(
    cri: &cri::Client,
    shutdown: &CancellationToken,
) -> Option<v1::VersionResponse> {
    let mut pause = FIRST_RETRY;
    loop {
        let request = v1::VersionRequest {
            version: "v1".to_owned(),
        };
        match cri.runtime.clone().version(request).await {
            Ok(response) => return Some(response.into_inner()),
            Err(status) => tracing::debug!(%status, "the runtime does not answer yet"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_RETRY),
        }
    }
}

/// Waits until the machine can be read.
async fn read_capacity(
    root: &Path,
    configuration: &Configuration,
    shutdown: &CancellationToken,
) -> Option<Capacity> {
    let mut pause = FIRST_RETRY;
    let mut reported = false;
    loop {
        match Capacity::read(root, configuration) {
            Ok(capacity) => return Some(capacity),
            Err(error) if !reported => {
                reported = true;
                tracing::warn!(%error, "the node is not registered before its memory, CPUs and disk can be read");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_RETRY),
        }
    }
}

/// The runtime's, by its own word; one that has none is told by the configuration.
async fn cgroup_driver(cri: &cri::Client, configuration: &Configuration) -> Driver {
    let answer = cri
        .runtime
        .clone()
        .runtime_config(v1::RuntimeConfigRequest {})
        .await;
    match answer.map(|answer| answer.into_inner().linux) {
        Ok(Some(linux)) => match linux.cgroup_driver() {
            v1::CgroupDriver::Systemd => Driver::Systemd,
            v1::CgroupDriver::Cgroupfs => Driver::Cgroupfs,
        },
        _ => Driver::named(&configuration.cgroup_driver).unwrap_or_default(),
    }
}

/// Registers the node, however long it takes; `None` at the end of the kubelet. What is wrong is
/// told once for as long as it stays the same.
async fn wait_for_registration(
    context: &NodeContext,
    identity: &registration::Identity,
    gives_up: bool,
    shutdown: &CancellationToken,
) -> Result<Option<k8s_openapi::api::core::v1::Node>, Error> {
    let (mut pause, mut told) = (FIRST_RETRY, String::new());
    loop {
        match registration::register(context, identity).await {
            Ok(node) => return Ok(Some(node)),
            Err(error) if gives_up && retry::is_refused_for_good(&error) => {
                return Err(Error::Refused {
                    node: context.node_name.clone(),
                    why: retry::sentence(&error),
                });
            }
            Err(error) if !context.configuration.register_node => {
                tracing::debug!(%error, "the node has not been registered by anybody yet");
            }
            Err(error) => {
                let problem = retry::sentence(&error);
                if problem != told {
                    tracing::warn!("the node could not be registered yet: {problem}");
                    told = problem;
                }
            }
        }
        tokio::select! {
            () = shutdown.cancelled() => return Ok(None),
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(LAST_REGISTRATION_RETRY),
        }
    }
}
