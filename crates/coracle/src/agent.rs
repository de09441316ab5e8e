//! The node: runtime, kubelet, service proxy and resolver. It reaches the API server only by HTTPS
//! and containers only by CRI, whether it runs inside a server or as `coracle agent`.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use environment::Environment;
use network::node::NodeNetwork;
use tokio_util::sync::CancellationToken;
use trace::Recorder;
use tracing::info;

use crate::claims::Claims;
use crate::cli::DEFAULT_DATA_DIR;
use crate::layout::{Layout, Settings, pass_through, private_dir};
use crate::local_path::LocalPath;
use crate::pki;
use crate::server::{self, CLUSTER_DOMAIN, ClusterArguments, Tasks};
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
    cluster: ClusterArguments,
}

/// What a node needs to know.
pub struct NodeConfig {
    pub layout: Layout,
    pub settings: Settings,
    pub node_address: IpAddr,
    pub kubelet_tls: Arc<rustls::ServerConfig>,
    pub proxy: bool,
    pub dns: bool,
    pub environment: Environment,
    pub recorder: Recorder,
}

pub fn run(arguments: AgentArguments) -> Result<ExitCode> {
    server::start_logging(&arguments.cluster.log, arguments.cluster.log_json)?;
    let environment = Environment::system();
    let layout = match &arguments.ticket {
        Some(ticket) => {
            let layout = Layout::create(&arguments.data_dir)?;
            ticket::accept(&layout, ticket, &environment)?;
            layout
        }
        None => Layout::existing(&arguments.data_dir)?,
    };
    let settings = layout.settings()?.context(
        "there is no cluster in this data directory: start a server first, or give a ticket",
    )?;
    // Place 0 is that of the server's own node.
    let (settings, kubelet_tls) = match settings.node_index {
        0 => {
            let prepared = server::prepare(&layout, &arguments.cluster, &environment)?;
            let tls = prepared.pki.server_tls(&prepared.pki.kubelet_server)?;
            (prepared.settings, tls)
        }
        _ => {
            Claims::lock()?.claim_joined(&settings, &layout.data_dir)?;
            private_dir(&settings.run_dir())?;
            (settings, pki::joined_tls(&layout.pki())?)
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let client =
            client::connect::from_kubeconfig_as(&layout.node_kubeconfig(), "kubelet").await?;
        let tasks = Tasks::new(CancellationToken::new());
        let forwarder = client::SpanForwarder::start(client, environment.clone(), tasks.shutdown());
        let config = NodeConfig {
            kubelet_tls,
            node_address: server::node_address(&settings)?,
            settings,
            layout,
            proxy: arguments.cluster.enabled("proxy"),
            dns: arguments.cluster.enabled("dns"),
            environment,
            recorder: Recorder::new(forwarder),
        };
        start(config, &tasks).await?;
        server::wait_for_shutdown(&tasks.shutdown()).await?;
        tasks.shutdown().cancel();
        tasks.finish().await;
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
        environment,
        recorder,
    } = config;
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
        layout.kubelet(),
        layout.pod_logs(),
        layout.runtime(),
        layout.cni_conf(),
        layout.cni_bin(),
        layout.cni_state(),
    ] {
        private_dir(&dir)?;
    }
    network::cni::write_configuration(
        &layout.cni_conf(),
        &layout.cni_bin(),
        &executable,
        &node_network,
        &layout.cni_state(),
    )
    .context("writing the CNI configuration")?;

    let state = settings.run_dir().join("runtime");
    private_dir(&state)?;
    pass_through(&settings.run_dir())?;
    let command = |name: &str| vec![executable.clone().into_os_string(), name.into()];
    let runtime_config = runtime::Config {
        root: layout.runtime(),
        state,
        socket: settings.cri_socket(),
        cluster_id: settings.cluster_id.clone(),
        data_dir: layout.data_dir.clone(),
        cni_conf_dir: layout.cni_conf(),
        cni_bin_dirs: vec![layout.cni_bin(), "/opt/cni/bin".into()],
        oci_command: command("oci"),
        oci_handlers: crate::runtime_command::handlers(&layout.data_dir)?,
        shim_command: command("shim"),
        insecure_registries: Vec::new(),
        registry_directories: layout.registries(),
        boot_id_file: runtime::config::BOOT_ID_FILE.into(),
        recorder: recorder.clone(),
    };
    let (runtime_environment, shutdown) = (environment.clone(), tasks.shutdown());
    tasks.spawn("runtime", async move {
        Ok(runtime::serve(runtime_config, runtime_environment, shutdown).await?)
    });

    let port = settings.kubelet_port;
    let listen = TcpListener::bind(("0.0.0.0", port))
        .with_context(|| format!("cannot listen on the kubelet's port {port}"))?;
    listen.set_nonblocking(true)?;
    let kubelet_config = kubelet::Config {
        node_name: settings.node_name.clone(),
        node_ip: node_address,
        root: layout.kubelet(),
        log_dir: layout.pod_logs(),
        cri_socket: settings.cri_socket(),
        cluster_dns: vec![dns_address.to_string()],
        cluster_domain: CLUSTER_DOMAIN.to_string(),
        listen,
        tls: kubelet_tls,
        cgroup_root: settings.cgroup_root(),
        pod_cidr: settings.node_pod_range()?,
        labels: Default::default(),
        configuration: kubelet::Configuration::read(
            &layout.data_dir.join("kubelet.yaml"),
            &layout.data_dir.join("kubelet.d"),
        )
        .context("reading the kubelet's configuration")?,
        environment: environment.clone(),
        recorder: recorder.clone(),
    };
    let node_client =
        client::connect::from_kubeconfig_as(&layout.node_kubeconfig(), "kubelet").await?;
    std::fs::create_dir_all(layout.local_path())?;
    let local_path = LocalPath {
        node_client: node_client.clone(),
        volume_client: client::connect::from_kubeconfig(&layout.local_path_kubeconfig()).await?,
        node_name: settings.node_name.clone(),
        directory: std::fs::canonicalize(layout.local_path())?,
        environment: environment.clone(),
    };
    tasks.spawn("local-path", local_path.run(tasks.shutdown()));
    let shutdown = tasks.shutdown();
    tasks.spawn("kubelet", async move {
        Ok(kubelet::run(kubelet_config, node_client, shutdown).await?)
    });

    let proxy_client =
        client::connect::from_kubeconfig_as(&layout.proxy_kubeconfig(), "kube-proxy").await?;
    let informers = client::Informers::new(proxy_client, environment.clone());
    let peers = network::peers::PeersConfig {
        informers: informers.clone(),
        node_name: settings.node_name.clone(),
        cluster_id: settings.cluster_id.clone(),
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
    info!(node = settings.node_name, "node started");
    Ok(())
}
