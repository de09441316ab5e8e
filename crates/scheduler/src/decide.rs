//! One decision: which node a pod gets, or why none. Pure.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::{
    Framework, NodeInfo, PodInfo, Snapshot,
    cycle::Cycle,
    decision::{Decision, NodeFit, NodeResult, SchedulingResult, explain},
    framework::Rejection,
    shapes::Shapes,
};

/// Decides for `pod`; `random` breaks ties. Pods of a shape that was seen lately cost little.
pub(crate) fn decide(
    framework: &Framework,
    shapes: &mut Shapes,
    pod: &PodInfo,
    snapshot: &Snapshot,
    mut random: impl FnMut() -> u64,
) -> Decision {
    let cycle = match begin(framework, pod, snapshot) {
        Ok(cycle) => cycle,
        Err(decision) => return decision,
    };
    // The node for which the pod is nominated is looked at first.
    let nominated = snapshot.nominated_node(&pod.uid);
    let nominated = nominated.and_then(|name| snapshot.node(name));
    if let Some(node) = nominated
        && cycle.considers(&node.name)
        && cycle.reject(node).is_none()
    {
        return placed(vec![candidate(&node.name, 0, Vec::new())], 1);
    }
    if cycle.names.is_none()
        && let Some(ranking) = shapes.rank(&cycle, &mut random)
    {
        let best = ranking.best.into_iter();
        let results = best.map(|node| candidate(&node.node, node.total, node.parts));
        let others = ranking.rejected_nodes.into_iter();
        let others = others.map(|(node, (plugin, rejection))| rejected(node, plugin, rejection));
        return placed(results.chain(others).collect(), ranking.feasible);
    }
    if cycle.names.is_none()
        && let Some(sample) = shapes.sample(&cycle, &mut random)
    {
        let mut results = score(framework, pod, snapshot, &sample.nodes);
        let node = pick(&results, random);
        results.sort_by_key(|result| Reverse(total(result)));
        let others = sample.rejected_nodes.into_iter();
        let others = others.map(|(node, (plugin, rejection))| rejected(node, plugin, rejection));
        return Decision {
            outcome: SchedulingResult::Placed { node },
            nodes: results.into_iter().chain(others).collect(),
            rejected_by: BTreeSet::new(),
            feasible: sample.feasible,
        };
    }
    decide_in(&cycle, random)
}

/// As [`decide`], looking at every node.
#[cfg(test)]
pub(crate) fn decide_afresh(
    framework: &Framework,
    pod: &PodInfo,
    snapshot: &Snapshot,
    random: impl FnOnce() -> u64,
) -> Decision {
    match begin(framework, pod, snapshot) {
        Ok(cycle) => decide_in(&cycle, random),
        Err(decision) => decision,
    }
}

/// The decision, if no node has to be looked at for it.
fn begin<'a>(
    framework: &'a Framework,
    pod: &'a PodInfo,
    snapshot: &'a Snapshot,
) -> Result<Cycle<'a>, Decision> {
    let count = snapshot.node_count();
    if count == 0 {
        let message = "no nodes available to schedule pods".to_owned();
        return Err(unschedulable(message));
    }
    Cycle::begin(framework, pod, snapshot).map_err(|(plugin, reason)| {
        let mut decision = unschedulable(format!("0/{count} nodes are available: {reason}."));
        decision.rejected_by.insert(plugin);
        decision
    })
}

fn decide_in(cycle: &Cycle<'_>, random: impl FnOnce() -> u64) -> Decision {
    let snapshot = cycle.snapshot;
    let mut feasible: Vec<&NodeInfo> = Vec::new();
    let mut nodes = Vec::new();
    let mut rejected_by: BTreeSet<&'static str> = cycle.narrowed_by.clone();
    let mut look_at = |node| match cycle.reject(node) {
        Some((plugin, rejection)) => {
            rejected_by.insert(plugin);
            nodes.push(rejected(node.name.clone(), plugin, rejection));
        }
        None => feasible.push(node),
    };
    match &cycle.names {
        Some(names) => {
            let named = names.iter().filter_map(|name| snapshot.node(name));
            named.for_each(&mut look_at);
        }
        None => snapshot.nodes().for_each(&mut look_at),
    }
    if feasible.is_empty() {
        let message = explain(&nodes, snapshot.node_count(), &cycle.narrowed_by);
        return Decision {
            outcome: SchedulingResult::Unschedulable { message },
            nodes,
            rejected_by,
            feasible: 0,
        };
    }
    let mut results = score(cycle.framework, cycle.pod, snapshot, &feasible);
    let node = pick(&results, random);
    results.sort_by_key(|result| Reverse(total(result)));
    nodes.extend(results);
    Decision {
        outcome: SchedulingResult::Placed { node },
        nodes,
        rejected_by,
        feasible: feasible.len(),
    }
}

fn candidate(node: &str, total: i64, parts: Vec<(&'static str, i64)>) -> NodeResult {
    NodeResult {
        node: node.to_owned(),
        fit: NodeFit::Feasible { total, parts },
    }
}

fn rejected(node: String, plugin: &'static str, rejection: Rejection) -> NodeResult {
    let Rejection {
        reasons,
        resolvable,
    } = rejection;
    NodeResult {
        node,
        fit: NodeFit::Rejected {
            plugin,
            reasons,
            resolvable,
        },
    }
}

/// The decision for the first of the nodes.
fn placed(nodes: Vec<NodeResult>, feasible: usize) -> Decision {
    let node = nodes.first().map(|result| result.node.clone());
    Decision {
        outcome: SchedulingResult::Placed {
            node: node.unwrap_or_default(),
        },
        nodes,
        rejected_by: BTreeSet::new(),
        feasible,
    }
}

fn total(result: &NodeResult) -> i64 {
    match result.fit {
        NodeFit::Feasible { total, .. } => total,
        NodeFit::Rejected { .. } => i64::MIN,
    }
}

fn score(
    framework: &Framework,
    pod: &PodInfo,
    snapshot: &Snapshot,
    feasible: &[&NodeInfo],
) -> Vec<NodeResult> {
    let mut parts: Vec<Vec<(&'static str, i64)>> = vec![Vec::new(); feasible.len()];
    if feasible.len() > 1 {
        for (weight, plugin) in framework.talking_scores(pod, snapshot) {
            let Some(scores) = plugin.scores(pod, feasible, snapshot) else {
                continue;
            };
            for (parts, score) in parts.iter_mut().zip(scores) {
                parts.push((plugin.name(), score * weight));
            }
        }
    }
    feasible
        .iter()
        .zip(parts)
        .map(|(node, parts)| NodeResult {
            node: node.name.clone(),
            fit: NodeFit::Feasible {
                total: parts.iter().map(|(_, score)| score).sum(),
                parts,
            },
        })
        .collect()
}

/// One of the nodes with the highest total.
fn pick(results: &[NodeResult], random: impl FnOnce() -> u64) -> String {
    let highest = results.iter().map(total).max();
    let best: Vec<&NodeResult> = results
        .iter()
        .filter(|result| Some(total(result)) == highest)
        .collect();
    let index = match best.len() {
        1 => 0,
        length => random() as usize % length,
    };
    best[index].node.clone()
}

fn unschedulable(message: String) -> Decision {
    Decision {
        outcome: SchedulingResult::Unschedulable { message },
        nodes: Vec::new(),
        rejected_by: BTreeSet::new(),
        feasible: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::{
        framework as default_framework, labelled_node, node, node_with, pod, pod_asking,
    };

    fn framework() -> Framework {
        default_framework(None)
    }

    fn snapshot(nodes: &[Arc<k8s_openapi::api::core::v1::Node>]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for node in nodes {
            snapshot.set_node(node.clone());
        }
        snapshot
    }

    fn outcome(snapshot: &Snapshot, pod: &PodInfo) -> String {
        match decide_afresh(&framework(), pod, snapshot, || 0).outcome {
            SchedulingResult::Placed { node } => node,
            SchedulingResult::Unschedulable { message } => message,
        }
    }

    const ROOM: &str = r#"{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"}}"#;

    #[test]
    fn reasons_are_counted_and_ordered() {
        let web = pod_asking("web", "3");
        assert_eq!(
            outcome(&Snapshot::default(), &web),
            "no nodes available to schedule pods"
        );
        let taint = r#"{"taints":[{"key":"k","effect":"NoSchedule"}]}"#;
        let nodes = [
            node_with("a", "2"),
            node("b", taint, ROOM),
            node("c", taint, ROOM),
            node("d", r#"{"unschedulable":true}"#, ROOM),
        ];
        assert_eq!(
            outcome(&snapshot(&nodes), &web),
            "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s)."
        );
        let crowded = node("a", "{}", r#"{"allocatable":{"cpu":"1"}}"#);
        assert_eq!(
            outcome(&snapshot(&[crowded]), &web),
            "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."
        );
    }

    #[test]
    fn terms_that_name_nodes_limit_the_search_and_the_message() {
        let named = |requirements: &str| {
            let spec = r#"{"containers":[],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[REQ]}]}}}}"#;
            pod("web", &spec.replace("REQ", requirements))
        };
        let one = |name: &str| {
            format!(r#"{{"key":"metadata.name","operator":"In","values":["{name}"]}}"#)
        };
        let nodes = snapshot(&[node_with("a", "1"), node_with("b", "1")]);
        assert_eq!(outcome(&nodes, &named(&one("b"))), "b");
        assert_eq!(
            outcome(&nodes, &named(&one("z"))),
            "0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        );
        assert_eq!(
            outcome(&nodes, &named(&format!("{},{}", one("a"), one("b")))),
            "0/2 nodes are available: pod affinity terms conflict."
        );
    }

    #[test]
    fn the_emptiest_node_wins_and_weights_decide() {
        let mut nodes = snapshot(&[node_with("a", "4"), node_with("b", "4")]);
        nodes.assume(pod_asking("busy", "1"), "a");
        assert_eq!(outcome(&nodes, &pod_asking("web", "1")), "b");
        // A preference (weight 2) outweighs emptiness (weight 1).
        let nodes = snapshot(&[
            labelled_node("a", r#"{"disk":"ssd"}"#, "{}", ROOM),
            node_with("b", "64"),
        ]);
        let spec = r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":[{"key":"disk","operator":"Exists"}]}}]}}}"#;
        assert_eq!(outcome(&nodes, &pod("web", spec)), "a");
        // An unwelcome taint (weight 3) outweighs both.
        let mild = r#"{"taints":[{"key":"k","effect":"PreferNoSchedule"}]}"#;
        let nodes = snapshot(&[
            labelled_node("a", r#"{"disk":"ssd"}"#, mild, ROOM),
            node_with("b", "64"),
        ]);
        assert_eq!(outcome(&nodes, &pod("web", spec)), "b");
    }

    #[test]
    fn ties_are_broken_by_the_given_randomness() {
        let nodes = snapshot(&[
            node_with("a", "4"),
            node_with("b", "4"),
            node_with("c", "4"),
        ]);
        let web = pod_asking("web", "1");
        for (random, expected) in [(0, "a"), (1, "b"), (2, "c"), (3, "a")] {
            let decision = decide_afresh(&framework(), &web, &nodes, || random);
            let node = expected.to_owned();
            assert_eq!(decision.outcome, SchedulingResult::Placed { node });
        }
    }

    #[test]
    fn every_plugin_rejects_under_its_own_name() {
        let check = |spec: &str, node: Arc<k8s_openapi::api::core::v1::Node>, plugin: &str| {
            let mut nodes = snapshot(&[node]);
            let ports =
                r#"{"containers":[{"name":"c","ports":[{"containerPort":1,"hostPort":80}]}]}"#;
            nodes.assume(pod("other", ports), "a");
            let decision = decide_afresh(&framework(), &pod("web", spec), &nodes, || 0);
            let rejected_by: Vec<_> = decision.rejected_by.into_iter().collect();
            assert_eq!(rejected_by, [plugin]);
        };
        let plain = r#"{"containers":[]}"#;
        check(
            plain,
            node("a", r#"{"unschedulable":true}"#, ROOM),
            "NodeUnschedulable",
        );
        check(
            r#"{"containers":[],"nodeName":"z"}"#,
            node("a", "{}", ROOM),
            "NodeName",
        );
        let taint = r#"{"taints":[{"key":"k","effect":"NoSchedule"}]}"#;
        check(plain, node("a", taint, ROOM), "TaintToleration");
        let selecting = r#"{"containers":[],"nodeSelector":{"a":"b"}}"#;
        check(selecting, node("a", "{}", ROOM), "NodeAffinity");
        let ports = r#"{"containers":[{"name":"c","ports":[{"containerPort":1,"hostPort":80}]}]}"#;
        check(ports, node("a", "{}", ROOM), "NodePorts");
        check(plain, node("a", "{}", "{}"), "NodeResourcesFit");
    }

    #[test]
    fn every_feasible_node_is_scored() {
        let nodes: Vec<_> = (0..300)
            .map(|n| node_with(&format!("n{n:03}"), "4"))
            .collect();
        let mut nodes = snapshot(&nodes);
        nodes.set_node(node_with("n123", "64"));
        let (web, framework) = (pod_asking("web", "1"), framework());
        let decision = decide_afresh(&framework, &web, &nodes, || 0);
        assert_eq!(decision.feasible, 300);
        let node = "n123".to_owned();
        assert_eq!(
            decision.outcome,
            SchedulingResult::Placed { node: node.clone() }
        );
        let decision = decide(&framework, &mut Shapes::default(), &web, &nodes, || 0);
        assert_eq!(decision.feasible, 300);
        assert_eq!(decision.outcome, SchedulingResult::Placed { node });
        assert_eq!(decision.nodes.len(), 10, "the best are reported");
    }

    #[test]
    fn of_many_nodes_a_sample_is_scored_where_scores_depend_on_others() {
        let spec = r#"{"containers":[],"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"app":"web"}}}]}"#;
        let web = crate::fixtures::labelled_pod("web", r#"{"app":"web"}"#, spec);
        let (framework, mut shapes) = (framework(), Shapes::default());
        let mut nodes = Snapshot::default();
        for number in 0..1200 {
            let labels = format!(r#"{{"zone":"z{}"}}"#, number % 3);
            let name = format!("n{number:04}");
            nodes.set_node(labelled_node(&name, &labels, "{}", ROOM));
        }
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for _ in 0..3 {
            let decision = decide(&framework, &mut shapes, &web, &nodes, || 0);
            assert!(matches!(decision.outcome, SchedulingResult::Placed { .. }));
            assert_eq!(decision.feasible, 1200);
            assert_eq!(decision.nodes.len(), 500);
            let scored = decision.nodes.into_iter();
            seen.extend(scored.map(|result| result.node));
        }
        assert_eq!(seen.len(), 1200, "every node has its turn");
        // All of fewer nodes are scored, and none is left out when only few are feasible.
        for number in 10..1200 {
            nodes.remove_node(&format!("n{number:04}"));
        }
        let decision = decide(&framework, &mut shapes, &web, &nodes, || 0);
        assert_eq!(decision.nodes.len(), 10);
    }

    #[test]
    fn a_new_node_does_not_make_all_others_be_scored_again() {
        let (framework, mut shapes) = (framework(), Shapes::default());
        let all: Vec<_> = (0..300)
            .map(|n| node_with(&format!("n{n:03}"), "4"))
            .collect();
        let mut nodes = snapshot(&all);
        let web = pod_asking("web", "1");
        decide(&framework, &mut shapes, &web, &nodes, || 0);
        nodes.set_node(node_with("n300", "64"));
        let before = environment::work::visited();
        let decision = decide(&framework, &mut shapes, &web, &nodes, || 0);
        let node = "n300".to_owned();
        assert_eq!(decision.outcome, SchedulingResult::Placed { node });
        let visited = environment::work::visited() - before;
        assert!(visited < 50, "{visited} nodes are looked at");
    }

    #[test]
    fn the_nominated_node_is_taken_first() {
        let mut nodes = snapshot(&[node_with("a", "4"), node_with("b", "64")]);
        let web = pod_asking("web", "1");
        nodes.nominate(&web, Some("a"));
        let (framework, mut shapes) = (framework(), Shapes::default());
        let mut outcome = |nodes: &Snapshot, pod: &PodInfo| match decide(
            &framework,
            &mut shapes,
            pod,
            nodes,
            || 0,
        )
        .outcome
        {
            SchedulingResult::Placed { node } => node,
            SchedulingResult::Unschedulable { message } => message,
        };
        assert_eq!(outcome(&nodes, &web), "a");
        assert_eq!(outcome(&nodes, &pod_asking("other", "1")), "b");
        nodes.assume(pod_asking("busy", "4"), "a");
        assert_eq!(outcome(&nodes, &web), "b");
    }
}
