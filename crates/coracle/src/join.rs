//! Joins a node to a cluster of another Kubernetes: with a kubeconfig of the kubelet's identity, as
//! upstream's kubelet does. The cluster's administrator provides that identity's certificate.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine;
use clap::Args;
use environment::Environment;
use kube::config::Kubeconfig;

use crate::claims::{self, Claims};
use crate::flags;
use crate::host;
use crate::layout::{Layout, Settings, new_cluster_id, private_dir, write_private};
use crate::pki;

const DEFAULT_POD_RANGE: &str = "10.244.0.0/16";
const DEFAULT_SERVICE_RANGE: &str = "10.96.0.0/12";

#[derive(Args)]
pub struct JoinArguments {
    /// Join another Kubernetes cluster with this kubeconfig of a kubelet (user system:node:NAME)
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "ticket",
        requires = "pod_cidr"
    )]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig for the service proxy and DNS [default: neither of them runs]
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    proxy_kubeconfig: Option<PathBuf>,
    /// Pod CIDR of this node, a /24 of the cluster's pod range
    #[arg(long, value_name = "CIDR", requires = "kubeconfig", value_parser = flags::pod_range)]
    pod_cidr: Option<String>,
    /// Address range of that cluster's pods [default: 10.244.0.0/16]
    #[arg(long, value_name = "CIDR", requires = "kubeconfig", value_parser = flags::pod_range)]
    pod_range: Option<String>,
    /// Address range of that cluster's Services [default: 10.96.0.0/12]
    #[arg(long, value_name = "CIDR", requires = "kubeconfig", value_parser = flags::service_range)]
    service_range: Option<String>,
}

/// The flags of `coracle agent` about the node that joins.
pub struct JoiningNode {
    pub name: Option<String>,
    pub address: Option<IpAddr>,
    pub runtime_endpoint: Option<PathBuf>,
}

impl JoinArguments {
    /// Whether the flags ask to join a cluster.
    pub fn is_requested(&self) -> bool {
        self.kubeconfig.is_some()
    }

    /// Stores the node's settings and kubeconfigs in its data directory. A repeated join replaces
    /// them.
    pub fn accept(
        &self,
        layout: &Layout,
        node: &JoiningNode,
        environment: &Environment,
    ) -> Result<()> {
        let (Some(file), Some(pod_cidr)) = (&self.kubeconfig, &self.pod_cidr) else {
            bail!("--kubeconfig and --pod-cidr must be given together");
        };
        let node_name = match &node.name {
            Some(name) => name.clone(),
            None => host::host_name()?,
        };
        let before = layout.settings()?;
        if let Some(before) = &before
            && (before.node_name != node_name || before.is_servers_own())
        {
            bail!(
                "{} is the data directory of node {}: choose another --data-dir",
                layout.data_dir.display(),
                before.node_name
            );
        }
        let range_or = |range: &Option<String>, default: &str| {
            range.clone().unwrap_or_else(|| default.to_string())
        };
        let pod_range = range_or(&self.pod_range, DEFAULT_POD_RANGE);
        let kubeconfig = read(file)?;
        let settings = Settings {
            cluster_id: before
                .map(|before| before.cluster_id)
                .unwrap_or_else(|| new_cluster_id(environment)),
            node_index: Settings::index_of(&pod_range, pod_cidr)?,
            node_name,
            pod_range,
            service_range: range_or(&self.service_range, DEFAULT_SERVICE_RANGE),
            api_port: 0,
            kubelet_port: 10250,
            node_address: node.address,
            joined: true,
            several_pod_ranges: false,
            runtime_endpoint: node.runtime_endpoint.clone(),
        };
        claims::reject_host_conflicts(&settings)?;
        private_dir(&layout.pki())?;
        let authority = authority(&kubeconfig)?;
        let addresses = [
            host::node_address(&settings)?,
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

/// Reads a kubeconfig. Relative paths in it become absolute, so that they can be found later.
fn read(file: &Path) -> Result<Kubeconfig> {
    let reading = || format!("reading kubeconfig {}", file.display());
    let file = std::fs::canonicalize(file).with_context(reading)?;
    Kubeconfig::read_from(&file).with_context(reading)
}

/// Writes a kubeconfig as JSON, which is also YAML.
fn save(path: &Path, kubeconfig: &Kubeconfig) -> Result<()> {
    write_private(path, &serde_json::to_vec_pretty(kubeconfig)?)
}

/// The cluster's certificate authority, whose clients the node's kubelet accepts too.
fn authority(kubeconfig: &Kubeconfig) -> Result<String> {
    let cluster = kubeconfig
        .clusters
        .iter()
        .find_map(|named| named.cluster.as_ref())
        .context("the kubeconfig has no cluster")?;
    if let Some(data) = &cluster.certificate_authority_data {
        let bytes = base64::engine::general_purpose::STANDARD.decode(data)?;
        return Ok(String::from_utf8(bytes)?);
    }
    let file = cluster
        .certificate_authority
        .as_ref()
        .context("the kubeconfig's cluster has no certificate authority")?;
    std::fs::read_to_string(file).with_context(|| format!("reading {file}"))
}
