//! `coracle agent`: a node in the foreground, without a server of its own. It joins a Coracle server
//! with a ticket, or another Kubernetes cluster with a kubeconfig.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use clap::Args;
use environment::Environment;
use tokio_util::sync::CancellationToken;
use trace::Recorder;

use crate::claims::Claims;
use crate::descriptors;
use crate::first_start::{self, FirstStart};
use crate::flags;
use crate::host;
use crate::join::{JoinArguments, JoiningNode};
use crate::keeper::{self, Role};
use crate::layout::{DEFAULT_DATA_DIR, Layout, Settings, volatile_dir};
use crate::node::{self, NodeConfig};
use crate::node_configuration;
use crate::pki;
use crate::prepare;
use crate::privileges;
use crate::process::{self, Tasks};
use crate::rotation::{CertificateInUse, Certificates};
use crate::ticket;

#[derive(Args)]
pub struct AgentArguments {
    /// Data directory of this node, or of a server on this machine that runs with `--disable node`
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Ticket from `coracle invite`; needed only for the first start
    #[arg(long, value_name = "FILE")]
    ticket: Option<PathBuf>,
    #[command(flatten)]
    join: JoinArguments,
    /// Name of this node [default: the name in the ticket; with --kubeconfig the host name]
    #[arg(long, value_name = "NAME", value_parser = flags::node_name)]
    node_name: Option<String>,
    /// Address at which other machines reach this node [default: the address in the ticket; with --kubeconfig the address of the default route]
    #[arg(long, value_name = "ADDRESS", value_parser = flags::node_address)]
    node_ip: Option<IpAddr>,
    /// CRI socket of another container runtime, such as unix:///run/containerd/containerd.sock
    #[arg(long, value_name = "SOCKET", value_parser = flags::socket_path)]
    container_runtime_endpoint: Option<PathBuf>,
    /// Components that should not run: proxy, dns
    #[arg(long, value_name = "COMPONENT,...", value_delimiter = ',', value_parser = ["proxy", "dns"])]
    disable: Vec<String>,
    /// Log filter, such as info, debug or kubelet=debug,info
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = flags::log_filter)]
    log: String,
    /// Write log lines as JSON
    #[arg(long)]
    log_json: bool,
}

impl AgentArguments {
    fn enabled(&self, part: &str) -> bool {
        !self.disable.iter().any(|disabled| disabled == part)
    }

    /// Stores the settings and certificates of the ticket or kubeconfig, if one was given, in the
    /// data directory.
    fn join(&self, layout: &Layout, environment: &Environment) -> Result<()> {
        if let Some(file) = &self.ticket {
            let endpoint = self.container_runtime_endpoint.clone();
            return ticket::accept(layout, file, endpoint, environment);
        }
        if !self.join.is_requested() {
            return Ok(());
        }
        let node = JoiningNode {
            name: self.node_name.clone(),
            address: self.node_ip,
            runtime_endpoint: self.container_runtime_endpoint.clone(),
        };
        self.join.accept(layout, &node, environment)
    }
}

pub fn run(arguments: AgentArguments) -> Result<ExitCode> {
    privileges::require_root("coracle agent")?;
    process::start_logging(&arguments.log, arguments.log_json)?;
    descriptors::raise();
    let environment = Environment::system();
    let missing = first_start::missing_directories(&arguments.data_dir)?;
    node_configuration::check(&Layout {
        data_dir: arguments.data_dir.clone(),
    })?;
    let joins = arguments.ticket.is_some() || arguments.join.is_requested();
    let layout = match joins {
        true => Layout::create(&arguments.data_dir)?,
        false => Layout::existing(&arguments.data_dir)?,
    };
    let starting = layout.lock()?;
    let first = FirstStart::of(&layout, missing)?;
    let beside_server = layout
        .settings()?
        .is_some_and(|settings| settings.is_servers_own());
    // Where a server runs too, `down` stops the server's keeper. The agent is not registered.
    let _running = match beside_server {
        true => None,
        false => Some(keeper::register(&layout, Role::Agent)?),
    };
    drop(starting);
    let has_joined = AtomicBool::new(false);
    let result = run_in(&layout, &arguments, environment, &has_joined);
    let has_joined = has_joined.load(Ordering::Relaxed);
    first_start::undo_failed(first.filter(|_| !has_joined), result)
}

fn run_in(
    layout: &Layout,
    arguments: &AgentArguments,
    environment: Environment,
    has_joined: &AtomicBool,
) -> Result<ExitCode> {
    arguments.join(layout, &environment)?;
    let settings = layout.settings()?.context(
        "there is no node in this data directory: join a cluster with --ticket or --kubeconfig, or \
         start a server in it first",
    )?;
    flags::reject_node_change(
        &settings,
        arguments.node_name.as_deref(),
        arguments.node_ip,
        arguments.container_runtime_endpoint.as_deref(),
    )?;
    host::check_port(settings.kubelet_port, "the kubelet's port")?;
    let identity = NodeIdentity::read(layout, settings, &environment)?;
    process::run_on_all_cores(serve(layout, arguments, identity, environment, has_joined))
}

/// The settings of a node and the certificates with which it proves its identity.
struct NodeIdentity {
    settings: Settings,
    kubelet_tls: Arc<rustls::ServerConfig>,
    /// The certificates that the node renews: those of a node that joined a Coracle server.
    certificates: Option<Certificates>,
}

impl NodeIdentity {
    /// Reads the node's certificates and claims its address ranges on this machine.
    fn read(
        layout: &Layout,
        settings: Settings,
        environment: &Environment,
    ) -> Result<NodeIdentity> {
        if settings.is_servers_own() {
            Claims::lock()?.claim_beside_server(&settings, &layout.data_dir)?;
            let prepared = prepare::set_up(layout, settings, environment)?;
            return Ok(NodeIdentity {
                kubelet_tls: prepared.pki.server_tls(&prepared.pki.kubelet_server)?,
                settings: prepared.settings,
                certificates: None,
            });
        }
        let certificates = match node::joined_coracle(layout) {
            false => None,
            true => {
                let certificates = Certificates::read(layout)?;
                check_not_expired(&certificates, &settings, environment)?;
                Some(certificates)
            }
        };
        Claims::lock()?.claim_joined(&settings, &layout.data_dir)?;
        volatile_dir(&settings.run_dir())?;
        let serving = match &certificates {
            Some(certificates) => certificates.serving.clone(),
            None => CertificateInUse::new(pki::serving_identity(&layout.pki())?)?,
        };
        Ok(NodeIdentity {
            settings,
            kubelet_tls: pki::joined_tls(&layout.pki(), serving)?,
            certificates,
        })
    }
}

async fn serve(
    layout: &Layout,
    arguments: &AgentArguments,
    identity: NodeIdentity,
    environment: Environment,
    has_joined: &AtomicBool,
) -> Result<()> {
    let NodeIdentity {
        settings,
        kubelet_tls,
        certificates,
    } = identity;
    let tasks = Tasks::new(CancellationToken::new());
    let recorder = match node::joined_coracle(layout) {
        true => {
            let kubeconfig = layout.node_kubeconfig();
            let certificate = certificates.as_ref().map(|all| &all.node);
            let client = node::connect(&kubeconfig, "kubelet", certificate).await?;
            let shutdown = tasks.shutdown();
            let forwarder = client::SpanForwarder::start(client, environment.clone(), shutdown);
            Recorder::new(forwarder)
        }
        false => Recorder::off(),
    };
    let config = NodeConfig {
        kubelet_tls,
        node_address: host::node_address(&settings)?,
        settings,
        layout: layout.clone(),
        proxy: arguments.enabled("proxy"),
        dns: arguments.enabled("dns"),
        stops_when_rejected: true,
        certificates,
        came_with_ticket: arguments.ticket.is_some(),
        environment,
        recorder,
    };
    node::start(config, &tasks).await?;
    has_joined.store(true, Ordering::Relaxed);
    process::wait_for_shutdown(&tasks.shutdown()).await?;
    tasks.shutdown().cancel();
    tasks.finish().await;
    if let Some(failure) = tasks.failure() {
        bail!(failure);
    }
    Ok(())
}

/// The server would reject a node whose certificate has expired.
fn check_not_expired(
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
        "the certificate of node {} expired at {until}: make a new ticket with `coracle invite` on \
         the server's machine, and start the agent with it",
        settings.node_name
    )
}
