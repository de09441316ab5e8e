//! The node: runtime, kubelet, service proxy and resolver. It reaches the API server only by HTTPS
//! and containers only by CRI, whether it runs inside a server or as `coracle agent`.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use clap::Args;
use environment::Environment;
use network::node::NodeNetwork;
use tokio_util::sync::CancellationToken;
use trace::Recorder;
use tracing::info;

use crate::claims::Claims;
use crate::cli::DEFAULT_DATA_DIR;
use crate::first_start::{self, FirstStart};
use crate::flags;
use crate::join::{JoinArguments, OfTheNode};
use crate::keeper::{self, Role};
use crate::layout::{Layout, RUN_ROOT, Settings, private_dir, secret_dir, volatile_dir};
use crate::local_path::LocalPath;
use crate::pki;
use crate::privileges;
use crate::rotation::{Certificates, Held};
use crate::server::{self, CLUSTER_DOMAIN, Tasks};
use crate::ticket;

#[derive(Args)]
pub struct AgentArguments {
    /// Data directory of this node, or of a server on this machine that runs with `--disable node`
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Ticket from `coracle invite`; needed only once
    #[arg(long, value_name = "FILE")]
    ticket: Option<PathBuf>,
    #[command(flatten)]
    join: JoinArguments,
    /// Name of this node [default: the ticket's, or with --kubeconfig the host name]
    #[arg(long, value_name = "NAME", value_parser = flags::node_name)]
    node_name: Option<String>,
    /// Address at which other machines reach this node [default: the ticket's, or that of the default route]
    #[arg(long, value_name = "ADDRESS", value_parser = flags::node_address)]
    node_ip: Option<IpAddr>,
    /// Socket of another container runtime that speaks CRI, such as unix:///run/containerd/containerd.sock
    #[arg(long, value_name = "SOCKET", value_parser = server::socket_path)]
    container_runtime_endpoint: Option<PathBuf>,
    /// Parts to leave out: proxy, dns
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_parser = ["proxy", "dns"])]
    disable: Vec<String>,
    /// Log filter, e.g. info or debug
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = flags::log_filter)]
    log: String,
    /// Write logs as JSON lines
    #[arg(long)]
    log_json: bool,
}

impl AgentArguments {
    fn enabled(&self, part: &str) -> bool {
        !self.disable.iter().any(|disabled| disabled == part)
    }

    /// Puts what a ticket or a kubeconfig says into the data directory, if one was given.
    fn join(&self, layout: &Layout, environment: &Environment) -> Result<()> {
        if let Some(file) = &self.ticket {
            let endpoint = self.container_runtime_endpoint.clone();
            return ticket::accept(layout, file, endpoint, environment);
        }
        if !self.join.asked() {
            return Ok(());
        }
        let node = OfTheNode {
            name: self.node_name.clone(),
            address: self.node_ip,
            runtime_endpoint: self.container_runtime_endpoint.clone(),
        };
        self.join.accept(layout, &node, environment)
    }

    /// What was chosen when the node joined stays.
    fn check_unchanged(&self, settings: &Settings) -> Result<()> {
        let none = || "none".to_string();
        server::refuse_change(
            "--node-name",
            self.node_name.clone(),
            settings.node_name.clone(),
        )?;
        server::refuse_change(
            "--node-ip",
            self.node_ip.map(|address| address.to_string()),
            settings
                .node_address
                .map_or_else(none, |address| address.to_string()),
        )?;
        let shown = |socket: &PathBuf| socket.display().to_string();
        server::refuse_change(
            "--container-runtime-endpoint",
            self.container_runtime_endpoint.as_ref().map(shown),
            settings.runtime_endpoint.as_ref().map_or_else(none, shown),
        )
    }
}

/// What a node needs to know.
pub struct NodeConfig {
    pub layout: Layout,
    pub settings: Settings,
    pub node_address: IpAddr,
    pub kubelet_tls: Arc<rustls::ServerConfig>,
    pub proxy: bool,
    pub dns: bool,
    /// Whether to end when the server refuses the node for good.
    pub gives_up: bool,
    /// Those of a node that joined with a ticket; it renews them.
    pub certificates: Option<Certificates>,
    /// They are a ticket's, which is to be worth as little as possible from now on.
    pub came_with_ticket: bool,
    pub environment: Environment,
    pub recorder: Recorder,
}

pub fn run(arguments: AgentArguments) -> Result<ExitCode> {
    privileges::need_root("coracle agent")?;
    server::start_logging(&arguments.log, arguments.log_json)?;
    crate::descriptors::raise();
    let environment = Environment::system();
    let missing = first_start::missing_directories(&arguments.data_dir)?;
    check_configuration(&Layout {
        data_dir: arguments.data_dir.clone(),
    })?;
    let joins = arguments.ticket.is_some() || arguments.join.asked();
    let layout = match joins {
        true => Layout::create(&arguments.data_dir)?,
        false => Layout::existing(&arguments.data_dir)?,
    };
    let starting = layout.lock()?;
    let first = FirstStart::of(&layout, missing)?;
    let beside_server = layout
        .settings()?
        .is_some_and(|settings| settings.is_servers_own());
    // Beside a server it is that one's keeper which is found by `down`.
    let _running = match beside_server {
        true => None,
        false => Some(keeper::hold(&layout, Role::Agent)?),
    };
    drop(starting);
    let has_joined = AtomicBool::new(false);
    let result = run_in(&layout, &arguments, environment, &has_joined);
    let has_joined = has_joined.load(Ordering::Relaxed);
    first_start::settle(first.filter(|_| !has_joined), result)
}

fn run_in(
    layout: &Layout,
    arguments: &AgentArguments,
    environment: Environment,
    has_joined: &AtomicBool,
) -> Result<ExitCode> {
    arguments.join(layout, &environment)?;
    let settings = layout.settings()?.context(
        "there is no cluster in this data directory: start a server first, or give a ticket",
    )?;
    arguments.check_unchanged(&settings)?;
    server::check_port(settings.kubelet_port, "the kubelet's port")?;
    let certificates = match settings.is_servers_own() || !is_coracles(layout) {
        true => None,
        false => {
            let certificates = Certificates::read(layout)?;
            check_not_ended(&certificates, &settings, &environment)?;
            Some(certificates)
        }
    };
    let (settings, kubelet_tls) = match settings.is_servers_own() {
        true => {
            Claims::lock()?.claim_beside_server(&settings, &layout.data_dir)?;
            let prepared = server::set_up(layout, settings, &environment)?;
            let tls = prepared.pki.server_tls(&prepared.pki.kubelet_server)?;
            (prepared.settings, tls)
        }
        false => {
            Claims::lock()?.claim_joined(&settings, &layout.data_dir)?;
            volatile_dir(&settings.run_dir())?;
            let serving = match &certificates {
                Some(certificates) => certificates.serving.clone(),
                None => Held::new(pki::serving_identity(&layout.pki())?)?,
            };
            (settings, pki::joined_tls(&layout.pki(), serving)?)
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let tasks = Tasks::new(CancellationToken::new());
        let recorder = match is_coracles(layout) {
            true => {
                let kubeconfig = layout.node_kubeconfig();
                let held = certificates.as_ref().map(|held| &held.node);
                let client = connect(&kubeconfig, "kubelet", held).await?;
                let shutdown = tasks.shutdown();
                let forwarder = client::SpanForwarder::start(client, environment.clone(), shutdown);
                Recorder::new(forwarder)
            }
            false => Recorder::off(),
        };
        let config = NodeConfig {
            kubelet_tls,
            node_address: server::node_address(&settings)?,
            settings,
            layout: layout.clone(),
            proxy: arguments.enabled("proxy"),
            dns: arguments.enabled("dns"),
            gives_up: true,
            certificates,
            came_with_ticket: arguments.ticket.is_some(),
            environment,
            recorder,
        };
        start(config, &tasks).await?;
        has_joined.store(true, Ordering::Relaxed);
        server::wait_for_shutdown(&tasks.shutdown()).await?;
        tasks.shutdown().cancel();
        tasks.finish().await;
        if let Some(problem) = tasks.problem() {
            bail!(problem);
        }
        anyhow::Ok(())
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result.map(|()| ExitCode::SUCCESS)
}

/// Prepares the machine and spawns the node's parts; returns when all of them have been started.
pub async fn start(config: NodeConfig, tasks: &Tasks) -> Result<()> {
    let NodeConfig {
        layout,
        settings,
        node_address,
        kubelet_tls,
        proxy,
        dns,
        gives_up,
        certificates,
        came_with_ticket,
        environment,
        recorder,
    } = config;
    let held = |choose: fn(&Certificates) -> &Arc<Held>| certificates.as_ref().map(choose);
    let executable = std::env::current_exe()?;
    let dns_address = settings.service_address(10)?;
    let node_network = NodeNetwork {
        cluster_id: settings.cluster_id.clone(),
        pod_cidr: settings.node_pod_range()?.parse()?,
        cluster_cidr: settings.pod_range.parse()?,
        service_cidr: settings.service_range.parse()?,
        dns_ip: dns_address,
        gateway: settings.gateway()?,
        mtu: None,
    };
    Claims::lock()?.hold_sysctl(&settings.cluster_id, "net.ipv4.ip_forward", "1")?;
    network::node::setup(&node_network).context("preparing the node's network")?;
    for dir in [
        layout.data_dir.clone(),
        layout.kubelet(),
        layout.pod_logs(),
        layout.runtime(),
        layout.cni_conf(),
        layout.cni_bin(),
        settings.cni_state(),
    ] {
        private_dir(&dir)?;
    }
    network::cni::write_configuration(
        &layout.cni_conf(),
        &layout.cni_bin(),
        &executable,
        &node_network,
        &settings.cni_state(),
    )
    .context("writing the CNI configuration")?;

    let configuration = configuration(&layout)?;
    let foreign_runtime = foreign_runtime(&layout, &settings)?;
    let state = settings.run_dir().join("runtime");
    private_dir(&state)?;
    let command = |name: &str| vec![executable.clone().into_os_string(), name.into()];
    let runtime_config = runtime::Config {
        root: layout.runtime(),
        state,
        passage: vec![settings.run_dir(), RUN_ROOT.into()],
        socket: settings.cri_socket(),
        cluster_id: settings.cluster_id.clone(),
        data_dir: layout.data_dir.clone(),
        cni_conf_dir: layout.cni_conf(),
        cni_bin_dirs: vec![layout.cni_bin(), "/opt/cni/bin".into()],
        own_plugin: Some(crate::runtime_command::own_plugin()),
        oci_command: command("oci"),
        cgroup_driver: configuration
            .cgroup_driver
            .parse()
            .map_err(anyhow::Error::msg)?,
        oci_handlers: crate::runtime_command::handlers(&layout.data_dir)?,
        shim_command: crate::descriptors::shim_command(&executable),
        insecure_registries: Vec::new(),
        registry_directories: layout.registries(),
        boot_id_file: runtime::config::BOOT_ID_FILE.into(),
        recorder: recorder.clone(),
    };
    if foreign_runtime.is_none() {
        let (runtime_environment, shutdown) = (environment.clone(), tasks.shutdown());
        tasks.spawn("runtime", async move {
            Ok(runtime::serve(runtime_config, runtime_environment, shutdown).await?)
        });
    }

    let port = settings.kubelet_port;
    let listen = TcpListener::bind(("0.0.0.0", port))
        .with_context(|| format!("cannot listen on the kubelet's port {port}"))?;
    listen.set_nonblocking(true)?;
    let kubelet_config = kubelet::Config {
        node_name: settings.node_name.clone(),
        node_ip: node_address,
        root: layout.kubelet(),
        secret_root: secret_dir(&settings.secret_volumes()),
        log_dir: layout.pod_logs(),
        cri_socket: foreign_runtime.unwrap_or_else(|| settings.cri_socket()),
        cluster_dns: vec![dns_address.to_string()],
        cluster_domain: CLUSTER_DOMAIN.to_string(),
        listen,
        tls: kubelet_tls,
        cgroup_root: settings.cgroup_root(),
        pod_cidr: settings.node_pod_range()?,
        labels: Default::default(),
        gives_up,
        configuration,
        system_bus: system_bus(),
        environment: environment.clone(),
        recorder: recorder.clone(),
    };
    let node_held = held(|certificates| &certificates.node);
    let node_client = connect(&layout.node_kubeconfig(), "kubelet", node_held).await?;
    if let Some(certificates) = certificates.clone() {
        let keep = certificates.keep(
            node_client.clone(),
            layout.clone(),
            settings.clone(),
            came_with_ticket,
            environment.clone(),
            tasks.shutdown(),
        );
        tasks.spawn("certificates", keep);
    }
    if is_coracles(&layout) {
        std::fs::create_dir_all(layout.local_path())?;
        let volume_held = held(|certificates| &certificates.local_path);
        let volume_client =
            connect(&layout.local_path_kubeconfig(), "coracle", volume_held).await?;
        let local_path = LocalPath {
            node_client: node_client.clone(),
            volume_client,
            node_name: settings.node_name.clone(),
            directory: std::fs::canonicalize(layout.local_path())?,
            environment: environment.clone(),
        };
        tasks.spawn("local-path", local_path.run(tasks.shutdown()));
    }
    let peers_client = node_client.clone();
    let shutdown = tasks.shutdown();
    tasks.spawn("kubelet", async move {
        let result = kubelet::run(kubelet_config, node_client, shutdown).await;
        let is_refused = matches!(result, Err(kubelet::Error::Refused { .. }));
        let result = result.map_err(anyhow::Error::from);
        match is_refused {
            true => result.context("a new ticket from `coracle invite` is needed"),
            false => result,
        }
    });

    info!(node = settings.node_name, "node started");
    if !layout.proxy_kubeconfig().exists() {
        return Ok(());
    }
    let proxy_held = held(|certificates| &certificates.proxy);
    let proxy_client = connect(&layout.proxy_kubeconfig(), "kube-proxy", proxy_held).await?;
    let informers = client::Informers::new(proxy_client, environment.clone());
    let own_range = settings.pod_range.parse()?;
    let peers = network::peers::PeersConfig {
        informers: informers.clone(),
        node_client: peers_client,
        node_name: settings.node_name.clone(),
        cluster_id: settings.cluster_id.clone(),
        pod_cidr: settings.node_pod_range()?.parse()?,
        cluster_cidr: (!settings.several_pod_ranges).then_some(own_range),
        service_cidr: settings.service_range.parse()?,
        environment: environment.clone(),
    };
    let shutdown = tasks.shutdown();
    tasks.spawn("routes", async move {
        network::peers::run(peers, shutdown).await;
        Ok(())
    });
    let resolver = SocketAddr::new(settings.gateway()?.into(), 53);
    if dns {
        let dns_config = network::dns::DnsConfig {
            informers: informers.clone(),
            listen: resolver,
            service_ip: dns_address,
            domain: CLUSTER_DOMAIN.to_string(),
            upstream_resolv_conf: "/etc/resolv.conf".into(),
            environment: environment.clone(),
            recorder: recorder.clone(),
        };
        let shutdown = tasks.shutdown();
        tasks.spawn("dns", async move {
            Ok(network::dns::run(dns_config, shutdown).await?)
        });
    }
    if proxy {
        let proxy_config = network::proxy::ProxyConfig {
            informers,
            node_name: settings.node_name.clone(),
            cluster_id: settings.cluster_id.clone(),
            service_cidr: settings.service_range.parse()?,
            pod_cidr: settings.node_pod_range()?.parse()?,
            node_addresses: match node_address {
                IpAddr::V4(address) if !address.is_loopback() => vec![address],
                _ => Vec::new(),
            },
            dns: dns.then_some(network::proxy::DnsRedirect {
                service_ip: dns_address,
                to: resolver,
            }),
            environment,
            recorder,
        };
        let shutdown = tasks.shutdown();
        tasks.spawn("proxy", async move {
            Ok(network::proxy::run(proxy_config, shutdown).await?)
        });
    }
    Ok(())
}

/// A client for a kubeconfig, which shows the certificate that is held instead of the one in it.
async fn connect(
    kubeconfig: &Path,
    component: &'static str,
    held: Option<&Arc<Held>>,
) -> Result<kube::Client> {
    let config = client::connect::configuration(kubeconfig, component).await?;
    Ok(match held {
        Some(held) => client::connect::from_config_showing(config, held.clone())?,
        None => client::connect::from_config(config)?,
    })
}

/// With a certificate that has ended nobody would listen to the node.
fn check_not_ended(
    certificates: &Certificates,
    settings: &Settings,
    environment: &Environment,
) -> Result<()> {
    let until = certificates.node.validity()?.until;
    if until > environment.now().as_second() {
        return Ok(());
    }
    let until = jiff::Timestamp::from_second(until)?;
    bail!(
        "the certificate of node {} ended at {until}: make a new ticket with `coracle invite` on \
         the server's machine, and start the agent with it",
        settings.node_name
    )
}

/// Whether the server is one of ours: others know nothing of timelines and local-path volumes.
fn is_coracles(layout: &Layout) -> bool {
    layout.local_path_kubeconfig().exists()
}

/// Reads the node's configuration files, if only to see whether they can be used.
pub fn check_configuration(layout: &Layout) -> Result<()> {
    let configuration = configuration(layout)?;
    let driver = configuration.cgroup_driver.parse();
    let _: runtime::config::CgroupDriver = driver
        .map_err(anyhow::Error::msg)
        .context("reading the kubelet's configuration")?;
    crate::runtime_command::handlers(&layout.data_dir).map(drop)
}

fn configuration(layout: &Layout) -> Result<kubelet::Configuration> {
    kubelet::Configuration::read(
        &layout.data_dir.join("kubelet.yaml"),
        &layout.data_dir.join("kubelet.d"),
    )
    .context("reading the kubelet's configuration")
}

/// The socket of the runtime that runs the pods, where it is not our own.
pub fn foreign_runtime(layout: &Layout, settings: &Settings) -> Result<Option<PathBuf>> {
    match &settings.runtime_endpoint {
        Some(socket) => Ok(Some(socket.clone())),
        None => Ok(configuration(layout)?.runtime_socket()),
    }
}

/// logind, where this machine has one.
fn system_bus() -> kubelet::SystemBus {
    let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_default();
    let path = address
        .strip_prefix("unix:path=")
        .and_then(|path| path.split([',', ';']).next());
    kubelet::SystemBus {
        socket: path.unwrap_or("/run/dbus/system_bus_socket").into(),
        logind_settings: "/etc/systemd/logind.conf.d".into(),
    }
}
