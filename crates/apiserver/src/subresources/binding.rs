//! pods/binding: a pod is given its node, once. Hop 8.

use api::{Resource, Status, Value};
use http::Response;
use trace::{Hop, Sink, Span};

use crate::body::Body;
use crate::decode;
use crate::response;
use crate::server::Context;
use crate::verbs::update::{Target, change};

pub(super) async fn create(
    context: &Context,
    resource: &'static Resource,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let binding = decode::of_kind(context, "", "v1", "Binding", body)?;
    let name = &context.info.name;
    let given = binding.str_at(&["metadata", "name"]);
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let node = binding.str_at(&["target", "name"]);
    let kind = binding.str_at(&["target", "kind"]);
    if !kind.is_empty() && kind != "Node" {
        return Err(Status::bad_request(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"\""
        )));
    }
    if node.is_empty() {
        return Err(Status::bad_request("target.name: Required value"));
    }
    let version = binding.str_at(&["metadata", "resourceVersion"]);
    let target = Target {
        raw: true,
        ..Target::of(context, resource)
    };
    let now = context.server.timestamp();
    let entry = change(context, &target, !version.is_empty(), |pod| {
        let mut bound = bind(pod, &binding, node, &now)
            .map_err(|why| Status::conflict("", "pods/binding", name, why))?;
        bound.set(&["metadata", "resourceVersion"], version);
        if let Some(uid) = binding.at(&["metadata", "uid"]) {
            bound.set(&["metadata", "uid"], uid.clone());
        }
        Ok(bound)
    })
    .await?;
    if !context.dry_run {
        record(context, &entry, body.len());
    }
    let success = api::document!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(response::json(201, &success))
}

fn bind(pod: &Value, binding: &Value, node: &str, now: &str) -> Result<Value, String> {
    let name = pod.str_at(&["metadata", "name"]);
    if pod.at(&["metadata", "deletionTimestamp"]).is_some() {
        return Err(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    let assigned = pod.str_at(&["spec", "nodeName"]);
    if !assigned.is_empty() {
        return Err(format!(
            "pod {name} is already assigned to node {assigned:?}"
        ));
    }
    let gates = pod
        .at(&["spec", "schedulingGates"])
        .and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut bound = pod.clone();
    bound.set(&["spec", "nodeName"], node);
    bound.remove(&["status", "nominatedNodeName"]);
    for map in ["annotations", "labels"] {
        let given = binding.at(&["metadata", map]).and_then(Value::as_object);
        for (key, value) in given.into_iter().flat_map(|map| map.iter()) {
            bound.set(&["metadata", map, key], value.clone());
        }
    }
    let mut conditions: Vec<Value> = bound
        .at(&["status", "conditions"])
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    conditions.retain(|condition| condition.str_at(&["type"]) != "PodScheduled");
    let mut scheduled = api::document!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    if let Some(generation) = bound.at(&["metadata", "generation"]) {
        scheduled.set(&["observedGeneration"], generation.clone());
    }
    conditions.push(scheduled);
    bound.set(&["status", "conditions"], conditions);
    Ok(bound)
}

fn record(context: &Context, entry: &crate::cache::Entry, bytes: usize) {
    let Ok(pod) = entry.object() else {
        return;
    };
    let now = context.server.environment.now_micros();
    context.server.timelines.record(
        pod.str_at(&["metadata", "uid"]),
        Span {
            hop: Hop::Bind,
            name: "binding".to_string(),
            component: "apiserver".to_string(),
            start: context.received,
            queue_us: 0,
            work_us: (now - context.received).max(0) as u64,
            bytes: bytes as u64,
        },
    );
}
