//! The environment variables that name the Services in a container's namespace
//! (`enableServiceLinks`) and always of `default/kubernetes`. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

/// `services`: those of the pod's namespace; `kubernetes`: the API's own Service.
pub fn variables<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    kubernetes: Option<&'a Service>,
    links: bool,
) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    if let Some(kubernetes) = kubernetes {
        describe(kubernetes, &mut variables);
    }
    if links {
        for service in services {
            describe(service, &mut variables);
        }
    }
    variables
}

fn describe(service: &Service, variables: &mut BTreeMap<String, String>) {
    let (Some(name), Some(spec)) = (&service.metadata.name, &service.spec) else {
        return;
    };
    let Some(address) = spec
        .cluster_ip
        .as_deref()
        .filter(|address| !address.is_empty() && *address != "None")
    else {
        return;
    };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let Some(first) = ports.first() else { return };
    let prefix = name.to_uppercase().replace('-', "_");
    let host = if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    };
    let mut set = |suffix: String, value: String| {
        variables.insert(format!("{prefix}_{suffix}"), value);
    };
    set("SERVICE_HOST".to_owned(), address.to_owned());
    set("SERVICE_PORT".to_owned(), first.port.to_string());
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            let name = name.to_uppercase().replace('-', "_");
            set(format!("SERVICE_PORT_{name}"), port.port.to_string());
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if index == 0 {
            set("PORT".to_owned(), url.clone());
        }
        let part = format!("PORT_{}_{}", port.port, protocol.to_uppercase());
        set(part.clone(), url);
        set(format!("{part}_PROTO"), protocol.to_lowercase());
        set(format!("{part}_PORT"), port.port.to_string());
        set(format!("{part}_ADDR"), address.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_becomes_variables() {
        let service: Service = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "redis-main"},
            "spec": {"clusterIP": "10.96.0.5", "ports": [{"name": "p-1", "port": 6379}]},
        }))
        .expect("a service");
        let headless: Service = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "none"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
        }))
        .expect("a service");
        let variables = variables([&service, &headless], None, true);
        let lines: Vec<String> = variables.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            lines,
            [
                "REDIS_MAIN_PORT=tcp://10.96.0.5:6379",
                "REDIS_MAIN_PORT_6379_TCP=tcp://10.96.0.5:6379",
                "REDIS_MAIN_PORT_6379_TCP_ADDR=10.96.0.5",
                "REDIS_MAIN_PORT_6379_TCP_PORT=6379",
                "REDIS_MAIN_PORT_6379_TCP_PROTO=tcp",
                "REDIS_MAIN_SERVICE_HOST=10.96.0.5",
                "REDIS_MAIN_SERVICE_PORT=6379",
                "REDIS_MAIN_SERVICE_PORT_P_1=6379",
            ]
        );
    }
}
