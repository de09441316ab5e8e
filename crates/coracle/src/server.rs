//! `coracle server`: the control plane and a node in the foreground.
//!
//! Start order: store, API server, listener; then, side by side, scheduler, controllers and the
//! node. Shutdown runs the other way round and leaves the pods alone.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use apiserver::{AdmissionConfig, ApiServer, Identity, KubeletClient};
use clap::Args;
use client::election::Election;
use environment::Environment;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trace::{Recorder, Timelines};
use tracing::{error, info};

use crate::agent::{self, NodeConfig};
use crate::claims::{self, Claims, Wishes};
use crate::cli::DEFAULT_DATA_DIR;
use crate::first_start::{self, FirstStart};
use crate::flags;
use crate::keeper::{self, Role};
use crate::kubeconfig;
use crate::layout::{Layout, Settings, new_cluster_id, private_dir, volatile_dir, write_private};
use crate::pki::{self, Names, Pki};
use crate::privileges;
use crate::storage::{Storage, StoreArguments};
use crate::ticket;

pub const CLUSTER_DOMAIN: &str = "cluster.local";

#[derive(Args)]
pub struct ServerArguments {
    /// Where the cluster keeps its data
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Standard input is the API's listening socket (set by the keeper)
    #[arg(long, hide = true)]
    inherit_socket: bool,
}

/// What can be chosen about a cluster; shared by `up` and `server`.
#[derive(Args, Clone)]
pub struct ClusterArguments {
    /// API port [default: 6443 or the next free one; 0: any free port]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Name of this machine's node [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = flags::node_name)]
    pub node_name: Option<String>,
    /// Address at which other machines reach this node [default: that of the default route]
    #[arg(long, value_name = "ADDRESS", value_parser = flags::node_address)]
    pub node_ip: Option<IpAddr>,
    /// Pod address range [default: 10.244.0.0/16 or the next free one]
    #[arg(long, value_name = "CIDR", value_parser = flags::pod_range)]
    pub pod_range: Option<String>,
    /// Service address range [default: 10.96.0.0/12 or the next free one]
    #[arg(long, value_name = "CIDR", value_parser = flags::service_range)]
    pub service_range: Option<String>,
    /// Socket of another container runtime that speaks CRI, such as unix:///run/containerd/containerd.sock
    #[arg(long, value_name = "SOCKET", value_parser = socket_path)]
    pub container_runtime_endpoint: Option<PathBuf>,
    /// Parts to leave out: scheduler, controllers, node, proxy, dns
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_parser = ["scheduler", "controllers", "node", "proxy", "dns"])]
    pub disable: Vec<String>,
    /// KubeSchedulerConfiguration to schedule by [default: scheduler.yaml in the data directory]
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    /// Admission plugins to switch on beside the usual ones
    #[arg(long, value_name = "PLUGIN,...", value_delimiter = ',', value_parser = apiserver::OPTIONAL_PLUGINS)]
    pub enable_admission_plugins: Vec<String>,
    #[command(flatten)]
    pub store: StoreArguments,
    /// Log filter, e.g. info or debug
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = flags::log_filter)]
    pub log: String,
    /// Write logs as JSON lines
    #[arg(long)]
    pub log_json: bool,
}

impl ClusterArguments {
    /// The flags a keeper passes on to its server; what lies in the settings is not repeated.
    pub fn forwarded(&self) -> Vec<String> {
        let mut arguments = vec![format!("--log={}", self.log)];
        if !self.disable.is_empty() {
            arguments.push(format!("--disable={}", self.disable.join(",")));
        }
        if !self.enable_admission_plugins.is_empty() {
            let plugins = self.enable_admission_plugins.join(",");
            arguments.push(format!("--enable-admission-plugins={plugins}"));
        }
        if self.log_json {
            arguments.push("--log-json".to_string());
        }
        if let Some(file) = &self.scheduler_config {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            arguments.push(format!("--scheduler-config={}", file.display()));
        }
        arguments.extend(self.store.forwarded());
        arguments
    }

    pub fn enabled(&self, part: &str) -> bool {
        !self.disable.iter().any(|disabled| disabled == part)
    }
}

/// A data directory that is ready to be served.
pub struct Prepared {
    pub settings: Settings,
    pub pki: Pki,
    pub node_address: IpAddr,
    /// What a user should know about the choice of ranges.
    pub notes: Vec<String>,
}

/// Checks everything that can be checked before a start, and writes nothing: the flags against each
/// other and against what was chosen before, the configuration files, and the ports.
pub fn check(data_dir: &Path, cluster: &ClusterArguments) -> Result<()> {
    let layout = Layout {
        data_dir: std::path::absolute(data_dir)?,
    };
    if let (Some(pods), Some(services)) = (&cluster.pod_range, &cluster.service_range) {
        check_ranges(pods, services)?;
    }
    if cluster.enabled("scheduler") {
        scheduler_configuration(&layout, cluster)?;
    }
    if cluster.enabled("node") {
        agent::check_configuration(&layout)?;
    }
    cluster.store.check()?;
    let settings = match data_dir.exists() {
        true => layout.settings()?,
        false => None,
    };
    let Some(settings) = settings else {
        chosen_node_name(cluster)?;
        return match cluster.port {
            Some(port) if port != 0 => check_port(port, "port"),
            _ => Ok(()),
        };
    };
    if !settings.is_servers_own() {
        bail!(
            "{} belongs to a node that joined another server: run `coracle agent` there",
            data_dir.display()
        );
    }
    check_unchanged(&settings, cluster)?;
    if keeper::running(&layout)?.is_none() {
        check_port(settings.api_port, "port")?;
        if cluster.enabled("node") {
            check_port(settings.kubelet_port, "the kubelet's port")?;
        }
    }
    Ok(())
}

/// Binds a port for a moment: one in use is an error before anything is changed.
pub fn check_port(port: u16, what: &str) -> Result<()> {
    std::net::TcpListener::bind(("0.0.0.0", port))
        .map(drop)
        .with_context(|| format!("cannot listen on {what} {port}"))
}

fn check_ranges(pods: &str, services: &str) -> Result<()> {
    if flags::overlap(pods, services) {
        bail!("the pod range {pods} and the service range {services} overlap");
    }
    Ok(())
}

fn chosen_node_name(cluster: &ClusterArguments) -> Result<String> {
    match &cluster.node_name {
        Some(name) => Ok(name.clone()),
        None => host_name(),
    }
}

/// Chooses (once) and claims (each time) ranges and ports, makes certificates and kubeconfigs.
pub fn prepare(
    layout: &Layout,
    cluster: &ClusterArguments,
    environment: &Environment,
) -> Result<Prepared> {
    let mut claims = Claims::lock()?;
    let (mut settings, notes) = match layout.settings()? {
        Some(settings) => {
            check_unchanged(&settings, cluster)?;
            let store = cluster.store.shared();
            claims.claim(&settings, &layout.data_dir, store.as_deref())?;
            // The ranges of a cluster cannot change; a network that came later can only be told.
            let conflicts = claims::host_conflicts(&settings)?;
            let told = conflicts
                .iter()
                .map(|conflict| format!("Warning: {conflict}; one of the two is not reached."));
            (settings, told.collect())
        }
        None => {
            let node_name = chosen_node_name(cluster)?;
            let wishes = Wishes {
                api_port: cluster.port,
                pod_range: cluster.pod_range.clone(),
                service_range: cluster.service_range.clone(),
                node_address: cluster.node_ip,
                runtime_endpoint: cluster.container_runtime_endpoint.clone(),
                store: cluster.store.shared(),
            };
            let id = new_cluster_id(environment);
            let host = claims::host_networks()?;
            let (settings, notes) =
                claims.choose(&id, &node_name, &layout.data_dir, &wishes, &host)?;
            let saved = check_ranges(&settings.pod_range, &settings.service_range)
                .and_then(|()| layout.save_settings(&settings));
            if let Err(error) = saved {
                claims.release(&id)?;
                return Err(error);
            }
            (settings, notes)
        }
    };
    settings.several_pod_ranges |= cluster.store.is_shared();
    drop(claims);
    let mut prepared = set_up(layout, settings, environment)?;
    prepared.notes = notes;
    Ok(prepared)
}

/// Makes the run directory, certificates and kubeconfigs of a cluster whose settings are stored.
pub fn set_up(layout: &Layout, settings: Settings, environment: &Environment) -> Result<Prepared> {
    volatile_dir(&settings.run_dir())?;
    let gateway = IpAddr::V4(settings.gateway()?);
    let node_address = node_address(&settings)?;
    let addresses = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        gateway,
        IpAddr::V4(settings.service_address(1)?),
        node_address,
    ];
    let names = Names {
        node_name: &settings.node_name,
        addresses: &addresses,
        cluster_domain: CLUSTER_DOMAIN,
    };
    let pki = Pki::load_or_create(&layout.pki(), &names, environment)?;
    let url = format!("https://127.0.0.1:{}", settings.api_port);
    // Several of these can be used together, as KUBECONFIG=a:b.
    let own_name = kubeconfig::name_of(layout, &settings);
    for (file, name, user, identity) in [
        (
            layout.kubeconfig(),
            own_name.as_str(),
            own_name.as_str(),
            &pki.admin,
        ),
        (layout.node_kubeconfig(), "coracle", "node", &pki.node),
        (layout.proxy_kubeconfig(), "coracle", "proxy", &pki.proxy),
        (
            layout.local_path_kubeconfig(),
            "coracle",
            "local-path",
            &pki.local_path,
        ),
    ] {
        let text = pki::kubeconfig(&pki.authority, &url, name, user, identity);
        write_private(&file, text.as_bytes())?;
    }
    Ok(Prepared {
        settings,
        pki,
        node_address,
        notes: Vec::new(),
    })
}

pub fn run(arguments: ServerArguments) -> Result<ExitCode> {
    privileges::need_root("coracle server")?;
    start_logging(&arguments.cluster.log, arguments.cluster.log_json)?;
    crate::descriptors::raise();
    let environment = Environment::system();
    if arguments.inherit_socket {
        // A server whose keeper was killed ends too: nobody would find it any more.
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
        let layout = Layout::create(&arguments.data_dir)?;
        let prepared = prepare(&layout, &arguments.cluster, &environment)?;
        let listener = std::net::TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        return run_prepared(&layout, prepared, listener, &arguments.cluster, environment);
    }
    let missing = first_start::missing_directories(&arguments.data_dir)?;
    check(&arguments.data_dir, &arguments.cluster)?;
    let layout = Layout::create(&arguments.data_dir)?;
    let starting = layout.lock()?;
    // Found by `up` and `down`, like a keeper.
    let _running = keeper::hold(&layout, Role::Server)?;
    let first = FirstStart::of(&layout, missing)?;
    drop(starting);
    let result = prepare(&layout, &arguments.cluster, &environment).and_then(|prepared| {
        let ready_file = prepared.settings.ready_file();
        let _ = std::fs::remove_file(&ready_file);
        let port = prepared.settings.api_port;
        let listener = std::net::TcpListener::bind(("0.0.0.0", port))
            .with_context(|| format!("cannot listen on port {port}"))?;
        run_prepared(&layout, prepared, listener, &arguments.cluster, environment)
    });
    let was_ready = layout
        .settings()?
        .is_some_and(|settings| settings.ready_file().exists());
    first_start::settle(first.filter(|_| !was_ready), result)
}

fn run_prepared(
    layout: &Layout,
    prepared: Prepared,
    listener: std::net::TcpListener,
    cluster: &ClusterArguments,
    environment: Environment,
) -> Result<ExitCode> {
    for note in &prepared.notes {
        info!("{note}");
    }
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve(layout, prepared, listener, cluster, environment));
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result.map(|()| ExitCode::SUCCESS)
}

async fn serve(
    layout: &Layout,
    prepared: Prepared,
    listener: std::net::TcpListener,
    cluster: &ClusterArguments,
    environment: Environment,
) -> Result<()> {
    let Prepared {
        settings,
        pki,
        node_address,
        ..
    } = prepared;
    let started = environment.now_micros();
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(shutdown.clone());

    let storage = Storage::open(&cluster.store, layout, &environment).await?;
    tasks.spawn("store", {
        let (storage, shutdown) = (storage.clone(), shutdown.clone());
        async move {
            tokio::select! {
                () = shutdown.cancelled() => Ok(()),
                // A failed fsync is never retried: the process ends and reads its files afresh.
                reason = storage.closed() => bail!("the store closed: {reason}"),
            }
        }
    });
    private_dir(&layout.timelines())?;
    let timelines = Timelines::open(Some(layout.timelines()), environment.clone())?;
    let recorder = Recorder::new(Arc::new(timelines.clone()));

    // Pods of this machine reach the gateway whatever the machine's address is. Without a node of
    // its own there is no gateway.
    let reached_at = match cluster.enabled("node") {
        true => settings.gateway()?.into(),
        false => node_address,
    };
    let advertise = SocketAddr::new(reached_at, settings.api_port);
    let api = ApiServer::start(apiserver::Config {
        store: storage.store.clone(),
        environment: environment.clone(),
        timelines,
        client_ca_pem: pki.authority.clone(),
        service_account_key_pem: pki.service_account_key.clone(),
        issuer: format!("https://kubernetes.default.svc.{CLUSTER_DOMAIN}"),
        service_range: settings.service_range.clone(),
        dns_service_ip: settings.service_address(10)?.to_string(),
        advertise,
        shares_store: cluster.store.is_shared(),
        kubelet_client: Some(KubeletClient {
            ca_pem: pki.authority.clone(),
            certificate_pem: pki.kubelet_client.certificate.clone(),
            key_pem: pki.kubelet_client.key.clone(),
        }),
        cluster_domain: CLUSTER_DOMAIN.to_string(),
        compaction: cluster.store.compaction_interval(),
        admission: AdmissionConfig {
            enabled: cluster.enable_admission_plugins.clone(),
            pod_ranges: Some(Arc::new({
                let (layout, settings) = (layout.clone(), settings.clone());
                move |name: &str| {
                    let given = ticket::given_pod_ranges(&layout, &settings);
                    let given = given.map_err(|error| format!("{error:#}"))?;
                    let mut given = given.into_iter();
                    Ok(given.find_map(|(node, range)| (node == name).then_some(range)))
                }
            })),
        },
    })
    .await
    .context("starting the API server")?;

    let api_shutdown = CancellationToken::new();
    let api_tasks = Tasks::new(shutdown.clone());
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let tls = pki.server_tls(&pki.server)?;
    api_tasks.spawn("API server", {
        let (api, api_shutdown) = (api.clone(), api_shutdown.clone());
        async move { Ok(api.serve(listener, tls, api_shutdown).await?) }
    });
    info!(
        port = settings.api_port,
        cluster = settings.cluster_id,
        "API server listens after {} ms",
        (environment.now_micros() - started) / 1000
    );

    let component = |user: &str| {
        let identity = Identity::component(user, &["system:authenticated"]);
        client::connect::from_service(api.in_process(identity))
    };
    // Of several servers that share a store, one leads.
    let candidate = format!("{}_{}", settings.node_name, settings.cluster_id);
    if cluster.enabled("controllers") {
        let client = component("system:kube-controller-manager");
        let config = controllers::Config {
            informers: client::Informers::new(client.clone(), environment.clone()),
            client,
            accounts: controllers::Accounts::new({
                let api = api.clone();
                move |name| {
                    let identity = Identity::service_account("kube-system", name);
                    client::connect::from_service(api.in_process(identity))
                }
            }),
            environment: environment.clone(),
            recorder: recorder.clone(),
            root_ca_pem: pki.authority.clone(),
            candidate: Some(candidate.clone()),
            authority: Some(controllers::Authority {
                certificate_pem: pki.authority.clone(),
                key_pem: pki.authority_key.clone(),
            }),
            token_signer: Some(crate::components::token_signer(&pki.service_account_key)?),
            // Upstream's API servers may share an etcd with ours.
            namespace_grace: match cluster.store.is_shared() {
                true => controllers::NAMESPACE_GRACE,
                false => std::time::Duration::ZERO,
            },
            pod_range: Some(settings.pod_range.clone()),
            reserved_pod_ranges: Some(Arc::new({
                let (layout, settings) = (layout.clone(), settings.clone());
                move || {
                    ticket::given_pod_ranges(&layout, &settings)
                        .map_err(|error| format!("{error:#}"))
                }
            })),
            without: Vec::new(),
        };
        let shutdown = shutdown.clone();
        tasks.spawn("controllers", async move {
            controllers::run(config, shutdown).await;
            Ok(())
        });
    }
    if cluster.enabled("scheduler") {
        let client = component("system:kube-scheduler");
        let configuration = scheduler_configuration(layout, cluster)?;
        let informers = client::Informers::new(client.clone(), environment.clone());
        let (environment, recorder) = (environment.clone(), recorder.clone());
        let shutdown = shutdown.clone();
        let election = Election {
            client: client.clone(),
            environment: environment.clone(),
            namespace: "kube-system".to_string(),
            name: "kube-scheduler".to_string(),
            holder: candidate,
        };
        tasks.spawn("scheduler", async move {
            let lead = |term| {
                let scheduler = scheduler::Scheduler {
                    configuration: configuration.clone(),
                    ..scheduler::Scheduler::new(
                        client.clone(),
                        informers.anew(),
                        environment.clone(),
                        recorder.clone(),
                    )
                };
                async move {
                    // The configuration has been checked.
                    if let Err(error) = scheduler.run(term).await {
                        error!("the scheduler cannot run: {error}");
                    }
                }
            };
            election.run(lead, shutdown).await;
            Ok(())
        });
    }
    if cluster.enabled("node") {
        let config = NodeConfig {
            layout: layout.clone(),
            settings: settings.clone(),
            node_address,
            kubelet_tls: pki.server_tls(&pki.kubelet_server)?,
            proxy: cluster.enabled("proxy"),
            dns: cluster.enabled("dns"),
            // The API must not end because of its own node.
            gives_up: false,
            certificates: None,
            came_with_ticket: false,
            environment: environment.clone(),
            recorder,
        };
        agent::start(config, &tasks).await?;
    }
    write_private(&settings.ready_file(), b"")?;

    wait_for_shutdown(&shutdown).await?;
    info!("stopping; pods go on");
    shutdown.cancel();
    tasks.finish().await;
    api_shutdown.cancel();
    api_tasks.finish().await;
    api.stop();
    storage.close().await?;
    if let Some(problem) = tasks.problem().or(api_tasks.problem()) {
        // The ready file stays: the keeper must see a crash, not a start that failed.
        bail!(problem);
    }
    let _ = std::fs::remove_file(settings.ready_file());
    Ok(())
}

/// The long-running parts of the process. When one ends with an error the process shuts down, so
/// that the keeper starts it afresh.
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    /// What the first that failed said.
    problem: Arc<parking_lot::Mutex<Option<String>>>,
}

impl Tasks {
    pub fn new(shutdown: CancellationToken) -> Tasks {
        Tasks {
            tracker: TaskTracker::new(),
            shutdown,
            problem: Arc::default(),
        }
    }

    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = Result<()>> + Send + 'static,
    ) {
        let (shutdown, first) = (self.shutdown.clone(), self.problem.clone());
        let task = tokio::spawn(future);
        self.tracker.spawn(async move {
            let problem = match task.await {
                Ok(Ok(())) => return,
                Ok(Err(problem)) => format!("{problem:#}"),
                Err(problem) => problem.to_string(),
            };
            error!(component = name, "failed: {problem}");
            let mut first = first.lock();
            first.get_or_insert_with(|| format!("{name} failed: {problem}"));
            drop(first);
            shutdown.cancel();
        });
    }

    /// Waits for all parts to end, but not for ever: a stuck one must not keep a machine from
    /// shutting down.
    pub async fn finish(&self) {
        self.tracker.close();
        let limit = std::time::Duration::from_secs(5);
        if tokio::time::timeout(limit, self.tracker.wait())
            .await
            .is_err()
        {
            error!("some parts did not stop in time");
        }
    }

    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }
}

pub async fn wait_for_shutdown(shutdown: &CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = shutdown.cancelled() => {}
    }
    Ok(())
}

pub fn start_logging(log: &str, as_json: bool) -> Result<()> {
    let filter =
        tracing_subscriber::EnvFilter::try_new(log).with_context(|| format!("--log {log}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match as_json {
        true => builder.json().init(),
        false => builder.init(),
    }
    Ok(())
}

/// What the scheduler is to go by: the file that was named, or the one in the data directory.
fn scheduler_configuration(
    layout: &Layout,
    cluster: &ClusterArguments,
) -> Result<scheduler::configuration::Configuration> {
    let file = match &cluster.scheduler_config {
        Some(file) => file.clone(),
        None => layout.data_dir.join("scheduler.yaml"),
    };
    let read = scheduler::configuration::Configuration::read(&file);
    let read = read.with_context(|| format!("the scheduler's configuration {}", file.display()))?;
    if read.is_none() && cluster.scheduler_config.is_some() {
        bail!("there is no scheduler configuration {}", file.display());
    }
    let configuration = read.unwrap_or_default();
    scheduler::check(&configuration)
        .with_context(|| format!("the scheduler's configuration {}", file.display()))?;
    Ok(configuration)
}

fn check_unchanged(settings: &Settings, cluster: &ClusterArguments) -> Result<()> {
    let checks = [
        (
            "--port",
            cluster
                .port
                .filter(|port| *port != 0)
                .map(|port| port.to_string()),
            settings.api_port.to_string(),
        ),
        (
            "--node-name",
            cluster.node_name.clone(),
            settings.node_name.clone(),
        ),
        (
            "--pod-range",
            cluster.pod_range.as_deref().map(claims::canonical),
            claims::canonical(&settings.pod_range),
        ),
        (
            "--service-range",
            cluster.service_range.as_deref().map(claims::canonical),
            claims::canonical(&settings.service_range),
        ),
        (
            "--node-ip",
            cluster.node_ip.map(|address| address.to_string()),
            settings
                .node_address
                .map_or("none".to_string(), |address| address.to_string()),
        ),
        (
            "--container-runtime-endpoint",
            cluster
                .container_runtime_endpoint
                .as_ref()
                .map(|socket| socket.display().to_string()),
            settings
                .runtime_endpoint
                .as_ref()
                .map_or("none".to_string(), |socket| socket.display().to_string()),
        ),
    ];
    for (flag, asked, stored) in checks {
        refuse_change(flag, asked, stored)?;
    }
    Ok(())
}

/// What was chosen when a data directory was made stays.
pub fn refuse_change(flag: &str, asked: Option<String>, stored: String) -> Result<()> {
    if asked.is_some_and(|asked| asked != stored) {
        bail!("{flag} cannot be changed: this data directory was made with {stored}");
    }
    Ok(())
}

/// The path of `unix:///path` or `/path`.
pub fn socket_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    match path.is_absolute() {
        true => Ok(path),
        false => Err("expected unix:///path/of/a/socket".to_string()),
    }
}

pub fn host_name() -> Result<String> {
    let name = nix::unistd::gethostname()?.to_string_lossy().to_lowercase();
    let name: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    let name = name.trim_matches(|c| c == '-' || c == '.');
    let name = if name.is_empty() { "coracle" } else { name };
    flags::node_name(name)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("the host name {name} cannot name a node; give --node-name"))
}

/// The address other machines reach this node at.
pub fn node_address(settings: &Settings) -> Result<IpAddr> {
    let gateway = IpAddr::V4(settings.gateway()?);
    let chosen = settings.node_address.or_else(machine_address);
    Ok(chosen.unwrap_or(gateway))
}

/// The address this machine would use towards others; connecting a UDP socket sends nothing.
fn machine_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified() && !address.is_loopback()).then_some(address)
}
