//! Devices by the Container Device Interface: vendors describe in files what a container needs for
//! a device; a pod names the device, by CRI's field or by annotations. Read when a container is made.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{devices, id};

/// Later directories come before earlier ones, as the specification has it.
pub const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
const ANNOTATION_PREFIX: &str = "cdi.k8s.io/";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid CDI device name {0:?}")]
    Name(String),
    #[error("unresolvable CDI devices {0}")]
    Unknown(String),
    #[error("CDI file {0}: {1}")]
    File(PathBuf, String),
    #[error("additional group {0} is out of range")]
    Group(String),
    #[error("CDI device node {0}")]
    Node(String, #[source] std::io::Error),
}

/// The devices that a container asks for, each once, in order.
pub fn wanted(
    named: impl Iterator<Item = String>,
    annotations: &HashMap<String, String>,
) -> Result<Vec<String>, Error> {
    let ordered: BTreeMap<&String, &String> = annotations
        .iter()
        .filter(|(key, _)| key.starts_with(ANNOTATION_PREFIX))
        .collect();
    let annotated = ordered
        .into_values()
        .flat_map(|devices| devices.split(',').map(|device| device.trim().to_owned()));
    let mut seen = BTreeSet::new();
    let devices: Vec<String> = named
        .chain(annotated)
        .filter(|device| seen.insert(device.clone()))
        .collect();
    match devices.iter().find(|device| split(device).is_none()) {
        Some(device) => Err(Error::Name(device.clone())),
        None => Ok(devices),
    }
}

/// Changes a container's `config.json` as the files say.
pub fn apply(spec: &mut Value, devices: &[String], directories: &[PathBuf]) -> Result<(), Error> {
    if devices.is_empty() {
        return Ok(());
    }
    let known = load(directories)?;
    let unknown: Vec<&str> = devices
        .iter()
        .filter(|device| !known.contains_key(*device))
        .map(String::as_str)
        .collect();
    if !unknown.is_empty() {
        return Err(Error::Unknown(unknown.join(", ")));
    }
    let mut edited = BTreeSet::new();
    for device in devices {
        let Some(found) = known.get(device) else {
            continue;
        };
        // What a file asks for every device of its kind is done once.
        if edited.insert(found.file.clone()) {
            edit(spec, &found.common)?;
        }
        edit(spec, &found.edits)?;
    }
    Ok(())
}

struct Device {
    file: PathBuf,
    common: Value,
    edits: Value,
}

/// `vendor/class=device` in its three parts.
fn split(name: &str) -> Option<(&str, &str, &str)> {
    let (kind, device) = name.split_once('=')?;
    let (vendor, class) = kind.split_once('/')?;
    let fine = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "._-:".contains(letter))
    };
    (fine(vendor) && fine(class) && fine(device)).then_some((vendor, class, device))
}

fn load(directories: &[PathBuf]) -> Result<BTreeMap<String, Device>, Error> {
    let mut known = BTreeMap::new();
    for directory in directories {
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            if file
                .extension()
                .is_some_and(|kind| kind == "json" || kind == "yaml")
            {
                read(&file, &mut known)?;
            }
        }
    }
    Ok(known)
}

fn read(file: &Path, known: &mut BTreeMap<String, Device>) -> Result<(), Error> {
    let broken = |message: String| Error::File(file.to_owned(), message);
    let text = std::fs::read_to_string(file).map_err(|error| broken(error.to_string()))?;
    let document: Value = if file.extension().is_some_and(|kind| kind == "json") {
        serde_json::from_str(&text).map_err(|error| broken(format!("not JSON: {error}")))?
    } else {
        serde_saphyr::from_str(&text).map_err(|error| broken(format!("not YAML: {error}")))?
    };
    let kind = document["kind"]
        .as_str()
        .ok_or_else(|| broken("no kind".into()))?;
    for device in document["devices"].as_array().into_iter().flatten() {
        let name = device["name"]
            .as_str()
            .ok_or_else(|| broken("a device without a name".into()))?;
        known.insert(
            format!("{kind}={name}"),
            Device {
                file: file.to_owned(),
                common: document["containerEdits"].clone(),
                edits: device["containerEdits"].clone(),
            },
        );
    }
    Ok(())
}

fn edit(spec: &mut Value, edits: &Value) -> Result<(), Error> {
    for variable in list(&edits["env"]) {
        let name = |value: &Value| {
            let text = value.as_str().unwrap_or_default();
            text.split('=').next().unwrap_or_default().to_owned()
        };
        let replaced = name(variable);
        let environment = array(&mut spec["process"]["env"]);
        environment.retain(|known| name(known) != replaced);
        environment.push(variable.clone());
    }
    for node in list(&edits["deviceNodes"]) {
        add_node(spec, node)?;
    }
    for mount in list(&edits["mounts"]) {
        let options = match mount["options"].as_array() {
            Some(options) => options.clone(),
            None => vec![json!("rbind"), json!("ro")],
        };
        array(&mut spec["mounts"]).push(json!({
            "destination": mount["containerPath"], "source": mount["hostPath"],
            "type": mount["type"].as_str().unwrap_or("bind"), "options": options,
        }));
    }
    for hook in list(&edits["hooks"]) {
        let when = hook["hookName"].as_str().unwrap_or_default().to_owned();
        let mut called = hook.clone();
        if let Some(fields) = called.as_object_mut() {
            fields.remove("hookName");
        }
        array(&mut spec["hooks"][when]).push(called);
    }
    let groups = array(&mut spec["process"]["user"]["additionalGids"]);
    for group in list(&edits["additionalGids"]) {
        if group.as_i64().and_then(id::in_range).is_none() {
            return Err(Error::Group(group.to_string()));
        }
        if !groups.contains(group) {
            groups.push(group.clone());
        }
    }
    Ok(())
}

fn add_node(spec: &mut Value, wanted: &Value) -> Result<(), Error> {
    let path = wanted["path"].as_str().unwrap_or_default();
    let host = wanted["hostPath"].as_str().unwrap_or(path);
    let mut node = match devices::node(Path::new(host), path) {
        Ok(Some(node)) => node,
        // Described in full: it need not be there.
        _ if wanted["type"].is_string() && wanted["major"].is_number() => json!({"path": path}),
        Ok(None) => {
            let kind = std::io::ErrorKind::InvalidInput.into();
            return Err(Error::Node(host.to_owned(), kind));
        }
        Err(error) => return Err(Error::Node(host.to_owned(), error)),
    };
    for field in ["type", "major", "minor", "fileMode", "uid", "gid"] {
        if !wanted[field].is_null() {
            node[field] = wanted[field].clone();
        }
    }
    let access = wanted["permissions"].as_str().unwrap_or("rwm");
    let rule = json!({
        "allow": true, "type": node["type"], "major": node["major"], "minor": node["minor"],
        "access": access,
    });
    array(&mut spec["linux"]["resources"]["devices"]).push(rule);
    let nodes = array(&mut spec["linux"]["devices"]);
    nodes.retain(|known| known["path"] != path);
    nodes.push(node);
    Ok(())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The array at this place, made if there is none.
fn array(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(array) => array,
        _ => unreachable!("made an array above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
        "cdiVersion": "0.6.0", "kind": "vendor.com/thing",
        "containerEdits": {"env": ["COMMON=1"]},
        "devices": [
            {"name": "null", "containerEdits": {
                "env": ["THING=null"],
                "deviceNodes": [{"path": "/dev/thing", "hostPath": "/dev/null", "permissions": "r"}],
                "mounts": [{"hostPath": "/opt/thing", "containerPath": "/thing"}],
                "hooks": [{"hookName": "createContainer", "path": "/bin/true"}],
                "additionalGids": [44]}},
            {"name": "made", "containerEdits": {
                "deviceNodes": [{"path": "/dev/none", "type": "c", "major": 9, "minor": 7}]}},
            {"name": "gone", "containerEdits": {"deviceNodes": [{"path": "/dev/not-there"}]}}
        ]}"#;

    fn apply_to(spec: &mut Value, devices: &[&str]) -> Result<(), Error> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("thing.json"), FILE).unwrap();
        let devices: Vec<String> = devices.iter().map(|name| (*name).to_owned()).collect();
        apply(spec, &devices, &[directory.path().to_owned()])
    }

    #[test]
    fn a_device_adds_everything_that_its_file_describes() {
        let mut spec = json!({"process": {"env": ["THING=old", "A=b"], "user": {}}, "linux": {}});
        let devices = ["vendor.com/thing=null", "vendor.com/thing=made"];
        apply_to(&mut spec, &devices).unwrap();
        assert_eq!(
            spec["process"]["env"],
            json!(["A=b", "COMMON=1", "THING=null"])
        );
        assert_eq!(spec["process"]["user"]["additionalGids"], json!([44]));
        let nodes = &spec["linux"]["devices"];
        assert_eq!(
            (&nodes[0]["path"], &nodes[0]["major"], &nodes[0]["minor"]),
            (&json!("/dev/thing"), &json!(1), &json!(3))
        );
        assert_eq!(nodes[1]["major"], 9);
        assert_eq!(spec["linux"]["resources"]["devices"][0]["access"], "r");
        assert_eq!(spec["mounts"][0]["destination"], "/thing");
        assert_eq!(spec["hooks"]["createContainer"][0]["path"], "/bin/true");
    }

    #[test]
    fn cdi_files_may_be_yaml() {
        let directory = tempfile::tempdir().unwrap();
        let text = "---\ncdiVersion: 0.6.0\nkind: vendor.com/thing\ndevices:\n\
                    - name: \"0\"\n  containerEdits:\n    env: [A=1]\n    deviceNodes:\n\
                    \x20   - {path: /dev/x, type: c, major: 9, minor: 0x7}\n";
        std::fs::write(directory.path().join("thing.yaml"), text).unwrap();
        let mut spec = json!({"process": {"env": []}, "linux": {}});
        let devices = ["vendor.com/thing=0".to_owned()];
        let directories = [directory.path().to_owned()];
        apply(&mut spec, &devices, &directories).unwrap();
        assert_eq!(spec["process"]["env"], json!(["A=1"]));
        assert_eq!(spec["linux"]["devices"][0]["minor"], 7);
        std::fs::write(directory.path().join("thing.yaml"), "kind: [").unwrap();
        let error = apply(&mut spec, &devices, &directories).unwrap_err();
        assert!(error.to_string().contains("not YAML"), "{error}");
    }

    #[test]
    fn unknown_devices_are_named_in_the_error() {
        let mut spec = json!({});
        let error = apply_to(&mut spec, &["vendor.com/thing=other"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unresolvable CDI devices vendor.com/thing=other"
        );
        assert!(matches!(
            apply_to(&mut spec, &["vendor.com/thing=gone"]),
            Err(Error::Node(..))
        ));
    }

    #[test]
    fn devices_are_named_by_field_and_annotation() {
        let annotations = HashMap::from([
            ("cdi.k8s.io/a".to_owned(), "v.com/c=1,v.com/c=2".to_owned()),
            ("other".to_owned(), "v.com/c=3".to_owned()),
        ]);
        let found = wanted(["v.com/c=2".to_owned()].into_iter(), &annotations).unwrap();
        assert_eq!(found, ["v.com/c=2", "v.com/c=1"]);
        let broken = ["no-slash=1", "v/c", "v/c=", "v/c=a b"];
        for name in broken {
            assert!(wanted([name.to_owned()].into_iter(), &HashMap::new()).is_err());
        }
    }
}
