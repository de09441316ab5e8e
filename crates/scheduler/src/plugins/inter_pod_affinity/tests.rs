//! Affinity and anti-affinity between pods, case by case.

use super::*;
use crate::{
    cycle::Cycle,
    fixtures::{framework as default_framework, labelled_node, labelled_pod, pod_asking},
    framework::Trials,
};

const ROOM: &str = r#"{"allocatable":{"cpu":"8","memory":"8Gi","pods":"110"}}"#;

/// Nodes a1, a2 in zone a and b1 in zone b.
fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let labels = format!(r#"{{"zone":"{zone}","host":"{name}"}}"#);
        snapshot.set_node(labelled_node(name, &labels, "{}", ROOM));
    }
    snapshot
}

fn affine(name: &str, app: &str, affinity: &str) -> Arc<PodInfo> {
    let spec = format!(r#"{{"containers":[],"affinity":{affinity}}}"#);
    labelled_pod(name, &format!(r#"{{"app":"{app}"}}"#), &spec)
}

fn required(kind: &str, app: &str, key: &str, rest: &str) -> String {
    format!(
        r#"{{"{kind}":{{"requiredDuringSchedulingIgnoredDuringExecution":[{{"labelSelector":{{"matchLabels":{{"app":"{app}"}}}},"topologyKey":"{key}"{rest}}}]}}}}"#
    )
}

/// The nodes on which the pod may run, or the reasons.
fn fits(snapshot: &Snapshot, pod: &PodInfo) -> Vec<String> {
    let framework = default_framework(None);
    let cycle = Cycle::begin(&framework, pod, snapshot).expect("a cycle");
    let nodes = snapshot.nodes();
    nodes
        .map(|node| match cycle.reject(node) {
            None => node.name.clone(),
            Some((_, rejection)) => rejection.reasons.join("; "),
        })
        .collect()
}

#[test]
fn the_first_of_a_kind_goes_anywhere_and_the_others_follow() {
    let mut snapshot = snapshot();
    let near = required("podAffinity", "web", "zone", "");
    let web = affine("web", "web", &near);
    assert_eq!(fits(&snapshot, &web), ["a1", "a2", "b1"]);
    // Who is not what it looks for waits.
    let other = affine("other", "other", &near);
    assert_eq!(fits(&snapshot, &other), [NOT_NEAR, NOT_NEAR, NOT_NEAR]);
    snapshot.confirm(web, "a1");
    assert_eq!(fits(&snapshot, &other), ["a1", "a2", NOT_NEAR]);
    assert_eq!(
        fits(&snapshot, &affine("two", "web", &near)),
        ["a1", "a2", NOT_NEAR]
    );
    snapshot.remove_pod("uid-web");
    assert_eq!(fits(&snapshot, &other), [NOT_NEAR, NOT_NEAR, NOT_NEAR]);
}

#[test]
fn anti_affinity_works_in_both_directions() {
    let mut snapshot = snapshot();
    let far = required("podAntiAffinity", "web", "zone", "");
    let lonely = affine("lonely", "lonely", &far);
    let web = affine("web", "web", "{}");
    snapshot.confirm(web.clone(), "a1");
    assert_eq!(fits(&snapshot, &lonely), [TOO_NEAR, TOO_NEAR, "b1"]);
    snapshot.confirm(lonely, "b1");
    let another = affine("another", "web", "{}");
    assert_eq!(fits(&snapshot, &another), ["a1", "a2", UNWELCOME]);
    // Nodes that move take their pods along.
    let labels = r#"{"zone":"b","host":"a2"}"#;
    snapshot.set_node(labelled_node("a2", labels, "{}", ROOM));
    assert_eq!(fits(&snapshot, &another), ["a1", UNWELCOME, UNWELCOME]);
    snapshot.remove_pod("uid-lonely");
    assert_eq!(fits(&snapshot, &another), ["a1", "a2", "b1"]);
}

#[test]
fn without_the_pods_on_trial_it_may_fit() {
    let mut snapshot = snapshot();
    let far = required("podAntiAffinity", "web", "host", "");
    snapshot.confirm(affine("one", "web", &far), "a1");
    let two = affine("two", "web", &far);
    assert_eq!(fits(&snapshot, &two), [TOO_NEAR, "a2", "b1"]);
    let framework = default_framework(None);
    let cycle = Cycle::begin(&framework, &two, &snapshot).expect("a cycle");
    let mut trial = cycle.try_out(snapshot.node("a1").expect("a1"));
    let one = affine("one", "web", &far);
    trial.remove_pod(&one);
    assert!(trial.reject().is_none());
    trial.add_pod(one);
    let rejection = trial.reject().expect("a rejection");
    assert!(rejection.resolvable);
    // One that only repels, on a node where nothing was.
    let repelling = affine(
        "three",
        "x",
        &required("podAntiAffinity", "web", "zone", ""),
    );
    let plain = affine("plain", "web", "{}");
    let cycle = Cycle::begin(&framework, &plain, &snapshot).expect("a cycle");
    let mut trial = cycle.try_out(snapshot.node("b1").expect("b1"));
    assert!(trial.reject().is_none());
    trial.add_pod(repelling);
    assert!(trial.reject().is_some());
}

#[test]
fn namespaces_are_chosen_by_name_or_by_label() {
    let mut snapshot = snapshot();
    let elsewhere = {
        let mut pod = (*affine("web", "web", "{}").pod).clone();
        pod.metadata.namespace = Some("prod".to_owned());
        Arc::new(PodInfo::new(Arc::new(pod)))
    };
    snapshot.confirm(elsewhere, "a1");
    let check = |snapshot: &Snapshot, rest: &str, expected: bool| {
        let far = required("podAntiAffinity", "web", "zone", rest);
        let rejected = fits(snapshot, &affine("x", "x", &far))[0] == TOO_NEAR;
        assert_eq!(rejected, expected, "{rest}");
    };
    check(&snapshot, "", false);
    check(&snapshot, r#","namespaces":["prod"]"#, true);
    check(&snapshot, r#","namespaceSelector":{}"#, true);
    let by_label = r#","namespaceSelector":{"matchLabels":{"tier":"prod"}}"#;
    check(&snapshot, by_label, false);
    let metadata = r#"{"name":"prod","labels":{"tier":"prod"}}"#;
    snapshot.set_namespace(&serde_json::from_str(metadata).expect("metadata"));
    check(&snapshot, by_label, true);
    // Only pods of the same or of another value.
    let mine = r#","namespaces":["prod"],"matchLabelKeys":["app"]"#;
    check(&snapshot, mine, false);
    let others = r#","namespaces":["prod"],"mismatchLabelKeys":["app"]"#;
    check(&snapshot, others, true);
}

#[test]
fn preferences_of_both_sides_add_up() {
    let mut snapshot = snapshot();
    let preferring = |kind: &str, app: &str, weight: u32| {
        format!(
            r#"{{"{kind}":{{"preferredDuringSchedulingIgnoredDuringExecution":[{{"weight":{weight},"podAffinityTerm":{{"labelSelector":{{"matchLabels":{{"app":"{app}"}}}},"topologyKey":"zone"}}}}]}}}}"#
        )
    };
    let scores = |snapshot: &Snapshot, pod: &PodInfo| {
        let nodes: Vec<&NodeInfo> = snapshot.nodes().collect();
        InterPodAffinity::default().scores(pod, &nodes, snapshot)
    };
    let plain = pod_asking("plain", "1");
    assert_eq!(scores(&snapshot, &plain), None);
    snapshot.confirm(affine("db", "db", "{}"), "a1");
    let fond = affine("fond", "web", &preferring("podAffinity", "db", 10));
    assert_eq!(scores(&snapshot, &fond), Some(vec![100, 100, 0]));
    let shy = affine("shy", "web", &preferring("podAntiAffinity", "db", 10));
    assert_eq!(scores(&snapshot, &shy), Some(vec![0, 0, 100]));
    // What an existing pod requires or prefers counts for the one that comes.
    snapshot.confirm(
        affine("needs", "x", &required("podAffinity", "web", "zone", "")),
        "b1",
    );
    let web = affine("web", "web", "{}");
    assert_eq!(scores(&snapshot, &web), Some(vec![0, 0, 100]));
    snapshot.confirm(
        affine("likes", "y", &preferring("podAffinity", "web", 4)),
        "a2",
    );
    assert_eq!(scores(&snapshot, &web), Some(vec![100, 100, 0]));
}

#[test]
fn only_matching_pods_wake_a_rejected_pod() {
    let near = affine("near", "x", &required("podAffinity", "web", "zone", ""));
    let far = affine("far", "x", &required("podAntiAffinity", "web", "zone", ""));
    let (web, db) = (affine("w", "web", "{}"), affine("d", "db", "{}"));
    let check = |event: ClusterEvent<'_>, pod: &PodInfo, expected: bool| {
        assert_eq!(InterPodAffinity::default().may_help(&event, pod), expected);
    };
    check(ClusterEvent::PodAdded(&web), &near, true);
    check(ClusterEvent::PodAdded(&db), &near, false);
    check(ClusterEvent::PodAdded(&web), &far, false);
    check(
        ClusterEvent::PodRemoved {
            pod: &web,
            node: None,
        },
        &far,
        true,
    );
    check(
        ClusterEvent::PodRemoved {
            pod: &db,
            node: None,
        },
        &far,
        false,
    );
    check(
        ClusterEvent::PodRemoved {
            pod: &far,
            node: None,
        },
        &web,
        true,
    );
    check(
        ClusterEvent::PodRemoved {
            pod: &far,
            node: None,
        },
        &db,
        false,
    );
    let (old, new) = (&db, &web);
    check(ClusterEvent::PodChanged { old, new }, &near, true);
    let (old, new) = (&web, &db);
    check(ClusterEvent::PodChanged { old, new }, &far, true);
}
