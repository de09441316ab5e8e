//! The pod's link: a veth pair routed point to point. The pod has its address as a /32 and sends
//! everything to the gateway; the node has a route to that one address. Both neighbours are
//! permanent entries with hardware addresses chosen here, so there is no bridge and no ARP.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

use nix::sched::{CloneFlags, setns};

use super::error::Error;
use super::request::{Attachment, Configuration};
use crate::names;
use crate::netlink::Connection;
use crate::netlink::route::{self, Route, RouteKind, VethEnd};
use crate::subnet::Subnet;

/// The two ends as they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub host_name: String,
    pub host_hardware_address: [u8; 6],
    pub pod_hardware_address: [u8; 6],
    pub mtu: u32,
}

/// Makes the pair and configures both ends.
pub fn attach(
    configuration: &Configuration,
    attachment: &Attachment,
    namespace: &File,
    address: Ipv4Addr,
) -> Result<Attached, Error> {
    let mtu = match configuration.mtu {
        Some(mtu) => mtu,
        None => crate::node::default_mtu()?,
    };
    let (container, interface) = (attachment.container.as_str(), attachment.interface.as_str());
    let attached = Attached {
        host_name: names::pod_link(&configuration.cluster_id, container, interface),
        host_hardware_address: names::hardware_address(container, interface, 0),
        pod_hardware_address: names::hardware_address(container, interface, 1),
        mtu,
    };
    let mut host = Connection::route()?;
    let host_end = VethEnd {
        name: &attached.host_name,
        hardware_address: attached.host_hardware_address,
    };
    let pod_end = VethEnd {
        name: interface,
        hardware_address: attached.pod_hardware_address,
    };
    let create = || route::create_veth(&host_end, &pod_end, namespace.as_raw_fd(), mtu);
    let up = || route::set_up_quietly(&attached.host_name);
    match host.pipeline(vec![create(), up()]) {
        // Left by an ADD that was interrupted and is now repeated.
        Err(error) if error.errno() == Some(libc::EEXIST) => {
            host.pipeline(vec![
                route::delete_link(&attached.host_name),
                create(),
                up(),
            ])?;
        }
        outcome => outcome?,
    }

    let mut pod = connect_inside(namespace)?;
    let missing = |name: &str| Error::Check(format!("link {name} vanished"));
    let inside = route::find_link(&mut pod, interface)?.ok_or_else(|| missing(interface))?;
    let loopback = route::find_link(&mut pod, "lo")?.ok_or_else(|| missing("lo"))?;
    let gateway = configuration.gateway;
    pod.pipeline(vec![
        route::set_up(loopback.index),
        route::add_address(inside.index, address, 32),
        route::set_up(inside.index),
        route::add_neighbour(inside.index, gateway, attached.host_hardware_address),
        route::add_route(&Route {
            destination: Subnet::new(gateway, 32),
            kind: RouteKind::Link {
                link: inside.index,
                source: None,
            },
            metric: 0,
        }),
        route::add_route(&Route {
            destination: Subnet::new(Ipv4Addr::UNSPECIFIED, 0),
            kind: RouteKind::Gateway {
                link: inside.index,
                gateway,
            },
            metric: 0,
        }),
    ])?;

    let outside = route::find_link(&mut host, &attached.host_name)?
        .ok_or_else(|| missing(&attached.host_name))?;
    host.pipeline(vec![
        route::add_neighbour(outside.index, address, attached.pod_hardware_address),
        route::add_route(&host_route(address, outside.index)),
    ])?;
    // A pod sends as itself only, and does not advertise routes to the node. Best effort: a kernel
    // may lack either.
    for (family, setting, value) in [("ipv4", "rp_filter", "1"), ("ipv6", "accept_ra", "0")] {
        let path = format!(
            "/proc/sys/net/{family}/conf/{}/{setting}",
            attached.host_name
        );
        let _ = std::fs::write(path, value);
    }
    Ok(attached)
}

/// Deletes the pair; the routes and neighbours go with it. A pair that is gone is fine.
pub fn detach(cluster_id: &str, attachment: &Attachment) -> Result<(), Error> {
    let name = names::pod_link(cluster_id, &attachment.container, &attachment.interface);
    Ok(Connection::route()?.request(route::delete_link(&name))?)
}

/// Finds out whether everything `attach` made is still there.
pub fn check(
    configuration: &Configuration,
    attachment: &Attachment,
    namespace: &File,
    address: Ipv4Addr,
) -> Result<(), Error> {
    let failed = |what: String| Err(Error::Check(what));
    let name = names::pod_link(
        &configuration.cluster_id,
        &attachment.container,
        &attachment.interface,
    );
    let mut host = Connection::route()?;
    let Some(outside) = route::find_link(&mut host, &name)?.filter(|link| link.up) else {
        return failed(format!("link {name} is missing or down"));
    };
    let wanted = host_route(address, outside.index);
    if !route::routes(&mut host)?
        .iter()
        .any(|listed| listed.route == wanted)
    {
        return failed(format!("the route to {address} is missing"));
    }
    let mut pod = connect_inside(namespace)?;
    let Some(inside) = route::find_link(&mut pod, &attachment.interface)?.filter(|link| link.up)
    else {
        return failed(format!(
            "interface {} is missing or down",
            attachment.interface
        ));
    };
    if !route::addresses(&mut pod)?.contains(&(inside.index, address, 32)) {
        return failed(format!("address {address} is missing"));
    }
    let default = RouteKind::Gateway {
        link: inside.index,
        gateway: configuration.gateway,
    };
    if !route::routes(&mut pod)?
        .iter()
        .any(|listed| listed.route.kind == default)
    {
        return failed("the default route is missing".to_owned());
    }
    Ok(())
}

fn host_route(address: Ipv4Addr, link: u32) -> Route {
    Route {
        destination: Subnet::new(address, 32),
        kind: RouteKind::Link { link, source: None },
        metric: 0,
    }
}

/// A connection that acts inside the namespace. Only the calling thread enters it, for the moment
/// of opening the socket.
fn connect_inside(namespace: &File) -> Result<Connection, Error> {
    let failed = |path: &str| {
        let path = path.to_owned();
        move |errno: nix::Error| Error::Namespace {
            path,
            source: errno.into(),
        }
    };
    const OWN: &str = "/proc/thread-self/ns/net";
    let own = File::open(OWN).map_err(|source| Error::Namespace {
        path: OWN.to_owned(),
        source,
    })?;
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).map_err(failed("of the pod"))?;
    let connection = Connection::route();
    setns(own.as_fd(), CloneFlags::CLONE_NEWNET).map_err(failed(OWN))?;
    Ok(connection?)
}
