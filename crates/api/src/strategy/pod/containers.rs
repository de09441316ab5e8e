//! Validation of containers, init containers and ephemeral containers.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::repeats::Seen;
use crate::strategy::checks::{invalid_number, required_one_of};
use crate::strategy::pod::resources::PodClaims;
use crate::strategy::pod::volumes::Volumes;
use crate::strategy::pod::{environment, probes, resources, security, volumes};

const MOST_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;
/// The fields that an ephemeral container may have.
const EPHEMERAL_FIELDS: [&str; 17] = [
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "env",
    "envFrom",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
];

/// The parts of a Pod against which its containers are validated.
pub struct Scope<'a> {
    spec: &'a Value,
    volumes: Volumes<'a>,
    claims: PodClaims<'a>,
    host_users: bool,
}

impl<'a> Scope<'a> {
    pub fn of(spec: &'a Value, volumes: Volumes<'a>) -> Scope<'a> {
        let claims = spec.list_at(&["resourceClaims"]).iter();
        let claims = claims.map(|claim| claim.str_at(&["name"]));
        let host_users = spec.get("hostUsers").and_then(Value::as_bool);
        Scope {
            spec,
            volumes,
            claims: PodClaims::of(claims.filter(|name| !name.is_empty())),
            host_users: host_users.unwrap_or(true),
        }
    }
}

/// Checks `containers`.
pub fn regular(scope: &Scope<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let containers = scope.spec.list_at(&["containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut seen = Seen::new();
    for (index, container) in containers.iter().enumerate() {
        let at = path.index(index);
        either(scope, container, &at, errors);
        let name = container.str_at(&["name"]);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        probes::validate(scope.spec, container, &at, errors);
        restart_policy(container, &at, errors);
    }
    host_ports(containers, path, errors);
}

/// Checks `initContainers`, sidecars (`restartPolicy: Always`) among them.
pub fn init(scope: &Scope<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let regular = scope.spec.list_at(&["containers"]);
    let mut seen: Seen<&str> = regular.iter().map(|one| one.str_at(&["name"])).collect();
    for (index, container) in scope.spec.list_at(&["initContainers"]).iter().enumerate() {
        let at = path.index(index);
        either(scope, container, &at, errors);
        restart_policy(container, &at, errors);
        let name = container.str_at(&["name"]);
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        } else if !name.is_empty() {
            seen.insert(name);
        }
        host_ports(std::slice::from_ref(container), path, errors);
        if container.str_at(&["restartPolicy"]) == "Always" {
            probes::validate(scope.spec, container, &at, errors);
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
        for (index, policy) in container.list_at(&["resizePolicy"]).iter().enumerate() {
            let restart = policy.str_at(&["restartPolicy"]);
            if restart == "RestartContainer" {
                let at = at.child("resizePolicy").index(index).child("restartPolicy");
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.push(FieldError::invalid(&at, restart, detail));
            }
        }
    }
}

/// Checks `ephemeralContainers`.
pub fn ephemeral(scope: &Scope<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let names = |list: &str| {
        scope
            .spec
            .list_at(&[list])
            .iter()
            .map(|one| one.str_at(&["name"]))
    };
    let others: Seen<&str> = names("containers").chain(names("initContainers")).collect();
    let mut seen = others.clone();
    let detail = "cannot be set for an Ephemeral Container";
    for (index, container) in scope
        .spec
        .list_at(&["ephemeralContainers"])
        .iter()
        .enumerate()
    {
        let at = path.index(index);
        either(scope, container, &at, errors);
        own_image(container, &at, errors);
        let name = container.str_at(&["name"]);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&at.child("name"), name));
        }
        let target = container.str_at(&["targetContainerName"]);
        if !target.is_empty() && !others.contains(&target) {
            errors.push(FieldError::not_found(
                &at.child("targetContainerName"),
                target,
            ));
        }
        for (field, value) in container.as_object().into_iter().flat_map(|all| all.iter()) {
            let empty = match value {
                Value::Object(fields) => fields.is_empty(),
                Value::Array(items) => items.is_empty(),
                other => other.is_null(),
            };
            if !EPHEMERAL_FIELDS.contains(&field) && !empty {
                errors.push(FieldError::forbidden(&at.child(field), detail));
            }
        }
        for (index, mount) in container.list_at(&["volumeMounts"]).iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.str_at(&[field]).is_empty() {
                    let at = at.child("volumeMounts").index(index).child(field);
                    errors.push(FieldError::forbidden(&at, detail));
                }
            }
        }
    }
}

/// Validation of a Pod's containers that does not apply to those of a template.
pub fn own_image(container: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let image = container.str_at(&["image"]);
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(&path.child("image"), image, detail));
    }
}

/// Validation of all containers.
fn either(scope: &Scope<'_>, container: &Value, path: &Path, errors: &mut Vec<FieldError>) {
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
    let policies = ["File", "FallbackToLogsOnError"];
    required_one_of(
        container,
        "terminationMessagePolicy",
        &policies,
        path,
        errors,
    );
    ports(container.list_at(&["ports"]), &path.child("ports"), errors);
    environment::variables(container.list_at(&["env"]), &path.child("env"), errors);
    let sources = container.list_at(&["envFrom"]);
    environment::sources(sources, &path.child("envFrom"), errors);
    volumes::mounts(
        container,
        &scope.volumes,
        &path.child("volumeMounts"),
        errors,
    );
    volumes::devices(
        container,
        &scope.volumes,
        &path.child("volumeDevices"),
        errors,
    );
    let policies = ["Always", "IfNotPresent", "Never"];
    required_one_of(container, "imagePullPolicy", &policies, path, errors);
    if let Some(requirements) = container.get("resources") {
        let at = path.child("resources");
        errors.extend(resources::validate(requirements, &scope.claims, &at));
    }
    let never = scope.spec.str_at(&["restartPolicy"]) == "Never";
    resize_policy(container, never, &path.child("resizePolicy"), errors);
    if let Some(context) = container
        .get("securityContext")
        .filter(|value| !value.is_null())
    {
        let at = path.child("securityContext");
        security::container(context, scope.host_users, &at, errors);
    }
}

fn resize_policy(container: &Value, never: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = Seen::new();
    for (index, policy) in container.list_at(&["resizePolicy"]).iter().enumerate() {
        let resource = policy.str_at(&["resourceName"]);
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(&path.index(index), resource));
        }
        let restart = policy.str_at(&["restartPolicy"]);
        for (value, supported) in [
            (resource, ["cpu", "memory"]),
            (restart, ["NotRequired", "RestartContainer"]),
        ] {
            match value {
                "" => errors.push(FieldError::required(path, "")),
                _ if supported.contains(&value) => {}
                _ => errors.push(FieldError::not_supported(path, value, &supported)),
            }
        }
        if never && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path, restart, detail));
        }
    }
}

fn ports(ports: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = Seen::new();
    for (index, port) in ports.iter().enumerate() {
        let at = path.index(index);
        let name = port.str_at(&["name"]);
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if !wrong.is_empty() {
                errors.extend(all_invalid(&at.child("name"), name, wrong));
            } else if !seen.insert(name) {
                errors.push(FieldError::duplicate(&at.child("name"), name));
            }
        }
        match port.i64_at(&["containerPort"]).unwrap_or(0) {
            0 => errors.push(FieldError::required(&at.child("containerPort"), "")),
            number => errors.extend(invalid_number(
                &at.child("containerPort"),
                number,
                names::port_number(number),
            )),
        }
        let host_port = port.i64_at(&["hostPort"]).unwrap_or(0);
        if host_port != 0 {
            let wrong = names::port_number(host_port);
            errors.extend(invalid_number(&at.child("hostPort"), host_port, wrong));
        }
        required_one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
    }
}

fn host_ports(containers: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = Seen::new();
    for (index, container) in containers.iter().enumerate() {
        for (at, port) in container.list_at(&["ports"]).iter().enumerate() {
            let number = port.i64_at(&["hostPort"]).unwrap_or(0);
            if number == 0 {
                continue;
            }
            let (protocol, address) = (port.str_at(&["protocol"]), port.str_at(&["hostIP"]));
            let taken = format!("{protocol}/{address}/{number}");
            if !seen.insert(taken.clone()) {
                let at = path.index(index).child("ports").index(at).child("hostPort");
                errors.push(FieldError::duplicate(&at, taken));
            }
        }
    }
}

fn restart_policy(container: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child("restartPolicy");
    let rules = container.list_at(&["restartPolicyRules"]);
    match container.get("restartPolicy").and_then(Value::as_str) {
        None if rules.is_empty() => return,
        None => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.push(FieldError::required(&at, detail));
        }
        Some("Always" | "Never" | "OnFailure") => {}
        Some(other) => {
            let supported = ["Always", "Never", "OnFailure"];
            errors.push(FieldError::not_supported(&at, other, &supported));
        }
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(&path, rules.len(), MOST_RULES));
    }
    for (index, rule) in rules.iter().enumerate() {
        let at = path.index(index);
        let action = rule.str_at(&["action"]);
        let supported = ["Restart", "RestartAllContainers"];
        if !supported.contains(&action) {
            errors.push(FieldError::not_supported(
                &at.child("action"),
                action,
                &supported,
            ));
        }
        let at = at.child("exitCodes");
        if !rule.has(&["exitCodes"]) {
            errors.push(FieldError::required(&at, "must be specified"));
            continue;
        }
        let operator = rule.str_at(&["exitCodes", "operator"]);
        let supported = ["In", "NotIn"];
        if !supported.contains(&operator) {
            let at = at.child("operator");
            errors.push(FieldError::not_supported(&at, operator, &supported));
        }
        let values = rule.list_at(&["exitCodes", "values"]).len();
        if values > MOST_EXIT_CODES {
            errors.push(FieldError::too_many(
                &at.child("values"),
                values,
                MOST_EXIT_CODES,
            ));
        }
    }
}
