//! The documents of `metrics.k8s.io`: its discovery and its two kinds. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Value;

use crate::node_samples::{NodeSample, Usage};

pub(crate) const GROUP: &str = "metrics.k8s.io";
pub(crate) const VERSION: &str = "v1beta1";
const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// Kind, plural, whether namespaced.
const KINDS: [(&str, &str, bool); 2] = [
    ("NodeMetrics", "nodes", false),
    ("PodMetrics", "pods", true),
];

/// The group as `/apis` lists it.
pub(crate) fn group() -> Value {
    let version = api::document!({"groupVersion": API_VERSION, "version": VERSION});
    api::document!({
        "name": GROUP, "preferredVersion": version.clone(), "versions": [version],
    })
}

/// The document at `/apis/metrics.k8s.io/v1beta1`.
pub(crate) fn resource_list() -> Value {
    let resources: Vec<Value> = KINDS
        .iter()
        .map(|(kind, plural, namespaced)| {
            api::document!({
                "name": *plural, "singularName": "", "namespaced": *namespaced,
                "kind": *kind, "verbs": ["get", "list"],
            })
        })
        .collect();
    api::document!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": API_VERSION, "resources": resources,
    })
}

/// The group as aggregated discovery has it.
pub(crate) fn aggregated() -> Value {
    let resources: Vec<Value> = KINDS
        .iter()
        .map(|(kind, plural, namespaced)| {
            api::document!({
                "resource": *plural, "singularResource": "",
                "responseKind": {"group": "", "version": "", "kind": *kind},
                "scope": if *namespaced { "Namespaced" } else { "Cluster" },
                "verbs": ["get", "list"],
            })
        })
        .collect();
    api::document!({
        "metadata": {"name": GROUP},
        "versions": [{"version": VERSION, "resources": resources, "freshness": "Current"}],
    })
}

/// What a node or a pod uses, if that is known: of a pod, every container's part.
pub fn of(
    object: &Value,
    is_pod: bool,
    samples: &BTreeMap<String, Arc<NodeSample>>,
) -> Option<Value> {
    let name = object.str_at(&["metadata", "name"]);
    let mut document = api::document!({
        "kind": KINDS[usize::from(is_pod)].0, "apiVersion": API_VERSION,
        "metadata": {"name": name},
    });
    if let Some(labels) = object.at(&["metadata", "labels"]) {
        document.set(&["metadata", "labels"], labels.clone());
    }
    let whole = match is_pod {
        false => {
            let usage = samples.get(name)?.node()?;
            document.set(&["usage"], amounts(&usage));
            usage
        }
        true => {
            document.set(
                &["metadata", "namespace"],
                object.str_at(&["metadata", "namespace"]),
            );
            let sample = samples.get(object.str_at(&["spec", "nodeName"]))?;
            let used: Vec<(&str, Usage)> = sample
                .containers(object.str_at(&["metadata", "uid"]))
                .collect();
            let containers: Vec<Value> = used
                .iter()
                .map(|(name, usage)| api::document!({"name": *name, "usage": amounts(usage)}))
                .collect();
            document.set(&["containers"], containers);
            // The shortest window is the one that all of them cover.
            used.iter()
                .map(|(_, usage)| *usage)
                .min_by_key(|usage| usage.window)?
        }
    };
    let at = time(whole.at);
    document.set(&["metadata", "creationTimestamp"], at.clone());
    document.set(&["timestamp"], at);
    // Whole seconds, as the metrics server writes them.
    let seconds = whole.window / 1_000_000;
    let window = environment::go_duration::format(seconds.saturating_mul(1_000_000_000));
    document.set(&["window"], window);
    Some(document)
}

pub fn list(of_pods: bool, items: Vec<Value>) -> Value {
    let kind = format!("{}List", KINDS[usize::from(of_pods)].0);
    api::document!({"kind": kind, "apiVersion": API_VERSION, "metadata": {}, "items": items})
}

fn amounts(usage: &Usage) -> Value {
    api::document!({
        "cpu": format!("{}n", usage.cpu), "memory": format!("{}Ki", usage.memory / 1024),
    })
}

fn time(micros: i64) -> String {
    let at = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_shows_its_containers_and_a_pod_without_figures_nothing() {
        let stats = api::document!({
            "name": "a", "startTime": "1970-01-01T00:00:00Z",
            "cpu": {"time": "1970-01-01T00:00:10Z", "usageCoreNanoSeconds": 1_000_000_000},
            "memory": {"workingSetBytes": 4096},
        });
        let summary = api::document!({"pods": [{"podRef": {"uid": "u"}, "containers": [stats]}]});
        let samples =
            BTreeMap::from([("n".to_string(), Arc::new(NodeSample::of(&summary, None, 0)))]);
        let pod = |uid: &str| {
            api::document!({
                "metadata": {"name": "p", "namespace": "d", "uid": uid, "labels": {"a": "b"}},
                "spec": {"nodeName": "n"},
            })
        };
        let shown = of(&pod("u"), true, &samples).expect("figures");
        let expected = api::document!({
            "kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {"name": "p", "namespace": "d", "labels": {"a": "b"},
                "creationTimestamp": "1970-01-01T00:00:10Z"},
            "timestamp": "1970-01-01T00:00:10Z", "window": "10s",
            "containers": [{"name": "a", "usage": {"cpu": "100000000n", "memory": "4Ki"}}],
        });
        assert_eq!(shown, expected);
        assert_eq!(of(&pod("other"), true, &samples), None);
    }
}
