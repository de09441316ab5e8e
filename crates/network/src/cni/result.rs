//! The answer to ADD in the form of the asked version.

use std::net::Ipv4Addr;

use serde::Serialize;

use super::attach::Attached;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Success {
    cni_version: String,
    interfaces: Vec<Interface>,
    ips: Vec<Ip>,
    routes: Vec<Route>,
    dns: Dns,
}

#[derive(Serialize)]
struct Interface {
    name: String,
    mac: String,
    /// Known to 1.1 and later.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
}

#[derive(Serialize)]
struct Ip {
    /// Known to versions before 1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: String,
    gateway: String,
    interface: u32,
}

#[derive(Serialize)]
struct Route {
    dst: &'static str,
    gw: String,
}

#[derive(Serialize)]
struct Dns {}

pub fn success(
    version: &str,
    interface: &str,
    namespace: &str,
    address: Ipv4Addr,
    gateway: Ipv4Addr,
    attached: &Attached,
) -> Success {
    let mtu = (version == "1.1.0").then_some(attached.mtu);
    Success {
        cni_version: version.to_owned(),
        interfaces: vec![
            Interface {
                name: attached.host_name.clone(),
                mac: mac(attached.host_hardware_address),
                mtu,
                sandbox: None,
            },
            Interface {
                name: interface.to_owned(),
                mac: mac(attached.pod_hardware_address),
                mtu,
                sandbox: Some(namespace.to_owned()),
            },
        ],
        ips: vec![Ip {
            version: version.starts_with("0.").then_some("4"),
            address: format!("{address}/32"),
            gateway: gateway.to_string(),
            interface: 1,
        }],
        routes: vec![Route {
            dst: "0.0.0.0/0",
            gw: gateway.to_string(),
        }],
        dns: Dns {},
    }
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}
