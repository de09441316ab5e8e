//! Profiles: which plugins run, with which weights.

use serde_json::json;

use super::*;
use crate::{configuration::Configuration, fixtures::no_binder, registry::Registry};

fn profile(text: &str) -> Profile {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{text}]"
    );
    let mut read = Configuration::parse(text.as_bytes()).expect("a configuration");
    read.profiles.remove(0)
}

fn framework(text: &str) -> Result<Framework, ProfileError> {
    Framework::new(&profile(text), &Registry::in_tree(no_binder(), None, None))
}

fn scores(framework: &Framework) -> Vec<(i64, &'static str)> {
    let scores = framework.scores.iter();
    scores
        .map(|(weight, plugin)| (*weight, plugin.name()))
        .collect()
}

#[test]
fn by_default_plugins_run_in_upstreams_order() {
    let framework = framework("{}").expect("a framework");
    assert_eq!(
        scores(&framework),
        [
            (3, "TaintToleration"),
            (2, "NodeAffinity"),
            (1, "NodeResourcesFit"),
            (2, "PodTopologySpread"),
            (2, "InterPodAffinity"),
            (1, "NodeResourcesBalancedAllocation"),
            (1, "ImageLocality"),
        ]
    );
    let filters: Vec<_> = framework.filters.iter().map(|p| p.name()).collect();
    assert_eq!(
        filters,
        [
            "NodeUnschedulable",
            "NodeName",
            "TaintToleration",
            "NodeAffinity",
            "NodePorts",
            "NodeResourcesFit"
        ]
    );
    assert_eq!(framework.queue_sort.name(), "PrioritySort");
    assert_eq!(framework.post_filters[0].name(), "DefaultPreemption");
    assert_eq!(framework.pre_enqueues[0].name(), "SchedulingGates");
}

#[test]
fn plugins_are_switched_and_weighed_point_by_point() {
    let text = "{plugins: {score: {disabled: [{name: ImageLocality}], enabled: [{name: NodeResourcesFit, weight: 5}]}, postFilter: {disabled: [{name: '*'}]}, multiPoint: {disabled: [{name: InterPodAffinity}], enabled: [{name: TaintToleration, weight: 9}]}}}";
    let framework = framework(text).expect("a framework");
    assert_eq!(
        scores(&framework),
        [
            (5, "NodeResourcesFit"),
            (9, "TaintToleration"),
            (2, "NodeAffinity"),
            (2, "PodTopologySpread"),
            (1, "NodeResourcesBalancedAllocation"),
        ]
    );
    assert!(framework.post_filters.is_empty());
    let names: Vec<_> = framework.plugins.iter().map(|p| p.name()).collect();
    assert!(!names.contains(&"InterPodAffinity") && !names.contains(&"ImageLocality"));
}

#[test]
fn profiles_that_cannot_work_are_refused() {
    let error = |text: &str| framework(text).err().expect(text).to_string();
    assert_eq!(
        error("{plugins: {filter: {enabled: [{name: Mine}]}}}"),
        "plugin \"Mine\" does not exist"
    );
    assert_eq!(
        error("{plugins: {score: {enabled: [{name: NodeName}]}}}"),
        "plugin \"NodeName\" does not extend Score plugin"
    );
    assert_eq!(
        error("{schedulerName: x, plugins: {bind: {disabled: [{name: '*'}]}}}"),
        "at least one bind plugin is needed for profile with scheduler name \"x\""
    );
    assert_eq!(
        error("{plugins: {queueSort: {disabled: [{name: '*'}]}}}"),
        "only one queue sort plugin required for profile with scheduler name \"default-scheduler\", but got 0"
    );
}

/// An example of a plugin that somebody else may write: nodes carry a price, and pods that say how
/// much they can pay go to the cheapest of those that they can afford.
struct Price {
    label: String,
}

impl Price {
    fn of(&self, node: &crate::NodeInfo) -> i64 {
        let price = node.label(&self.label);
        price.and_then(|price| price.parse().ok()).unwrap_or(0)
    }
}

impl Plugin for Price {
    fn name(&self) -> &'static str {
        "Price"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            filter: Some(self.clone()),
            score: Some(self),
            ..Points::default()
        }
    }

    /// All that is read of a pod, so that pods alike share what is found out about nodes.
    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        key.push_str(budget(pod).unwrap_or_default());
        true
    }
}

fn budget(pod: &PodInfo) -> Option<&str> {
    let annotations = pod.pod.metadata.annotations.as_ref()?;
    annotations.get("budget").map(String::as_str)
}

impl Filter for Price {
    fn filter(&self, pod: &PodInfo, node: &crate::NodeInfo) -> Vec<String> {
        let most = budget(pod).and_then(|budget| budget.parse::<i64>().ok());
        match most.is_some_and(|most| self.of(node) > most) {
            true => vec!["node(s) were too dear".to_owned()],
            false => Vec::new(),
        }
    }
}

impl crate::framework::NodeScore for Price {
    fn score(&self, _: &PodInfo, node: &crate::NodeInfo, _: &Snapshot) -> i64 {
        self.of(node)
    }

    fn scaling(&self) -> crate::framework::Scaling {
        crate::framework::Scaling::Reversed
    }
}

#[test]
fn a_plugin_can_be_added() {
    let mut registry = Registry::in_tree(no_binder(), None, None);
    registry.add("Price", |arguments| {
        let label = arguments.and_then(|args| args["label"].as_str());
        let label = label.ok_or("label is required")?.to_owned();
        Ok(Arc::new(Price { label }))
    });
    let text = "{plugins: {multiPoint: {enabled: [{name: Price, weight: 100}]}}}";
    let mut profile = profile(text);
    let refused = Framework::new(&profile, &registry).err().expect("no label");
    assert_eq!(
        environment::chain(&refused).to_string(),
        "plugin \"Price\": label is required"
    );
    profile
        .plugin_config
        .push(crate::configuration::PluginConfig {
            name: "Price".to_owned(),
            args: json!({"label": "price"}),
        });
    let framework = Framework::new(&profile, &registry).expect("a framework");
    let mut snapshot = Snapshot::default();
    let room = r#"{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"}}"#;
    for (name, price) in [("a", 3), ("b", 1), ("c", 2)] {
        let labels = format!(r#"{{"price":"{price}"}}"#);
        let node = crate::fixtures::labelled_node(name, &labels, "{}", room);
        snapshot.set_node(node);
    }
    let mut shapes = crate::shapes::Shapes::default();
    let mut outcome = |budget: &str| {
        let mut pod = (*crate::fixtures::pod_object("web", r#"{"containers":[]}"#)).clone();
        pod.metadata.annotations = Some([("budget".to_owned(), budget.to_owned())].into());
        let pod = PodInfo::new(Arc::new(pod));
        crate::decide::decide(&framework, &mut shapes, &pod, &snapshot, || 0).outcome
    };
    let node = "b".to_owned();
    assert_eq!(outcome("2"), crate::SchedulingResult::Placed { node });
    let message = "0/3 nodes are available: 3 node(s) were too dear.".to_owned();
    assert_eq!(
        outcome("0"),
        crate::SchedulingResult::Unschedulable { message }
    );
}
