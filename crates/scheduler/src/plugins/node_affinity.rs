//! `nodeSelector` and node affinity: required terms filter, preferred terms score.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

use k8s_openapi::api::core::v1::{
    Node, NodeAffinity as Affinity, NodeSelectorRequirement, NodeSelectorTerm,
    PreferredSchedulingTerm,
};

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
const NAME_FIELD: &str = "metadata.name";

/// What the profile adds holds beside what pods say.
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
        let added = self.added.as_ref().and_then(required);
        added.is_none_or(|terms| terms.iter().any(|term| term_matches(term, node)))
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

fn required(affinity: &Affinity) -> Option<&Vec<NodeSelectorTerm>> {
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    Some(&required.node_selector_terms)
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
        let terms = match affinity(pod).and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        }) {
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
            .filter(|term| term_matches(&term.preference, node));
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
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selector = pod.spec().and_then(|spec| spec.node_selector.as_ref());
    let selected = selector
        .into_iter()
        .flatten()
        .all(|(name, value)| labels.get(name) == Some(value));
    let required = affinity(pod).and_then(|affinity| {
        affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    selected
        && required.is_none_or(|required| {
            let terms = &required.node_selector_terms;
            terms.iter().any(|term| term_matches(term, node))
        })
}

/// All requirements of a term must match; a term without any matches nothing.
pub(crate) fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let labels = node.metadata.labels.as_ref();
    expressions.iter().all(|requirement| {
        let value = labels.and_then(|labels| labels.get(&requirement.key));
        label_matches(requirement, value.map(String::as_str))
    }) && fields
        .iter()
        .all(|requirement| field_matches(requirement, node))
}

fn label_matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = |value: &str| values.iter().any(|listed| listed == value);
    let compare = |holds: fn(i64, i64) -> bool| match (value, values) {
        (Some(value), [bound]) => match (value.parse(), bound.parse()) {
            (Ok(value), Ok(bound)) => holds(value, bound),
            _ => false,
        },
        _ => false,
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|value, bound| value > bound),
        "Lt" => compare(|value, bound| value < bound),
        _ => false,
    }
}

fn field_matches(requirement: &NodeSelectorRequirement, node: &Node) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let actual = if requirement.key == NAME_FIELD {
        name
    } else {
        ""
    };
    match (requirement.operator.as_str(), requirement.values.as_deref()) {
        ("In", Some([value])) => value == actual,
        ("NotIn", Some([value])) => value != actual,
        _ => false,
    }
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
    fn node_selector_wants_every_label() {
        check(r#"{"containers":[]}"#, true);
        check(
            r#"{"containers":[],"nodeSelector":{"zone":"a","disk":"ssd"}}"#,
            true,
        );
        check(
            r#"{"containers":[],"nodeSelector":{"zone":"a","disk":"hdd"}}"#,
            false,
        );
        check(r#"{"containers":[],"nodeSelector":{"absent":""}}"#, false);
    }

    #[test]
    fn each_operator_on_present_and_absent_labels() {
        let one = |key: &str, operator: &str, values: &str, expected| {
            let term = format!(
                r#"{{"matchExpressions":[{{"key":"{key}","operator":"{operator}","values":[{values}]}}]}}"#
            );
            check(&required(&term), expected);
        };
        one("zone", "In", r#""a","b""#, true);
        one("zone", "In", r#""b""#, false);
        one("none", "In", r#""a""#, false);
        one("zone", "NotIn", r#""b""#, true);
        one("zone", "NotIn", r#""a""#, false);
        one("none", "NotIn", r#""a""#, true);
        one("zone", "Exists", "", true);
        one("none", "Exists", "", false);
        one("zone", "DoesNotExist", "", false);
        one("none", "DoesNotExist", "", true);
        one("cores", "Gt", r#""7""#, true);
        one("cores", "Gt", r#""8""#, false);
        one("cores", "Lt", r#""9""#, true);
        one("cores", "Lt", r#""8""#, false);
        one("zone", "Gt", r#""1""#, false);
        one("none", "Lt", r#""1""#, false);
        one("zone", "Nonsense", r#""a""#, false);
    }

    #[test]
    fn terms_are_alternatives_and_requirements_are_not() {
        let yes = r#"{"key":"zone","operator":"In","values":["a"]}"#;
        let no = r#"{"key":"zone","operator":"In","values":["b"]}"#;
        let term = |requirements: &str| format!(r#"{{"matchExpressions":[{requirements}]}}"#);
        check(&required(""), false);
        check(&required("{}"), false);
        check(&required(&term(&format!("{yes},{no}"))), false);
        check(&required(&format!("{},{}", term(no), term(yes))), true);
        let named = |name: &str, operator: &str| {
            format!(
                r#"{{"matchFields":[{{"key":"metadata.name","operator":"{operator}","values":["{name}"]}}]}}"#
            )
        };
        check(&required(&named("n1", "In")), true);
        check(&required(&named("n2", "In")), false);
        check(&required(&named("n2", "NotIn")), true);
        check(&required(&named("n1", "Exists")), false);
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
