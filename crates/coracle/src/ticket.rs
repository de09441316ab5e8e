//! How a node of another machine joins: `coracle invite` on the server's machine makes a ticket, a
//! file with the node's certificates and its place in the pod range; `coracle agent --ticket` uses it.

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
use crate::cli::{DEFAULT_DATA_DIR, block_on};
use crate::flags;
use crate::layout::{Layout, Settings, new_cluster_id, private_dir, write_private};
use crate::pki::{self, Identity};
use crate::privileges;
use crate::revocation;
use crate::rotation::Validity;
use crate::server;

const LONGEST_TICKET: Duration = Duration::from_secs(30 * 86_400);

#[derive(Args)]
pub struct InviteArguments {
    /// Name of the node that may join
    #[arg(value_parser = flags::node_name)]
    name: String,
    /// Address at which the server's machine reaches it
    #[arg(long, value_name = "ADDRESS", value_parser = flags::node_address, required_unless_present = "revoke")]
    address: Option<IpAddr>,
    /// Where to write the ticket; it holds keys and is readable by its owner only
    #[arg(long, value_name = "FILE", required_unless_present = "revoke")]
    output: Option<PathBuf>,
    /// How long the node may take to join; its certificates are renewed as soon as it has
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = ticket_lifetime)]
    valid_for: Duration,
    /// Instead: remove the node, and refuse every certificate that it has
    #[arg(long, conflicts_with_all = ["address", "output", "valid_for"])]
    revoke: bool,
    /// Data directory of the server
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
}

/// Everything a joining node needs to know.
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

/// Certificates for a joining node; those that it asks for afterwards have limits of their own.
fn ticket_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = flags::duration(text)?;
    match (Duration::from_secs(600)..=LONGEST_TICKET).contains(&lifetime) {
        true => Ok(lifetime),
        false => Err("a ticket is good for between 10 minutes and 30 days".to_string()),
    }
}

/// `coracle invite`.
pub fn invite(arguments: InviteArguments) -> Result<ExitCode> {
    privileges::need_root("coracle invite")?;
    let layout = Layout::existing(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    let settings = layout
        .settings()?
        .context("there is no cluster in this data directory")?;
    if arguments.name == settings.node_name {
        bail!("{} is the name of the server's own node", arguments.name);
    }
    if arguments.revoke {
        return block_on(revocation::revoke(&layout, &arguments.name));
    }
    let (Some(node_address), Some(output)) = (arguments.address, arguments.output) else {
        bail!("--address and --output are both needed");
    };
    let node_index = place_of(&layout, &arguments.name)?;
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
    let address = server::node_address(&settings)?;
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
    tell!(
        "Node {} may join with: coracle agent --ticket {}",
        ticket.node_name,
        output.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The place of a node in the pod range: the one it had before, or the next free one.
fn place_of(layout: &Layout, name: &str) -> Result<u8> {
    let mut places = places(layout)?;
    if let Some(place) = places.get(name) {
        return Ok(*place);
    }
    let place = (1..=u8::MAX)
        .find(|place| !places.values().any(|taken| taken == place))
        .context("no place is left in the pod range")?;
    places.insert(name.to_string(), place);
    write_private(&layout.nodes_file(), &serde_json::to_vec_pretty(&places)?)?;
    Ok(place)
}

/// The places that were given, by node.
fn places(layout: &Layout) -> Result<BTreeMap<String, u8>> {
    let path = layout.nodes_file();
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// The pod ranges that this cluster gave, as (node, range): its own node's, and those of the nodes
/// that were invited so far.
pub fn given_pod_ranges(layout: &Layout, settings: &Settings) -> Result<Vec<(String, String)>> {
    let mut given = vec![(settings.node_name.clone(), settings.node_pod_range()?)];
    for (name, node_index) in places(layout)? {
        let node = Settings {
            node_index,
            ..settings.clone()
        };
        given.push((name, node.node_pod_range()?));
    }
    Ok(given)
}

/// Puts what a ticket says into a node's data directory.
pub fn accept(
    layout: &Layout,
    ticket: &Path,
    runtime_endpoint: Option<PathBuf>,
    environment: &Environment,
) -> Result<()> {
    let bytes = fs::read(ticket).with_context(|| ticket.display().to_string())?;
    let ticket: Ticket = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is no ticket", ticket.display()))?;
    let until = Validity::of(&ticket.node.certificate)?.until;
    let keeps_own = has_later_certificate(layout, until);
    if !keeps_own && until <= environment.now().as_second() {
        bail!(
            "the ticket ended at {}: make a new one with `coracle invite` on the server's machine",
            jiff::Timestamp::from_second(until)?
        );
    }
    let cluster_id = match layout.settings()? {
        Some(settings) if settings.node_name != ticket.node_name => bail!(
            "{} is the data directory of node {}",
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
    claims::refuse_host_conflicts(&settings)?;
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
        let text = pki::kubeconfig(&ticket.authority, &ticket.server, "coracle", user, identity);
        write_private(&file, text.as_bytes())?;
    }
    pki::save_joined(&layout.pki(), &ticket.authority, &ticket.kubelet_server)?;
    Claims::lock()?.claim_joined(&settings, &layout.data_dir)?;
    layout.save_settings(&settings)
}

/// Whether the node has joined before and renewed its certificates since the ticket was made.
fn has_later_certificate(layout: &Layout, until: i64) -> bool {
    let own = pki::identity_in(&layout.node_kubeconfig());
    own.and_then(|own| Validity::of(&own.certificate))
        .is_ok_and(|own| own.until > until)
}

/// An address as it stands in a URL.
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
    fn a_node_keeps_its_place_and_others_get_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::create(&directory.path().join("data")).unwrap();
        assert_eq!(place_of(&layout, "a").unwrap(), 1);
        assert_eq!(place_of(&layout, "b").unwrap(), 2);
        assert_eq!(place_of(&layout, "a").unwrap(), 1);
    }

    #[test]
    fn the_cluster_knows_which_pod_ranges_it_gave() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::create(&directory.path().join("data")).unwrap();
        let settings: Settings = serde_json::from_value(serde_json::json!({
            "cluster_id": "aaaaaa", "node_name": "own", "pod_range": "10.244.0.0/16",
            "service_range": "10.96.0.0/12", "api_port": 6443, "kubelet_port": 10250,
        }))
        .unwrap();
        place_of(&layout, "b").unwrap();
        let pair = |name: &str, range: &str| (name.to_owned(), range.to_owned());
        assert_eq!(
            given_pod_ranges(&layout, &settings).unwrap(),
            [pair("own", "10.244.0.0/24"), pair("b", "10.244.1.0/24")]
        );
        // What cannot be read is not the same as nothing given.
        fs::write(layout.nodes_file(), "{").unwrap();
        assert!(given_pod_ranges(&layout, &settings).is_err());
    }
}
