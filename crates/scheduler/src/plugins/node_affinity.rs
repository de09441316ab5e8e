//! `nodeSelector` and node affinity: required terms filter, preferred terms score.

use std::{collections::BTreeSet, fmt::Write, sync::Arc};

use k8s_openapi::api::core::v1::{Node, NodeAffinity as Affinity, PreferredSchedulingTerm};
use semantics::node_selector::{self, NAME_FIELD};

use crate::{
    NodeInfo, PodInfo, Snapshot,
    configuration::NodeAffinityArguments,
    framework::{
        ClusterEvent, Filter, NodeScore, Plugin, Points, PreFilter, PreFiltered, PreScore, Scaling,
    },
};

const REASON: &str = "node(s) didn't match Pod's node affinity/selector";
const ADDED_REASON: &str = "node(s) didn't match scheduler-enforced node affinity";
const CONFLICT: &str = "pod affinity terms conflict";

/// Checks the affinity of pods, and the affinity that the profile adds to every pod.
#[derive(Default)]
pub struct NodeAffinity {
    added: Option<Affinity>,
}

impl NodeAffinity {
    pub fn new(arguments: NodeAffinityArguments) -> NodeAffinity {
        NodeAffinity {
            added: arguments.added_affinity,
        }
    }

    fn admits(&self, pod: &PodInfo, node: &Node) -> bool {
        self.added_admits(node) && admits(pod, node)
    }

    fn added_admits(&self, node: &Node) -> bool {
        let added = self.added.as_ref().and_then(|added| {
            added
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        added.is_none_or(|required| node_selector::matches(required, node))
    }

    fn preferred<'a>(
        &'a self,
        pod: &'a PodInfo,
    ) -> impl Iterator<Item = &'a PreferredSchedulingTerm> {
        let all = affinity(pod).into_iter().chain(&self.added);
        all.flat_map(|affinity| {
            let preferred = &affinity.preferred_during_scheduling_ignored_during_execution;
            preferred.iter().flatten()
        })
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            pre_filter: Some(self.clone()),
            filter: Some(self.clone()),
            pre_score: Some(self.clone()),
            score: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => {
                let node = node.node.as_ref();
                node.is_some_and(|node| self.admits(pod, node))
            }
            ClusterEvent::NodeChanged { old, new } => {
                let now = new.node.as_ref().is_some_and(|node| self.admits(pod, node));
                now && !self.admits(pod, old)
            }
            _ => false,
        }
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        let selector = pod.spec().and_then(|spec| spec.node_selector.as_ref());
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            let _ = write!(key, "selector {selector:?}");
        }
        if let Some(affinity) = affinity(pod) {
            let _ = write!(key, "affinity {affinity:?}");
        }
        true
    }
}

impl PreFilter for NodeAffinity {
    /// Terms that all name their nodes leave only these to be looked at.
    fn pre_filter(&self, pod: &PodInfo, _: &Snapshot) -> PreFiltered {
        let terms = match pod.spec().and_then(node_selector::required) {
            Some(required) if !required.node_selector_terms.is_empty() => {
                &required.node_selector_terms
            }
            _ => return PreFiltered::Any,
        };
        let mut names = BTreeSet::new();
        for term in terms {
            let named = term
                .match_fields
                .iter()
                .flatten()
                .filter(|field| field.key == NAME_FIELD && field.operator == "In")
                .map(|field| field.values.iter().flatten().cloned().collect())
                .reduce(|a: BTreeSet<String>, b| a.intersection(&b).cloned().collect());
            match named {
                Some(named) => names.extend(named),
                None => return PreFiltered::Any,
            }
        }
        match names.is_empty() {
            true => PreFiltered::Reject(CONFLICT.to_owned()),
            false => PreFiltered::Only(names),
        }
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String> {
        match &node.node {
            Some(node) if !self.added_admits(node) => vec![ADDED_REASON.to_owned()],
            Some(node) if admits(pod, node) => Vec::new(),
            _ => vec![REASON.to_owned()],
        }
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(&self, pod: &PodInfo, _: &Snapshot) -> bool {
        self.preferred(pod).next().is_some()
    }
}

impl NodeScore for NodeAffinity {
    /// The weights of the preferred terms that match.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let Some(node) = &node.node else {
            return 0;
        };
        let matching = self
            .preferred(pod)
            .filter(|term| node_selector::matches_term(&term.preference, node));
        matching.map(|term| i64::from(term.weight)).sum()
    }

    fn scaling(&self) -> Scaling {
        Scaling::ToHighest
    }
}

fn affinity(pod: &PodInfo) -> Option<&Affinity> {
    pod.spec()?.affinity.as_ref()?.node_affinity.as_ref()
}

/// Whether `nodeSelector` and the required terms let the pod onto the node.
pub(crate) fn admits(pod: &PodInfo, node: &Node) -> bool {
    pod.spec()
        .is_none_or(|spec| node_selector::accepts_pod(spec, node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{labelled_node, pod};

    const LABELS: &str = r#"{"zone":"a","disk":"ssd","cores":"8"}"#;

    fn info() -> NodeInfo {
        let mut info = NodeInfo::new("n1");
        info.set_node(labelled_node("n1", LABELS, "{}", "{}"));
        info
    }

    fn required(terms: &str) -> String {
        format!(
            r#"{{"containers":[],"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{terms}]}}}}}}}}"#
        )
    }

    fn check(spec: &str, expected: bool) {
        let passes = NodeAffinity::default()
            .filter(&pod("web", spec), &info())
            .is_empty();
        assert_eq!(passes, expected, "{spec}");
    }

    #[test]
    fn the_node_selector_and_the_required_affinity_filter() {
        check(r#"{"containers":[]}"#, true);
        check(r#"{"containers":[],"nodeSelector":{"zone":"a"}}"#, true);
        check(r#"{"containers":[],"nodeSelector":{"zone":"b"}}"#, false);
        let zone = |zone: &str| {
            let values = format!(r#""operator":"In","values":["{zone}"]"#);
            required(&format!(
                r#"{{"matchExpressions":[{{"key":"zone",{values}}}]}}"#
            ))
        };
        check(&zone("a"), true);
        check(&zone("b"), false);
    }

    #[test]
    fn terms_that_name_nodes_narrow_the_search() {
        let named = |names: &str| {
            format!(
                r#"{{"matchFields":[{{"key":"metadata.name","operator":"In","values":[{names}]}}]}}"#
            )
        };
        let pre_filter = |terms: &str| {
            NodeAffinity::default().pre_filter(&pod("web", &required(terms)), &Snapshot::default())
        };
        match pre_filter(&format!("{},{}", named(r#""n1""#), named(r#""n2""#))) {
            PreFiltered::Only(names) => {
                assert_eq!(names.into_iter().collect::<Vec<_>>(), ["n1", "n2"])
            }
            _ => panic!("both nodes"),
        }
        let open = r#"{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#;
        assert!(matches!(
            pre_filter(&format!("{},{open}", named(r#""n1""#))),
            PreFiltered::Any
        ));
        let conflict = r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]},{"key":"metadata.name","operator":"In","values":["n2"]}]}"#;
        assert!(matches!(pre_filter(conflict), PreFiltered::Reject(_)));
        assert!(matches!(pre_filter(""), PreFiltered::Any));
    }

    #[test]
    fn preferred_terms_add_their_weights() {
        let spec = r#"{"containers":[],"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[
            {"weight":10,"preference":{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}},
            {"weight":5,"preference":{"matchExpressions":[{"key":"disk","operator":"Exists"}]}},
            {"weight":80,"preference":{"matchExpressions":[{"key":"gpu","operator":"Exists"}]}},
            {"weight":90,"preference":{}}]}}}"#;
        let pod = pod("web", spec);
        assert!(NodeAffinity::default().pre_score(&pod, &Snapshot::default()));
        assert_eq!(
            NodeAffinity::default().score(&pod, &info(), &Snapshot::default()),
            15
        );
    }
}
