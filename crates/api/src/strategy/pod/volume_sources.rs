//! Validation of the kinds of volumes that come from a storage system.

use std::sync::LazyLock;

use regex::Regex;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{self, all_invalid, names};
use crate::strategy::checks::{invalid_number, optional_one_of, relative_path, require};
use crate::strategy::claim_spec;

/// All kinds, in the order in which they are looked for.
pub const ORDER: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

static IQN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"iqn\.\d{4}-\d{2}\.([[:alnum:]\-.]+)(:[^,;*&$|\s]+)$")
        .expect("a constant pattern compiles")
});
static EUI: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^eui.[[:alnum:]]{16}$").expect("a constant pattern compiles"));
static NAA: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^naa.[[:alnum:]]{32}$").expect("a constant pattern compiles"));

/// Checks one source; `path` is its volume's.
pub fn validate(kind: &str, source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.child(match kind {
        "gcePersistentDisk" => "persistentDisk",
        _ => kind,
    });
    let needed: &[&str] = match kind {
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "persistentVolumeClaim" => &["claimName"],
        "gitRepo" => &["repository"],
        "nfs" => &["server", "path"],
        "glusterfs" => &["endpoints", "path"],
        "azureFile" => &["secretName", "shareName"],
        "azureDisk" => &["diskName", "diskURI"],
        "vsphereVolume" => &["volumePath"],
        "photonPersistentDisk" => &["pdID"],
        "flexVolume" => &["driver"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        _ => &[],
    };
    for name in needed {
        require(source, name, &at, errors);
    }
    match kind {
        "gitRepo" => {
            let directory = source.str_at(&["directory"]);
            errors.extend(relative_path(directory, &at.child("directory")));
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let number = source.i64_at(&["partition"]).unwrap_or(0);
            let wrong = names::in_range(number, 1, 255);
            if !(0..=255).contains(&number) {
                errors.extend(invalid_number(&at.child("partition"), number, wrong));
            }
        }
        "nfs" => {
            let text = source.str_at(&["path"]);
            if !text.starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(&at.child("path"), text, detail));
            }
        }
        "iscsi" => iscsi(source, &at, errors),
        "flocker" => flocker(source, &at, errors),
        "rbd" | "cephfs" => {
            if source.list_at(&["monitors"]).is_empty() {
                errors.push(FieldError::required(&at.child("monitors"), ""));
            }
            if kind == "rbd" {
                require(source, "image", &at, errors);
            }
        }
        "cinder" => secret_reference(source, &at, errors),
        "quobyte" => quobyte(source, &at, errors),
        "fc" => fibre_channel(source, &at, errors),
        "flexVolume" => flex(source, &at.child("options"), errors),
        "azureDisk" => azure_disk(source, &at, errors),
        "storageos" => {
            let name = source.str_at(&["volumeName"]);
            let at_name = at.child("volumeName");
            match name {
                "" => errors.push(FieldError::required(&at_name, "")),
                _ => errors.extend(all_invalid(&at_name, name, names::dns_label(name))),
            }
            let namespace = source.str_at(&["volumeNamespace"]);
            if !namespace.is_empty() {
                let wrong = names::dns_label(namespace);
                errors.extend(all_invalid(&at.child("volumeNamespace"), namespace, wrong));
            }
            secret_reference(source, &at, errors);
        }
        "csi" => csi(source, &at, errors),
        _ => {}
    }
}

/// Checks a volume whose claim is made with the Pod.
pub fn ephemeral(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let path = path.child("volumeClaimTemplate");
    let template = source.get("volumeClaimTemplate");
    let Some(template) = template.filter(|template| !template.is_null()) else {
        errors.push(FieldError::required(&path, ""));
        return;
    };
    let at = path.child("metadata");
    let value = |name: &str| template.at(&["metadata", name]);
    errors.extend(metadata::annotations(
        value("annotations"),
        &at.child("annotations"),
    ));
    errors.extend(metadata::labels(value("labels"), &at.child("labels")));
    for (name, value) in template.fields_at(&["metadata"]) {
        let unset = value.is_null() || value.as_str() == Some("");
        if !matches!(name, "annotations" | "labels") && !unset {
            errors.push(FieldError::forbidden(&at.child(name), "cannot be set"));
        }
    }
    let empty = Value::object();
    let spec = template.get("spec").unwrap_or(&empty);
    errors.extend(claim_spec::validate(spec, &path.child("spec"), false));
}

fn secret_reference(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(reference) = source.get("secretRef").filter(|value| !value.is_null()) {
        require(reference, "name", &path.child("secretRef"), errors);
    }
}

fn iscsi(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    require(source, "targetPortal", path, errors);
    let name = source.str_at(&["iqn"]);
    match name {
        "" => errors.push(FieldError::required(&path.child("iqn"), "")),
        _ => errors.extend(initiator(name, &path.child("iqn"))),
    }
    let unit = source.i64_at(&["lun"]).unwrap_or(0);
    errors.extend(invalid_number(
        &path.child("lun"),
        unit,
        names::in_range(unit, 0, 255),
    ));
    let authenticated = ["chapAuthDiscovery", "chapAuthSession"];
    if authenticated.iter().any(|name| source.bool_at(&[name])) && !source.has(&["secretRef"]) {
        errors.push(FieldError::required(&path.child("secretRef"), ""));
    }
    if let Some(name) = source.get("initiatorName").and_then(Value::as_str) {
        errors.extend(initiator(name, &path.child("initiatorname")));
    }
}

fn initiator(name: &str, path: &Path) -> Option<FieldError> {
    let valid = match name.get(..3) {
        Some("iqn") => IQN.is_match(name),
        Some("eui") => EUI.is_match(name),
        Some("naa") => NAA.is_match(name),
        _ => {
            let detail = "must be valid format starting with iqn, eui, or naa";
            return Some(FieldError::invalid(path, name, detail));
        }
    };
    (!valid).then(|| FieldError::invalid(path, name, "must be valid format"))
}

pub fn flocker(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let (name, uuid) = (
        source.str_at(&["datasetName"]),
        source.str_at(&["datasetUUID"]),
    );
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => errors.push(FieldError::required(
            path,
            "one of datasetName and datasetUUID is required",
        )),
        (false, false) => errors.push(FieldError::invalid(
            path,
            "resource",
            "datasetName and datasetUUID can not be specified simultaneously",
        )),
        _ => {}
    }
    if name.contains('/') {
        let at = path.child("datasetName");
        errors.push(FieldError::invalid(&at, name, "must not contain '/'"));
    }
}

pub fn quobyte(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let pairs = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.str_at(&["registry"]);
    if registry.is_empty() {
        errors.push(FieldError::required(&path.child("registry"), pairs));
    } else if source.str_at(&["tenant"]).len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required(&path.child("tenant"), detail));
    } else {
        for pair in registry.split(',') {
            let is_valid = match pair.rsplit_once(':') {
                Some((host, _)) if host.starts_with('[') => host.ends_with(']'),
                Some((host, _)) => !host.contains(':'),
                None => false,
            };
            if !is_valid {
                errors.push(FieldError::invalid(
                    &path.child("registry"),
                    registry,
                    pairs,
                ));
            }
        }
    }
    require(source, "volume", path, errors);
}

fn fibre_channel(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let targets = source.list_at(&["targetWWNs"]);
    let ids = source.list_at(&["wwids"]);
    let at = path.child("targetWWNs");
    if targets.is_empty() && ids.is_empty() {
        let detail = "must specify either targetWWNs or wwids, but not both";
        errors.push(FieldError::required(&at, detail));
    }
    if targets.is_empty() {
        return;
    }
    if !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.push(FieldError::invalid(&at, targets.to_vec(), detail));
    }
    let at = path.child("lun");
    match source.i64_at(&["lun"]) {
        None => {
            let detail = "lun is required if targetWWNs is specified";
            errors.push(FieldError::required(&at, detail));
        }
        Some(unit) => errors.extend(invalid_number(&at, unit, names::in_range(unit, 0, 255))),
    }
}

fn flex(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (key, _) in source.fields_at(&["options"]) {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(FieldError::invalid(&path.key(key), key, detail));
        }
    }
}

fn azure_disk(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let modes = ["None", "ReadOnly", "ReadWrite"];
    optional_one_of(source, "cachingMode", &modes, path, errors);
    let kinds = ["Dedicated", "Managed", "Shared"];
    optional_one_of(source, "kind", &kinds, path, errors);
    let address = source.str_at(&["diskURI"]);
    let (prefix, form) = match source.get("kind").and_then(Value::as_str) {
        None => return,
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !address.starts_with(prefix) {
        errors.push(FieldError::not_supported(
            &path.child("diskURI"),
            address,
            &[form],
        ));
    }
}

fn csi(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let driver = source.str_at(&["driver"]);
    let at = path.child("driver");
    if driver.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        if driver.len() > 63 {
            errors.push(FieldError::too_long(&at, 63));
        }
        let wrong = names::dns_subdomain(&driver.to_lowercase());
        errors.extend(all_invalid(&at, driver, wrong));
    }
    let Some(secret) = source
        .get("nodePublishSecretRef")
        .filter(|value| !value.is_null())
    else {
        return;
    };
    match secret.str_at(&["name"]) {
        "" => {
            let at = path.child("nodePublishSecretRef").child("name");
            errors.push(FieldError::required(&at, ""));
        }
        name => errors.extend(all_invalid(
            &path.child("name"),
            name,
            names::dns_subdomain(name),
        )),
    }
}
