//! The kubelet: takes the pods bound to this node from the API, runs them through CRI, and tells
//! the API what became of them. It reaches containers only over CRI, and keeps nothing it could
//! not find again in the runtime, on disk and in the API.

mod admission;
mod backoff;
mod capacity;
mod cgroups;
mod configuration;
mod container;
mod container_gc;
mod disk_space;
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
mod node_object;
mod node_pressure;
mod node_settings;
mod notices;
mod pod;
mod pod_spec;
mod pods;
mod probes;
mod referenced;
mod resources;
mod runtime;
mod server;
mod shutdown;
mod shutdown_state;
mod spans;
mod static_pods;
mod stats;
mod telemetry;
mod token_bucket;
mod tokens;
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
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use configuration::{Configuration, Error as ConfigurationError, ShutdownGracePeriod};
pub use shutdown::SystemBus;

use crate::{
    admission::Admission,
    capacity::Capacity,
    cgroups::Cgroups,
    configuration::CgroupDriver,
    events::Events,
    eviction::Eviction,
    image_gc::ImageCollector,
    images::{Images, Providers},
    measures::Measures,
    node::{
        lease,
        registration::{self, Identity, Registration},
    },
    node_object::NodeObject,
    node_pressure::NodePressure,
    node_settings::NodeSettings,
    pod::{objects::ApiObjects, services::PodServices},
    pods::{NodeHandles, Pods},
    probes::ProbeCounts,
    server::Backend,
    shutdown::ShutdownContext,
    shutdown_state::ShutdownState,
    spans::Spans,
    static_pods::Manifests,
    stats::Sampler,
    telemetry::Telemetry,
    tokens::Tokens,
    volumes::{Roots, Volumes},
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
    let objects = ApiObjects::new(client.clone(), environment.clone(), &informers);
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
    let node_object = NodeObject::new(config.node_name.clone(), nodes);
    let admission = Admission::new(
        capacity.clone(),
        &config.node_name,
        configuration.allowed_unsafe_sysctls.clone(),
    );
    let telemetry = Telemetry {
        events: Events(recorder),
        spans: Spans {
            recorder: config.recorder,
            environment: environment.clone(),
        },
        measures: measures.clone(),
    };
    let images = Arc::new(Images::open(
        &config.root,
        &configuration,
        providers,
        cri.clone(),
        telemetry.clone(),
        environment.clone(),
    ));
    let cgroups = Cgroups::new(&config.cgroup_root, &configuration, driver);
    let volumes = Volumes::new(
        Roots {
            pods: pods_root,
            secrets: config.secret_root,
        },
        capacity.pods(),
        tokens,
        client.clone(),
        environment.clone(),
        node_object.clone(),
    );
    let settings = Arc::new(NodeSettings {
        node_name: config.node_name,
        host_ip: config.node_ip.to_string(),
        log_dir,
        cluster_dns,
        cluster_domain: set_or(&configuration.cluster_domain, config.cluster_domain),
        capacity,
        runtime_name: version.runtime_name,
        configuration,
    });
    let configuration = &settings.configuration;
    let (pressure, shutdown_state, probe_counts) = (
        Arc::<NodePressure>::default(),
        Arc::<ShutdownState>::default(),
        Arc::<ProbeCounts>::default(),
    );
    let sampler = Arc::new(Sampler::new(
        cri.clone(),
        environment.clone(),
        settings.clone(),
        volumes.clone(),
    ));
    let image_collector = Arc::new(ImageCollector::new(
        cri.clone(),
        environment.clone(),
        settings.clone(),
        telemetry.clone(),
        images.clone(),
        sampler.clone(),
    ));
    let services = Arc::new(PodServices {
        settings: settings.clone(),
        telemetry: telemetry.clone(),
        environment: environment.clone(),
        client: client.clone(),
        cri: cri.clone(),
        node_object: node_object.clone(),
        objects,
        volumes: volumes.clone(),
        images: images.clone(),
        cgroups: cgroups.clone(),
        admission,
        probe_counts: probe_counts.clone(),
    });
    telemetry.events.node(
        &settings.node_name,
        Severity::Normal,
        "Starting",
        "Starting kubelet.",
    );
    if configuration.enforces_allocatable() {
        cgroups.enforce_allocatable(
            settings.capacity.memory - configuration.reserved_milli("memory") / 1000,
            settings.capacity.allocatable_milli_cpu(),
        );
    }
    cgroups.forbid_swap();
    let registration = Arc::new(Registration {
        identity: Identity {
            pod_cidr: config.pod_cidr,
            labels: config.labels,
            kubelet_port,
            runtime_version: version.runtime_version,
        },
        settings: settings.clone(),
        telemetry: telemetry.clone(),
        environment: environment.clone(),
        client: client.clone(),
        cri: cri.clone(),
        node_object: node_object.clone(),
        pressure: pressure.clone(),
        shutdown: shutdown_state.clone(),
    });
    node_object.will_register(registration::initial(&registration));
    let pods = Pods::default();
    let mut manifests = Manifests::new(configuration, settings.node_name.clone());
    manifests.fetch().await;
    // Read before the API's pods are taken: what the runtime has without an owner is ended then.
    let (manifest_sender, manifest_pods) = watch::channel(manifests.read());
    let static_pods = async {
        if manifests.has_source() {
            manifests.run(manifest_sender, shutdown.clone()).await;
        }
    };
    let (hint_sender, hints) = mpsc::channel(HINTS);
    let changes = runtime::changes::run(cri.clone(), measures, hint_sender, shutdown.clone());
    let node = async {
        let registered = wait_for_registration(&registration, gives_up, &shutdown).await;
        let node = match registered {
            Ok(Some(node)) => node,
            Ok(None) => return Ok(()),
            Err(error) => {
                shutdown.cancel();
                return Err(error);
            }
        };
        let lease = lease::run(
            client.clone(),
            environment.clone(),
            node_object.clone(),
            configuration.node_lease_duration_seconds,
            shutdown.clone(),
        );
        let status = registration::run(registration.clone(), node, shutdown.clone());
        tokio::join!(lease, status);
        Ok(())
    };
    let server = server::run(
        listener,
        config.tls,
        Arc::new(Backend {
            settings: settings.clone(),
            telemetry: telemetry.clone(),
            environment: environment.clone(),
            client: client.clone(),
            cri: cri.clone(),
            pods: pods.clone(),
            sampler: sampler.clone(),
            volumes,
            images,
            cgroups: cgroups.clone(),
            probe_counts,
            shutdown: shutdown_state.clone(),
        }),
        shutdown.clone(),
    );
    let health = server::health::run(
        &configuration.healthz_bind_address,
        configuration.healthz_port,
        shutdown.clone(),
    );
    let eviction = eviction::run(
        Eviction {
            settings: settings.clone(),
            telemetry: telemetry.clone(),
            environment: environment.clone(),
            cri: cri.clone(),
            cgroups,
            sampler,
            images: image_collector.clone(),
            pressure: pressure.clone(),
            pods: pods.clone(),
        },
        shutdown.clone(),
    );
    let image_gc = image_collector.run(shutdown.clone());
    let shutting_down = shutdown::run(
        ShutdownContext {
            settings: settings.clone(),
            telemetry,
            environment: environment.clone(),
            cri: cri.clone(),
            state: shutdown_state.clone(),
            pods: pods.clone(),
        },
        config.system_bus,
        config.root,
        shutdown.clone(),
    );
    let log_rotation = log_rotation::run(cri, environment.clone(), configuration, shutdown.clone());
    let work = pods.run(
        NodeHandles {
            services,
            api_pods: pod_informer,
            pressure,
            shutdown: shutdown_state,
        },
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
async fn cgroup_driver(cri: &cri::Client, configuration: &Configuration) -> CgroupDriver {
    let answer = cri
        .runtime
        .clone()
        .runtime_config(v1::RuntimeConfigRequest {})
        .await;
    match answer.map(|answer| answer.into_inner().linux) {
        Ok(Some(linux)) => match linux.cgroup_driver() {
            v1::CgroupDriver::Systemd => CgroupDriver::Systemd,
            v1::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        },
        _ => CgroupDriver::named(&configuration.cgroup_driver).unwrap_or_default(),
    }
}

/// Registers the node, however long it takes; `None` at the end of the kubelet. What is wrong is
/// told once for as long as it stays the same.
async fn wait_for_registration(
    registration: &Registration,
    gives_up: bool,
    shutdown: &CancellationToken,
) -> Result<Option<k8s_openapi::api::core::v1::Node>, Error> {
    let (mut pause, mut told) = (FIRST_RETRY, String::new());
    loop {
        match registration::register(registration).await {
            Ok(node) => return Ok(Some(node)),
            Err(error) if gives_up && retry::is_refused_for_good(&error) => {
                return Err(Error::Refused {
                    node: registration.settings.node_name.clone(),
                    why: retry::sentence(&error),
                });
            }
            Err(error) if !registration.settings.configuration.register_node => {
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
