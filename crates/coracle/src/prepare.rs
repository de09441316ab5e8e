//! Prepares a server's data directory: checks the flags, chooses and claims address ranges and ports,
//! makes certificates and kubeconfigs. Nothing is started here.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context, Result, bail};
use environment::Environment;

use crate::claims::{self, Claims, Wishes};
use crate::cluster_arguments::ClusterArguments;
use crate::flags;
use crate::host::{check_port, host_name, node_address};
use crate::keeper;
use crate::kubeconfig::{self, Access};
use crate::layout::{CLUSTER_DOMAIN, Layout, Settings, new_cluster_id, volatile_dir};
use crate::node_configuration;
use crate::pki::{Names, Pki};

/// A data directory from which a server can start.
pub struct Prepared {
    pub settings: Settings,
    pub pki: Pki,
    pub node_address: IpAddr,
    /// Sentences for the user about the choice of address ranges.
    pub notes: Vec<String>,
}

/// Checks everything that can be checked before a start, and writes nothing: the flags against each
/// other and against the stored settings, the configuration files, and the ports.
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
        node_configuration::check(&layout)?;
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
            "{} is the data directory of a node that joined another machine's server: start the node \
             with `coracle agent`, or choose another --data-dir",
            data_dir.display()
        );
    }
    cluster.check_unchanged(&settings)?;
    if keeper::running(&layout)?.is_none() {
        check_port(settings.api_port, "port")?;
        if cluster.enabled("node") {
            check_port(settings.kubelet_port, "the kubelet's port")?;
        }
    }
    Ok(())
}

fn check_ranges(pods: &str, services: &str) -> Result<()> {
    if flags::overlap(pods, services) {
        bail!(
            "the pod range {pods} and the service range {services} overlap: choose another \
             --pod-range or --service-range"
        );
    }
    Ok(())
}

fn chosen_node_name(cluster: &ClusterArguments) -> Result<String> {
    match &cluster.node_name {
        Some(name) => Ok(name.clone()),
        None => host_name(),
    }
}

/// Chooses address ranges and ports at the first start, claims them at every start, and makes
/// certificates and kubeconfigs.
pub fn prepare(
    layout: &Layout,
    cluster: &ClusterArguments,
    environment: &Environment,
) -> Result<Prepared> {
    let mut claims = Claims::lock()?;
    let (mut settings, notes) = match layout.settings()? {
        Some(settings) => {
            cluster.check_unchanged(&settings)?;
            let store = cluster.store.shared();
            claims.claim(&settings, &layout.data_dir, store.as_deref())?;
            // The ranges of a cluster cannot change, so that a network which this machine got later
            // is only reported.
            let conflicts = claims::host_conflicts(&settings)?;
            let notes = conflicts.iter().map(|conflict| {
                format!("Warning: {conflict}; one of the two cannot be reached from this machine.")
            });
            (settings, notes.collect())
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

/// Creates the run directory, certificates and kubeconfigs of a cluster whose settings are stored.
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
    // The name is unique, so that KUBECONFIG=a:b can list the files of several clusters.
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
        let access = Access {
            server: url.clone(),
            authority: &pki.authority,
            identity,
        };
        kubeconfig::own::write(&file, &access, name, user)?;
    }
    Ok(Prepared {
        settings,
        pki,
        node_address,
        notes: Vec::new(),
    })
}

/// Reads the scheduler's configuration from the file in the flag, or else from the data directory.
pub fn scheduler_configuration(
    layout: &Layout,
    cluster: &ClusterArguments,
) -> Result<scheduler::configuration::Configuration> {
    let file = match &cluster.scheduler_config {
        Some(file) => file.clone(),
        None => layout.data_dir.join("scheduler.yaml"),
    };
    let read = scheduler::configuration::Configuration::read(&file);
    let unusable = || {
        format!(
            "the scheduler configuration {} is not usable",
            file.display()
        )
    };
    let read = read.with_context(unusable)?;
    if read.is_none() && cluster.scheduler_config.is_some() {
        bail!("there is no scheduler configuration {}", file.display());
    }
    let configuration = read.unwrap_or_default();
    scheduler::check(&configuration).with_context(unusable)?;
    Ok(configuration)
}
