//! The pods that are measured, and the ways of looking at them.

use bytes::Bytes;
use client::{Informer, Informers};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use testkit::Cluster;
use trace::Hop;

use crate::meter::{Cost, Meter, median};

pub const PODS: &str = "/api/v1/namespaces/default/pods";
/// How many pods a figure is the median of.
const SAMPLES: usize = 15;

/// An ordinary pod of about 600 bytes.
pub fn manifest(name: &str) -> Bytes {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app.kubernetes.io/name":"web","app.kubernetes.io/component":"frontend"}}}},"spec":{{"automountServiceAccountToken":false,"containers":[{{"name":"main","image":"registry.test/web:1.2.3","args":["--listen","0.0.0.0:8080"],"env":[{{"name":"LOG","value":"info"}}],"ports":[{{"containerPort":8080,"name":"http"}}],"readinessProbe":{{"httpGet":{{"path":"/healthz","port":"http"}},"periodSeconds":5}},"resources":{{"requests":{{"cpu":"10m","memory":"16Mi"}},"limits":{{"memory":"64Mi"}}}}}}]}}}}"#
    )
    .into()
}

/// What one pod's creation and all that follows costs in this cluster, beyond what the cluster
/// costs when nothing is asked of it.
pub fn cost_of_one(meter: &Meter) -> Cost {
    cost_of_posts(meter, PODS)
}

/// What it costs to take a pod in, without storing it.
pub fn cost_of_dry_run(meter: &Meter) -> Cost {
    cost_of_posts(meter, &format!("{PODS}?dryRun=All"))
}

fn cost_of_posts(meter: &Meter, path: &str) -> Cost {
    let create = |name: String| async move {
        meter.send(Method::POST, path, manifest(&name)).await;
    };
    meter.measure(create("warm-up".into()));
    let idle = meter.measure(async {}).1;
    let costs: Vec<Cost> = (0..SAMPLES)
        .map(|sample| meter.measure(create(format!("web-{sample}"))).1 - idle)
        .collect();
    median(&costs)
}

/// Keeps an informer of typed pods running, as components do.
pub fn follow(meter: &Meter, field_selector: &str) -> Informer<Pod> {
    let informer = meter.run(async {
        let environment = meter.cluster.environment().clone();
        let informers = Informers::new(meter.cluster.client(), environment);
        let informer = match field_selector {
            "" => informers.of::<Pod>(),
            selector => informers.with_selector::<Pod>(selector),
        };
        informer.synced().await;
        informer
    });
    meter.settle();
    informer
}

/// Keeps a bare watch on the pods of one node running.
pub fn watch_node(meter: &Meter, node: &str) {
    let selector = format!("spec.nodeName%3D{node}");
    let path = format!("/api/v1/pods?watch=true&fieldSelector={selector}");
    meter.watch(&path);
}

/// The bytes a hop of that pod moved, by its spans.
pub fn span_bytes(cluster: &Cluster, name: &str, hop: Hop) -> u64 {
    let timeline = cluster.timelines().find("default", name).expect("timeline");
    let spans = timeline.spans.iter().filter(|span| span.hop == hop);
    spans.map(|span| span.bytes).max().unwrap_or(0)
}
