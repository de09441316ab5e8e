//! Validation of a Pod's volumes and of the mounts in its containers.

use std::collections::BTreeMap;

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;
use crate::repeats::Seen;
use crate::strategy::checks::{no_backsteps, relative_path, require, required_one_of};
use crate::strategy::pod::volume_sources;

const MODE_WORDS: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const VOLUME_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// The volumes that mounts and devices may use, by name, and whether each can be a block device.
pub type Volumes<'a> = BTreeMap<&'a str, bool>;

/// Checks the volumes and returns those that containers may use.
pub fn validate<'a>(
    volumes: &'a [Value],
    metadata: Option<&Value>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) -> Volumes<'a> {
    let mut valid = Volumes::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let name = volume.str_at(&["name"]);
        let name_path = path.child("name");
        let mut wrong = source(volume, metadata, &path);
        if name.is_empty() {
            wrong.push(FieldError::required(&name_path, ""));
        } else {
            wrong.extend(all_invalid(&name_path, name, names::dns_label(name)));
        }
        if valid.contains_key(name) {
            wrong.push(FieldError::duplicate(&name_path, name));
        }
        if wrong.is_empty() {
            let is_claim = volume.has(&["persistentVolumeClaim"]) || volume.has(&["ephemeral"]);
            valid.insert(name, is_claim);
        }
        errors.extend(wrong);
    }
    valid
}

/// Checks the mounts of one container.
pub fn mounts(container: &Value, volumes: &Volumes<'_>, path: &Path, errors: &mut Vec<FieldError>) {
    let mut paths = Seen::new();
    let devices = texts(container, "volumeDevices", "name");
    let device_paths = texts(container, "volumeDevices", "devicePath");
    for (index, mount) in container.list_at(&["volumeMounts"]).iter().enumerate() {
        let at = path.index(index);
        let (name, mount_path) = (mount.str_at(&["name"]), mount.str_at(&["mountPath"]));
        if name.is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        if !volumes.contains_key(name) {
            errors.push(FieldError::not_found(&at.child("name"), name));
        }
        if mount_path.is_empty() {
            errors.push(FieldError::required(&at.child("mountPath"), ""));
        }
        if !paths.insert(mount_path) {
            let at = at.child("mountPath");
            errors.push(FieldError::invalid(&at, mount_path, "must be unique"));
        }
        if devices.contains(name) {
            let detail = "must not already exist in volumeDevices";
            errors.push(FieldError::invalid(&at.child("name"), name, detail));
        }
        if device_paths.contains(mount_path) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(
                &at.child("mountPath"),
                mount_path,
                detail,
            ));
        }
        let (sub_path, expression) = (mount.str_at(&["subPath"]), mount.str_at(&["subPathExpr"]));
        errors.extend(relative_path(sub_path, &path.child("subPath")));
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                let at = at.child("subPathExpr");
                errors.push(FieldError::invalid(&at, expression, detail));
            }
            errors.extend(relative_path(expression, &path.child("subPathExpr")));
        }
        propagation(container, mount, &path.child("mountPropagation"), errors);
        recursive_read_only(mount, &path.child("recursiveReadOnly"), errors);
    }
}

/// The texts that the items of a container's list have at `field`.
fn texts<'a>(container: &'a Value, list: &str, field: &str) -> Seen<&'a str> {
    let items = container.list_at(&[list]).iter();
    items.map(|item| item.str_at(&[field])).collect()
}

/// Checks the block devices of one container.
pub fn devices(
    container: &Value,
    volumes: &Volumes<'_>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let mounts = texts(container, "volumeMounts", "name");
    let mount_paths = texts(container, "volumeMounts", "mountPath");
    let (mut names, mut paths) = (Seen::new(), Seen::new());
    for (index, device) in container.list_at(&["volumeDevices"]).iter().enumerate() {
        let at = path.index(index);
        let (name, device_path) = (device.str_at(&["name"]), device.str_at(&["devicePath"]));
        let (name_path, path_path) = (at.child("name"), at.child("devicePath"));
        if name.is_empty() {
            errors.push(FieldError::required(&name_path, ""));
        }
        if names.contains(&name) {
            errors.push(FieldError::invalid(&name_path, name, "must be unique"));
        }
        match volumes.get(name) {
            Some(true) => {}
            Some(false) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(&name_path, name, detail));
            }
            None => errors.push(FieldError::not_found(&name_path, name)),
        }
        if device_path.is_empty() {
            errors.push(FieldError::required(&path_path, ""));
        }
        if paths.contains(&device_path) {
            errors.push(FieldError::invalid(
                &path_path,
                device_path,
                "must be unique",
            ));
        }
        if no_backsteps(device_path, &path_path).is_some() {
            let detail = "can not contain backsteps ('..')";
            errors.push(FieldError::invalid(&path_path, device_path, detail));
        } else {
            paths.insert(device_path);
        }
        if mounts.contains(name) {
            let detail = "must not already exist in volumeMounts";
            errors.push(FieldError::invalid(&name_path, name, detail));
        }
        if mount_paths.contains(device_path) {
            let detail = "must not already exist as a path in volumeMounts";
            errors.push(FieldError::invalid(&path_path, device_path, detail));
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}

fn propagation(container: &Value, mount: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(propagation) = mount.get("mountPropagation").and_then(Value::as_str) else {
        return;
    };
    match propagation {
        "None" | "HostToContainer" => {}
        "Bidirectional" => {
            if !container.bool_at(&["securityContext", "privileged"]) {
                let detail =
                    "Bidirectional mount propagation is available only to privileged containers";
                errors.push(FieldError::forbidden(path, detail));
            }
        }
        other => {
            let supported = ["Bidirectional", "HostToContainer", "None"];
            errors.push(FieldError::not_supported(path, other, &supported));
        }
    }
}

fn recursive_read_only(mount: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    match mount.get("recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !mount.bool_at(&["readOnly"]) {
                let detail = "may only be specified when readOnly is true";
                errors.push(FieldError::forbidden(path, detail));
            }
            let propagation = mount.get("mountPropagation").and_then(Value::as_str);
            if !matches!(propagation, None | Some("None")) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(path, detail));
            }
        }
        Some(other) => {
            let supported = ["Disabled", "Enabled", "IfPossible"];
            errors.push(FieldError::not_supported(path, other, &supported));
        }
    }
}

fn local_unreserved_path(text: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = relative_path(text, path);
    if text.starts_with("..") && !text.starts_with("../") && text != ".." {
        errors.push(FieldError::invalid(path, text, "must not start with '..'"));
    }
    errors
}

fn source(volume: &Value, metadata: Option<&Value>, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut found = 0;
    let Some(fields) = volume.as_object() else {
        return errors;
    };
    let name = volume.str_at(&["name"]);
    // The first source counts, in upstream's order.
    for kind in volume_sources::ORDER {
        let Some(source) = fields.get(kind).filter(|source| !source.is_null()) else {
            continue;
        };
        if found > 0 {
            let named = path.child(match kind {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                _ => kind,
            });
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(&named, detail));
        } else {
            found += 1;
            one_source(kind, source, metadata, name, path, &mut errors);
        }
        let portal = source.str_at(&["targetPortal"]);
        if kind == "iscsi" && source.has(&["initiatorName"]) && name.len() + 1 + portal.len() > 64 {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            errors.push(FieldError::invalid(&path.child("name"), name, detail));
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    errors
}

fn one_source(
    kind: &str,
    source: &Value,
    metadata: Option<&Value>,
    name: &str,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let at = path.child(kind);
    match kind {
        "emptyDir" => {
            let limit = source.str_at(&["sizeLimit"]);
            if limit.starts_with('-') {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.push(FieldError::forbidden(&at.child("sizeLimit"), detail));
            }
        }
        "hostPath" => host_path(source, &at, errors),
        "secret" => {
            require(source, "secretName", &at, errors);
            mode(source, "defaultMode", &at, errors);
            keys_to_paths(source, &at, errors);
        }
        "configMap" => {
            require(source, "name", &at, errors);
            mode(source, "defaultMode", &at, errors);
            keys_to_paths(source, &at, errors);
        }
        "downwardAPI" => {
            mode(source, "defaultMode", &at, errors);
            for item in source.list_at(&["items"]) {
                downward_file(item, &at, errors);
            }
        }
        "projected" => projected(source, &at, errors),
        "ephemeral" => {
            volume_sources::ephemeral(source, &at, errors);
            let pod = metadata.map_or("", |metadata| metadata.str_at(&["name"]));
            if !pod.is_empty() && !name.is_empty() {
                let claim = format!("{pod}-{name}");
                for words in names::dns_subdomain(&claim) {
                    let detail = format!("PVC name {}: {words}", crate::field::quote(&claim));
                    errors.push(FieldError::invalid(&path.child("name"), name, detail));
                }
            }
        }
        "image" => {
            if metadata.is_some() {
                require(source, "reference", &at, errors);
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            required_one_of(source, "pullPolicy", &policies, &at, errors);
        }
        _ => volume_sources::validate(kind, source, path, errors),
    }
}

fn host_path(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let text = source.str_at(&["path"]);
    if text.is_empty() {
        errors.push(FieldError::required(&path.child("path"), ""));
        return;
    }
    errors.extend(no_backsteps(text, &path.child("path")));
    let kind = source.str_at(&["type"]);
    if !HOST_PATH_TYPES.contains(&kind) {
        let at = path.child("type");
        errors.push(FieldError::not_supported(&at, kind, &HOST_PATH_TYPES));
    }
}

fn projected(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    mode(source, "defaultMode", path, errors);
    let mut paths = Seen::new();
    let conflict = "conflicting duplicate paths";
    for (index, one) in source.list_at(&["sources"]).iter().enumerate() {
        let at = path.child("sources").index(index);
        let mut found = 0;
        for kind in ["secret", "configMap"] {
            let Some(projection) = one.get(kind).filter(|value| !value.is_null()) else {
                continue;
            };
            found += 1;
            require(projection, "name", &at.child(kind), errors);
            keys_to_paths(projection, &at.child(kind), errors);
            for item in projection.list_at(&["items"]) {
                let text = item.str_at(&["path"]);
                if !paths.insert(text.to_string()) && !text.is_empty() {
                    let name = projection.str_at(&["name"]);
                    errors.push(FieldError::invalid(path, name, conflict));
                }
            }
        }
        if one.has(&["downwardAPI"]) {
            found += 1;
            for item in one.list_at(&["downwardAPI", "items"]) {
                downward_file(item, &at.child("downwardAPI"), errors);
                let text = item.str_at(&["path"]);
                if !paths.insert(text.to_string()) && !text.is_empty() {
                    errors.push(FieldError::invalid(path, text, conflict));
                }
            }
        }
        if let Some(token) = one
            .get("serviceAccountToken")
            .filter(|value| !value.is_null())
        {
            found += 1;
            let seconds = token.i64_at(&["expirationSeconds"]).unwrap_or(0);
            let at = at.child("serviceAccountToken").child("expirationSeconds");
            if seconds < 600 {
                let detail = "may not specify a duration less than 10 minutes";
                errors.push(FieldError::invalid(&at, seconds, detail));
            }
            if seconds > 1 << 32 {
                let detail = "may not specify a duration larger than 2^32 seconds";
                errors.push(FieldError::invalid(&at, seconds, detail));
            }
            let text = token.str_at(&["path"]);
            let at = path.child("path");
            match text {
                "" => errors.push(FieldError::required(&at, "")),
                _ => errors.extend(local_unreserved_path(text, &at)),
            }
        }
        if found > 1 {
            let detail = "may not specify more than 1 volume type per source";
            errors.push(FieldError::forbidden(&at, detail));
        }
    }
}

fn downward_file(item: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let text = item.str_at(&["path"]);
    if text.is_empty() {
        errors.push(FieldError::required(&path.child("path"), ""));
    }
    errors.extend(local_unreserved_path(text, &path.child("path")));
    match (item.get("fieldRef"), item.get("resourceFieldRef")) {
        (Some(reference), other) => {
            super::environment::field_reference(
                reference,
                &VOLUME_FIELDS,
                &path.child("fieldRef"),
                errors,
            );
            if other.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, "resource", detail));
            }
        }
        (None, Some(reference)) => super::environment::resource_reference(
            reference,
            true,
            &path.child("resourceFieldRef"),
            errors,
        ),
        (None, None) => errors.push(FieldError::required(
            path,
            "one of fieldRef and resourceFieldRef is required",
        )),
    }
    mode(item, "mode", path, errors);
}

fn keys_to_paths(source: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, item) in source.list_at(&["items"]).iter().enumerate() {
        let at = path.child("items").index(index);
        require(item, "key", &at, errors);
        require(item, "path", &at, errors);
        let text = item.str_at(&["path"]);
        errors.extend(local_unreserved_path(text, &at.child("path")));
        mode(item, "mode", &at, errors);
    }
}

fn mode(object: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(mode) = object.i64_at(&[name])
        && !(0..=0o777).contains(&mode)
    {
        errors.push(FieldError::invalid(&path.child(name), mode, MODE_WORDS));
    }
}
