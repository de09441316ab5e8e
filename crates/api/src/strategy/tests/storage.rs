//! Volumes, claims, classes, quotas and limits.

use super::{made, strategy, texts};
use crate::document;
use crate::document::Value;

fn check(group: &str, kind: &str, object: Value, expected: &[&str]) {
    let (_, errors) = made(group, kind, object.clone());
    assert_eq!(errors, expected, "{object}");
}

fn volume(change: impl FnOnce(&mut Value)) -> Value {
    let mut object = document!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data"},
    }});
    change(&mut object);
    object
}

#[test]
fn invalid_persistent_volumes_are_rejected() {
    let (made, errors) = made("", "PersistentVolume", volume(|_| {}));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(
        made.str_at(&["spec", "persistentVolumeReclaimPolicy"]),
        "Retain"
    );
    assert_eq!(made.str_at(&["spec", "volumeMode"]), "Filesystem");
    assert_eq!(made.str_at(&["status", "phase"]), "Pending");
    let check = |change: fn(&mut Value), expected: &[&str]| {
        check("", "PersistentVolume", volume(change), expected);
    };
    check(
        |volume| drop(volume.remove(&["spec", "hostPath"])),
        &["spec: Required value: must specify a volume type"],
    );
    check(
        |volume| volume.set(&["spec", "nfs"], document!({"server": "s", "path": "/p"})),
        &["spec.nfs: Forbidden: may not specify more than 1 volume type"],
    );
    check(
        |volume| volume.set(&["spec", "capacity", "storage"], "0"),
        &[r#"spec.capacity[storage]: Invalid value: "0": must be greater than zero"#],
    );
    check(
        |volume| volume.set(&["spec", "hostPath", "path"], "/a/../b"),
        &[r#"spec.hostPath.path: Invalid value: "/a/../b": must not contain '..'"#],
    );
    check(
        |volume| {
            volume.remove(&["spec", "hostPath"]);
            volume.set(&["spec", "local", "path"], "/dev/sdb");
        },
        &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
    );
    check(
        |volume| {
            volume.remove(&["spec", "hostPath"]);
            volume.set(
                &["spec", "csi"],
                document!({"driver": "D_", "nodePublishSecretRef": {"name": "s"}}),
            );
        },
        &[
            r#"spec.csi.driver: Invalid value: "D_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            "spec.csi.volumeHandle: Required value",
            "spec.csi.nodePublishSecretRef.namespace: Required value",
        ],
    );
}

#[test]
fn the_source_of_a_persistent_volume_is_immutable() {
    let (old, _) = made("", "PersistentVolume", volume(|_| {}));
    let mut new = old.clone();
    new.set(&["spec", "hostPath", "path"], "/other");
    let errors = texts(strategy("", "PersistentVolume").validate_update_content(&new, &old, ""));
    assert_eq!(
        errors,
        [
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n"
        ]
    );
}

#[test]
fn a_change_of_the_phase_sets_its_transition_time() {
    let volumes = strategy("", "PersistentVolume");
    let (mut object, _) = made("", "PersistentVolume", volume(|_| {}));
    volumes.stamp(&mut object, None, "", "t1");
    let time = ["status", "lastPhaseTransitionTime"];
    assert_eq!(object.str_at(&time), "t1");
    let mut bound = object.clone();
    bound.set(&["status", "phase"], "Bound");
    volumes.stamp(&mut bound, Some(&object), "status", "t2");
    assert_eq!(bound.str_at(&time), "t2");
    let mut same = bound.clone();
    same.remove(&time);
    volumes.stamp(&mut same, Some(&bound), "status", "t3");
    assert_eq!(same.str_at(&time), "t2");
}

fn claim() -> Value {
    document!({"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}},
    }})
}

#[test]
fn invalid_persistent_volume_claims_are_rejected() {
    let (old, errors) = made("", "PersistentVolumeClaim", claim());
    assert!(errors.is_empty(), "{errors:?}");
    let mut source = claim();
    source.set(
        &["spec", "dataSource"],
        document!({"kind": "PersistentVolumeClaim", "name": "c"}),
    );
    let (object, _) = made("", "PersistentVolumeClaim", source);
    assert_eq!(object.str_at(&["spec", "dataSourceRef", "name"]), "c");
    check(
        "",
        "PersistentVolumeClaim",
        document!({"spec": {}}),
        &[
            "spec.accessModes: Required value: at least 1 access mode is required",
            "spec.resources[storage]: Required value",
        ],
    );
    let claims = strategy("", "PersistentVolumeClaim");
    let resized = |phase: &str, size: &str| {
        let (mut new, mut old) = (old.clone(), old.clone());
        for object in [&mut new, &mut old] {
            object.set(&["status", "phase"], phase);
            object.set(&["status", "capacity", "storage"], "2Gi");
        }
        new.set(&["spec", "resources", "requests", "storage"], size);
        texts(claims.validate_update_content(&new, &old, ""))
    };
    assert!(resized("Bound", "3Gi").is_empty());
    assert_eq!(
        resized("Bound", "1Gi"),
        ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]
    );
    assert_eq!(
        resized("Pending", "3Gi"),
        [
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"
        ]
    );
    let mut status = old.clone();
    status.set(
        &["status", "allocatedResourceStatuses", "storage"],
        "Nonsense",
    );
    let errors = texts(claims.validate_update_content(&status, &old, "status"));
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn invalid_storage_classes_and_csi_drivers_are_rejected() {
    let group = "storage.k8s.io";
    check(
        group,
        "StorageClass",
        document!({"provisioner": "", "volumeBindingMode": "Odd"}),
        &[
            "provisioner: Required value",
            r#"volumeBindingMode: Unsupported value: "Odd": supported values: "Immediate", "WaitForFirstConsumer""#,
        ],
    );
    check(
        group,
        "VolumeAttributesClass",
        document!({"driverName": "d"}),
        &["parameters: Required value: must contain at least one key/value pair"],
    );
    check(
        group,
        "VolumeAttachment",
        document!({"spec": {"attacher": "a", "nodeName": "n", "source": {}}}),
        &[
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ],
    );
    check(
        group,
        "CSIDriver",
        document!({"spec": {"fsGroupPolicy": "Odd", "tokenRequests": [{"expirationSeconds": 1}]}}),
        &[
            r#"spec.fsGroupPolicy: Unsupported value: "Odd": supported values: "File", "None", "ReadWriteOnceWithFSType""#,
            "spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
        ],
    );
    check(
        group,
        "CSINode",
        document!({"spec": {"drivers": [{"name": "d", "nodeID": ""}, {"name": "d", "nodeID": "x"}]}}),
        &[
            "spec.drivers[0].nodeID: Required value",
            r#"spec.drivers[1].name: Duplicate value: "d""#,
        ],
    );
    let (driver, _) = made(group, "CSIDriver", document!({"spec": {}}));
    assert!(driver.bool_at(&["spec", "attachRequired"]));
    assert_eq!(driver.at(&["metadata", "generation"]), None);
}

#[test]
fn invalid_limit_ranges_and_quotas_are_rejected() {
    let limits = document!({"spec": {"limits": [
        {"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}},
        {"type": "Odd"},
    ]}});
    let (object, errors) = made("", "LimitRange", limits);
    assert_eq!(
        object.list_at(&["spec", "limits"])[0].get("default"),
        Some(&document!({"cpu": "1"}))
    );
    assert_eq!(
        errors,
        [
            r#"spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1"#,
            r#"spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1"#,
            r#"spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1"#,
            r#"spec.limits[1].type: Invalid value: "Odd": must be a standard limit type or fully qualified"#,
        ]
    );
    check(
        "",
        "ResourceQuota",
        document!({"spec": {"hard": {"pods": "1500m", "odd": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}}),
        &[
            r#"spec.hard[odd]: Invalid value: "odd": must be a standard resource type or fully qualified"#,
            r#"spec.hard[odd]: Invalid value: "odd": must be a standard resource for quota"#,
            r#"spec.hard[pods]: Invalid value: "1500m": must be an integer"#,
            r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes"#,
        ],
    );
}
