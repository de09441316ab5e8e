//! What the runtime asks: the command and its parameters from the environment, and the network
//! configuration from standard input. Everything is checked here, before anything is done.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::Error;
use crate::node::NodeNetwork;
use crate::subnet::Subnet;

pub const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
pub const NEWEST: &str = "1.1.0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// The container and interface a command is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    #[serde(rename = "containerID")]
    pub container: String,
    #[serde(rename = "ifname")]
    pub interface: String,
}

/// Our network configuration, as `install` writes it and the runtime completes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    #[serde(default)]
    pub cni_version: String,
    #[serde(default)]
    pub name: String,
    pub cluster_id: String,
    pub pod_cidr: Subnet,
    pub cluster_cidr: Subnet,
    pub service_cidr: Subnet,
    pub dns_ip: Ipv4Addr,
    pub gateway: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    pub state_dir: PathBuf,
    #[serde(default, skip_serializing)]
    pub runtime_config: RuntimeConfiguration,
    #[serde(default, rename = "cni.dev/valid-attachments", skip_serializing)]
    pub valid_attachments: Option<Vec<Attachment>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeConfiguration {
    #[serde(default)]
    pub port_mappings: Vec<PortMapping>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    pub host_port: u16,
    pub container_port: u16,
    #[serde(default = "tcp")]
    pub protocol: String,
    #[serde(default, rename = "hostIP")]
    pub host_ip: String,
}

fn tcp() -> String {
    "tcp".to_owned()
}

impl PortMapping {
    pub fn protocol_number(&self) -> Result<u8, Error> {
        match self.protocol.to_ascii_lowercase().as_str() {
            "tcp" => Ok(6),
            "udp" => Ok(17),
            "sctp" => Ok(132),
            other => Err(Error::Configuration(format!(
                "unknown protocol {other:?} of a port mapping"
            ))),
        }
    }

    /// `None` for every address of the node; `Some(None)` for an IPv6 address, which we do not map.
    pub fn host_address(&self) -> Result<Option<Option<Ipv4Addr>>, Error> {
        match self.host_ip.as_str() {
            "" => Ok(Some(None)),
            text => match text.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(address)) if address.is_unspecified() => Ok(Some(None)),
                Ok(std::net::IpAddr::V4(address)) => Ok(Some(Some(address))),
                Ok(std::net::IpAddr::V6(_)) => Ok(None),
                Err(_) => Err(Error::Configuration(format!(
                    "hostIP {text:?} is not an address"
                ))),
            },
        }
    }
}

/// The environment variables of the specification, unchecked.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    pub command: Option<String>,
    pub container: Option<String>,
    pub namespace: Option<String>,
    pub interface: Option<String>,
}

impl Variables {
    pub fn from_process() -> Variables {
        Variables::from(|name| std::env::var(name).ok())
    }

    pub fn from(variable: impl Fn(&str) -> Option<String>) -> Variables {
        let get = |name| variable(name).filter(|value| !value.is_empty());
        Variables {
            command: get("CNI_COMMAND"),
            container: get("CNI_CONTAINERID"),
            namespace: get("CNI_NETNS"),
            interface: get("CNI_IFNAME"),
        }
    }

    pub fn command(&self) -> Result<Command, Error> {
        match self.command.as_deref() {
            Some("ADD") => Ok(Command::Add),
            Some("DEL") => Ok(Command::Del),
            Some("CHECK") => Ok(Command::Check),
            Some("GC") => Ok(Command::Gc),
            Some("STATUS") => Ok(Command::Status),
            Some("VERSION") => Ok(Command::Version),
            Some(other) => Err(Error::Environment(format!("unknown CNI_COMMAND: {other}"))),
            None => Err(Error::Environment(
                "required env variables [CNI_COMMAND] missing".to_owned(),
            )),
        }
    }

    pub fn attachment(&self) -> Result<Attachment, Error> {
        let missing =
            |name: &str| Error::Environment(format!("required env variables [{name}] missing"));
        let container = self
            .container
            .clone()
            .ok_or_else(|| missing("CNI_CONTAINERID"))?;
        let interface = self
            .interface
            .clone()
            .ok_or_else(|| missing("CNI_IFNAME"))?;
        let attachment = Attachment {
            container,
            interface,
        };
        attachment.check()?;
        Ok(attachment)
    }

    pub fn namespace(&self) -> Result<&str, Error> {
        self.namespace.as_deref().ok_or_else(|| {
            Error::Environment("required env variables [CNI_NETNS] missing".to_owned())
        })
    }
}

impl Attachment {
    /// Both become file and link names.
    pub fn check(&self) -> Result<(), Error> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric();
        let valid_container = self.container.len() <= 200
            && self.container.bytes().next().is_some_and(plain)
            && self
                .container
                .bytes()
                .all(|byte| plain(byte) || b"_.-".contains(&byte));
        if !valid_container {
            return Err(Error::Environment(format!(
                "invalid container id {:?}",
                self.container
            )));
        }
        let valid_interface = !matches!(self.interface.as_str(), "" | "." | "..")
            && self.interface.len() <= 15
            && self
                .interface
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"/:".contains(&byte));
        if !valid_interface {
            return Err(Error::Environment(format!(
                "invalid interface name {:?}",
                self.interface
            )));
        }
        Ok(())
    }
}

impl Configuration {
    pub fn parse(bytes: &[u8]) -> Result<Configuration, Error> {
        let configuration: Configuration = serde_json::from_slice(bytes).map_err(Error::Decode)?;
        if !VERSIONS.contains(&configuration.cni_version.as_str()) {
            return Err(Error::Version(configuration.cni_version));
        }
        if !crate::names::is_cluster_id(&configuration.cluster_id) {
            return Err(Error::Configuration(format!(
                "invalid clusterId {:?}",
                configuration.cluster_id
            )));
        }
        if !configuration.pod_cidr.contains(configuration.gateway) {
            return Err(Error::Configuration(
                "the gateway is outside podCidr".to_owned(),
            ));
        }
        if configuration.runtime_config.port_mappings.len() > 4096 {
            return Err(Error::Configuration("too many port mappings".to_owned()));
        }
        Ok(configuration)
    }

    pub fn network(&self) -> NodeNetwork {
        NodeNetwork {
            cluster_id: self.cluster_id.clone(),
            pod_cidr: self.pod_cidr,
            cluster_cidr: self.cluster_cidr,
            service_cidr: self.service_cidr,
            dns_ip: self.dns_ip,
            gateway: self.gateway,
            mtu: self.mtu,
        }
    }
}
