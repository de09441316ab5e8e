//! The sources of a PersistentVolume: it has exactly one of them, and each has its own validation.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::strategy::checks::{driver_name, require, supported};
use crate::strategy::pod::volume_sources;

/// The sources in upstream's order: the first one found counts. With the name in errors about the
/// source, and the name in the error for a second source.
const SOURCES: [(&str, &str, &str); 22] = [
    ("hostPath", "hostPath", "hostPath"),
    ("gcePersistentDisk", "persistentDisk", "gcePersistentDisk"),
    (
        "awsElasticBlockStore",
        "awsElasticBlockStore",
        "awsElasticBlockStore",
    ),
    ("glusterfs", "glusterfs", "glusterfs"),
    ("flocker", "flocker", "flocker"),
    ("nfs", "nfs", "nfs"),
    ("rbd", "rbd", "rbd"),
    ("quobyte", "quobyte", "quobyte"),
    ("cephfs", "cephfs", "cephFS"),
    ("iscsi", "iscsi", "iscsi"),
    ("cinder", "cinder", "cinder"),
    ("fc", "fc", "fc"),
    ("flexVolume", "flexVolume", ""),
    ("azureFile", "azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume"),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "photonPersistentDisk",
    ),
    ("portworxVolume", "portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO", "scaleIO"),
    ("local", "local", "local"),
    ("storageos", "storageos", "storageos"),
    ("csi", "csi", "csi"),
];

/// The sources in a volume, for comparing it with another: a reference that was missing may be
/// added later.
pub fn of(object: &Value, other: &Value) -> Vec<(&'static str, Value)> {
    let names = SOURCES.iter().map(|(name, _, _)| *name);
    let mut found: Vec<(&str, Value)> = names
        .filter_map(|name| {
            let source = object.at(&["spec", name])?;
            (!source.is_null()).then(|| (name, source.clone()))
        })
        .collect();
    let reference = "controllerExpandSecretRef";
    if other.has(&["spec", "csi"]) && !other.has(&["spec", "csi", reference]) {
        for (_, source) in &mut found {
            source.remove(&[reference]);
        }
    }
    found
}

/// Checks that there is one source, and that one.
pub fn validate(
    spec: &Value,
    name: &str,
    has_affinity: bool,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let mut found = 0;
    for (source_name, shown, extra) in SOURCES {
        let Some(source) = spec.get(source_name).filter(|value| !value.is_null()) else {
            continue;
        };
        // Upstream forgets to look at the others before this one.
        if found > 0 && source_name != "flexVolume" {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(&path.child(extra), detail));
            continue;
        }
        found += 1;
        one(source_name, source, name, &path.child(shown), errors);
        if source_name == "local" && !has_affinity {
            let detail = "Local volume requires node affinity";
            errors.push(FieldError::required(&path.child("nodeAffinity"), detail));
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

/// Whether a path is `/` once `.` and `..` are resolved.
pub fn cleans_to_root(path: &str) -> bool {
    let mut depth = 0;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth -= i32::from(depth > 0),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn one(name: &str, source: &Value, volume: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let mut need = |fields: &[&str]| {
        for field in fields {
            require(source, field, path, errors);
        }
    };
    match name {
        "hostPath" => host_path(source, path, errors),
        "gcePersistentDisk" => {
            need(&["pdName"]);
            partition(source, path, errors);
        }
        "awsElasticBlockStore" => {
            need(&["volumeID"]);
            partition(source, path, errors);
        }
        "glusterfs" => {
            need(&["endpoints", "path"]);
            if let Some(namespace) = source.get("endpointsNamespace").and_then(Value::as_str) {
                let at = path.child("endpointsNamespace");
                let detail = "if the endpointnamespace is set, it must be a valid namespace name";
                match namespace {
                    "" => errors.push(FieldError::invalid(&at, "", detail)),
                    _ => errors.extend(all_invalid(&at, namespace, names::dns_label(namespace))),
                }
            }
        }
        "flocker" => volume_sources::flocker(source, path, errors),
        "nfs" => {
            need(&["server", "path"]);
            let text = source.str_at(&["path"]);
            if !text.starts_with('/') {
                let detail = "must be an absolute path";
                errors.push(FieldError::invalid(&path.child("path"), text, detail));
            }
        }
        "rbd" => {
            monitors(source, path, errors);
            require(source, "image", path, errors);
        }
        "quobyte" => volume_sources::quobyte(source, path, errors),
        "cephfs" => monitors(source, path, errors),
        "iscsi" => iscsi(source, volume, path, errors),
        "cinder" => {
            need(&["volumeID"]);
            reference(source, path, errors);
        }
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => {
            need(&["driver"]);
            for (key, _) in source.fields_at(&["options"]) {
                let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
                let namespace = format!(".{}", namespace.to_lowercase());
                if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
                    let at = path.child("options").key(key);
                    let detail = "kubernetes.io and k8s.io namespaces are reserved";
                    errors.push(FieldError::invalid(&at, key, detail));
                }
            }
        }
        "azureFile" => {
            need(&["secretName", "shareName"]);
            if source.has(&["secretNamespace"]) {
                require(source, "secretNamespace", path, errors);
            }
        }
        "vsphereVolume" => need(&["volumePath"]),
        "photonPersistentDisk" => need(&["pdID"]),
        "portworxVolume" => need(&["volumeID"]),
        "azureDisk" => azure_disk(source, path, errors),
        "scaleIO" => need(&["gateway", "system", "volumeName"]),
        "local" => match source.str_at(&["path"]) {
            "" => need(&["path"]),
            text => errors.extend(no_backsteps(text, &path.child("path"))),
        },
        "storageos" => {
            let text = |name: &str| source.str_at(&[name]);
            let name = text("volumeName");
            match name {
                "" => need(&["volumeName"]),
                _ => {
                    let wrong = names::dns_label(name);
                    errors.extend(all_invalid(&path.child("volumeName"), name, wrong));
                }
            }
            let namespace = text("volumeNamespace");
            if !namespace.is_empty() {
                let wrong = names::dns_label(namespace);
                errors.extend(all_invalid(
                    &path.child("volumeNamespace"),
                    namespace,
                    wrong,
                ));
            }
            reference(source, path, errors);
        }
        "csi" => csi(source, path, errors),
        _ => {}
    }
}

fn host_path(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let text = source.str_at(&["path"]);
    if text.is_empty() {
        errors.push(FieldError::required(&path.child("path"), ""));
        return;
    }
    errors.extend(no_backsteps(text, &path.child("path")));
    let kinds = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    errors.extend(supported(
        source.str_at(&["type"]),
        &kinds,
        &path.child("type"),
    ));
}

fn no_backsteps(text: &str, path: &Path) -> Option<FieldError> {
    let climbs = text.split('/').any(|part| part == "..");
    climbs.then(|| FieldError::invalid(path, text, "must not contain '..'"))
}

fn partition(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let number = source.i64_at(&["partition"]).unwrap_or(0);
    if !(0..=255).contains(&number) {
        let detail = "must be between 1 and 255, inclusive";
        errors.push(FieldError::invalid(
            &path.child("partition"),
            number,
            detail,
        ));
    }
}

fn monitors(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if source.list_at(&["monitors"]).is_empty() {
        errors.push(FieldError::required(&path.child("monitors"), ""));
    }
}

/// A reference to a Secret in any namespace.
fn reference(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(reference) = source.get("secretRef").filter(|value| !value.is_null()) {
        let at = path.child("secretRef");
        require(reference, "name", &at, errors);
        require(reference, "namespace", &at, errors);
    }
}

fn iscsi(source: &Value, volume: &str, path: &Path, errors: &mut Vec<FieldError>) {
    require(source, "targetPortal", path, errors);
    let portal = source.str_at(&["targetPortal"]);
    let initiator = source.get("initiatorName").and_then(Value::as_str);
    if initiator.is_some() && volume.len() + 1 + portal.len() > 64 {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.push(FieldError::invalid(
            &path.child("targetportal"),
            portal,
            detail,
        ));
    }
    let iqn = source.str_at(&["iqn"]);
    match iqn {
        "" => errors.push(FieldError::required(&path.child("iqn"), "")),
        _ if qualified_iscsi_name(iqn) => {}
        _ => errors.push(FieldError::invalid(
            &path.child("iqn"),
            iqn,
            "must be valid format",
        )),
    }
    let lun = source.i64_at(&["lun"]).unwrap_or(0);
    lun_error(lun, path, errors);
    let authenticates = ["chapAuthDiscovery", "chapAuthSession"];
    let has_secret = source.has(&["secretRef"]);
    if authenticates.iter().any(|name| source.bool_at(&[name])) && !has_secret {
        errors.push(FieldError::required(&path.child("secretRef"), ""));
    }
    if has_secret && source.str_at(&["secretRef", "name"]).is_empty() {
        let at = path.child("secretRef").child("name");
        errors.push(FieldError::required(&at, ""));
    }
    if let Some(name) = initiator.filter(|name| !qualified_iscsi_name(name)) {
        let at = path.child("initiatorname");
        errors.push(FieldError::invalid(&at, name, "must be valid format"));
    }
}

fn qualified_iscsi_name(name: &str) -> bool {
    let alphanumeric = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if let Some(rest) = name.strip_prefix("eui") {
        return rest.len() == 17 && rest.is_char_boundary(1) && alphanumeric(&rest[1..]);
    }
    if let Some(rest) = name.strip_prefix("naa") {
        return rest.len() == 33 && rest.is_char_boundary(1) && alphanumeric(&rest[1..]);
    }
    let Some(rest) = name.strip_prefix("iqn.") else {
        return false;
    };
    let Some((authority, unique)) = rest.split_once(':') else {
        return false;
    };
    let date = authority.as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        date.get(range)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let dated = digits(0..4)
        && date.get(4) == Some(&b'-')
        && digits(5..7)
        && date.get(7) == Some(&b'.')
        && date.len() > 8;
    let domain = date.get(8..).unwrap_or_default();
    dated
        && domain
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
        && !unique.is_empty()
        && !unique.contains([',', ';', '*', '&', '$', '|'])
        && !unique.contains(char::is_whitespace)
}

fn lun_error(lun: i64, path: &Path, errors: &mut Vec<FieldError>) {
    if !(0..=255).contains(&lun) {
        let detail = "must be between 0 and 255, inclusive";
        errors.push(FieldError::invalid(&path.child("lun"), lun, detail));
    }
}

fn fibre_channel(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let targets = source.list_at(&["targetWWNs"]);
    let ids = source.list_at(&["wwids"]);
    let at = path.child("targetWWNs");
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => errors.push(FieldError::required(
            &at,
            "must specify either targetWWNs or wwids, but not both",
        )),
        (false, false) => errors.push(FieldError::invalid(
            &at,
            targets.to_vec(),
            "targetWWNs and wwids can not be specified simultaneously",
        )),
        _ => {}
    }
    if !targets.is_empty() {
        match source.i64_at(&["lun"]) {
            None => errors.push(FieldError::required(
                &path.child("lun"),
                "lun is required if targetWWNs is specified",
            )),
            Some(lun) => lun_error(lun, path, errors),
        }
    }
}

fn azure_disk(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    require(source, "diskName", path, errors);
    require(source, "diskURI", path, errors);
    let uri = source.str_at(&["diskURI"]);
    if source.has(&["cachingMode"]) {
        let modes = ["None", "ReadOnly", "ReadWrite"];
        let mode = source.str_at(&["cachingMode"]);
        errors.extend(supported(mode, &modes, &path.child("cachingMode")));
    }
    if !source.has(&["kind"]) {
        return;
    }
    let kind = source.str_at(&["kind"]);
    let kinds = ["Dedicated", "Managed", "Shared"];
    errors.extend(supported(kind, &kinds, &path.child("kind")));
    let (prefix, form) = match kind {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if !uri.starts_with(prefix) {
        let at = path.child("diskURI");
        errors.push(FieldError::not_supported(&at, uri, &[form]));
    }
}

fn csi(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let driver = source.str_at(&["driver"]);
    errors.extend(driver_name(driver, &path.child("driver")));
    require(source, "volumeHandle", path, errors);
    for name in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let Some(reference) = source.get(name).filter(|value| !value.is_null()) else {
            continue;
        };
        let at = path.child(name);
        type Check = fn(&str) -> Vec<String>;
        for (field, check) in [
            ("name", names::dns_subdomain as Check),
            ("namespace", names::dns_label as Check),
        ] {
            let text = reference.str_at(&[field]);
            match text {
                "" => errors.push(FieldError::required(&at.child(field), "")),
                _ => errors.extend(all_invalid(&at.child(field), text, check(text))),
            }
        }
    }
}
