//! Words about volumes, claims and storage classes.

use super::deprecated_label;
use super::values::{fraction, selector_term};
use crate::document::Value;
use crate::field::Path;

/// Volume sources that no longer work, or not by default.
const SOURCES: [(&str, &str); 9] = [
    (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

pub(super) fn deprecated_source(volume: &Value, path: &Path, warnings: &mut Vec<String>) {
    for (source, word) in SOURCES {
        if volume.has(&[source]) {
            // Upstream writes this one name in another case than the field has.
            let told = if source == "storageos" {
                "storageOS"
            } else {
                source
            };
            warnings.push(format!("{}: {word}", path.child(told)));
        }
    }
}

pub(super) fn volume(object: &Value, warnings: &mut Vec<String>) {
    for (key, word) in [
        (
            "volume.beta.kubernetes.io/storage-class",
            r#"deprecated since v1.8; use "storageClassName" attribute instead"#,
        ),
        (
            "volume.beta.kubernetes.io/mount-options",
            r#"deprecated since v1.31; use "mountOptions" attribute instead"#,
        ),
    ] {
        if object.has(&["metadata", "annotations", key]) {
            let at = Path::new("metadata").child("annotations").key(key);
            warnings.push(format!("{at}: {word}"));
        }
    }
    let spec = Path::new("spec");
    if object.str_at(&["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
        warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_string());
    }
    let at = spec
        .child("nodeAffinity")
        .child("required")
        .child("nodeSelectorTerms");
    let terms = object.list_at(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    for (index, term) in terms.iter().enumerate() {
        selector_term(term, false, &at.index(index), warnings);
    }
    if let Some(source) = object.get("spec") {
        let mut kept = source.clone();
        for other in ["gitRepo", "flocker", "quobyte"] {
            kept.remove(&[other]);
        }
        deprecated_source(&kept, &spec, warnings);
    }
}

pub(super) fn claim(object: &Value, warnings: &mut Vec<String>) {
    const OLD: &str = "volume.beta.kubernetes.io/storage-class";
    if object.has(&["metadata", "annotations", OLD]) {
        let at = Path::new("metadata").child("annotations").key(OLD);
        warnings.push(format!(
            "{at}: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    claim_spec(object.get("spec"), &Path::new("spec"), warnings);
}

pub(super) fn claim_spec(spec: Option<&Value>, path: &Path, warnings: &mut Vec<String>) {
    for list in ["requests", "limits"] {
        let amount = spec.and_then(|spec| spec.at(&["resources", list, "storage"]));
        let at = path.child("resources").child(list).key("storage");
        warnings.extend(fraction(amount, &at));
    }
}

pub(super) fn storage_class(class: &Value, warnings: &mut Vec<String>) {
    for (index, topology) in class.list_at(&["allowedTopologies"]).iter().enumerate() {
        let expressions = topology.list_at(&["matchLabelExpressions"]);
        for (inner, expression) in expressions.iter().enumerate() {
            if let Some(word) = deprecated_label(expression.str_at(&["key"])) {
                let at = Path::new("allowedTopologies").index(index);
                let at = at.child("matchLabelExpressions").index(inner).child("key");
                warnings.push(format!("{at}: {word}"));
            }
        }
    }
}
