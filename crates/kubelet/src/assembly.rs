//! Builds the parts of the kubelet from its [`Config`] and runs each of them. What a part needs of
//! the others is handed to it here.

use std::{path::PathBuf, sync::Arc};

use client::{
    Informer, Informers,
    events::{Pace, Recorder, Severity},
};
use environment::Environment;
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Config, Configuration, Error, SystemBus,
    admission::Admission,
    cgroups::Cgroups,
    events::Events,
    eviction::{self, Eviction},
    image_gc::ImageCollector,
    images::{Images, Providers},
    log_rotation,
    measures::Measures,
    node::{
        lease,
        registration::{self, Identity, Registration},
    },
    node_object::NodeObject,
    node_pressure::NodePressure,
    node_settings::NodeSettings,
    pod::{objects::ApiObjects, services::PodServices},
    pods::{
        Pods,
        intake::{self, NodeHandles},
    },
    runtime::changes::{self, Hint},
    server::{self, Backend},
    shutdown::{self, ShutdownContext},
    shutdown_state::ShutdownState,
    spans::Spans,
    startup,
    static_pods::Manifests,
    stats::{self, Sampler},
    telemetry::Telemetry,
    tokens::Tokens,
    volumes::{Roots, Volumes},
};

/// Hints from the runtime that may wait; more of them are the same as one to look at everything.
const HINTS: usize = 1024;

/// The parts of a kubelet that is ready to run.
pub struct Kubelet {
    services: Arc<PodServices>,
    pods: Pods,
    api_pods: Informer<Pod>,
    pressure: Arc<NodePressure>,
    shutdown_state: Arc<ShutdownState>,
    sampler: Arc<Sampler>,
    image_collector: Arc<ImageCollector>,
    registration: Arc<Registration>,
    system_bus: SystemBus,
    root: PathBuf,
    gives_up: bool,
    /// Dropping it would end the watches.
    _informers: Informers,
}

/// Where the kubelet's server listens.
pub struct ServerSocket {
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
}

/// The pods of the manifests: the source, and what it lists.
pub struct StaticPods {
    manifests: Manifests,
    sender: watch::Sender<Vec<Arc<Pod>>>,
}

impl Kubelet {
    /// Builds all parts; `None` if the kubelet is stopped while it waits for the runtime.
    pub async fn build(
        config: Config,
        client: kube::Client,
        shutdown: &CancellationToken,
    ) -> Result<Option<(Kubelet, ServerSocket)>, Error> {
        let Config {
            configuration,
            environment,
            ..
        } = config;
        check(&configuration)?;
        let log_dir = match configuration.pod_logs_dir.as_os_str().is_empty() {
            true => config.log_dir,
            false => configuration.pod_logs_dir.clone(),
        };
        let pods_root = config.root.join("pods");
        for path in [&pods_root, &log_dir] {
            let created = tokio::fs::create_dir_all(path).await;
            created.map_err(|source| Error::Directory {
                path: path.clone(),
                source,
            })?;
        }
        let tokens = Tokens::new(client.clone(), environment.clone());
        let measures = Arc::new(Measures::default());
        let providers = Providers::open(
            &configuration,
            client.clone(),
            tokens.clone(),
            environment.clone(),
            measures.clone(),
        )?;
        config.listen.set_nonblocking(true).map_err(Error::Listen)?;
        let listener = TcpListener::from_std(config.listen).map_err(Error::Listen)?;
        let kubelet_port = listener.local_addr().map_err(Error::Listen)?.port();
        let cri = cri::Client::observed(&config.cri_socket, measures.clone())?;
        cri.set_deadline(configuration.runtime_request_timeout());

        // The watches begin before the runtime answers, so that neither waits for the other.
        let informers = Informers::new(client.clone(), environment.clone());
        let of_node = format!("spec.nodeName={}", config.node_name);
        let api_pods = informers.with_selector::<Pod>(&of_node);
        let objects = ApiObjects::new(client.clone(), environment.clone(), &informers);
        let own_node = format!("metadata.name={}", config.node_name);
        let own_node = informers.with_selector::<Node>(&own_node);
        let node_object = NodeObject::new(config.node_name.clone(), own_node);
        let Some(version) = startup::wait_for_runtime(&cri, shutdown).await else {
            return Ok(None);
        };
        let telemetry = Telemetry {
            events: Events(event_recorder(
                &configuration,
                &config.node_name,
                &client,
                &environment,
            )),
            spans: Spans {
                recorder: config.recorder,
                environment: environment.clone(),
            },
            measures,
        };
        let driver = startup::cgroup_driver(&cri, &configuration).await;
        let capacity = startup::read_capacity(&config.root, &configuration, shutdown).await;
        let Some(capacity) = capacity else {
            return Ok(None);
        };

        let admission = Admission::new(
            capacity.clone(),
            &config.node_name,
            configuration.allowed_unsafe_sysctls.clone(),
        );
        let images = Arc::new(Images::open(
            &config.root,
            &configuration,
            providers,
            cri.clone(),
            telemetry.clone(),
            environment.clone(),
        ));
        let cgroups = Cgroups::new(&config.cgroup_root, &configuration, driver);
        let roots = Roots {
            pods: pods_root,
            secrets: config.secret_root,
        };
        let volumes = Volumes::new(
            roots,
            capacity.pods(),
            tokens,
            client.clone(),
            environment.clone(),
            node_object.clone(),
        );
        let settings = Arc::new(NodeSettings {
            node_name: config.node_name,
            host_ip: config.node_ip.to_string(),
            runtime_name: version.runtime_name,
            log_dir,
            cluster_dns: match configuration.cluster_dns.as_slice() {
                [] => config.cluster_dns,
                configured => configured.to_vec(),
            },
            cluster_domain: match configuration.cluster_domain.as_str() {
                "" => config.cluster_domain,
                configured => configured.to_owned(),
            },
            capacity,
            configuration,
        });
        let sampler = Arc::new(Sampler::new(
            cri.clone(),
            environment.clone(),
            settings.clone(),
            volumes.clone(),
        ));
        let (pressure, shutdown_state) = (Arc::default(), Arc::default());
        let registration = Registration {
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
            pressure: Arc::clone(&pressure),
            shutdown: Arc::clone(&shutdown_state),
        };
        let image_collector = ImageCollector::new(
            cri.clone(),
            environment.clone(),
            settings.clone(),
            telemetry.clone(),
            images.clone(),
            sampler.clone(),
        );
        let services = PodServices {
            settings,
            telemetry,
            environment,
            client,
            cri,
            node_object,
            objects,
            volumes,
            images,
            cgroups,
            admission,
            probe_counts: Arc::default(),
        };
        let kubelet = Kubelet {
            services: Arc::new(services),
            pods: Pods::default(),
            api_pods,
            pressure,
            shutdown_state,
            sampler,
            image_collector: Arc::new(image_collector),
            registration: Arc::new(registration),
            system_bus: config.system_bus,
            root: config.root,
            gives_up: config.gives_up,
            _informers: informers,
        };
        let tls = config.tls;
        Ok(Some((kubelet, ServerSocket { listener, tls })))
    }

    /// Reports that the kubelet starts, and prepares the machine for pods.
    pub fn announce(&self) {
        let (settings, cgroups) = (&self.services.settings, &self.services.cgroups);
        self.services.telemetry.events.node(
            &settings.node_name,
            Severity::Normal,
            "Starting",
            "Starting kubelet.",
        );
        let configuration = &settings.configuration;
        if configuration.enforces_allocatable() {
            cgroups.enforce_allocatable(
                settings.capacity.memory - configuration.reserved_milli("memory") / 1000,
                settings.capacity.allocatable_milli_cpu(),
            );
        }
        cgroups.forbid_swap();
        let node = registration::initial(&self.registration);
        self.services.node_object.will_register(node);
    }

    /// A channel for hints of the runtime that something has changed.
    pub fn hints() -> (mpsc::Sender<Hint>, mpsc::Receiver<Hint>) {
        mpsc::channel(HINTS)
    }

    /// Reads the manifests of static pods for the first time. This happens before the API's pods are
    /// taken: what the runtime has without an owner is ended then.
    pub async fn read_manifests(&self) -> (StaticPods, watch::Receiver<Vec<Arc<Pod>>>) {
        let settings = &self.services.settings;
        let mut manifests = Manifests::new(&settings.configuration, settings.node_name.clone());
        manifests.fetch().await;
        let (sender, receiver) = watch::channel(manifests.read());
        (StaticPods { manifests, sender }, receiver)
    }

    /// Follows the manifests of static pods.
    pub async fn follow_manifests(&self, static_pods: StaticPods, shutdown: &CancellationToken) {
        let StaticPods { manifests, sender } = static_pods;
        if manifests.has_source() {
            manifests.run(sender, shutdown.clone()).await;
        }
    }

    /// Passes on what the runtime announces.
    pub async fn watch_runtime(&self, hints: mpsc::Sender<Hint>, shutdown: &CancellationToken) {
        let services = &self.services;
        let measures = services.telemetry.measures.clone();
        changes::run(services.cri.clone(), measures, hints, shutdown.clone()).await;
    }

    /// Registers the node, then keeps its status and its lease current.
    pub async fn keep_registered(&self, shutdown: &CancellationToken) -> Result<(), Error> {
        let registered =
            startup::wait_for_registration(&self.registration, self.gives_up, shutdown).await;
        let node = match registered {
            Ok(Some(node)) => node,
            Ok(None) => return Ok(()),
            Err(error) => {
                shutdown.cancel();
                return Err(error);
            }
        };
        let services = &self.services;
        let lease = lease::run(
            services.client.clone(),
            services.environment.clone(),
            services.node_object.clone(),
            services.settings.configuration.node_lease_duration_seconds,
            shutdown.clone(),
        );
        let status = registration::run(self.registration.clone(), node, shutdown.clone());
        tokio::join!(lease, status);
        Ok(())
    }

    /// Serves the kubelet's HTTPS API.
    pub async fn serve(&self, socket: ServerSocket, shutdown: &CancellationToken) {
        let services = &self.services;
        let backend = Backend {
            settings: services.settings.clone(),
            telemetry: services.telemetry.clone(),
            environment: services.environment.clone(),
            client: services.client.clone(),
            cri: services.cri.clone(),
            pods: self.pods.clone(),
            sampler: self.sampler.clone(),
            volumes: services.volumes.clone(),
            images: services.images.clone(),
            cgroups: services.cgroups.clone(),
            probe_counts: services.probe_counts.clone(),
            shutdown: self.shutdown_state.clone(),
        };
        let ServerSocket { listener, tls } = socket;
        server::run(listener, tls, Arc::new(backend), shutdown.clone()).await;
    }

    /// Serves `/healthz` on an address of its own, if the configuration names one.
    pub async fn serve_health(&self, shutdown: &CancellationToken) {
        let configuration = &self.services.settings.configuration;
        let address = &configuration.healthz_bind_address;
        server::health::run(address, configuration.healthz_port, shutdown.clone()).await;
    }

    /// Takes pods and runs their workers.
    pub async fn run_pods(
        &self,
        hints: mpsc::Receiver<Hint>,
        manifests: watch::Receiver<Vec<Arc<Pod>>>,
        shutdown: &CancellationToken,
    ) {
        let node = NodeHandles {
            services: self.services.clone(),
            api_pods: self.api_pods.clone(),
            pressure: self.pressure.clone(),
            shutdown: self.shutdown_state.clone(),
        };
        intake::run(node, self.pods.clone(), hints, manifests, shutdown.clone()).await;
    }

    /// Evicts pods when the node runs short.
    pub async fn evict(&self, shutdown: &CancellationToken) {
        let services = &self.services;
        let eviction = Eviction {
            settings: services.settings.clone(),
            telemetry: services.telemetry.clone(),
            environment: services.environment.clone(),
            cri: services.cri.clone(),
            cgroups: services.cgroups.clone(),
            sampler: self.sampler.clone(),
            images: self.image_collector.clone(),
            pressure: self.pressure.clone(),
            pods: self.pods.clone(),
        };
        eviction::run(eviction, shutdown.clone()).await;
    }

    /// Removes images that nothing uses.
    pub async fn collect_images(&self, shutdown: &CancellationToken) {
        self.image_collector.run(shutdown.clone()).await;
    }

    /// Rotates the logs of containers.
    pub async fn rotate_logs(&self, shutdown: &CancellationToken) {
        let services = &self.services;
        log_rotation::run(
            services.cri.clone(),
            services.environment.clone(),
            &services.settings.configuration,
            shutdown.clone(),
        )
        .await;
    }

    /// Ends pods in order when the machine shuts down.
    pub async fn watch_machine_shutdown(&self, shutdown: &CancellationToken) {
        let services = &self.services;
        let context = ShutdownContext {
            settings: services.settings.clone(),
            telemetry: services.telemetry.clone(),
            environment: services.environment.clone(),
            cri: services.cri.clone(),
            state: self.shutdown_state.clone(),
            pods: self.pods.clone(),
        };
        let (bus, root) = (self.system_bus.clone(), self.root.clone());
        shutdown::run(context, bus, root, shutdown.clone()).await;
    }
}

/// Refuses configurations with which the kubelet must not start.
fn check(configuration: &Configuration) -> Result<(), Error> {
    for key in configuration.unsupported() {
        tracing::warn!(
            key,
            "the kubelet's configuration sets a field that is not supported"
        );
    }
    if configuration.fail_swap_on == Some(true) && stats::has_swap().map_err(Error::Swaps)? {
        return Err(Error::Swap);
    }
    Ok(())
}

fn event_recorder(
    configuration: &Configuration,
    node_name: &str,
    client: &kube::Client,
    environment: &Environment,
) -> Recorder {
    Recorder::paced(
        client.clone(),
        environment.clone(),
        "kubelet",
        Some(node_name),
        (configuration.event_record_qps > 0).then(|| Pace {
            per_second: configuration.event_record_qps.into(),
            burst: configuration.event_burst.into(),
        }),
    )
}
