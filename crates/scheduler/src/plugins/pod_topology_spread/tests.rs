//! Spreading over topologies, case by case.

use api::selector::LabelSelector;
use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::{
    cycle::Cycle,
    fixtures::{framework as default_framework, labelled_node, labelled_pod},
    framework::Trials,
};

const ROOM: &str = r#"{"allocatable":{"cpu":"8","memory":"8Gi","pods":"110"}}"#;

/// Nodes a1, a2 in zone a, b1 in zone b, and c1 in none.
fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        let labels = format!(
            r#"{{"topology.kubernetes.io/zone":"{zone}","kubernetes.io/hostname":"{name}"}}"#
        );
        snapshot.set_node(labelled_node(name, &labels, "{}", ROOM));
    }
    let labels = r#"{"kubernetes.io/hostname":"c1"}"#;
    snapshot.set_node(labelled_node("c1", labels, "{}", ROOM));
    snapshot
}

fn spreading(name: &str, constraints: &str, rest: &str) -> Arc<PodInfo> {
    let spec = format!(r#"{{"containers":[],"topologySpreadConstraints":[{constraints}]{rest}}}"#);
    labelled_pod(name, r#"{"app":"web","version":"1"}"#, &spec)
}

fn constraint(key: &str, when: &str, rest: &str) -> String {
    format!(
        r#"{{"topologyKey":"{key}","whenUnsatisfiable":"{when}","maxSkew":1,"labelSelector":{{"matchLabels":{{"app":"web"}}}}{rest}}}"#
    )
}

fn by_zone(rest: &str) -> String {
    constraint("topology.kubernetes.io/zone", "DoNotSchedule", rest)
}

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

fn web(name: &str) -> Arc<PodInfo> {
    spreading(name, "", "")
}

#[test]
fn a_domain_that_is_ahead_waits_for_the_others() {
    let mut snapshot = snapshot();
    let pod = spreading("new", &by_zone(""), "");
    assert_eq!(fits(&snapshot, &pod), ["a1", "a2", "b1", NO_LABEL]);
    snapshot.confirm(web("one"), "a1");
    assert_eq!(fits(&snapshot, &pod), [SKEWED, SKEWED, "b1", NO_LABEL]);
    // A pod that is leaving, of another namespace or of another kind does not count.
    let mut leaving = (*web("two").pod).clone();
    let now = serde_json::from_str("\"2026-01-01T00:00:00Z\"").expect("a time");
    leaving.metadata.deletion_timestamp = Some(now);
    snapshot.confirm(Arc::new(PodInfo::new(Arc::new(leaving))), "b1");
    let mut foreign = (*web("three").pod).clone();
    foreign.metadata.namespace = Some("other".to_owned());
    snapshot.confirm(Arc::new(PodInfo::new(Arc::new(foreign))), "b1");
    snapshot.confirm(labelled_pod("four", "{}", r#"{"containers":[]}"#), "b1");
    assert_eq!(fits(&snapshot, &pod), [SKEWED, SKEWED, "b1", NO_LABEL]);
    snapshot.confirm(web("five"), "b1");
    assert_eq!(fits(&snapshot, &pod), ["a1", "a2", "b1", NO_LABEL]);
}

#[test]
fn too_few_domains_count_as_an_empty_one_more() {
    let mut snapshot = snapshot();
    snapshot.confirm(web("one"), "a1");
    snapshot.confirm(web("two"), "b1");
    let pod = spreading("new", &by_zone(r#","minDomains":3"#), "");
    assert_eq!(fits(&snapshot, &pod), [SKEWED, SKEWED, SKEWED, NO_LABEL]);
    let pod = spreading("new", &by_zone(r#","minDomains":2"#), "");
    assert_eq!(fits(&snapshot, &pod), ["a1", "a2", "b1", NO_LABEL]);
}

#[test]
fn nodes_the_pod_cannot_use_count_as_the_policies_say() {
    let mut snapshot = snapshot();
    snapshot.confirm(web("one"), "a1");
    let only_a = r#","nodeSelector":{"topology.kubernetes.io/zone":"a"}"#;
    let affinity = "node(s) didn't match Pod's node affinity/selector";
    let pod = spreading("new", &by_zone(""), only_a);
    assert_eq!(fits(&snapshot, &pod), ["a1", "a2", affinity, affinity]);
    let ignoring = by_zone(r#","nodeAffinityPolicy":"Ignore""#);
    let pod = spreading("new", &ignoring, only_a);
    assert_eq!(fits(&snapshot, &pod), [SKEWED, SKEWED, affinity, affinity]);
    // The same with taints, which do not exclude by default.
    let labels = r#"{"topology.kubernetes.io/zone":"b","kubernetes.io/hostname":"b1"}"#;
    let taint = r#"{"taints":[{"key":"k","effect":"NoSchedule"}]}"#;
    snapshot.set_node(labelled_node("b1", labels, taint, ROOM));
    let tainted = "node(s) had untolerated taint(s)";
    let pod = spreading("new", &by_zone(""), "");
    assert_eq!(fits(&snapshot, &pod), [SKEWED, SKEWED, tainted, NO_LABEL]);
    let honoring = by_zone(r#","nodeTaintsPolicy":"Honor""#);
    let pod = spreading("new", &honoring, "");
    assert_eq!(fits(&snapshot, &pod), ["a1", "a2", tainted, NO_LABEL]);
}

#[test]
fn match_label_keys_narrow_the_kind() {
    let mut snapshot = snapshot();
    let old = labelled_pod(
        "old",
        r#"{"app":"web","version":"0"}"#,
        r#"{"containers":[]}"#,
    );
    snapshot.confirm(old, "a1");
    let pod = spreading("new", &by_zone(""), "");
    assert_eq!(fits(&snapshot, &pod)[0], SKEWED);
    let pod = spreading("new", &by_zone(r#","matchLabelKeys":["version"]"#), "");
    assert_eq!(fits(&snapshot, &pod)[0], "a1");
}

#[test]
fn pods_on_trial_change_the_skew() {
    let mut snapshot = snapshot();
    snapshot.confirm(web("one"), "a1");
    snapshot.confirm(web("two"), "a1");
    snapshot.confirm(web("three"), "b1");
    let pod = spreading("new", &by_zone(""), "");
    assert_eq!(fits(&snapshot, &pod), [SKEWED, SKEWED, "b1", NO_LABEL]);
    let framework = default_framework(None);
    let cycle = Cycle::begin(&framework, &pod, &snapshot).expect("a cycle");
    let mut trial = cycle.try_out(snapshot.node("a1").expect("a1"));
    assert!(trial.reject().is_some());
    trial.remove_pod(&web("one"));
    assert!(trial.reject().is_none());
    trial.add_pod(web("one"));
    assert!(trial.reject().is_some());
    // Taking from the emptiest domain lowers what all are measured by.
    let mut trial = cycle.try_out(snapshot.node("b1").expect("b1"));
    trial.remove_pod(&web("three"));
    assert!(trial.reject().is_none());
    trial.add_pod(web("three"));
    trial.add_pod(web("four"));
    assert!(trial.reject().is_none(), "2 in b, 2 in a");
    trial.add_pod(web("five"));
    assert!(trial.reject().is_some(), "3 in b, 2 in a");
}

#[test]
fn soft_constraints_prefer_the_emptiest_domain() {
    let mut snapshot = snapshot();
    let scores = |snapshot: &Snapshot, plugin: &PodTopologySpread, pod: &PodInfo| {
        let nodes: Vec<&NodeInfo> = snapshot.nodes().collect();
        plugin.scores(pod, &nodes, snapshot)
    };
    let plugin = PodTopologySpread::default();
    let zone = constraint("topology.kubernetes.io/zone", "ScheduleAnyway", "");
    let pod = spreading("new", &zone, "");
    assert_eq!(scores(&snapshot, &plugin, &web("plain")), None);
    assert_eq!(
        scores(&snapshot, &plugin, &pod),
        Some(vec![100, 100, 100, 0])
    );
    snapshot.confirm(web("one"), "a1");
    assert_eq!(scores(&snapshot, &plugin, &pod), Some(vec![0, 0, 100, 0]));
    // By default by node first and then by zone; a node without a zone is no worse.
    struct Web;
    impl WorkloadSelectors for Web {
        fn selector_for(&self, _: &Pod) -> Option<LabelSelector> {
            LabelSelector::parse("app=web").ok()
        }
    }
    let plugin = PodTopologySpread::new(Some(Arc::new(Web)), SpreadArguments::default());
    let found = scores(&snapshot, &plugin, &web("plain")).expect("scores");
    assert!(found[0] < found[1] && found[1] < found[2], "{found:?}");
    assert!(found[3] >= found[2], "{found:?}");
}

#[test]
fn only_changes_of_the_skew_wake_a_rejected_pod() {
    let plugin = PodTopologySpread::default();
    let pod = spreading("new", &by_zone(""), "");
    let other = labelled_pod("x", "{}", r#"{"containers":[]}"#);
    assert!(plugin.may_help(&ClusterEvent::PodAdded(&web("w")), &pod));
    assert!(plugin.may_help(
        &ClusterEvent::PodRemoved {
            pod: &web("w"),
            node: None
        },
        &pod
    ));
    assert!(!plugin.may_help(
        &ClusterEvent::PodRemoved {
            pod: &other,
            node: None
        },
        &pod
    ));
    let snapshot = snapshot();
    let node = |name: &str| snapshot.node(name).expect("a node");
    assert!(plugin.may_help(&ClusterEvent::NodeAdded(node("a1")), &pod));
    assert!(!plugin.may_help(&ClusterEvent::NodeAdded(node("c1")), &pod));
    let old = node("a1").node.as_ref().expect("a node");
    let heartbeat = ClusterEvent::NodeChanged {
        old,
        new: node("a1"),
    };
    assert!(!plugin.may_help(&heartbeat, &pod));
    let moved = ClusterEvent::NodeChanged {
        old,
        new: node("b1"),
    };
    assert!(plugin.may_help(&moved, &pod));
}
