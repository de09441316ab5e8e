//! Which ports of its node a pod uses, and whether two of them conflict.
//!
//! Upstream decides in `HostPortInfo.CheckConflict` (`k8s.io/kube-scheduler/framework`) and in
//! `GetHostPorts` (`pkg/scheduler/util`): containers and sidecars count, no other init container;
//! the address `0.0.0.0`, which is also the default, conflicts with every address.

use k8s_openapi::api::core::v1::PodSpec;

use crate::pod::sidecars;

/// The address that stands for all addresses of the node.
pub const ANY_ADDRESS: &str = "0.0.0.0";

/// A port of the node that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    pub protocol: String,
    pub port: i32,
    pub ip: String,
}

impl HostPort {
    /// Whether two pods with these ports cannot be on the same node.
    pub fn conflicts_with(&self, other: &HostPort) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == ANY_ADDRESS || other.ip == ANY_ADDRESS)
    }
}

/// The ports of its node that a pod uses.
pub fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    sidecars(spec)
        .chain(&spec.containers)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let or = |text: &Option<String>, default: &str| match text.as_deref() {
                None | Some("") => default.to_owned(),
                Some(text) => text.to_owned(),
            };
            Some(HostPort {
                protocol: or(&port.protocol, "TCP"),
                port: number,
                ip: or(&port.host_ip, ANY_ADDRESS),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn port(ip: &str, protocol: &str, port: i32) -> HostPort {
        HostPort {
            protocol: protocol.to_owned(),
            port,
            ip: ip.to_owned(),
        }
    }

    #[test]
    fn ports_conflict_by_address_protocol_and_number() {
        let local = port("127.0.0.1", "TCP", 80);
        for (other, expected) in [
            (port("127.0.0.1", "TCP", 80), true),
            (port(ANY_ADDRESS, "TCP", 80), true),
            (port("127.0.0.2", "TCP", 80), false),
            (port("127.0.0.1", "UDP", 80), false),
            (port(ANY_ADDRESS, "TCP", 81), false),
        ] {
            assert_eq!(local.conflicts_with(&other), expected, "{other:?}");
            assert_eq!(other.conflicts_with(&local), expected, "{other:?}");
        }
    }

    #[test]
    fn containers_and_sidecars_use_host_ports() {
        let ports = |number: i32| json!([{"containerPort": 1, "hostPort": number}]);
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "a", "ports": ports(80)}, {"name": "b", "ports": ports(0)},
                {"name": "c", "ports": [{"containerPort": 1, "hostPort": 81, "hostIP": "",
                    "protocol": ""}]}],
            "initContainers": [{"name": "once", "ports": ports(82)},
                {"name": "proxy", "restartPolicy": "Always", "ports": ports(83)}],
        }))
        .expect("a spec");
        let expected = [83, 80, 81].map(|number| port(ANY_ADDRESS, "TCP", number));
        assert_eq!(host_ports(&spec), expected);
    }
}
