//! Services in a quota: their number, node ports and load balancers.

use super::number;
use crate::document::Value;
use crate::resources::Amounts;

pub(super) fn counts(name: &str) -> bool {
    matches!(
        name,
        "count/services" | "services" | "services.loadbalancers" | "services.nodeports"
    )
}

pub(super) fn usage(service: &Value) -> Amounts {
    let ports = service.list_at(&["spec", "ports"]);
    let all = ports.len() as i64;
    let (balancers, node_ports) = match service.str_at(&["spec", "type"]) {
        "NodePort" => (0, all),
        "LoadBalancer" => {
            let allocated = service.at(&["spec", "allocateLoadBalancerNodePorts"]);
            match allocated.and_then(Value::as_bool) {
                Some(false) => {
                    let numbered = ports.iter().filter(|port| {
                        port.i64_at(&["nodePort"]).is_some_and(|number| number != 0)
                    });
                    (1, numbered.count() as i64)
                }
                _ => (1, all),
            }
        }
        _ => (0, 0),
    };
    [
        ("count/services", 1),
        ("services", 1),
        ("services.loadbalancers", balancers),
        ("services.nodeports", node_ports),
    ]
    .into_iter()
    .map(|(name, amount)| (name.to_string(), number(amount)))
    .collect()
}
