//! pods/binding: a pod is given its node, once. Hop 8.

use std::sync::Arc;

use api::strategy::pod::update::{bind, validate_binding};
use api::{Reason, Resource, Status};
use http::Response;
use trace::{Hop, Sink, Span};

use crate::admission::{self, Admitted};
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::registry::{Target, settle_namespace, update_past_rules};
use crate::response;

/// POST to `bindings`, where the binding itself names the pod.
pub(crate) async fn create_named(context: &Context, body: &[u8]) -> Result<Response<Body>, Status> {
    let binding = decode::of_kind(context, "", "v1", "Binding", body)?;
    let pods = context.server.cache.named("", "pods");
    let name = binding.str_at(&["metadata", "name"]).to_string();
    create(context, &pods.resource, &name, body).await
}

pub(super) async fn create(
    context: &Context,
    resource: &Arc<Resource>,
    name: &str,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let mut binding = decode::of_kind(context, "", "v1", "Binding", body)?;
    settle_namespace(resource, &context.info.namespace, &mut binding)?;
    if binding.str_at(&["metadata", "name"]) != name {
        return Err(Status::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let errors = validate_binding(&binding);
    if !errors.is_empty() {
        // Not answered as Invalid: upstream passes these on as they are.
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let message = match texts.as_slice() {
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Err(Status::new(Reason::InternalError, message));
    }
    let mut admitted = Admitted::new(context, resource, "binding", &mut binding);
    admission::mutate(&mut admitted).await?;
    admission::validate(&admitted).await?;
    let version = binding.str_at(&["metadata", "resourceVersion"]);
    let target = Target {
        name,
        subresource: "binding",
        // The scheduler does not own the pod's node.
        is_owned: true,
        ..Target::of(context, resource)
    };
    let now = context.server.environment.now();
    let mut uid = String::new();
    update_past_rules(context, &target, !version.is_empty(), |pod| {
        uid = pod.str_at(&["metadata", "uid"]).to_string();
        let mut bound = pod.clone();
        bind(&mut bound, &binding, now)
            .map_err(|why| Status::conflict("", "pods/binding", name, why))?;
        bound.set(&["metadata", "resourceVersion"], version);
        if let Some(uid) = binding.at(&["metadata", "uid"]) {
            bound.set(&["metadata", "uid"], uid.clone());
        }
        Ok(bound)
    })
    .await?;
    if !context.dry_run {
        record(context, &uid, body.len());
    }
    let success = api::document!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    response::encoded(201, &success, context.output.encoding)
}

fn record(context: &Context, uid: &str, bytes: usize) {
    let now = context.server.environment.now_micros();
    context.server.timelines.record(
        uid,
        Span {
            hop: Hop::Bind,
            name: "binding".to_string(),
            component: "apiserver".to_string(),
            start: context.received,
            queue_us: 0,
            work_us: (now - context.received).max(0) as u64,
            bytes: bytes as u64,
            failure: None,
        },
    );
}
