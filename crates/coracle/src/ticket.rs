//! How a node of another machine joins: `coracle invite` on the server's machine makes a ticket, a
//! file with the node's certificates and its place in the pod range; `coracle agent --ticket` uses it.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use environment::Environment;
use serde::{Deserialize, Serialize};

use crate::claims::Claims;
use crate::cli::DEFAULT_DATA_DIR;
use crate::flags;
use crate::layout::{Layout, Settings, new_cluster_id, private_dir, write_private};
use crate::pki::{self, Identity};
use crate::server;

#[derive(Args)]
pub struct InviteArguments {
    /// Name of the node that may join
    #[arg(value_parser = flags::node_name)]
    name: String,
    /// Address at which the server's machine reaches it
    #[arg(long, value_name = "ADDRESS", value_parser = flags::node_address)]
    address: IpAddr,
    /// Where to write the ticket; it holds keys and is readable by its owner only
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
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
}

/// `coracle invite`.
pub fn invite(arguments: InviteArguments) -> Result<ExitCode> {
    let layout = Layout::existing(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    let settings = layout
        .settings()?
        .context("there is no cluster in this data directory")?;
    if arguments.name == settings.node_name {
        bail!("{} is the name of the server's own node", arguments.name);
    }
    let node_index = place_of(&layout, &arguments.name)?;
    let joined = Settings {
        node_index,
        ..settings.clone()
    };
    let addresses = [arguments.address, IpAddr::V4(joined.gateway()?)];
    let environment = Environment::system();
    let identities = pki::invite(&layout.pki(), &arguments.name, &addresses, &environment)?;
    let address = server::node_address(&settings)?;
    let ticket = Ticket {
        server: format!("https://{}:{}", bracketed(address), settings.api_port),
        authority: identities.authority,
        node: identities.node,
        kubelet_server: identities.kubelet_server,
        proxy: identities.proxy,
        local_path: identities.local_path,
        node_name: arguments.name,
        node_address: arguments.address,
        node_index,
        pod_range: settings.pod_range,
        service_range: settings.service_range,
        api_port: settings.api_port,
    };
    write_private(&arguments.output, &serde_json::to_vec_pretty(&ticket)?)?;
    println!(
        "Node {} may join with: coracle agent --ticket {}",
        ticket.node_name,
        arguments.output.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The place of a node in the pod range: the one it had before, or the next free one.
fn place_of(layout: &Layout, name: &str) -> Result<u8> {
    let path = layout.nodes_file();
    let mut places: BTreeMap<String, u8> = match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?,
        Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    if let Some(place) = places.get(name) {
        return Ok(*place);
    }
    let place = (1..=u8::MAX)
        .find(|place| !places.values().any(|taken| taken == place))
        .context("no place is left in the pod range")?;
    places.insert(name.to_string(), place);
    write_private(&path, &serde_json::to_vec_pretty(&places)?)?;
    Ok(place)
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
    let cluster_id = match layout.settings()? {
        Some(settings) if settings.node_name != ticket.node_name => bail!(
            "{} is the data directory of node {}",
            layout.data_dir.display(),
            settings.node_name
        ),
        Some(settings) => settings.cluster_id,
        None => new_cluster_id(environment),
    };
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
        let text = pki::kubeconfig(&ticket.authority, &ticket.server, user, identity);
        write_private(&file, text.as_bytes())?;
    }
    pki::save_joined(&layout.pki(), &ticket.authority, &ticket.kubelet_server)?;
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
        runtime_endpoint,
    };
    Claims::lock()?.claim_joined(&settings, &layout.data_dir)?;
    layout.save_settings(&settings)
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
}
