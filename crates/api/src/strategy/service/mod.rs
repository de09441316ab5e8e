//! Services, without the allocation of cluster IPs and node ports, which the API server does.

use std::collections::BTreeMap;

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names::NameRule;
use crate::repeats::Seen;
use crate::resource::{Strategy, generic};
use crate::strategy::ingress::balancer_cell;

pub mod families;
mod validate;

pub struct Service;

impl Strategy for Service {
    fn returns_deleted(&self) -> bool {
        true
    }

    /// Since v1.36 a digit may come first.
    fn name_rule(&self) -> NameRule {
        NameRule::DnsLabel
    }

    fn has_status(&self) -> bool {
        true
    }

    fn allow_create_on_update(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object.set_default(&["spec", "type"], "ClusterIP");
        default_session_affinity(object);
        for port in object.list_at_mut(&["spec", "ports"]) {
            port.set_default(&["protocol"], "TCP");
            let target = port.get("targetPort");
            if target.is_none_or(|target| matches!(target, Value::Integer(0) | Value::Null))
                || target.and_then(Value::as_str) == Some("")
            {
                let number = port.i64_at(&["port"]).unwrap_or(0);
                port.set(&["targetPort"], number);
            }
        }
        if externally_accessible(object) {
            object.set_default(&["spec", "externalTrafficPolicy"], "Cluster");
        }
        let kind = object.str_at(&["spec", "type"]).to_string();
        if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
            object.set_missing(&["spec", "internalTrafficPolicy"], "Cluster");
        }
        if kind == "LoadBalancer" {
            object.set_default(&["spec", "allocateLoadBalancerNodePorts"], true);
            for ingress in object.list_at_mut(&["status", "loadBalancer", "ingress"]) {
                if !ingress.str_at(&["ip"]).is_empty() {
                    ingress.set_default(&["ipMode"], "VIP");
                }
            }
        }
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "loadBalancer"], Value::object());
        mirror_cluster_ip(object, None);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        if !subresource.is_empty() {
            return;
        }
        keep_allocated(new, old);
        mirror_cluster_ip(new, Some(old));
        drop_of_other_types(new, old);
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        validate::service(object, None)
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "status" => validate::status(new, old),
            _ => validate::update(new, old),
        }
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, true);
        let text = |name: &str| object.str_at(&["spec", name]).to_string();
        fields.push(("spec.clusterIP", text("clusterIP")));
        fields.push(("spec.type", text("type")));
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let cluster_ip = match object.list_at(&["spec", "clusterIPs"]).first() {
            Some(address) => address.as_str().unwrap_or_default(),
            None => "<none>",
        };
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["spec", "type"]).into(),
            cluster_ip.into(),
            external_addresses(object).into(),
            ports(object).into(),
            object_age(object, now).into(),
            selector(object).into(),
        ]
    }
}

/// Whether traffic may come from outside the cluster.
pub fn externally_accessible(service: &Value) -> bool {
    match service.str_at(&["spec", "type"]) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !service.list_at(&["spec", "externalIPs"]).is_empty(),
        _ => false,
    }
}

/// Whether the user asked for no cluster IP.
pub fn is_headless(service: &Value) -> bool {
    service.str_at(&["spec", "clusterIP"]) == "None"
        || matches!(
            service.list_at(&["spec", "clusterIPs"]),
            [Value::String(only)] if only == "None"
        )
}

/// Whether the API server must allocate a cluster IP.
pub fn needs_cluster_ip(service: &Value) -> bool {
    service.str_at(&["spec", "type"]) != "ExternalName"
}

/// Whether the Service needs a health check node port.
pub fn needs_health_check(service: &Value) -> bool {
    service.str_at(&["spec", "type"]) == "LoadBalancer"
        && service.str_at(&["spec", "externalTrafficPolicy"]) == "Local"
}

/// Whether the API server must allocate node ports.
pub fn needs_node_port(service: &Value) -> bool {
    match service.str_at(&["spec", "type"]) {
        "NodePort" => true,
        "LoadBalancer" => {
            service.at(&["spec", "allocateLoadBalancerNodePorts"]) != Some(&Value::Bool(false))
        }
        _ => false,
    }
}

fn default_session_affinity(object: &mut Value) {
    object.set_default(&["spec", "sessionAffinity"], "None");
    let seconds = [
        "spec",
        "sessionAffinityConfig",
        "clientIP",
        "timeoutSeconds",
    ];
    match object.str_at(&["spec", "sessionAffinity"]) {
        "None" => drop(object.remove(&["spec", "sessionAffinityConfig"])),
        "ClientIP" => object.set_default(&seconds, 10_800),
        _ => {}
    }
}

/// Makes `clusterIP` the first of `clusterIPs`. The one that the user wrote or changed counts.
fn mirror_cluster_ip(new: &mut Value, old: Option<&Value>) {
    let single = new.str_at(&["spec", "clusterIP"]).to_string();
    let list = new.list_at(&["spec", "clusterIPs"]).to_vec();
    let changed_alone = old.is_some_and(|old| {
        single != old.str_at(&["spec", "clusterIP"]) && list == old.list_at(&["spec", "clusterIPs"])
    });
    if changed_alone {
        match single.as_str() {
            "" => drop(new.remove(&["spec", "clusterIPs"])),
            _ => new.set(&["spec", "clusterIPs"], vec![Value::from(single)]),
        }
    } else if list.is_empty() && !single.is_empty() {
        new.set(&["spec", "clusterIPs"], vec![Value::from(single)]);
    }
}

/// Keeps allocated fields that an update does not contain.
fn keep_allocated(new: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(new) {
        if new.str_at(&["spec", "clusterIP"]).is_empty() {
            generic::keep_field(new, old, &["spec", "clusterIP"]);
        }
        let same = new.str_at(&["spec", "clusterIP"]) == old.str_at(&["spec", "clusterIP"]);
        if new.list_at(&["spec", "clusterIPs"]).is_empty() && same {
            generic::keep_field(new, old, &["spec", "clusterIPs"]);
        }
    }
    let health = ["spec", "healthCheckNodePort"];
    if needs_health_check(old) && needs_health_check(new) && new.i64_at(&health).unwrap_or(0) == 0 {
        generic::keep_field(new, old, &health);
    }
    if has_node_ports(old) && has_node_ports(new) {
        let key = |port: &Value| {
            let protocol = port.str_at(&["protocol"]).to_string();
            (port.i64_at(&["port"]), protocol)
        };
        let mut old_ports = BTreeMap::new();
        for port in old.list_at(&["spec", "ports"]) {
            old_ports.entry(key(port)).or_insert(port);
        }
        for port in new.list_at_mut(&["spec", "ports"]) {
            let number = old_ports.get(&key(port));
            let number = number.and_then(|old| old.i64_at(&["nodePort"]));
            if let (0, Some(number)) = (port.i64_at(&["nodePort"]).unwrap_or(0), number) {
                port.set(&["nodePort"], number);
            }
        }
    }
}

/// Drops fields that only the old type had, unless the user changed them too.
fn drop_of_other_types(new: &mut Value, old: &Value) {
    let unchanged = |new: &Value, name: &str| new.at(&["spec", name]) == old.at(&["spec", name]);
    if needs_cluster_ip(old) && !needs_cluster_ip(new) {
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if unchanged(new, name) {
                new.remove(&["spec", name]);
            }
        }
    }
    if has_node_ports(old) && !has_node_ports(new) && superset_of_node_ports(old, new) {
        for port in new.list_at_mut(&["spec", "ports"]) {
            port.remove(&["nodePort"]);
        }
    }
    let health = ["spec", "healthCheckNodePort"];
    if needs_health_check(old) && !needs_health_check(new) && old.at(&health) == new.at(&health) {
        new.remove(&health);
    }
    let was_balancer = old.str_at(&["spec", "type"]) == "LoadBalancer";
    let is_balancer = new.str_at(&["spec", "type"]) == "LoadBalancer";
    if was_balancer && !is_balancer {
        for name in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if unchanged(new, name) {
                new.remove(&["spec", name]);
            }
        }
    }
    if externally_accessible(old)
        && !externally_accessible(new)
        && unchanged(new, "externalTrafficPolicy")
    {
        new.remove(&["spec", "externalTrafficPolicy"]);
    }
    if !is_balancer {
        new.set(&["status", "loadBalancer"], Value::object());
    }
}

/// Whether its ports can have node ports.
fn has_node_ports(service: &Value) -> bool {
    matches!(
        service.str_at(&["spec", "type"]),
        "NodePort" | "LoadBalancer"
    )
}

fn superset_of_node_ports(old: &Value, new: &Value) -> bool {
    let ports = |service: &Value| -> Vec<i64> {
        let ports = service.list_at(&["spec", "ports"]).iter();
        ports
            .filter_map(|port| port.i64_at(&["nodePort"]))
            .filter(|number| *number != 0)
            .collect()
    };
    let old: Seen<i64> = ports(old).into_iter().collect();
    ports(new).iter().all(|number| old.contains(number))
}

fn external_addresses(object: &Value) -> String {
    let kind = object.str_at(&["spec", "type"]);
    if kind == "ExternalName" {
        return object.str_at(&["spec", "externalName"]).to_string();
    }
    let mut addresses = Vec::new();
    if kind == "LoadBalancer" {
        let balancer = balancer_cell(object);
        addresses.extend((!balancer.is_empty()).then_some(balancer));
    }
    let own = object.list_at(&["spec", "externalIPs"]).iter();
    addresses.extend(own.filter_map(|one| one.as_str().map(str::to_string)));
    match (addresses.is_empty(), kind) {
        (false, _) => addresses.join(","),
        (true, "LoadBalancer") => "<pending>".to_string(),
        (true, "ClusterIP" | "NodePort") => "<none>".to_string(),
        (true, _) => "<unknown>".to_string(),
    }
}

fn ports(object: &Value) -> String {
    let ports: Vec<String> = object
        .list_at(&["spec", "ports"])
        .iter()
        .map(|port| {
            let (number, protocol) = (
                port.i64_at(&["port"]).unwrap_or(0),
                port.str_at(&["protocol"]),
            );
            match port.i64_at(&["nodePort"]).unwrap_or(0) {
                0 => format!("{number}/{protocol}"),
                node_port => format!("{number}:{node_port}/{protocol}"),
            }
        })
        .collect();
    match ports.is_empty() {
        true => "<none>".to_string(),
        false => ports.join(","),
    }
}

fn selector(object: &Value) -> String {
    let terms: Vec<String> = object
        .fields_at(&["spec", "selector"])
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    match terms.is_empty() {
        true => "<none>".to_string(),
        false => terms.join(","),
    }
}

/// `spec.<name>`.
fn spec(name: &str) -> Path {
    Path::new("spec").child(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn made(mut object: Value) -> Value {
        Service.default(&mut object);
        Service.prepare_create(&mut object);
        let _ = families::settle(&mut object, None);
        object
    }

    #[test]
    fn a_minimal_service_gets_upstreams_defaults() {
        let service = made(document!({"spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}));
        assert_eq!(
            service,
            document!({
                "spec": {
                    "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                    "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                    "selector": {"a": "b"},
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                },
                "status": {"loadBalancer": {}},
            })
        );
    }

    #[test]
    fn invalid_services_are_rejected() {
        let check = |spec: Value, expected: &[&str]| {
            let errors = Service.validate_content(&made(document!({"spec": spec})));
            let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
            assert_eq!(texts, expected);
        };
        check(document!({"ports": [{"port": 80}]}), &[]);
        check(document!({"clusterIP": "None"}), &[]);
        check(document!({}), &["spec.ports: Required value"]);
        check(
            document!({"ports": [{"port": 0}]}),
            &[
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        );
        check(
            document!({"ports": [{"port": 80}, {"port": 80, "name": "a"}]}),
            &[
                "spec.ports[0].name: Required value",
                r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ],
        );
        check(
            document!({"type": "Odd", "ports": [{"port": 1}]}),
            &[
                r#"spec.type: Unsupported value: "Odd": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
            ],
        );
        check(
            document!({"ports": [{"port": 1, "nodePort": 30000}]}),
            &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        );
        check(
            document!({"type": "ExternalName"}),
            &["spec.externalName: Required value"],
        );
        check(
            document!({"clusterIP": "10.0.0.300", "ports": [{"port": 1}]}),
            &[
                r#"spec.clusterIPs[0]: Invalid value: "10.0.0.300": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
            ],
        );
    }

    #[test]
    fn the_cluster_ip_is_immutable() {
        let mut old = made(document!({"spec": {"ports": [{"port": 80}]}}));
        old.set(&["spec", "clusterIP"], "10.0.0.1");
        old.set(&["spec", "clusterIPs"], vec!["10.0.0.1".into()]);

        let mut new = document!({"spec": {"ports": [{"port": 81}]}});
        Service.default(&mut new);
        Service.prepare_update(&mut new, &old, "");
        assert_eq!(families::settle(&mut new, Some(&old)), []);
        assert_eq!(new.str_at(&["spec", "clusterIP"]), "10.0.0.1");
        assert_eq!(new.list_at(&["spec", "clusterIPs"]).len(), 1);
        assert_eq!(Service.validate_update_content(&new, &old, ""), []);

        new.set(&["spec", "clusterIP"], "10.0.0.2");
        Service.prepare_update(&mut new, &old, "");
        let errors = Service.validate_update_content(&new, &old, "");
        assert_eq!(
            errors[0].to_string(),
            r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#
        );
    }
}
