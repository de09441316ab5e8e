//! `metrics.k8s.io`: what nodes and pods use, for `kubectl top` and the autoscaler. Nothing is
//! gathered while nobody asks: a question asks the kubelets concerned, and what they said a moment
//! ago is good enough. [`crate::node_samples`] makes rates of counters, `documents` shows them.

mod documents;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Resource, Status, Value};
use futures::StreamExt;
use http::Response;
use http_body_util::{BodyExt, Limited};

use crate::body::Body;
use crate::cache::CachedObject;
use crate::context::Context;
use crate::negotiate::Encoding;
use crate::node_samples::NodeSample;
use crate::response;
use crate::subresources::{locate_kubelet, not_allowed, not_served};
use crate::verbs::selection::Selection;

pub(crate) use documents::{GROUP, VERSION, aggregated, group, resource_list};

/// What a kubelet said is not asked again before this.
const FRESH: Duration = Duration::from_secs(5);
const KUBELET_TIMEOUT: Duration = Duration::from_secs(10);
const KUBELETS_AT_ONCE: usize = 16;
const LARGEST_SUMMARY: usize = 16 << 20;

pub(crate) async fn handle(context: &Context) -> Result<Response<Body>, Status> {
    let info = &context.info;
    let resource = match (info.version.as_str(), info.plural.as_str()) {
        (VERSION, plural @ ("nodes" | "pods")) if info.subresource.is_empty() => {
            let found = context.server.cache.find("", plural);
            found.ok_or_else(not_served)?.resource.clone()
        }
        _ => return Err(not_served()),
    };
    if !info.leads_to(&resource) {
        return Err(not_served());
    }
    info.check_names()?;
    if !matches!(info.verb, "get" | "list") {
        return Err(not_allowed());
    }
    let entries = wanted(context, &resource)?;
    let samples = sample(context, &resource, &entries).await?;
    let document = |entry: &CachedObject| -> Option<Value> {
        let object = entry.object().ok()?;
        documents::of(&object, resource.namespaced, &samples)
    };
    let document = match info.verb {
        "get" => document(&entries[0])
            .ok_or_else(|| Status::not_found(GROUP, &resource.plural, &info.name))?,
        _ => {
            let items: Vec<Value> = entries.iter().filter_map(|entry| document(entry)).collect();
            documents::list(resource.namespaced, items)
        }
    };
    let encoding = match Encoding::of_plain_object(&context.headers) {
        // These kinds have no protobuf form here; clients that prefer it accept JSON as well.
        Encoding::Protobuf => Encoding::Json,
        encoding => encoding,
    };
    response::encoded_for(context, 200, &document, encoding)
}

/// The nodes or pods that are asked about; at least one for a `get`.
fn wanted(context: &Context, resource: &Resource) -> Result<Vec<Arc<CachedObject>>, Status> {
    let info = &context.info;
    let kind = context.server.objects.kind(resource)?;
    if info.verb == "get" {
        let namespace = if resource.namespaced {
            &info.namespace
        } else {
            ""
        };
        let key = crate::cache::key_of(namespace, &info.name);
        let found = kind.get(&key);
        let missing = || Status::not_found(GROUP, &resource.plural, &info.name);
        return Ok(vec![found.ok_or_else(missing)?]);
    }
    let selection = Selection::of(context, resource)?;
    let snapshot = context.server.cache.snapshot(&kind);
    let entries = snapshot.range(&selection.prefix, "");
    Ok(entries
        .filter(|entry| selection.matches(entry))
        .cloned()
        .collect())
}

/// Samples of the nodes concerned. A node that does not answer has none.
async fn sample(
    context: &Context,
    resource: &Resource,
    entries: &[Arc<CachedObject>],
) -> Result<BTreeMap<String, Arc<NodeSample>>, Status> {
    let nodes: BTreeSet<String> = entries
        .iter()
        .filter_map(|entry| match resource.namespaced {
            true => entry.field("spec.nodeName").map(str::to_string),
            false => Some(entry.name().to_string()),
        })
        .filter(|node| !node.is_empty())
        .collect();
    let asked = futures::stream::iter(nodes).map(|node| async move {
        let sample = sample_of(context, &node).await;
        (node, sample)
    });
    let answers: Vec<(String, Result<Arc<NodeSample>, Status>)> =
        asked.buffer_unordered(KUBELETS_AT_ONCE).collect().await;
    let mut samples = BTreeMap::new();
    for (node, sample) in answers {
        match sample {
            Ok(sample) => drop(samples.insert(node, sample)),
            Err(status) => {
                tracing::debug!(
                    node,
                    problem = status.message,
                    "a kubelet gave no statistics"
                );
            }
        }
    }
    Ok(samples)
}

async fn sample_of(context: &Context, node: &str) -> Result<Arc<NodeSample>, Status> {
    let known = &context.server.usage;
    let before = known.newest(node);
    if let Some((at, sample)) = &before
        && at.elapsed() < FRESH
    {
        return Ok(sample.clone());
    }
    let summary = tokio::time::timeout(KUBELET_TIMEOUT, summary_of(context, node));
    let summary = summary
        .await
        .map_err(|_| Status::internal("the kubelet did not answer in time"))??;
    let before = before.as_ref().map(|(_, sample)| &**sample);
    let now = context.server.environment.now_micros();
    let sample = Arc::new(NodeSample::of(&summary, before, now));
    // Nodes that are no more are forgotten.
    let nodes = context.server.cache.named("", "nodes");
    let exists = |name: &str| nodes.get(&crate::cache::key_of("", name)).is_some();
    known.put(node, sample.clone(), exists);
    Ok(sample)
}

async fn summary_of(context: &Context, node: &str) -> Result<Value, Status> {
    let Some(kubelets) = &context.server.kubelets else {
        return Err(Status::internal("no way to kubelets is configured"));
    };
    let (address, port) = locate_kubelet(context, node).await?;
    let response = kubelets
        .get(address, port, "/stats/summary?only_cpu_and_memory=true")
        .await
        .map_err(Status::internal)?;
    if !response.status().is_success() {
        return Err(Status::internal(response.status()));
    }
    let body = Limited::new(response.into_body(), LARGEST_SUMMARY);
    let bytes = body.collect().await.map_err(Status::internal)?.to_bytes();
    Value::from_json(&bytes).map_err(Status::internal)
}
