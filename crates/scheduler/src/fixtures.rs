//! Objects for the tests of this crate, written as the JSON of their spec and status.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};

use crate::{
    Framework, PodInfo, Registry, WorkloadSelectors,
    configuration::Profile,
    framework::{Bind, BindError, Plugin, Points},
};

struct NoBinder;

impl Plugin for NoBinder {
    fn name(&self) -> &'static str {
        "NoBinder"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            bind: Some(self),
            ..Points::default()
        }
    }
}

#[async_trait::async_trait]
impl Bind for NoBinder {
    async fn bind(&self, _: &PodInfo, _: &str) -> Result<u64, BindError> {
        Ok(0)
    }
}

/// For decisions that are not carried out.
pub(crate) fn no_binder() -> Arc<dyn Plugin> {
    Arc::new(NoBinder)
}

/// The default profile, with what belongs together as given.
pub(crate) fn framework(workloads: Option<Arc<dyn WorkloadSelectors>>) -> Framework {
    let registry = Registry::in_tree(no_binder(), workloads, None);
    Framework::new(&Profile::default(), &registry).expect("the default profile")
}

pub(crate) fn pod_spec(spec: &str) -> PodSpec {
    serde_json::from_str(spec).expect("a pod spec")
}

pub(crate) fn pod_object(name: &str, spec: &str) -> Arc<Pod> {
    let text = format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"uid-{name}"}},"spec":{spec}}}"#
    );
    Arc::new(serde_json::from_str(&text).expect("a pod"))
}

pub(crate) fn pod(name: &str, spec: &str) -> Arc<PodInfo> {
    Arc::new(PodInfo::new(pod_object(name, spec)))
}

pub(crate) fn labelled_pod(name: &str, labels: &str, spec: &str) -> Arc<PodInfo> {
    let mut pod = (*pod_object(name, spec)).clone();
    pod.metadata.labels = Some(serde_json::from_str(labels).expect("labels"));
    Arc::new(PodInfo::new(Arc::new(pod)))
}

/// A pod whose one container asks for `cpu`.
pub(crate) fn pod_asking(name: &str, cpu: &str) -> Arc<PodInfo> {
    let spec = r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"CPU"}}}]}"#;
    pod(name, &spec.replace("CPU", cpu))
}

pub(crate) fn node(name: &str, spec: &str, status: &str) -> Arc<Node> {
    labelled_node(name, "{}", spec, status)
}

pub(crate) fn labelled_node(name: &str, labels: &str, spec: &str, status: &str) -> Arc<Node> {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","labels":{labels}}},"spec":{spec},"status":{status}}}"#
    );
    Arc::new(serde_json::from_str(&text).expect("a node"))
}

/// A node with the given cpu and room for pods.
pub(crate) fn node_with(name: &str, cpu: &str) -> Arc<Node> {
    let status = r#"{"allocatable":{"cpu":"CPU","memory":"8Gi","pods":"110"}}"#;
    node(name, "{}", &status.replace("CPU", cpu))
}
