//! The defaults of Pods and of pod templates.

use std::sync::LazyLock;

use regex::Regex;

use crate::document::Value;
use crate::strategy::checks::canonical_quantities;
use crate::strategy::claim_spec;
use crate::strategy::pod::level_resources;

const LONGEST_IMAGE: usize = 255;

macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($pattern).expect("a constant pattern compiles"));
    };
}

pattern!(
    DOMAIN,
    r"^(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?$"
);
pattern!(
    REPOSITORY,
    r"^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$"
);
pattern!(TAG, r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$");
pattern!(
    DIGEST,
    r"^[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}$"
);

/// Defaults of a Pod: those of its spec and those only a Pod itself has.
pub fn pod(object: &mut Value) {
    if !object.has(&["spec"]) {
        return;
    }
    for list in ["containers", "initContainers"] {
        for container in object.list_at_mut(&["spec", list]) {
            requests_from_limits(container);
        }
    }
    for list in ["limits", "requests"] {
        canonical_quantities(object, &["spec", "resources", list]);
    }
    if let Some(spec) = object.get_mut("spec") {
        level_resources::default(spec);
    }
    object.set_default(&["spec", "enableServiceLinks"], true);
    if let Some(spec) = object.get_mut("spec") {
        pod_spec(spec);
    }
    if object.bool_at(&["spec", "hostNetwork"]) {
        host_ports(object);
    }
    pod_status(object);
}

/// Defaults of a pod spec, also inside a template.
pub fn pod_spec(spec: &mut Value) {
    spec.set_default(&["dnsPolicy"], "ClusterFirst");
    spec.set_default(&["restartPolicy"], "Always");
    spec.set_default(&["securityContext"], Value::object());
    spec.set_default(&["terminationGracePeriodSeconds"], 30);
    spec.set_default(&["schedulerName"], "default-scheduler");
    // The deprecated field mirrors the one that replaced it.
    if spec.str_at(&["serviceAccountName"]).is_empty() {
        let deprecated = spec.str_at(&["serviceAccount"]).to_string();
        if !deprecated.is_empty() {
            spec.set(&["serviceAccountName"], deprecated);
        }
    }
    let account = spec.str_at(&["serviceAccountName"]).to_string();
    if !account.is_empty() {
        spec.set(&["serviceAccount"], account);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for one in spec.list_at_mut(&[list]) {
            container(one);
        }
    }
    for one in spec.list_at_mut(&["volumes"]) {
        volume(one);
    }
    for name in ["limits", "requests"] {
        canonical_quantities(spec, &["resources", name]);
    }
    canonical_quantities(spec, &["overhead"]);
}

/// The default pull policy of an image: only the tag `latest` is always pulled. An invalid image name
/// has the other policy.
pub fn pull_policy(image: &str) -> &'static str {
    match tag(image) {
        Some("latest") => "Always",
        _ => "IfNotPresent",
    }
}

/// The tag of an image, `latest` where there is neither tag nor digest; none for what is no name.
fn tag(image: &str) -> Option<&str> {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to a registry's port.
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[last..].split_once(':') {
        Some((name, tag)) => (&rest[..last + name.len()], Some(tag)),
        None => (rest, None),
    };
    let (domain, path) = match name.split_once('/') {
        Some((domain, path))
            if domain.contains(['.', ':'])
                || domain == "localhost"
                || domain.contains(char::is_uppercase) =>
        {
            (domain, path.to_string())
        }
        Some(_) => ("docker.io", name.to_string()),
        None => ("docker.io", format!("library/{name}")),
    };
    let identifier = image.len() == 64
        && image
            .bytes()
            .all(|byte| b"0123456789abcdef".contains(&byte));
    let valid = !identifier
        && DOMAIN.is_match(domain)
        && REPOSITORY.is_match(&path)
        && domain.len() + 1 + path.len() <= LONGEST_IMAGE
        && tag.is_none_or(|tag| TAG.is_match(tag))
        && digest.is_none_or(|digest| DIGEST.is_match(digest));
    match (valid, tag, digest) {
        (false, ..) => None,
        (true, Some(tag), _) => Some(tag),
        (true, None, Some(_)) => None,
        (true, None, None) => Some("latest"),
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(container.str_at(&["image"]));
    container.set_default(&["imagePullPolicy"], policy);
    container.set_default(&["terminationMessagePath"], "/dev/termination-log");
    container.set_default(&["terminationMessagePolicy"], "File");
    container.set_default(&["resources"], Value::object());
    for name in ["limits", "requests"] {
        canonical_quantities(container, &["resources", name]);
    }
    for port in container.list_at_mut(&["ports"]) {
        port.set_default(&["protocol"], "TCP");
    }
    for variable in container.list_at_mut(&["env"]) {
        field_reference(variable, &["valueFrom", "fieldRef"]);
        resource_reference(variable, &["valueFrom", "resourceFieldRef"]);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(one) = container.get_mut(name).filter(|probe| !probe.is_null()) {
            probe(one);
        }
    }
    for name in ["postStart", "preStop"] {
        if let Some(handler) = container.at_mut(&["lifecycle", name]) {
            http_get(handler);
        }
    }
}

fn probe(probe: &mut Value) {
    for (name, number) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if probe.i64_at(&[name]).unwrap_or(0) == 0 {
            probe.set(&[name], number);
        }
    }
    http_get(probe);
    if probe.has(&["grpc"]) && !probe.has(&["grpc", "service"]) {
        probe.set(&["grpc", "service"], "");
    }
}

fn http_get(handler: &mut Value) {
    if handler.has(&["httpGet"]) {
        handler.set_default(&["httpGet", "path"], "/");
        handler.set_default(&["httpGet", "scheme"], "HTTP");
    }
}

fn volume(volume: &mut Value) {
    let sources = volume.as_object().map_or(0, |fields| {
        fields
            .iter()
            .filter(|(name, value)| *name != "name" && !value.is_null())
            .count()
    });
    if sources == 0 {
        volume.set(&["emptyDir"], Value::object());
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if volume.has(&[source]) {
            volume.set_default(&[source, "defaultMode"], 0o644);
        }
    }
    if volume.has(&["projected"]) && !volume.has(&["projected", "sources"]) {
        volume.set(&["projected", "sources"], Value::Null);
    }
    if volume.has(&["hostPath"]) && !volume.has(&["hostPath", "type"]) {
        volume.set(&["hostPath", "type"], "");
    }
    if volume.has(&["image"]) {
        let policy = pull_policy(volume.str_at(&["image", "reference"]));
        volume.set_default(&["image", "pullPolicy"], policy);
    }
    if let Some(claim) = volume.at_mut(&["ephemeral", "volumeClaimTemplate", "spec"])
        && !claim.is_null()
    {
        claim_spec::default(claim);
    }
    for item in volume.list_at_mut(&["downwardAPI", "items"]) {
        field_reference(item, &["fieldRef"]);
        resource_reference(item, &["resourceFieldRef"]);
    }
    for source in volume.list_at_mut(&["projected", "sources"]) {
        if source.has(&["serviceAccountToken"]) {
            source.set_default(&["serviceAccountToken", "expirationSeconds"], 3600);
        }
        for item in source.list_at_mut(&["downwardAPI", "items"]) {
            field_reference(item, &["fieldRef"]);
            resource_reference(item, &["resourceFieldRef"]);
        }
    }
}

fn field_reference(object: &mut Value, path: &[&str]) {
    if let Some(reference) = object.at_mut(path).filter(|value| !value.is_null()) {
        reference.set_default(&["apiVersion"], "v1");
    }
}

fn resource_reference(object: &mut Value, path: &[&str]) {
    if let Some(reference) = object.at_mut(path).filter(|value| !value.is_null()) {
        reference.set_default(&["divisor"], "0");
    }
}

fn requests_from_limits(container: &mut Value) {
    let limits: Vec<(String, Value)> = container
        .fields_at(&["resources", "limits"])
        .map(|(name, value)| (name.to_string(), value.clone()))
        .collect();
    for (name, value) in limits {
        if !container.has(&["resources", "requests", &name]) {
            container.set(&["resources", "requests", &name], value);
        }
    }
}

/// In the host's network a container's port is the host's.
fn host_ports(object: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in object.list_at_mut(&["spec", list]) {
            for port in container.list_at_mut(&["ports"]) {
                if port.i64_at(&["hostPort"]).unwrap_or(0) == 0 {
                    let number = port.i64_at(&["containerPort"]).unwrap_or(0);
                    port.set(&["hostPort"], number);
                }
            }
        }
    }
}

/// `podIP` and `podIPs`, `hostIP` and `hostIPs` say the same.
fn pod_status(object: &mut Value) {
    for (one, list) in [("podIP", "podIPs"), ("hostIP", "hostIPs")] {
        let address = object.str_at(&["status", one]).to_string();
        let first = object.list_at(&["status", list]).first();
        let first = first.map(|entry| entry.str_at(&["ip"]).to_string());
        match (address.as_str(), first) {
            ("", Some(first)) => object.set(&["status", one], first),
            ("", None) => {}
            (_, None) => {
                let entry = crate::document!({"ip": address});
                object.set(&["status", list], vec![entry]);
            }
            (_, Some(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn only_the_tag_latest_is_always_pulled() {
        let check =
            |image: &str, expected: &str| assert_eq!(pull_policy(image), expected, "{image}");
        check("nginx", "Always");
        check("", "IfNotPresent");
        check("nginx:latest", "Always");
        check("nginx:1.27", "IfNotPresent");
        check("localhost:5000/nginx", "Always");
        check("localhost:5000/nginx:1", "IfNotPresent");
        let digest = "0123456789abcdef".repeat(4);
        check(&format!("nginx@sha256:{digest}"), "IfNotPresent");
        check(&format!("nginx:latest@sha256:{digest}"), "Always");
        check("../../a", "IfNotPresent");
        check("Not_Valid! ", "IfNotPresent");
        check(&"x".repeat(300), "IfNotPresent");
        check("[::1]:5000/nginx", "Always");
    }

    #[test]
    fn a_minimal_pod_gets_upstreams_defaults() {
        let mut object = document!({
            "metadata": {"name": "web"},
            "spec": {
                "serviceAccountName": "web",
                "containers": [{
                    "name": "c", "image": "nginx:1",
                    "ports": [{"containerPort": 80}],
                    "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                    "resources": {"limits": {"cpu": 1, "memory": "1024Ki"}, "requests": {"cpu": "0.5"}},
                    "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 2},
                }],
                "volumes": [
                    {"name": "empty"},
                    {"name": "secret", "secret": {"secretName": "s"}},
                    {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                ],
            },
        });
        pod(&mut object);
        let expected = document!({
            "metadata": {"name": "web"},
            "spec": {
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {},
                "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler",
                "enableServiceLinks": true, "serviceAccountName": "web", "serviceAccount": "web",
                "containers": [{
                    "name": "c", "image": "nginx:1", "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "env": [{"name": "IP", "valueFrom": {
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"},
                    }}],
                    "resources": {
                        "limits": {"cpu": "1", "memory": "1Mi"},
                        "requests": {"cpu": "500m", "memory": "1Mi"},
                    },
                    "readinessProbe": {
                        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                        "periodSeconds": 2, "timeoutSeconds": 1, "successThreshold": 1,
                        "failureThreshold": 3,
                    },
                }],
                "volumes": [
                    {"name": "empty", "emptyDir": {}},
                    {"name": "secret", "secret": {"secretName": "s", "defaultMode": 420}},
                    {"name": "token", "projected": {"defaultMode": 420, "sources": [
                        {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                    ]}},
                ],
            },
        });
        assert_eq!(object, expected);
        pod(&mut object);
        assert_eq!(object, expected, "defaulting again changes nothing");
    }
}
