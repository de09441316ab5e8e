//! Joins a node on another machine to this server: `coracle invite` on the server's machine writes a
//! ticket, a file with the node's certificates and its pod CIDR; `coracle agent --ticket` uses it.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use environment::Environment;
use serde::{Deserialize, Serialize};

use crate::claims::{self, Claims};
use crate::flags;
use crate::host;
use crate::kubeconfig::{self, Access};
use crate::layout::{
    DEFAULT_DATA_DIR, Layout, Settings, new_cluster_id, private_dir, write_private,
};
use crate::pki::{self, Identity};
use crate::privileges;
use crate::process::block_on;
use crate::revocation;
use crate::rotation::Validity;

const LONGEST_TICKET: Duration = Duration::from_secs(30 * 86_400);

#[derive(Args)]
pub struct InviteArguments {
    /// Name of the node
    #[arg(value_parser = flags::node_name)]
    name: String,
    /// Address at which the server's machine reaches the node
    #[arg(long, value_name = "ADDRESS", value_parser = flags::node_address, required_unless_present = "revoke")]
    address: Option<IpAddr>,
    /// File to write the ticket to; it contains private keys, and only its owner can read it
    #[arg(long, value_name = "FILE", required_unless_present = "revoke")]
    output: Option<PathBuf>,
    /// Time in which the node must join, such as 1h30m; it gets other certificates as soon as it has joined
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = ticket_lifetime)]
    valid_for: Duration,
    /// Remove the node from the cluster instead, and reject all its certificates from now on
    #[arg(long, conflicts_with_all = ["address", "output", "valid_for"])]
    revoke: bool,
    /// Data directory of the cluster
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
}

/// The contents of a ticket.
#[derive(Serialize, Deserialize)]
struct Ticket {
    server: String,
    authority: String,
    node: Identity,
    kubelet_server: Identity,
    proxy: Identity,
    local_path: Identity,
    node_name: String,
    node_address: IpAddr,
    node_index: u8,
    pod_range: String,
    service_range: String,
    api_port: u16,
    #[serde(default)]
    several_pod_ranges: bool,
}

/// The lifetime of a ticket's certificates. The node renews them after it has joined.
fn ticket_lifetime(text: &str) -> Result<Duration, flags::InvalidValue> {
    let lifetime = flags::duration(text)?;
    match (Duration::from_secs(600)..=LONGEST_TICKET).contains(&lifetime) {
        true => Ok(lifetime),
        false => Err(flags::invalid(
            "a ticket can be valid for 10 minutes to 30 days",
        )),
    }
}

/// `coracle invite`.
pub fn invite(arguments: InviteArguments) -> Result<ExitCode> {
    privileges::require_root("coracle invite")?;
    let layout = Layout::existing(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    let settings = layout
        .settings()?
        .context("there is no cluster in this data directory: start one with `coracle up`")?;
    if arguments.name == settings.node_name {
        bail!(
            "{} is the name of the server's own node: choose another name",
            arguments.name
        );
    }
    if arguments.revoke {
        return block_on(revocation::revoke(&layout, &arguments.name));
    }
    let (Some(node_address), Some(output)) = (arguments.address, arguments.output) else {
        bail!("--address and --output must be given together");
    };
    let node_index = assign_pod_cidr(&layout, &arguments.name)?;
    let joined = Settings {
        node_index,
        ..settings.clone()
    };
    let addresses = [node_address, IpAddr::V4(joined.gateway()?)];
    let environment = Environment::system();
    let identities = pki::invite(
        &layout.pki(),
        &arguments.name,
        &addresses,
        arguments.valid_for,
        &environment,
    )?;
    let address = host::node_address(&settings)?;
    let ticket = Ticket {
        server: format!("https://{}:{}", bracketed(address), settings.api_port),
        authority: identities.authority,
        node: identities.node,
        kubelet_server: identities.kubelet_server,
        proxy: identities.proxy,
        local_path: identities.local_path,
        node_name: arguments.name,
        node_address,
        node_index,
        pod_range: settings.pod_range,
        service_range: settings.service_range,
        api_port: settings.api_port,
        several_pod_ranges: settings.several_pod_ranges,
    };
    write_private(&output, &serde_json::to_vec_pretty(&ticket)?)?;
    print_line!(
        "The ticket for node {} is in {}. Copy it to the node's machine and start the node with:\n\n  \
         coracle agent --ticket {}",
        ticket.node_name,
        output.display(),
        output.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Assigns a node its pod CIDR, as an index into the pod range: the one it had before, or the next
/// free one.
fn assign_pod_cidr(layout: &Layout, name: &str) -> Result<u8> {
    let mut assigned = pod_cidr_indexes(layout)?;
    if let Some(index) = assigned.get(name) {
        return Ok(*index);
    }
    let index = (1..=u8::MAX)
        .find(|index| !assigned.values().any(|used| used == index))
        .context("the cluster's pod range has no free pod CIDR for another node")?;
    assigned.insert(name.to_string(), index);
    write_private(&layout.nodes_file(), &serde_json::to_vec_pretty(&assigned)?)?;
    Ok(index)
}

/// The indexes of the assigned pod CIDRs, by node name.
fn pod_cidr_indexes(layout: &Layout) -> Result<BTreeMap<String, u8>> {
    let path = layout.nodes_file();
    match fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// The pod CIDRs that this cluster has assigned, as (node, CIDR): that of its own node, and those of
/// the nodes that were invited so far.
pub fn assigned_pod_ranges(layout: &Layout, settings: &Settings) -> Result<Vec<(String, String)>> {
    let mut assigned = vec![(settings.node_name.clone(), settings.node_pod_range()?)];
    for (name, node_index) in pod_cidr_indexes(layout)? {
        let node = Settings {
            node_index,
            ..settings.clone()
        };
        assigned.push((name, node.node_pod_range()?));
    }
    Ok(assigned)
}

/// Stores the settings and certificates of a ticket in the node's data directory.
pub fn accept(
    layout: &Layout,
    ticket: &Path,
    runtime_endpoint: Option<PathBuf>,
    environment: &Environment,
) -> Result<()> {
    let bytes = fs::read(ticket).with_context(|| format!("reading {}", ticket.display()))?;
    let ticket: Ticket = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is not a ticket of `coracle invite`", ticket.display()))?;
    let until = Validity::of(&ticket.node.certificate)?.until;
    let keeps_own = has_later_certificate(layout, until);
    if !keeps_own && until <= environment.now().as_second() {
        bail!(
            "the ticket expired at {}: make a new one with `coracle invite` on the server's machine",
            jiff::Timestamp::from_second(until)?
        );
    }
    let cluster_id = match layout.settings()? {
        Some(settings) if settings.node_name != ticket.node_name => bail!(
            "{} is the data directory of node {}: choose another --data-dir",
            layout.data_dir.display(),
            settings.node_name
        ),
        Some(settings) => settings.cluster_id,
        None => new_cluster_id(environment),
    };
    if keeps_own {
        return Ok(());
    }
    let settings = Settings {
        cluster_id,
        node_name: ticket.node_name,
        pod_range: ticket.pod_range,
        service_range: ticket.service_range,
        api_port: ticket.api_port,
        kubelet_port: 10250,
        node_index: ticket.node_index,
        node_address: Some(ticket.node_address),
        joined: true,
        several_pod_ranges: ticket.several_pod_ranges,
        runtime_endpoint,
    };
    claims::reject_host_conflicts(&settings)?;
    private_dir(&layout.pki())?;
    for (file, user, identity) in [
        (layout.node_kubeconfig(), "node", &ticket.node),
        (layout.proxy_kubeconfig(), "proxy", &ticket.proxy),
        (
            layout.local_path_kubeconfig(),
            "local-path",
            &ticket.local_path,
        ),
    ] {
        let access = Access {
            server: ticket.server.clone(),
            authority: &ticket.authority,
            identity,
        };
        kubeconfig::own::write(&file, &access, "coracle", user)?;
    }
    pki::save_joined(&layout.pki(), &ticket.authority, &ticket.kubelet_server)?;
    Claims::lock()?.claim_joined(&settings, &layout.data_dir)?;
    layout.save_settings(&settings)
}

/// Whether the node has joined before and renewed its certificates since the ticket was made.
fn has_later_certificate(layout: &Layout, until: i64) -> bool {
    let own = kubeconfig::own::identity(&layout.node_kubeconfig());
    own.and_then(|own| Validity::of(&own.certificate))
        .is_ok_and(|own| own.until > until)
}

/// An address in the form that URLs use.
fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_pod_cidr_and_others_get_the_next_free_one() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::create(&directory.path().join("data")).unwrap();
        assert_eq!(assign_pod_cidr(&layout, "a").unwrap(), 1);
        assert_eq!(assign_pod_cidr(&layout, "b").unwrap(), 2);
        assert_eq!(assign_pod_cidr(&layout, "a").unwrap(), 1);
    }

    #[test]
    fn assigned_pod_ranges_are_those_of_the_own_node_and_of_invited_nodes() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::create(&directory.path().join("data")).unwrap();
        let settings: Settings = serde_json::from_value(serde_json::json!({
            "cluster_id": "aaaaaa", "node_name": "own", "pod_range": "10.244.0.0/16",
            "service_range": "10.96.0.0/12", "api_port": 6443, "kubelet_port": 10250,
        }))
        .unwrap();
        assign_pod_cidr(&layout, "b").unwrap();
        let pair = |name: &str, range: &str| (name.to_owned(), range.to_owned());
        assert_eq!(
            assigned_pod_ranges(&layout, &settings).unwrap(),
            [pair("own", "10.244.0.0/24"), pair("b", "10.244.1.0/24")]
        );
        // A file that cannot be read is an error, not an empty list.
        fs::write(layout.nodes_file(), "{").unwrap();
        assert!(assigned_pod_ranges(&layout, &settings).is_err());
    }
}
