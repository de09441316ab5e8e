//! The node: container runtime, kubelet, service proxy and DNS. It reaches the API server only by
//! HTTPS and containers only by CRI, whether it runs inside a server or as `coracle agent`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use client::Informers;
use environment::Environment;
use network::node::NodeNetwork;
use trace::Recorder;
use tracing::info;

use crate::claims::Claims;
use crate::descriptors;
use crate::host;
use crate::layout::{CLUSTER_DOMAIN, Layout, RUN_ROOT, Settings, private_dir, secret_dir};
use crate::local_path::LocalPath;
use crate::node_configuration;
use crate::process::Tasks;
use crate::rotation::{CertificateInUse, Certificates};
use crate::runtime_command::embedded_cni_plugin;

/// Everything that the components of a node are started from.
pub struct NodeConfig {
    pub layout: Layout,
    pub settings: Settings,
    pub node_address: IpAddr,
    pub kubelet_tls: Arc<rustls::ServerConfig>,
    pub proxy: bool,
    pub dns: bool,
    /// Whether the process ends when the server rejects the node for good.
    pub stops_when_rejected: bool,
    /// The certificates that the node renews: those of a node that joined with a ticket.
    pub certificates: Option<Certificates>,
    /// The certificates are still a ticket's. They are renewed at once, because others may have
    /// seen the ticket.
    pub came_with_ticket: bool,
    pub environment: Environment,
    pub recorder: Recorder,
}

/// Prepares the machine and starts the node's components. Returns when all of them have been
/// started.
pub async fn start(config: NodeConfig, tasks: &Tasks) -> Result<()> {
    config.set_up_network()?;
    let configuration = node_configuration::kubelet(&config.layout)?;
    let cri_socket = config.start_runtime(&configuration, tasks)?;

    let kubelet = config.kubelet(configuration, cri_socket)?;
    let client = config
        .connect(&config.layout.node_kubeconfig(), "kubelet", |all| &all.node)
        .await?;
    config.start_certificate_renewal(&client, tasks);
    config.start_local_path(&client, tasks).await?;
    start_kubelet(kubelet, client.clone(), tasks);
    info!(
        "Node {} started all its components",
        config.settings.node_name
    );
    config.start_service_network(client, tasks).await
}

/// A client for a kubeconfig. It shows the certificate in use, if there is one, instead of the one
/// in the file.
pub async fn connect(
    kubeconfig: &Path,
    component: &'static str,
    certificate: Option<&Arc<CertificateInUse>>,
) -> Result<kube::Client> {
    let config = client::connect::configuration(kubeconfig, component).await?;
    Ok(match certificate {
        Some(certificate) => client::connect::from_config_showing(config, certificate.clone())?,
        None => client::connect::from_config(config)?,
    })
}

/// Whether the node belongs to a Coracle server. Others have no timelines and no local-path volumes.
pub fn joined_coracle(layout: &Layout) -> bool {
    layout.local_path_kubeconfig().exists()
}

impl NodeConfig {
    async fn connect(
        &self,
        kubeconfig: &Path,
        component: &'static str,
        certificate: fn(&Certificates) -> &Arc<CertificateInUse>,
    ) -> Result<kube::Client> {
        let certificate = self.certificates.as_ref().map(certificate);
        connect(kubeconfig, component, certificate).await
    }

    fn dns_address(&self) -> Result<Ipv4Addr> {
        self.settings.service_address(10)
    }

    /// Sets up the machine's side of the pod network, and the CNI configuration.
    fn set_up_network(&self) -> Result<()> {
        let (layout, settings) = (&self.layout, &self.settings);
        let network = NodeNetwork {
            cluster_id: settings.cluster_id.clone(),
            pod_cidr: settings.node_pod_range()?.parse()?,
            cluster_cidr: settings.pod_range.parse()?,
            service_cidr: settings.service_range.parse()?,
            dns_ip: self.dns_address()?,
            gateway: settings.gateway()?,
            mtu: None,
        };
        Claims::lock()?.set_sysctl(&settings.cluster_id, "net.ipv4.ip_forward", "1")?;
        network::node::setup(&network).context("setting up the node's network")?;
        for directory in [
            layout.data_dir.clone(),
            layout.kubelet(),
            layout.pod_logs(),
            layout.runtime(),
            layout.cni_conf(),
            layout.cni_bin(),
            settings.cni_state(),
        ] {
            private_dir(&directory)?;
        }
        network::cni::write_configuration(
            &layout.cni_conf(),
            &layout.cni_bin(),
            &std::env::current_exe()?,
            &network,
            &settings.cni_state(),
        )
        .context("writing the CNI configuration")
    }

    /// Starts the embedded runtime unless the node uses another one. Returns the CRI socket.
    fn start_runtime(
        &self,
        configuration: &kubelet::Configuration,
        tasks: &Tasks,
    ) -> Result<PathBuf> {
        let (layout, settings) = (&self.layout, &self.settings);
        let foreign = node_configuration::foreign_runtime(layout, settings)?;
        let state = settings.run_dir().join("runtime");
        private_dir(&state)?;
        let executable = std::env::current_exe()?;
        let config = runtime::Config {
            root: layout.runtime(),
            state,
            passage: vec![settings.run_dir(), RUN_ROOT.into()],
            socket: settings.cri_socket(),
            cluster_id: settings.cluster_id.clone(),
            data_dir: layout.data_dir.clone(),
            cni_conf_dir: layout.cni_conf(),
            cni_bin_dirs: vec![layout.cni_bin(), "/opt/cni/bin".into()],
            own_plugin: Some(embedded_cni_plugin()),
            oci_command: vec![executable.clone().into_os_string(), "oci".into()],
            cgroup_driver: node_configuration::cgroup_driver(configuration)?,
            oci_handlers: node_configuration::runtime_handlers(&layout.data_dir)?,
            shim_command: descriptors::shim_command(&executable),
            insecure_registries: Vec::new(),
            registry_directories: layout.registries(),
            boot_id_file: runtime::config::BOOT_ID_FILE.into(),
            recorder: self.recorder.clone(),
        };
        if let Some(socket) = foreign {
            return Ok(socket);
        }
        let (environment, shutdown) = (self.environment.clone(), tasks.shutdown());
        tasks.spawn("container runtime", async move {
            Ok(runtime::serve(config, environment, shutdown).await?)
        });
        Ok(settings.cri_socket())
    }

    /// The kubelet's configuration. Its port is bound here, so that a port in use ends the start.
    fn kubelet(
        &self,
        configuration: kubelet::Configuration,
        cri_socket: PathBuf,
    ) -> Result<kubelet::Config> {
        let (layout, settings) = (&self.layout, &self.settings);
        let listen = host::listen(settings.kubelet_port, "the kubelet's port")?;
        listen.set_nonblocking(true)?;
        Ok(kubelet::Config {
            node_name: settings.node_name.clone(),
            node_ip: self.node_address,
            root: layout.kubelet(),
            secret_root: secret_dir(&settings.secret_volumes()),
            log_dir: layout.pod_logs(),
            cri_socket,
            cluster_dns: vec![self.dns_address()?.to_string()],
            cluster_domain: CLUSTER_DOMAIN.to_string(),
            listen,
            tls: self.kubelet_tls.clone(),
            cgroup_root: settings.cgroup_root(),
            pod_cidr: settings.node_pod_range()?,
            labels: Default::default(),
            gives_up: self.stops_when_rejected,
            configuration,
            system_bus: system_bus(),
            environment: self.environment.clone(),
            recorder: self.recorder.clone(),
        })
    }

    fn start_certificate_renewal(&self, client: &kube::Client, tasks: &Tasks) {
        if let Some(certificates) = self.certificates.clone() {
            let renewal = certificates.keep_renewed(
                client.clone(),
                self.layout.clone(),
                self.settings.clone(),
                self.came_with_ticket,
                self.environment.clone(),
                tasks.shutdown(),
            );
            tasks.spawn("certificate renewal", renewal);
        }
    }

    /// Starts the node's part of the local-path provisioner.
    async fn start_local_path(&self, node_client: &kube::Client, tasks: &Tasks) -> Result<()> {
        let layout = &self.layout;
        if !joined_coracle(layout) {
            return Ok(());
        }
        tokio::fs::create_dir_all(layout.local_path()).await?;
        let kubeconfig = layout.local_path_kubeconfig();
        let local_path = LocalPath {
            node_client: node_client.clone(),
            volume_client: self
                .connect(&kubeconfig, "coracle", |all| &all.local_path)
                .await?,
            node_name: self.settings.node_name.clone(),
            directory: tokio::fs::canonicalize(layout.local_path()).await?,
            environment: self.environment.clone(),
        };
        tasks.spawn("local-path volumes", local_path.run(tasks.shutdown()));
        Ok(())
    }

    /// Starts the routes to other nodes, DNS and the service proxy. A node without a kubeconfig for
    /// them leaves all three to others.
    async fn start_service_network(&self, node_client: kube::Client, tasks: &Tasks) -> Result<()> {
        let settings = &self.settings;
        let kubeconfig = self.layout.proxy_kubeconfig();
        if !kubeconfig.exists() {
            return Ok(());
        }
        let client = self
            .connect(&kubeconfig, "kube-proxy", |all| &all.proxy)
            .await?;
        let informers = Informers::new(client, self.environment.clone());
        let cluster_cidr = settings.pod_range.parse()?;
        let peers = network::peers::PeersConfig {
            informers: informers.clone(),
            node_client,
            node_name: settings.node_name.clone(),
            cluster_id: settings.cluster_id.clone(),
            pod_cidr: settings.node_pod_range()?.parse()?,
            cluster_cidr: (!settings.several_pod_ranges).then_some(cluster_cidr),
            service_cidr: settings.service_range.parse()?,
            environment: self.environment.clone(),
        };
        let shutdown = tasks.shutdown();
        tasks.spawn("routes to other nodes", async move {
            network::peers::run(peers, shutdown).await;
            Ok(())
        });
        if self.dns {
            self.start_dns(informers.clone(), tasks)?;
        }
        if self.proxy {
            self.start_proxy(informers, tasks)?;
        }
        Ok(())
    }

    /// The address on which the node's DNS server listens.
    fn resolver(&self) -> Result<SocketAddr> {
        Ok(SocketAddr::new(self.settings.gateway()?.into(), 53))
    }

    fn start_dns(&self, informers: Informers, tasks: &Tasks) -> Result<()> {
        let config = network::dns::DnsConfig {
            informers,
            listen: self.resolver()?,
            service_ip: self.dns_address()?,
            domain: CLUSTER_DOMAIN.to_string(),
            upstream_resolv_conf: "/etc/resolv.conf".into(),
            environment: self.environment.clone(),
            recorder: self.recorder.clone(),
        };
        let shutdown = tasks.shutdown();
        tasks.spawn("DNS", async move {
            Ok(network::dns::run(config, shutdown).await?)
        });
        Ok(())
    }

    fn start_proxy(&self, informers: Informers, tasks: &Tasks) -> Result<()> {
        let settings = &self.settings;
        let redirect = network::proxy::DnsRedirect {
            service_ip: self.dns_address()?,
            to: self.resolver()?,
        };
        let config = network::proxy::ProxyConfig {
            informers,
            node_name: settings.node_name.clone(),
            cluster_id: settings.cluster_id.clone(),
            service_cidr: settings.service_range.parse()?,
            pod_cidr: settings.node_pod_range()?.parse()?,
            node_addresses: match self.node_address {
                IpAddr::V4(address) if !address.is_loopback() => vec![address],
                _ => Vec::new(),
            },
            dns: self.dns.then_some(redirect),
            environment: self.environment.clone(),
            recorder: self.recorder.clone(),
        };
        let shutdown = tasks.shutdown();
        tasks.spawn("service proxy", async move {
            Ok(network::proxy::run(config, shutdown).await?)
        });
        Ok(())
    }
}

fn start_kubelet(config: kubelet::Config, client: kube::Client, tasks: &Tasks) {
    let shutdown = tasks.shutdown();
    tasks.spawn("kubelet", async move {
        let result = kubelet::run(config, client, shutdown).await;
        let is_rejected = matches!(result, Err(kubelet::Error::Refused { .. }));
        let result = result.map_err(anyhow::Error::from);
        match is_rejected {
            true => result.context(
                "the server rejected this node: make a new ticket with `coracle invite` on the \
                 server's machine, and start the agent with it",
            ),
            false => result,
        }
    });
}

/// The D-Bus socket of logind, on machines that have it.
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
