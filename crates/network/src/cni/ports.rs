//! Host ports of pods: elements of the maps in the node's table.

use std::net::Ipv4Addr;

use super::error::Error;
use super::ipam::Record;
use super::request::{Attachment, Configuration, PortMapping};
use crate::names;
use crate::netlink::Connection;
use crate::nft::{self, Batch, Element, Family};
use crate::node::table;

/// Makes the mappings live; all or none of them. The table is brought to its form first, should
/// someone have removed it.
pub fn open(
    configuration: &Configuration,
    attachment: &Attachment,
    record: &Record,
) -> Result<(), Error> {
    let mappings = targets(record)?;
    let Some((_, first)) = mappings.first() else {
        return Ok(());
    };
    let mut connection = Connection::netfilter()?;
    let mut batch = table::batch(&configuration.network());
    for ((set, element), _) in &mappings {
        batch.add_new_elements(set, std::slice::from_ref(element));
    }
    batch.add_elements(table::HAIRPIN, &[table::hairpin(record.address)]);
    batch
        .commit(&mut connection)
        .map_err(|error| match error.errno() {
            Some(libc::EEXIST) => {
                let taken = taken(&mut connection, configuration, &mappings).unwrap_or(first);
                Error::HostPort {
                    port: taken.host_port,
                    protocol: taken.protocol.clone(),
                }
            }
            _ => Error::Nft(error),
        })?;
    // Lets local processes reach the port on 127.0.0.1 as well. The node's table has a rule that
    // keeps the pod from using the same way in the other direction.
    let link = names::pod_link(
        &configuration.cluster_id,
        &attachment.container,
        &attachment.interface,
    );
    let setting = format!("/proc/sys/net/ipv4/conf/{link}/route_localnet");
    std::fs::write(&setting, "1").map_err(|source| Error::File {
        what: format!("cannot set {setting}"),
        source,
    })
}

/// Removes the mappings that are still this pod's.
pub fn close(cluster_id: &str, record: &Record) -> Result<(), Error> {
    if record.ports.is_empty() {
        return Ok(());
    }
    let mut connection = Connection::netfilter()?;
    let name = names::node_table(cluster_id);
    let mut wanted: Vec<(&'static str, Element)> = targets(record)?
        .into_iter()
        .map(|(target, _)| target)
        .collect();
    wanted.push((table::HAIRPIN, table::hairpin(record.address)));
    let mut batch = Batch::new(Family::Ipv4, &name);
    for set in [table::HOST_PORTS, table::HOST_ADDRESS_PORTS, table::HAIRPIN] {
        let present = nft::elements(&mut connection, Family::Ipv4, &name, set)?;
        let ours: Vec<Element> = wanted
            .iter()
            .filter(|(of, element)| *of == set && present.contains(element))
            .map(|(_, element)| element.clone())
            .collect();
        batch.delete_elements(set, &ours);
    }
    Ok(batch.commit(&mut connection)?)
}

/// Mappings without a host port, and those of IPv6 addresses, ask for nothing.
fn targets(record: &Record) -> Result<Vec<((&'static str, Element), &PortMapping)>, Error> {
    let mut targets = Vec::new();
    for mapping in record.ports.iter().filter(|mapping| mapping.host_port != 0) {
        if let Some(host) = mapping.host_address()? {
            let protocol = mapping.protocol_number()?;
            let pod: Ipv4Addr = record.address;
            targets.push((
                table::host_port(
                    host,
                    protocol,
                    mapping.host_port,
                    pod,
                    mapping.container_port,
                ),
                mapping,
            ));
        }
    }
    Ok(targets)
}

fn taken<'a>(
    connection: &mut Connection,
    configuration: &Configuration,
    mappings: &[((&'static str, Element), &'a PortMapping)],
) -> Option<&'a PortMapping> {
    let name = names::node_table(&configuration.cluster_id);
    mappings.iter().find_map(|((set, element), mapping)| {
        let present = nft::elements(connection, Family::Ipv4, &name, set).ok()?;
        present
            .iter()
            .any(|found| found.key == element.key)
            .then_some(*mapping)
    })
}
