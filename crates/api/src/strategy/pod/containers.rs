//! Validation of containers and init containers.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::strategy::pod::{environment, probes, resources, security, volumes};

/// Checks `containers`.
pub fn regular(spec: &Value, volumes: &[&str], path: &Path, errors: &mut Vec<FieldError>) {
    let containers = spec.list_at(&["containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let at = path.index(index);
        either(container, volumes, &at, errors);
        let name = container.str_at(&["name"]);
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        seen.push(name);
        probes::validate(spec, container, &at, errors);
        restart_policy(container, &at, errors);
    }
    host_ports(containers, path, errors);
}

/// Checks `initContainers`, sidecars (`restartPolicy: Always`) among them.
pub fn init(spec: &Value, volumes: &[&str], path: &Path, errors: &mut Vec<FieldError>) {
    let regular = spec.list_at(&["containers"]);
    let mut seen: Vec<&str> = regular.iter().map(|one| one.str_at(&["name"])).collect();
    for (index, container) in spec.list_at(&["initContainers"]).iter().enumerate() {
        let at = path.index(index);
        either(container, volumes, &at, errors);
        restart_policy(container, &at, errors);
        let name = container.str_at(&["name"]);
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        } else if !name.is_empty() {
            seen.push(name);
        }
        host_ports(std::slice::from_ref(container), path, errors);
        if container.str_at(&["restartPolicy"]) == "Always" {
            probes::validate(spec, container, &at, errors);
            continue;
        }
        for field in [
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
        ] {
            if container.has(&[field]) {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(&at.child(field), detail));
            }
        }
    }
}

/// What holds for every container.
fn either(container: &Value, volumes: &[&str], path: &Path, errors: &mut Vec<FieldError>) {
    let name = container.str_at(&["name"]);
    match name {
        "" => errors.push(FieldError::required(&path.child("name"), "")),
        _ => errors.extend(all_invalid(
            &path.child("name"),
            name,
            names::dns_label(name),
        )),
    }
    if container.str_at(&["image"]).is_empty() {
        errors.push(FieldError::required(&path.child("image"), ""));
    }
    one_of(
        container,
        "terminationMessagePolicy",
        &["File", "FallbackToLogsOnError"],
        path,
        errors,
    );
    ports(container.list_at(&["ports"]), &path.child("ports"), errors);
    environment::variables(container.list_at(&["env"]), &path.child("env"), errors);
    environment::sources(
        container.list_at(&["envFrom"]),
        &path.child("envFrom"),
        errors,
    );
    volumes::mounts(container, volumes, &path.child("volumeMounts"), errors);
    one_of(
        container,
        "imagePullPolicy",
        &["Always", "IfNotPresent", "Never"],
        path,
        errors,
    );
    if let Some(requirements) = container.get("resources") {
        errors.extend(resources::validate(requirements, &path.child("resources")));
    }
    if let Some(context) = container.get("securityContext") {
        security::container(context, &path.child("securityContext"), errors);
    }
}

/// A field that must be one of some words, required.
pub fn one_of(
    object: &Value,
    name: &str,
    supported: &[&str],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    match object.str_at(&[name]) {
        "" => errors.push(FieldError::required(&path.child(name), "")),
        value if supported.contains(&value) => {}
        value => errors.push(FieldError::not_supported(
            &path.child(name),
            value,
            supported,
        )),
    }
}

fn ports(ports: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = port.str_at(&["name"]);
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if !wrong.is_empty() {
                errors.extend(all_invalid(&at.child("name"), name, wrong));
            } else if seen.contains(&name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            } else {
                seen.push(name);
            }
        }
        match port.i64_at(&["containerPort"]).unwrap_or(0) {
            0 => errors.push(FieldError::required(&at.child("containerPort"), "")),
            number => errors.extend(numbers(
                &at.child("containerPort"),
                number,
                names::port_number(number),
            )),
        }
        let host_port = port.i64_at(&["hostPort"]).unwrap_or(0);
        if host_port != 0 {
            let wrong = names::port_number(host_port);
            errors.extend(numbers(&at.child("hostPort"), host_port, wrong));
        }
        one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
    }
}

/// One `Invalid` error for each message about a number.
pub fn numbers(path: &Path, number: i64, wrong: Vec<String>) -> Vec<FieldError> {
    wrong
        .into_iter()
        .map(|detail| FieldError::invalid(path, number, detail))
        .collect()
}

fn host_ports(containers: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<String> = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        for (at, port) in container.list_at(&["ports"]).iter().enumerate() {
            let number = port.i64_at(&["hostPort"]).unwrap_or(0);
            if number == 0 {
                continue;
            }
            let (protocol, address) = (port.str_at(&["protocol"]), port.str_at(&["hostIP"]));
            let taken = format!("{protocol}/{address}/{number}");
            if seen.contains(&taken) {
                let at = path.index(index).child("ports").index(at).child("hostPort");
                errors.push(FieldError::duplicate(&at, taken));
            } else {
                seen.push(taken);
            }
        }
    }
}

fn restart_policy(container: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("restartPolicy");
    match container.str_at(&["restartPolicy"]) {
        "" if container.list_at(&["restartPolicyRules"]).is_empty() => {}
        "" => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.push(FieldError::required(&at, detail));
        }
        "Always" | "Never" | "OnFailure" => {}
        other => errors.push(FieldError::not_supported(
            &at,
            other,
            &["Always", "Never", "OnFailure"],
        )),
    }
}
