//! The downward API: a pod's own fields and resource amounts as text, for environment variables
//! and volume files. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use crate::resources;

/// The facts about the node that the downward API shows besides the pod's object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub node_name: String,
    pub host_ip: String,
    pub pod_ips: Vec<String>,
    pub allocatable_milli_cpu: i64,
    pub allocatable_memory: i64,
    pub allocatable_ephemeral_storage: i64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unsupported fieldPath: {0}")]
    FieldPath(String),
    #[error("unsupported container resource : {0}")]
    Resource(String),
    #[error("container {0} not found")]
    Container(String),
    #[error("invalid divisor {0}")]
    Divisor(String),
}

pub fn field(pod: &Pod, facts: &NodeFacts, path: &str) -> Result<String, Error> {
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((map, key)) = subscript(path) {
        let values = match map {
            "metadata.labels" => metadata.labels.as_ref(),
            "metadata.annotations" => metadata.annotations.as_ref(),
            _ => return Err(Error::FieldPath(path.to_owned())),
        };
        return Ok(values
            .and_then(|values| values.get(key))
            .cloned()
            .unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => metadata.uid.clone().unwrap_or_default(),
        "metadata.labels" => format_map(metadata.labels.as_ref()),
        "metadata.annotations" => format_map(metadata.annotations.as_ref()),
        "spec.nodeName" => facts.node_name.clone(),
        "spec.serviceAccountName" => spec
            .and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_default(),
        "status.hostIP" => facts.host_ip.clone(),
        "status.hostIPs" => facts.host_ip.clone(),
        "status.podIP" => facts.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(Error::FieldPath(path.to_owned())),
    })
}

/// A request or limit of a container, divided; an absent limit means the pod's, and without one the
/// node's allocatable. Huge pages are always limited and need no such default.
pub fn resource(
    pod: &Pod,
    facts: &NodeFacts,
    selector: &ResourceFieldSelector,
    own: Option<&Container>,
) -> Result<String, Error> {
    let container = match selector
        .container_name
        .as_deref()
        .filter(|name| !name.is_empty())
    {
        None => own.ok_or_else(|| Error::Container(String::new()))?,
        Some(name) => pod
            .spec
            .iter()
            .flat_map(|spec| {
                spec.containers
                    .iter()
                    .chain(spec.init_containers.iter().flatten())
            })
            .find(|container| container.name == name)
            .ok_or_else(|| Error::Container(name.to_owned()))?,
    };
    let name = selector.resource.as_str();
    let (kind, resource) = name
        .split_once('.')
        .ok_or_else(|| Error::Resource(name.to_owned()))?;
    let allocatable_milli = match resource {
        "cpu" => facts.allocatable_milli_cpu,
        "memory" => facts.allocatable_memory.saturating_mul(1000),
        "ephemeral-storage" => facts.allocatable_ephemeral_storage.saturating_mul(1000),
        huge if huge.starts_with("hugepages-") => 0,
        _ => return Err(Error::Resource(name.to_owned())),
    };
    let limit = || {
        resources::effective_limit(pod, container, resource)
            .and_then(resources::milli)
            .filter(|limit| *limit > 0)
    };
    let milli = match kind {
        "limits" => limit().unwrap_or(allocatable_milli),
        "requests" => match resources::request_milli(container, resource) {
            0 => limit().unwrap_or(0),
            request => request,
        },
        _ => return Err(Error::Resource(name.to_owned())),
    };
    let divisor = match &selector.divisor {
        None => 1000,
        Some(divisor) => match resources::milli(divisor) {
            Some(0) => 1000,
            Some(divisor) if divisor > 0 => divisor,
            _ => return Err(Error::Divisor(divisor.0.clone())),
        },
    };
    Ok(((milli + divisor - 1) / divisor).to_string())
}

/// `metadata.labels['key']` → (`metadata.labels`, `key`).
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

/// `key="value"` lines, sorted, values quoted as Go's `%q`.
fn format_map(values: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = values
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    lines.join("\n")
}

/// As Go's `%q` quotes.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                quoted.push_str(&format!("\\x{:02x}", control as u32));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"b": "2", "a": "say \"hi\"\n"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}}]},
        }))
        .expect("a pod")
    }

    #[test]
    fn fields_are_read() {
        let facts = NodeFacts {
            pod_ips: vec!["10.0.0.7".to_owned()],
            allocatable_milli_cpu: 2000,
            ..NodeFacts::default()
        };
        let pod = pod();
        let check = |path: &str, expected: &str| {
            assert_eq!(field(&pod, &facts, path).expect(path), expected);
        };
        check("metadata.name", "web");
        check("metadata.labels['b']", "2");
        check("metadata.labels['none']", "");
        check("metadata.labels", "a=\"say \\\"hi\\\"\\n\"\nb=\"2\"");
        check("status.podIP", "10.0.0.7");
        assert!(field(&pod, &facts, "spec.secret").is_err());
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let facts = NodeFacts {
            allocatable_ephemeral_storage: 10,
            ..NodeFacts::default()
        };
        let pod = pod();
        let read = |name: &str, divisor: &str| {
            let selector: ResourceFieldSelector = serde_json::from_value(serde_json::json!({
                "containerName": "c", "resource": name, "divisor": divisor,
            }))
            .expect("a selector");
            resource(&pod, &facts, &selector, None).expect("an amount")
        };
        assert_eq!(read("limits.cpu", "1"), "2");
        assert_eq!(read("limits.cpu", "1m"), "1500");
        assert_eq!(read("requests.memory", "1Mi"), "64");
        assert_eq!(read("limits.ephemeral-storage", "0"), "10");
        assert_eq!(read("limits.hugepages-2Mi", "1Mi"), "0");
    }

    #[test]
    fn the_pods_own_limit_goes_before_the_nodes() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "resources": {"limits": {"memory": "1Gi"}},
            "containers": [{"name": "c", "resources": {"limits": {"hugepages-2Mi": "4Mi"}}}]}}))
        .expect("a pod");
        let facts = NodeFacts {
            allocatable_memory: 8 << 30,
            ..NodeFacts::default()
        };
        let read = |name: &str| {
            let selector: ResourceFieldSelector = serde_json::from_value(serde_json::json!({
                "containerName": "c", "resource": name, "divisor": "1Mi",
            }))
            .expect("a selector");
            resource(&pod, &facts, &selector, None).expect("an amount")
        };
        assert_eq!(read("limits.memory"), "1024");
        assert_eq!(read("limits.hugepages-2Mi"), "4");
    }
}
