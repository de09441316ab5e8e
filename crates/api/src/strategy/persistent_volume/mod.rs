//! PersistentVolumes.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, immutable, names};
use crate::resource::{MetadataChecks, Strategy, generic};
use crate::strategy::checks::canonical_quantities;
use crate::strategy::checks::{basic_quantity, positive_quantity, semantically_equal, supported};
use crate::strategy::claim_spec::{VOLUME_MODES, access_mode_errors};
use crate::strategy::node_selector;

pub mod sources;

/// The annotation with the class, from before there was a field.
pub const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

pub struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn namespaced(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        default_spec(object, &["spec"]);
        object.set_default(&["status", "phase"], "Pending");
        object.set_default(&["spec", "persistentVolumeReclaimPolicy"], "Retain");
        if !object.has(&["spec", "volumeMode"]) {
            object.set(&["spec", "volumeMode"], "Filesystem");
        }
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "phase"], "Pending");
    }

    fn stamp(&self, new: &mut Value, old: Option<&Value>, subresource: &str, now: &str) {
        let time = ["status", "lastPhaseTransitionTime"];
        let phase = ["status", "phase"];
        match (old, subresource) {
            (None, _) => new.set(&time, now),
            (Some(old), "status") => {
                let same_phase = old.str_at(&phase) == new.str_at(&phase);
                let same_time = old.at(&time) == new.at(&time);
                if same_phase && !new.has(&time) {
                    generic::keep_field(new, old, &time);
                } else if !same_phase && (!new.has(&time) || same_time) {
                    new.set(&time, now);
                }
            }
            _ => {}
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let empty = Value::object();
        let volume = object.get("spec").unwrap_or(&empty);
        let name = object.str_at(&["metadata", "name"]);
        let mut errors = spec(volume, name, false, &Path::new("spec"));
        errors.extend(mount_options(object, volume));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource == "status" {
            return Vec::new();
        }
        let mut errors = self.validate_content(new);
        // Upstream asks the same twice.
        let (empty, path) = (Value::object(), Path::new("spec"));
        let name = new.str_at(&["metadata", "name"]);
        let volume = new.get("spec").unwrap_or(&empty);
        errors.extend(spec(volume, name, false, &path));
        if sources::of(new, old) != sources::of(old, new) {
            let at = path.child("persistentvolumesource");
            let detail = "spec.persistentvolumesource is immutable after creation\n";
            errors.push(FieldError::forbidden(&at, detail));
        }
        let at = ["spec", "volumeMode"];
        errors.extend(immutable(
            new.at(&at),
            old.at(&at),
            &Path::new("volumeMode"),
        ));
        let at = ["spec", "nodeAffinity"];
        if old.has(&at) && !same_affinity(new.at(&at), old.at(&at)) {
            let value = new.at(&at).cloned().unwrap_or_default();
            let detail = "field is immutable, except for updating from beta label to GA";
            let path = Path::new("nodeAffinity");
            errors.push(FieldError::invalid(&path, value, detail));
        }
        let at = ["spec", "volumeAttributesClassName"];
        if old.has(&at) && !new.has(&at) {
            let detail = "update from non-nil value to nil is forbidden";
            let path = path.child("volumeAttributesClassName");
            errors.push(FieldError::forbidden(&path, detail));
        }
        errors
    }

    /// Upstream checks the whole volume twice on an update, its metadata with it.
    fn metadata_checked_again(&self, subresource: &str) -> MetadataChecks {
        match subresource {
            "" => MetadataChecks {
                whole: 2,
                change: 0,
            },
            _ => MetadataChecks::CHANGE,
        }
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let text = |path: &[&str]| object.str_at(path).to_string();
        let or_unset = |name: &str| match object.has(&["spec", name]) {
            true => text(&["spec", name]),
            false => "<unset>".to_string(),
        };
        let claim = match object.has(&["spec", "claimRef"]) {
            true => format!(
                "{}/{}",
                text(&["spec", "claimRef", "namespace"]),
                text(&["spec", "claimRef", "name"])
            ),
            false => String::new(),
        };
        let phase = match object.has(&["metadata", "deletionTimestamp"]) {
            true => "Terminating".to_string(),
            false => text(&["status", "phase"]),
        };
        vec![
            text(&["metadata", "name"]).into(),
            storage_cell(object.at(&["spec", "capacity"])).into(),
            access_modes(object.list_at(&["spec", "accessModes"])).into(),
            text(&["spec", "persistentVolumeReclaimPolicy"]).into(),
            phase.into(),
            claim.into(),
            class(object).into(),
            or_unset("volumeAttributesClassName").into(),
            text(&["status", "reason"]).into(),
            object_age(object, now).into(),
            or_unset("volumeMode").into(),
        ]
    }
}

/// Defaults of a volume's spec, also inside another object.
pub fn default_spec(object: &mut Value, path: &[&str]) {
    let under = |name: &'static str| -> Vec<&str> {
        path.iter().copied().chain(std::iter::once(name)).collect()
    };
    canonical_quantities(object, &under("capacity"));
    let Some(spec) = object.at_mut(path) else {
        return;
    };
    if spec.has(&["hostPath"]) && !spec.has(&["hostPath", "type"]) {
        spec.set(&["hostPath", "type"], "");
    }
}

/// Checks a volume's spec; `inline` means that it is inside a VolumeAttachment.
pub fn spec(spec: &Value, name: &str, inline: bool, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if inline {
        let context = "may not be specified in the context of inline volumes";
        if spec.has(&["claimRef"]) {
            errors.push(FieldError::forbidden(&path.child("claimRef"), context));
        }
        if spec.fields_at(&["capacity"]).count() > 0 {
            errors.push(FieldError::forbidden(&path.child("capacity"), context));
        }
        if !spec.has(&["csi"]) {
            let detail = "has to be specified in the context of inline volumes";
            errors.push(FieldError::required(&path.child("csi"), detail));
        }
    }
    let modes = spec.list_at(&["accessModes"]);
    if modes.is_empty() {
        errors.push(FieldError::required(&path.child("accessModes"), ""));
    }
    errors.extend(access_mode_errors(modes, &path.child("accessModes")));
    if !inline {
        capacity(spec, &path.child("capacity"), &mut errors);
    }
    let policy = spec.str_at(&["persistentVolumeReclaimPolicy"]);
    let policy_path = path.child("persistentVolumeReclaimPolicy");
    match (policy, inline) {
        ("", _) | ("Retain", true) => {}
        (_, true) => {
            let detail = "may only be Retain in the context of inline volumes";
            errors.push(FieldError::forbidden(&policy_path, detail));
        }
        (_, false) => {
            let policies = ["Delete", "Recycle", "Retain"];
            errors.extend(supported(policy, &policies, &policy_path));
        }
    }
    let affinity_path = path.child("nodeAffinity");
    let mut has_affinity = false;
    if let Some(affinity) = spec.get("nodeAffinity").filter(|value| !value.is_null()) {
        if inline {
            let detail = "may not be specified in the context of inline volumes";
            errors.push(FieldError::forbidden(&affinity_path, detail));
        } else {
            has_affinity = true;
            let at = affinity_path.child("required");
            match affinity.get("required").filter(|value| !value.is_null()) {
                Some(required) => errors.extend(node_selector::validate(required, &at)),
                None => {
                    let detail = "must specify required node constraints";
                    errors.push(FieldError::required(&at, detail));
                }
            }
        }
    }
    sources::validate(spec, name, has_affinity, path, &mut errors);
    if spec.has(&["hostPath"])
        && sources::cleans_to_root(spec.str_at(&["hostPath", "path"]))
        && policy == "Recycle"
    {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(&policy_path, detail));
    }
    classes(spec, inline, path, &mut errors);
    errors
}

fn classes(spec: &Value, inline: bool, path: &Path, errors: &mut Vec<FieldError>) {
    let class = spec.str_at(&["storageClassName"]);
    let at = path.child("storageClassName");
    match (class, inline) {
        ("", _) => {}
        (_, true) => {
            let detail = "may not be specified in the context of inline volumes";
            errors.push(FieldError::forbidden(&at, detail));
        }
        (_, false) => errors.extend(all_invalid(&at, class, names::dns_subdomain(class))),
    }
    if spec.has(&["volumeMode"]) {
        let mode = spec.str_at(&["volumeMode"]);
        let at = path.child("volumeMode");
        if !inline {
            errors.extend(supported(mode, &VOLUME_MODES, &at));
        } else if mode != "Filesystem" {
            let detail =
                "may not specify volumeMode other than Filesystem in the context of inline volumes";
            errors.push(FieldError::forbidden(&at, detail));
        }
    }
    // Upstream leaves this one out for inline volumes.
    if spec.has(&["volumeAttributesClassName"]) && !inline {
        let class = spec.str_at(&["volumeAttributesClassName"]);
        let at = path.child("volumeAttributesClassName");
        match class {
            "" => errors.push(FieldError::required(&at, "an empty string is disallowed")),
            _ => errors.extend(all_invalid(&at, class, names::dns_subdomain(class))),
        }
        if !spec.has(&["csi"]) {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.push(FieldError::required(&path.child("csi"), detail));
        }
    }
}

fn capacity(spec: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let count = spec.fields_at(&["capacity"]).count();
    if count == 0 {
        errors.push(FieldError::required(path, ""));
    }
    if !spec.has(&["capacity", "storage"]) || count > 1 {
        let value = spec.get("capacity").cloned().unwrap_or_default();
        errors.push(FieldError::not_supported(path, value, &["storage"]));
    }
    for (name, value) in spec.fields_at(&["capacity"]) {
        let at = path.key(name);
        errors.extend(basic_quantity(value, &at));
        errors.extend(positive_quantity(value, &at));
    }
}

/// Access modes in kubectl's short form, always in the same order.
pub fn access_modes(modes: &[Value]) -> String {
    let short: Vec<&str> = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .iter()
    .filter(|(mode, _)| modes.iter().any(|one| one.as_str() == Some(mode)))
    .map(|(_, short)| *short)
    .collect();
    short.join(",")
}

/// The class of a volume or a claim: the old annotation before the field.
pub fn class(object: &Value) -> String {
    match object.at(&["metadata", "annotations", CLASS_ANNOTATION]) {
        Some(class) => class.as_str().unwrap_or_default().to_string(),
        None => object.str_at(&["spec", "storageClassName"]).to_string(),
    }
}

/// The storage of a resource list as text.
pub fn storage_cell(list: Option<&Value>) -> String {
    let storage = list.and_then(|list| list.get("storage"));
    storage.and_then(Value::as_str).unwrap_or("0").to_string()
}

/// Mount options in the old annotation are for kinds of volumes that know them.
fn mount_options(object: &Value, spec: &Value) -> Option<FieldError> {
    let known = [
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "glusterfs",
        "nfs",
        "rbd",
        "quobyte",
        "iscsi",
        "cinder",
        "cephfs",
        "azureFile",
        "vsphereVolume",
        "azureDisk",
        "photonPersistentDisk",
    ];
    let set = object.has(&["metadata", "annotations", OPTIONS_ANNOTATION]);
    let wrong = set && !known.iter().any(|source| spec.has(&[source]));
    let path = Path::new("metadata")
        .child("annotations")
        .child(OPTIONS_ANNOTATION);
    let detail = "may not specify mount options for this volume type";
    wrong.then(|| FieldError::forbidden(&path, detail))
}

/// Labels of the beta days may be replaced by their successors.
fn same_affinity(new: Option<&Value>, old: Option<&Value>) -> bool {
    let mut renewed = old.cloned().unwrap_or_default();
    let now = new.map_or(&[][..], |new| {
        new.list_at(&["required", "nodeSelectorTerms"])
    });
    let terms = renewed.list_at_mut(&["required", "nodeSelectorTerms"]);
    for (term, now) in std::iter::zip(terms, now) {
        for list in ["matchExpressions", "matchFields"] {
            let before = term.list_at_mut(&[list]);
            for (before, now) in std::iter::zip(before, now.list_at(&[list])) {
                // A key that has no successor may go: so does upstream's look into its map.
                let key = now.str_at(&["key"]);
                if successor(before.str_at(&["key"])) == key {
                    match now.get("key") {
                        Some(key) => before.set(&["key"], key.clone()),
                        None => drop(before.remove(&["key"])),
                    }
                }
            }
        }
    }
    semantically_equal(new, old) || semantically_equal(new, Some(&renewed))
}

/// The label that took the place of a beta label, or "".
fn successor(key: &str) -> &'static str {
    match key {
        "beta.kubernetes.io/arch" => "kubernetes.io/arch",
        "beta.kubernetes.io/os" => "kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "beta.kubernetes.io/instance-type" => "node.kubernetes.io/instance-type",
        _ => "",
    }
}
