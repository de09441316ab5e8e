//! Validation of a Pod's volumes and of the mounts in its containers.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::all_invalid;
use crate::metadata::names;

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

/// Checks the volumes and returns the names that mounts may use.
pub fn validate<'a>(
    volumes: &'a [Value],
    path: &Path,
    errors: &mut Vec<FieldError>,
) -> Vec<&'a str> {
    let mut valid: Vec<&str> = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let name = volume.str_at(&["name"]);
        let name_path = path.child("name");
        let mut wrong = source(volume, &path);
        if name.is_empty() {
            wrong.push(FieldError::required(&name_path, ""));
        } else {
            wrong.extend(all_invalid(&name_path, name, names::dns_label(name)));
        }
        if valid.contains(&name) {
            wrong.push(FieldError::duplicate(&name_path, name));
        }
        if wrong.is_empty() {
            valid.push(name);
        }
        errors.extend(wrong);
    }
    valid
}

/// Checks the mounts of one container.
pub fn mounts(container: &Value, volumes: &[&str], path: &Path, errors: &mut Vec<FieldError>) {
    let mut paths: Vec<&str> = Vec::new();
    for (index, mount) in container.list_at(&["volumeMounts"]).iter().enumerate() {
        let at = path.index(index);
        let (name, mount_path) = (mount.str_at(&["name"]), mount.str_at(&["mountPath"]));
        if name.is_empty() {
            errors.push(FieldError::required(&at.child("name"), ""));
        }
        if !volumes.contains(&name) {
            errors.push(FieldError::not_found(&at.child("name"), name));
        }
        if mount_path.is_empty() {
            errors.push(FieldError::required(&at.child("mountPath"), ""));
        }
        if paths.contains(&mount_path) {
            let at = at.child("mountPath");
            errors.push(FieldError::invalid(&at, mount_path, "must be unique"));
        }
        paths.push(mount_path);
        let (sub_path, expression) = (mount.str_at(&["subPath"]), mount.str_at(&["subPathExpr"]));
        errors.extend(local_path(sub_path, &path.child("subPath")));
        if !expression.is_empty() {
            if !sub_path.is_empty() {
                let detail = "subPathExpr and subPath are mutually exclusive";
                let at = at.child("subPathExpr");
                errors.push(FieldError::invalid(&at, expression, detail));
            }
            errors.extend(local_path(expression, &path.child("subPathExpr")));
        }
        let propagation_path = path.child("mountPropagation");
        match mount.str_at(&["mountPropagation"]) {
            "" | "None" | "HostToContainer" => {}
            "Bidirectional" => {
                if !container.bool_at(&["securityContext", "privileged"]) {
                    let detail = "Bidirectional mount propagation is available only to privileged containers";
                    errors.push(FieldError::forbidden(&propagation_path, detail));
                }
            }
            other => errors.push(FieldError::not_supported(
                &propagation_path,
                other,
                &["Bidirectional", "HostToContainer", "None"],
            )),
        }
    }
}

/// A relative path that does not climb.
pub fn local_path(text: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text.starts_with('/') {
        errors.push(FieldError::invalid(path, text, "must be a relative path"));
    }
    errors.extend(no_backsteps(text, path));
    errors
}

fn no_backsteps(text: &str, path: &Path) -> Option<FieldError> {
    let climbs = text.split('/').any(|part| part == "..");
    climbs.then(|| FieldError::invalid(path, text, "must not contain '..'"))
}

fn local_unreserved_path(text: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = local_path(text, path);
    if text.starts_with("..") && !text.starts_with("../") && text != ".." {
        errors.push(FieldError::invalid(path, text, "must not start with '..'"));
    }
    errors
}

fn source(volume: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut found = 0;
    let Some(fields) = volume.as_object() else {
        return errors;
    };
    // The first one counts, in the order in which upstream goes through them.
    let mut sources: Vec<(&str, &Value)> = fields
        .iter()
        .filter(|(name, value)| *name != "name" && !value.is_null())
        .collect();
    let order = [
        "emptyDir",
        "hostPath",
        "secret",
        "nfs",
        "persistentVolumeClaim",
        "downwardAPI",
        "configMap",
    ];
    sources.sort_by_key(|(name, _)| {
        let place = order.iter().position(|known| known == name);
        place.unwrap_or(order.len())
    });
    for (name, source) in sources {
        let at = path.child(name);
        if found > 0 {
            let detail = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(&at, detail));
            continue;
        }
        found += 1;
        match name {
            "emptyDir" => {
                let limit = source.str_at(&["sizeLimit"]);
                if limit.starts_with('-') {
                    let detail = "SizeLimit field must be a valid resource quantity";
                    errors.push(FieldError::forbidden(&at.child("sizeLimit"), detail));
                }
            }
            "hostPath" => host_path(source, &at, &mut errors),
            "secret" => {
                required(source, "secretName", &at, &mut errors);
                mode(source, "defaultMode", &at, &mut errors);
                keys_to_paths(source, &at, &mut errors);
            }
            "configMap" => {
                required(source, "name", &at, &mut errors);
                mode(source, "defaultMode", &at, &mut errors);
                keys_to_paths(source, &at, &mut errors);
            }
            "downwardAPI" => {
                mode(source, "defaultMode", &at, &mut errors);
                for item in source.list_at(&["items"]) {
                    downward_file(item, &at, &mut errors);
                }
            }
            "projected" => projected(source, &at, &mut errors),
            "persistentVolumeClaim" => required(source, "claimName", &at, &mut errors),
            _ => {}
        }
    }
    if found == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    errors
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
    let mut paths: Vec<String> = Vec::new();
    let conflict = "conflicting duplicate paths";
    for (index, one) in source.list_at(&["sources"]).iter().enumerate() {
        let at = path.child("sources").index(index);
        let mut found = 0;
        for kind in ["secret", "configMap"] {
            let Some(projection) = one.get(kind).filter(|value| !value.is_null()) else {
                continue;
            };
            found += 1;
            required(projection, "name", &at.child(kind), errors);
            keys_to_paths(projection, &at.child(kind), errors);
            for item in projection.list_at(&["items"]) {
                let text = item.str_at(&["path"]);
                if paths.iter().any(|path| path == text) && !text.is_empty() {
                    let name = projection.str_at(&["name"]);
                    errors.push(FieldError::invalid(path, name, conflict));
                }
                paths.push(text.to_string());
            }
        }
        if one.has(&["downwardAPI"]) {
            found += 1;
            for item in one.list_at(&["downwardAPI", "items"]) {
                downward_file(item, &at.child("downwardAPI"), errors);
                let text = item.str_at(&["path"]);
                if paths.iter().any(|path| path == text) && !text.is_empty() {
                    errors.push(FieldError::invalid(path, text, conflict));
                }
                paths.push(text.to_string());
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
        required(item, "key", &at, errors);
        required(item, "path", &at, errors);
        let text = item.str_at(&["path"]);
        errors.extend(local_unreserved_path(text, &at.child("path")));
        mode(item, "mode", &at, errors);
    }
}

fn required(object: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if object.str_at(&[name]).is_empty() {
        errors.push(FieldError::required(&path.child(name), ""));
    }
}

fn mode(object: &Value, name: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(mode) = object.i64_at(&[name])
        && !(0..=0o777).contains(&mode)
    {
        errors.push(FieldError::invalid(&path.child(name), mode, MODE_WORDS));
    }
}
