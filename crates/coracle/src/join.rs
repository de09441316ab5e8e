//! How a node joins a cluster whose server is not ours: by a kubeconfig of its kubelet's identity,
//! as upstream's kubelet does. Certificates of that identity come from whoever runs the cluster.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine;
use clap::Args;
use environment::Environment;
use kube::config::Kubeconfig;

use crate::claims::{self, Claims};
use crate::flags;
use crate::layout::{Layout, Settings, new_cluster_id, private_dir, write_private};
use crate::pki;
use crate::server;

const DEFAULT_POD_RANGE: &str = "10.244.0.0/16";
const DEFAULT_SERVICE_RANGE: &str = "10.96.0.0/12";

#[derive(Args)]
pub struct JoinArguments {
    /// Join the cluster of this kubeconfig, which must be that of a kubelet (system:node:NAME)
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "ticket",
        requires = "pod_cidr"
    )]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the service proxy and resolver; without it both are left out
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    proxy_kubeconfig: Option<PathBuf>,
    /// This node's share of the pod range, a /24
    #[arg(long, value_name = "CIDR", requires = "kubeconfig", value_parser = flags::pod_range)]
    pod_cidr: Option<String>,
    /// Pod address range of that cluster [default: 10.244.0.0/16]
    #[arg(long, value_name = "CIDR", requires = "kubeconfig", value_parser = flags::pod_range)]
    pod_range: Option<String>,
    /// Service address range of that cluster [default: 10.96.0.0/12]
    #[arg(long, value_name = "CIDR", requires = "kubeconfig", value_parser = flags::service_range)]
    service_range: Option<String>,
}

/// What a node says of itself.
pub struct OfTheNode {
    pub name: Option<String>,
    pub address: Option<IpAddr>,
    pub runtime_endpoint: Option<PathBuf>,
}

impl JoinArguments {
    pub fn asked(&self) -> bool {
        self.kubeconfig.is_some()
    }

    /// Puts what was said into the node's data directory. Said again, it is taken anew.
    pub fn accept(
        &self,
        layout: &Layout,
        node: &OfTheNode,
        environment: &Environment,
    ) -> Result<()> {
        let (Some(file), Some(pod_cidr)) = (&self.kubeconfig, &self.pod_cidr) else {
            bail!("--kubeconfig and --pod-cidr are both needed");
        };
        let node_name = match &node.name {
            Some(name) => name.clone(),
            None => server::host_name()?,
        };
        let before = layout.settings()?;
        if let Some(before) = &before
            && (before.node_name != node_name || before.is_servers_own())
        {
            bail!(
                "{} is the data directory of node {}",
                layout.data_dir.display(),
                before.node_name
            );
        }
        let said = |range: &Option<String>, default: &str| {
            range.clone().unwrap_or_else(|| default.to_string())
        };
        let pod_range = said(&self.pod_range, DEFAULT_POD_RANGE);
        let kubeconfig = read(file)?;
        let settings = Settings {
            cluster_id: before
                .map(|before| before.cluster_id)
                .unwrap_or_else(|| new_cluster_id(environment)),
            node_index: Settings::index_of(&pod_range, pod_cidr)?,
            node_name,
            pod_range,
            service_range: said(&self.service_range, DEFAULT_SERVICE_RANGE),
            api_port: 0,
            kubelet_port: 10250,
            node_address: node.address,
            joined: true,
            several_pod_ranges: false,
            runtime_endpoint: node.runtime_endpoint.clone(),
        };
        claims::refuse_host_conflicts(&settings)?;
        private_dir(&layout.pki())?;
        let authority = authority(&kubeconfig)?;
        let addresses = [
            server::node_address(&settings)?,
            IpAddr::V4(settings.gateway()?),
        ];
        let serving = pki::self_signed(&settings.node_name, &addresses, environment)?;
        pki::save_joined(&layout.pki(), &authority, &serving)?;
        save(&layout.node_kubeconfig(), &kubeconfig)?;
        if let Some(file) = &self.proxy_kubeconfig {
            save(&layout.proxy_kubeconfig(), &read(file)?)?;
        }
        Claims::lock()?.claim_joined(&settings, &layout.data_dir)?;
        layout.save_settings(&settings)
    }
}

/// Files that it names are found from wherever the agent runs.
fn read(file: &Path) -> Result<Kubeconfig> {
    let file = std::fs::canonicalize(file).with_context(|| file.display().to_string())?;
    Kubeconfig::read_from(&file).with_context(|| file.display().to_string())
}

/// JSON is YAML too.
fn save(path: &Path, kubeconfig: &Kubeconfig) -> Result<()> {
    write_private(path, &serde_json::to_vec_pretty(kubeconfig)?)
}

/// Whoever shows a certificate of the cluster's authority is believed by our kubelet, too.
fn authority(kubeconfig: &Kubeconfig) -> Result<String> {
    let cluster = kubeconfig
        .clusters
        .iter()
        .find_map(|named| named.cluster.as_ref())
        .context("the kubeconfig names no cluster")?;
    if let Some(data) = &cluster.certificate_authority_data {
        let bytes = base64::engine::general_purpose::STANDARD.decode(data)?;
        return Ok(String::from_utf8(bytes)?);
    }
    let file = cluster
        .certificate_authority
        .as_ref()
        .context("the kubeconfig names no certificate authority")?;
    std::fs::read_to_string(file).with_context(|| file.clone())
}
