//! A host port can be taken once per node, protocol and address.

use std::{fmt::Write, sync::Arc};

use crate::{
    NodeInfo, PodInfo,
    framework::{ClusterEvent, Filter, Plugin, Points},
};

const REASON: &str = "node(s) didn't have free ports for the requested pod ports";

pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            filter: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            ClusterEvent::NodeAdded(_) => true,
            ClusterEvent::NodeChanged { .. } => false,
            ClusterEvent::PodRemoved { pod: removed, .. } => pod.host_ports.iter().any(|wanted| {
                removed
                    .host_ports
                    .iter()
                    .any(|used| wanted.conflicts_with(used))
            }),
            _ => false,
        }
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        for port in &pod.host_ports {
            let _ = write!(key, "{} {} {}\t", port.protocol, port.port, port.ip);
        }
        true
    }
}

impl Filter for NodePorts {
    fn resolvable(&self, _: &PodInfo, _: &NodeInfo) -> bool {
        true
    }

    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String> {
        if !pod.host_ports.is_empty() && node.has_conflicting_port(&pod.host_ports) {
            return vec![REASON.to_owned()];
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod;

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let with = |name: &str, ports: &str| {
            pod(
                name,
                &format!(r#"{{"containers":[{{"name":"c","ports":[{ports}]}}]}}"#),
            )
        };
        let check = |held: &str, wanted: &str, expected: bool| {
            let mut info = NodeInfo::new("n1");
            info.add_pod(with("held", held));
            let passes = NodePorts.filter(&with("wanted", wanted), &info).is_empty();
            assert_eq!(passes, expected, "{held} against {wanted}");
        };
        let port = |number: u16, rest: &str| {
            format!(r#"{{"containerPort":80,"hostPort":{number}{rest}}}"#)
        };
        let any = port(80, "");
        check("", &any, true);
        check(&any, "", true);
        check(&any, &any, false);
        check(&any, &port(81, ""), true);
        check(&any, &port(80, r#","protocol":"UDP""#), true);
        check(&any, &port(80, r#","protocol":"TCP""#), false);
        let local = port(80, r#","hostIP":"127.0.0.1""#);
        check(&any, &local, false);
        check(&local, &any, false);
        check(&local, &local, false);
        check(&local, &port(80, r#","hostIP":"127.0.0.2""#), true);
        check(r#"{"containerPort":80}"#, r#"{"containerPort":80}"#, true);
    }

    #[test]
    fn ports_of_sidecars_count_and_of_init_containers_do_not() {
        let held = |policy: &str| {
            let spec = format!(
                r#"{{"containers":[],"initContainers":[{{"name":"i"{policy},"ports":[{{"containerPort":1,"hostPort":80}}]}}]}}"#
            );
            pod("web", &spec).host_ports.len()
        };
        assert_eq!(held(r#","restartPolicy":"Always""#), 1);
        assert_eq!(held(""), 0);
    }
}
