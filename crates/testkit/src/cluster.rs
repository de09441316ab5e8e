//! A whole cluster in this process: store, API server, scheduler, controllers and fake nodes, each
//! with its own identity and lifetime. Any component can be crashed and restarted.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::catalogue::RuntimeConfig;
use api::features::FeatureGates;
use apiserver::{ApiServer, Identity};
use client::Informers;
use environment::Environment;
use store::Store;
use store::disk::{RealDisk, SimulatedDisk};
use store::embedded::{Embedded, Options};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trace::{Recorder, Timelines};

use crate::fake_node::{FakeNode, Machine};
use crate::network::Network;
use crate::pki::Pki;

/// 2026-01-01T00:00:00Z, the start of every simulation.
const ORIGIN_MICROS: i64 = 1_767_225_600_000_000;

/// A component that can be started, stopped and crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Scheduler,
    /// One of several controller processes, of which one leads.
    Controllers(usize),
    /// The fake node of that index.
    Node(usize),
}

/// How the API server's process ends in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// `kill -9`: the page cache survives.
    Process,
    /// Unsynced bytes are lost.
    Power,
}

/// The components of a cluster to build.
pub struct Builder {
    scheduler: bool,
    controllers: bool,
    nodes: usize,
    https: bool,
    on_disk: bool,
    seed: Option<u64>,
    store: Options,
    pod_range: Option<String>,
    runtime_config: RuntimeConfig,
    feature_gates: FeatureGates,
}

impl Builder {
    pub fn scheduler(mut self) -> Builder {
        self.scheduler = true;
        self
    }

    pub fn controllers(mut self) -> Builder {
        self.controllers = true;
        self
    }

    /// Fake nodes, named `node-0` and so on.
    pub fn nodes(mut self, nodes: usize) -> Builder {
        self.nodes = nodes;
        self
    }

    /// Also serves HTTPS on a loopback port.
    pub fn https(mut self) -> Builder {
        self.https = true;
        self
    }

    /// Keeps the store in a temporary directory instead of in memory.
    pub fn on_disk(mut self) -> Builder {
        self.on_disk = true;
        self
    }

    /// Clock, randomness and disk are determined by this seed; the runtime's time should be paused.
    pub fn simulated(mut self, seed: u64) -> Builder {
        self.seed = Some(seed);
        self
    }

    /// Nodes get their pod CIDRs from this range; otherwise they bring their own.
    pub fn pod_range(mut self, range: &str) -> Builder {
        self.pod_range = Some(range.to_owned());
        self
    }

    /// `--runtime-config` and `--feature-gates`, of the server and of the controllers.
    pub fn enabled(mut self, runtime_config: &str, feature_gates: &str) -> Result<Builder> {
        self.runtime_config = RuntimeConfig::parse(runtime_config)?;
        self.feature_gates = FeatureGates::parse(feature_gates)?;
        Ok(self)
    }

    pub fn store_options(mut self, options: Options) -> Builder {
        self.store = options;
        self
    }

    pub async fn start(self) -> Result<Cluster> {
        let environment = match self.seed {
            Some(seed) => Environment::simulated(seed, ORIGIN_MICROS),
            None => Environment::system(),
        };
        let storage = if self.on_disk {
            Storage::Directory(tempfile::tempdir()?)
        } else {
            let disk = SimulatedDisk::new(self.seed.unwrap_or(0));
            Storage::Memory(match self.seed {
                Some(_) => disk.slow_syncs(Duration::from_millis(2)),
                None => disk,
            })
        };
        let machines = (0..self.nodes)
            .map(|index| Machine::new(format!("node-{index}"), index as u8 + 1))
            .collect();
        let pki = Pki::generate()?;
        let mut cluster = Cluster {
            // Keys are made from the kernel's randomness, so that nothing of them may reach the
            // store of a simulation.
            published_authority: match self.seed {
                Some(_) => "the simulated authority".into(),
                None => pki.authority_pem.clone(),
            },
            timelines: Timelines::open(None, environment.clone())?,
            environment,
            storage,
            store_options: self.store,
            pki,
            network: Network::default(),
            machines,
            admin_life: CancellationToken::new(),
            server: None,
            parts: BTreeMap::new(),
            https: self.https,
            is_simulated: self.seed.is_some(),
            pod_range: self.pod_range,
            runtime_config: self.runtime_config,
            feature_gates: self.feature_gates,
        };
        cluster.start_server().await?;
        if self.scheduler {
            cluster.start(Part::Scheduler);
        }
        if self.controllers {
            cluster.start(Part::Controllers(0));
        }
        for index in 0..self.nodes {
            cluster.start(Part::Node(index));
        }
        Ok(cluster)
    }
}

enum Storage {
    Memory(SimulatedDisk),
    Directory(tempfile::TempDir),
}

pub struct Cluster {
    environment: Environment,
    timelines: Timelines,
    storage: Storage,
    store_options: Options,
    pki: Pki,
    published_authority: String,
    network: Network,
    machines: Vec<Machine>,
    admin_life: CancellationToken,
    server: Option<Server>,
    parts: BTreeMap<Part, Life>,
    https: bool,
    is_simulated: bool,
    pod_range: Option<String>,
    runtime_config: RuntimeConfig,
    feature_gates: FeatureGates,
}

struct Server {
    store: Arc<Embedded>,
    shutdown: CancellationToken,
    address: Option<SocketAddr>,
    serving: Option<JoinHandle<()>>,
}

/// One run of a component, from its start to its stop or crash.
struct Life {
    shutdown: CancellationToken,
    connection: CancellationToken,
    task: JoinHandle<()>,
}

impl Cluster {
    /// Only a store and an API server; see [`Builder`] for more.
    pub fn builder() -> Builder {
        Builder {
            scheduler: false,
            controllers: false,
            nodes: 0,
            https: false,
            on_disk: false,
            seed: None,
            store: Options::default(),
            pod_range: None,
            runtime_config: RuntimeConfig::default(),
            feature_gates: FeatureGates::default(),
        }
    }

    /// The administrator's client.
    pub fn client(&self) -> kube::Client {
        self.client_as(Identity::administrator())
    }

    pub fn client_as(&self, identity: Identity) -> kube::Client {
        self.network.client(identity, self.admin_life.clone())
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub fn timelines(&self) -> &Timelines {
        &self.timelines
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// The running server's store, for measuring costs.
    pub fn store(&self) -> Option<&Arc<Embedded>> {
        self.server.as_ref().map(|server| &server.store)
    }

    /// The address on which HTTPS is served, if it is.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref()?.address
    }

    /// A kubeconfig for the HTTPS address with a client certificate of that user.
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<String> {
        let address = self.address().context("HTTPS is not served")?;
        self.pki
            .kubeconfig(&format!("https://{address}"), user, groups)
    }

    /// Starts store and API server from the data on disk.
    pub async fn start_server(&mut self) -> Result<()> {
        if self.server.is_some() {
            bail!("the server runs already");
        }
        let disk = match &self.storage {
            Storage::Memory(disk) => disk.mount(),
            Storage::Directory(directory) => {
                Arc::new(RealDisk::new(directory.path().join("store"))?)
            }
        };
        let store = Embedded::open(disk, self.environment.clone(), self.store_options).await?;
        let api = ApiServer::start(apiserver::Config {
            store: store.clone() as Arc<dyn Store>,
            environment: self.environment.clone(),
            timelines: self.timelines.clone(),
            client_ca_pem: self.pki.authority_pem.clone(),
            service_account_key_pem: self.pki.service_account_key_pem.clone(),
            issuer: "https://kubernetes.default.svc.cluster.local".into(),
            service_range: "10.96.0.0/12".into(),
            dns_service_ip: "10.96.0.10".into(),
            advertise: SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 6443)),
            kubelet_client: None,
            aggregation: Default::default(),
            cluster_domain: "cluster.local".into(),
            shares_store: false,
            compaction: apiserver::COMPACTION,
            admission: apiserver::AdmissionConfig::default(),
            runtime_config: self.runtime_config.clone(),
            feature_gates: self.feature_gates.clone(),
        })
        .await?;
        let mut server = Server {
            store,
            shutdown: CancellationToken::new(),
            address: None,
            serving: None,
        };
        if self.https {
            let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            server.address = Some(listener.local_addr()?);
            let (api, tls) = (api.clone(), self.pki.server_tls()?);
            let shutdown = server.shutdown.clone();
            server.serving = Some(tokio::spawn(async move {
                if let Err(error) = api.serve(listener, tls, shutdown).await {
                    tracing::error!(%error, "serving HTTPS");
                }
            }));
        }
        self.network.connect(api);
        self.server = Some(server);
        Ok(())
    }

    /// Crashes the server: requests in flight break, and nothing is flushed.
    pub fn crash_server(&mut self, crash: Crash) {
        // The disk comes first: the old process must not write to it any more.
        if let Storage::Memory(disk) = &self.storage {
            match crash {
                Crash::Process => disk.kill(),
                Crash::Power => disk.crash(),
            }
        }
        self.network.disconnect();
        if let Some(server) = self.server.take() {
            server.shutdown.cancel();
            if let Some(serving) = server.serving {
                serving.abort();
            }
        }
    }

    /// Stops the server and closes its store.
    pub async fn stop_server(&mut self) -> Result<()> {
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        server.shutdown.cancel();
        self.network.disconnect();
        if let Some(serving) = server.serving {
            serving.await?;
        }
        server.store.close().await?;
        Ok(())
    }

    pub fn is_running(&self, part: Part) -> bool {
        self.parts.contains_key(&part)
    }

    pub fn is_server_running(&self) -> bool {
        self.server.is_some()
    }

    pub fn start(&mut self, part: Part) {
        if self.is_running(part) {
            return;
        }
        let shutdown = CancellationToken::new();
        let connection = CancellationToken::new();
        let environment = self.environment.clone();
        let client = |identity| self.network.client(identity, connection.clone());
        let recorder = Recorder::new(Arc::new(self.timelines.clone()));
        let task = match part {
            Part::Scheduler => {
                let client = client(Identity::component("system:kube-scheduler", &[]));
                let informers = Informers::new(client.clone(), environment.clone());
                tokio::spawn(scheduler::run(
                    client,
                    informers,
                    environment,
                    recorder,
                    shutdown.clone(),
                ))
            }
            Part::Controllers(index) => {
                let client = client(Identity::component("system:kube-controller-manager", &[]));
                let config = controllers::Config {
                    informers: Informers::new(client.clone(), environment.clone()),
                    client,
                    accounts: controllers::Accounts::new({
                        let (network, connection) = (self.network.clone(), connection.clone());
                        move |name| {
                            let identity = Identity::service_account("kube-system", name);
                            network.client(identity, connection.clone())
                        }
                    }),
                    environment,
                    recorder,
                    root_ca_pem: self.published_authority.clone(),
                    candidate: Some(format!("testkit-{index}")),
                    // Signatures are random, so that nothing of them may reach a simulation's store.
                    authority: None,
                    token_signer: match self.is_simulated {
                        true => None,
                        false => self.pki.token_signer().ok(),
                    },
                    namespace_grace: Duration::ZERO,
                    pod_range: self.pod_range.clone(),
                    reserved_pod_ranges: None,
                    feature_gates: self.feature_gates.clone(),
                    without: Vec::new(),
                };
                tokio::spawn(controllers::run(config, shutdown.clone()))
            }
            Part::Node(index) => {
                let machine = self.machines[index].clone();
                let client = client(Identity::node(machine.name()));
                let node = FakeNode {
                    informers: Informers::new(client.clone(), environment.clone()),
                    client,
                    machine,
                    environment,
                    recorder,
                };
                tokio::spawn(node.run(shutdown.clone()))
            }
        };
        let life = Life {
            shutdown,
            connection,
            task,
        };
        self.parts.insert(part, life);
    }

    /// Crashes a component.
    pub fn crash(&mut self, part: Part) {
        if let Some(life) = self.parts.remove(&part) {
            life.connection.cancel();
            life.task.abort();
            // Ends the tasks that the component had spawned.
            life.shutdown.cancel();
        }
    }

    /// Stops a component.
    pub async fn stop(&mut self, part: Part) -> Result<()> {
        if let Some(life) = self.parts.remove(&part) {
            life.shutdown.cancel();
            life.task.await?;
            life.connection.cancel();
        }
        Ok(())
    }

    /// Stops all components.
    pub async fn shut_down(mut self) -> Result<()> {
        let parts: Vec<Part> = self.parts.keys().copied().collect();
        for part in parts {
            self.stop(part).await?;
        }
        self.stop_server().await
    }
}
