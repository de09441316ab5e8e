//! Claims and volumes, case by case.

use super::*;
use crate::fixtures::{labelled_node, pod};

fn class(mode: &str, provisioner: &str, rest: &str) -> Arc<StorageClass> {
    let text = format!(
        r#"{{"metadata":{{"name":"fast"}},"provisioner":"{provisioner}","volumeBindingMode":"{mode}"{rest}}}"#
    );
    Arc::new(serde_json::from_str(&text).expect("a class"))
}

fn claim(name: &str, size: &str, rest: &str) -> Arc<PersistentVolumeClaim> {
    let text = format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"uid-{name}"{rest}}},"spec":{{"accessModes":["ReadWriteOnce"],"storageClassName":"fast","resources":{{"requests":{{"storage":"{size}"}}}}}}}}"#
    );
    Arc::new(serde_json::from_str(&text).expect("a claim"))
}

fn bound(name: &str, volume: &str) -> Arc<PersistentVolumeClaim> {
    let mut bound = (*claim(
        name,
        "1Gi",
        r#","annotations":{"pv.kubernetes.io/bind-completed":"yes"}"#,
    ))
    .clone();
    if let Some(spec) = &mut bound.spec {
        spec.volume_name = Some(volume.to_owned());
    }
    Arc::new(bound)
}

fn volume(name: &str, size: &str, zone: &str) -> Arc<PersistentVolume> {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"accessModes":["ReadWriteOnce"],"storageClassName":"fast","capacity":{{"storage":"{size}"}},"nodeAffinity":{{"required":{{"nodeSelectorTerms":[{{"matchExpressions":[{{"key":"zone","operator":"In","values":["{zone}"]}}]}}]}}}}}},"status":{{"phase":"Available"}}}}"#
    );
    Arc::new(serde_json::from_str(&text).expect("a volume"))
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for zone in ["a", "b"] {
        let labels = format!(r#"{{"zone":"{zone}"}}"#);
        snapshot.set_node(labelled_node(zone, &labels, "{}", "{}"));
    }
    snapshot
}

fn using(name: &str, claims: &[&str]) -> Arc<PodInfo> {
    let volumes: Vec<String> = claims
        .iter()
        .map(|claim| {
            format!(r#"{{"name":"{claim}","persistentVolumeClaim":{{"claimName":"{claim}"}}}}"#)
        })
        .collect();
    let volumes = volumes.join(",");
    pod(
        name,
        &format!(r#"{{"containers":[],"volumes":[{volumes}]}}"#),
    )
}

/// `pass` or the reasons, for nodes a and b.
fn results(snapshot: &Snapshot, pod: &PodInfo) -> Vec<String> {
    match VolumeBinding::default().pre_filter(pod, snapshot) {
        PreFiltered::By(filter) => snapshot
            .nodes()
            .map(|node| match filter.filter(pod, node, snapshot) {
                None => "pass".to_owned(),
                Some(rejection) => rejection.reasons.join("; "),
            })
            .collect(),
        PreFiltered::Reject(reason) => vec![reason],
        _ => Vec::new(),
    }
}

#[test]
fn claims_must_exist_and_immediate_ones_be_bound() {
    let mut snapshot = snapshot();
    let web = using("web", &["data"]);
    assert_eq!(
        results(&snapshot, &web),
        ["persistentvolumeclaim \"data\" not found"]
    );
    snapshot.volumes.set_claim(claim("data", "1Gi", ""));
    assert_eq!(results(&snapshot, &web), [UNBOUND]);
    snapshot
        .volumes
        .set_class(class("Immediate", "example.com/p", ""));
    assert_eq!(results(&snapshot, &web), [UNBOUND]);
    let leaving = claim(
        "data",
        "1Gi",
        r#","deletionTimestamp":"2026-01-01T00:00:00Z""#,
    );
    snapshot.volumes.set_claim(leaving);
    assert_eq!(
        results(&snapshot, &web),
        ["persistentvolumeclaim \"data\" is being deleted"]
    );
    let ephemeral = pod(
        "web",
        r#"{"containers":[],"volumes":[{"name":"x","ephemeral":{}}]}"#,
    );
    assert_eq!(
        results(&snapshot, &ephemeral),
        ["waiting for ephemeral volume controller to create the persistentvolumeclaim \"web-x\""]
    );
    snapshot.volumes.set_claim(claim("web-x", "1Gi", ""));
    assert_eq!(
        results(&snapshot, &ephemeral),
        ["PVC default/web-x was not created for pod default/web (pod is not owner)"]
    );
    assert!(matches!(
        VolumeBinding::default().pre_filter(&using("plain", &[]), &snapshot),
        PreFiltered::Any
    ));
}

#[test]
fn a_bound_volume_keeps_pods_where_it_is() {
    let mut snapshot = snapshot();
    snapshot.volumes.set_claim(bound("data", "v1"));
    let web = using("web", &["data"]);
    assert_eq!(results(&snapshot, &web), [VOLUME_MISSING, VOLUME_MISSING]);
    snapshot.volumes.set_volume(volume("v1", "1Gi", "b"));
    assert_eq!(results(&snapshot, &web), [WRONG_NODE, "pass"]);
}

#[test]
fn the_smallest_volume_that_will_do_is_reserved_once() {
    let mut snapshot = snapshot();
    let volumes = &mut snapshot.volumes;
    volumes.set_class(class(
        "WaitForFirstConsumer",
        "kubernetes.io/no-provisioner",
        "",
    ));
    volumes.set_volume(volume("large", "9Gi", "a"));
    volumes.set_volume(volume("medium", "2Gi", "a"));
    volumes.set_volume(volume("small", "1Gi", "a"));
    volumes.set_claim(claim("one", "2Gi", ""));
    volumes.set_claim(claim("two", "2Gi", ""));
    volumes.set_claim(claim("three", "2Gi", ""));
    let (one, two) = (using("p1", &["one"]), using("p2", &["two"]));
    assert_eq!(results(&snapshot, &one), ["pass", NONE_TO_BIND]);
    VolumeBinding::default().reserve(&one, "a", &mut snapshot);
    VolumeBinding::default().reserve(&two, "a", &mut snapshot);
    let chosen = |snapshot: &Snapshot, uid: &str| {
        let reservation = snapshot.volumes.reservation(uid);
        reservation.and_then(|r| r.bindings[0].1.metadata.name.clone())
    };
    assert_eq!(chosen(&snapshot, "uid-p1").as_deref(), Some("medium"));
    assert_eq!(chosen(&snapshot, "uid-p2").as_deref(), Some("large"));
    let three = using("p3", &["three"]);
    assert_eq!(results(&snapshot, &three), [NONE_TO_BIND, NONE_TO_BIND]);
    // Another pod with the same claim gets the same volume.
    assert_eq!(
        results(&snapshot, &using("p4", &["one"])),
        ["pass", NONE_TO_BIND]
    );
    VolumeBinding::default().unreserve(&one, &mut snapshot);
    assert_eq!(results(&snapshot, &three), ["pass", NONE_TO_BIND]);
    // Two claims of one pod do not get the same volume.
    VolumeBinding::default().unreserve(&two, &mut snapshot);
    assert_eq!(
        results(&snapshot, &using("p5", &["one", "two"])),
        ["pass", NONE_TO_BIND]
    );
    assert_eq!(
        results(&snapshot, &using("p6", &["one", "two", "three"])),
        [NONE_TO_BIND, NONE_TO_BIND]
    );
}

#[test]
fn what_can_be_made_is_made_for_one_node() {
    let mut snapshot = snapshot();
    snapshot
        .volumes
        .set_class(class("WaitForFirstConsumer", "example.com/p", ""));
    snapshot.volumes.set_claim(claim("data", "1Gi", ""));
    let web = using("web", &["data"]);
    assert_eq!(results(&snapshot, &web), ["pass", "pass"]);
    VolumeBinding::default().reserve(&web, "b", &mut snapshot);
    assert_eq!(
        results(&snapshot, &using("other", &["data"])),
        [NONE_TO_BIND, "pass"]
    );
    VolumeBinding::default().unreserve(&web, &mut snapshot);
    let selected = r#","annotations":{"volume.kubernetes.io/selected-node":"a"}"#;
    snapshot.volumes.set_claim(claim("data", "1Gi", selected));
    assert_eq!(results(&snapshot, &web), ["pass", NONE_TO_BIND]);
    let only_b =
        r#","allowedTopologies":[{"matchLabelExpressions":[{"key":"zone","values":["b"]}]}]"#;
    snapshot.volumes.set_claim(claim("data", "1Gi", ""));
    snapshot
        .volumes
        .set_class(class("WaitForFirstConsumer", "example.com/p", only_b));
    assert_eq!(results(&snapshot, &web), [NONE_TO_BIND, "pass"]);
}

#[test]
fn a_driver_that_knows_its_room_makes_volumes_where_it_has_some() {
    let mut snapshot = snapshot();
    let waiting = class("WaitForFirstConsumer", "example.com/p", "");
    let name = waiting.metadata.name.clone().expect("a name");
    snapshot.volumes.set_class(waiting);
    snapshot.volumes.set_claim(claim("data", "5Gi", ""));
    let web = using("web", &["data"]);
    let driver = |limited: bool| {
        let text = format!(
            r#"{{"metadata":{{"name":"example.com/p"}},"spec":{{"storageCapacity":{limited}}}}}"#
        );
        serde_json::from_str(&text).expect("a driver")
    };
    snapshot.volumes.set_driver(&driver(true));
    assert_eq!(results(&snapshot, &web), [NO_ROOM, NO_ROOM]);
    let room = |object: &str, zone: &str, amounts: &str| {
        let text = format!(
            r#"{{"metadata":{{"namespace":"x","name":"{object}"}},"storageClassName":"{name}","nodeTopology":{{"matchLabels":{{"zone":"{zone}"}}}},{amounts}}}"#
        );
        std::sync::Arc::new(serde_json::from_str(&text).expect("a capacity"))
    };
    let volumes = &mut snapshot.volumes;
    volumes.set_capacity(room("one", "a", r#""capacity":"4Gi""#));
    volumes.set_capacity(room("two", "b", r#""capacity":"6Gi""#));
    assert_eq!(results(&snapshot, &web), [NO_ROOM, "pass"]);
    let volumes = &mut snapshot.volumes;
    let small = r#""capacity":"6Gi","maximumVolumeSize":"1Gi""#;
    volumes.set_capacity(room("two", "b", small));
    assert_eq!(results(&snapshot, &web), [NO_ROOM, NO_ROOM]);
    snapshot.volumes.set_driver(&driver(false));
    assert_eq!(results(&snapshot, &web), ["pass", "pass"]);
}
