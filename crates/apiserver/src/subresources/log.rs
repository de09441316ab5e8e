//! pods/log: the kubelet's answer, passed on as it comes.

use std::sync::Arc;

use api::field::{FieldError, Path};
use api::{Cause, Reason, Resource, Status, Value};
use futures::StreamExt;
use http::Response;
use http_body_util::{BodyExt, BodyStream, Limited};

use super::kubelet::locate;
use crate::body::Body;
use crate::context::Context;
use crate::query::encode;
use crate::response;

const PARAMETERS: [&str; 8] = [
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "stream",
];

pub(super) async fn get(
    context: &Context,
    resource: &Arc<Resource>,
) -> Result<Response<Body>, Status> {
    let server = &context.server;
    let info = &context.info;
    let pod = server
        .objects
        .get(resource, &info.namespace, &info.name)
        .await?
        .object()?;
    check_options(context)?;
    let container = choose_container(&pod, context.query.get("container"))?;
    let node = pod.str_at(&["spec", "nodeName"]);
    if node.is_empty() {
        // Nothing has run yet: an empty log.
        let mut nothing = Response::new(Body::empty());
        *nothing.status_mut() = http::StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    let (address, port) = locate(context, node).await?;
    let unavailable = |problem: &dyn std::fmt::Display| {
        Status::internal(format_args!(
            "Get \"https://{address}:{port}/containerLogs/{}/{}/{container}\": {problem}",
            info.namespace, info.name
        ))
    };
    let dialer = server
        .kubelets
        .as_ref()
        .ok_or_else(|| unavailable(&"this server has no kubelet client certificate"))?;
    let mut path = format!(
        "/containerLogs/{}/{}/{}",
        encode(&info.namespace),
        encode(&info.name),
        encode(&container)
    );
    let parameters: Vec<String> = PARAMETERS
        .iter()
        .filter(|name| !context.query.get(name).is_empty())
        .map(|name| format!("{name}={}", encode(context.query.get(name))))
        .collect();
    if !parameters.is_empty() {
        path = format!("{path}?{}", parameters.join("&"));
    }
    let answer = dialer
        .get(address, port, &path)
        .await
        .map_err(|problem| unavailable(&problem))?;
    let code = answer.status().as_u16();
    if code != 200 {
        let body = Limited::new(answer.into_body(), 64 * 1024).collect().await;
        let text = body
            .map(|body| String::from_utf8_lossy(&body.to_bytes()).trim().to_string())
            .unwrap_or_default();
        let reason = match code {
            400 => Reason::BadRequest,
            404 => Reason::NotFound,
            401 => Reason::Unauthorized,
            403 => Reason::Forbidden,
            _ => Reason::InternalError,
        };
        return Err(Status::new(reason, text));
    }
    let frames = BodyStream::new(answer.into_body()).filter_map(|frame| async {
        match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(problem) => Some(Err(problem.into())),
        }
    });
    Ok(response::bytes(200, "text/plain", Body::stream(frames)))
}

fn check_options(context: &Context) -> Result<(), Status> {
    let mut errors = Vec::new();
    for (name, least, detail) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        let both = name == "sinceSeconds" && !context.query.get("sinceTime").is_empty();
        match context.query.integer(name)? {
            Some(_) if both => {
                let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                errors.push(FieldError::forbidden(&Path::new("[]"), detail));
            }
            Some(given) if given < least => {
                errors.push(FieldError::invalid(&Path::new(name), given, detail));
            }
            _ => {}
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let causes = errors.into_iter().map(Cause::from).collect();
    let name = &context.info.name;
    Err(Status::invalid("", "PodLogOptions", name, causes))
}

pub(super) fn choose_container(pod: &Value, asked: &str) -> Result<String, Status> {
    let name = pod.str_at(&["metadata", "name"]);
    let names = |list: &str| -> Vec<String> {
        pod.at(&["spec", list])
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|container| container.str_at(&["name"]).to_string())
            .collect()
    };
    let (containers, init) = (names("containers"), names("initContainers"));
    if asked.is_empty() {
        return match containers.as_slice() {
            [only] => Ok(only.clone()),
            several => {
                let mut message = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    several.join(" ")
                );
                if !init.is_empty() {
                    message = format!(
                        "{message} or one of the init containers: [{}]",
                        init.join(" ")
                    );
                }
                Err(Status::bad_request(message))
            }
        };
    }
    let ephemeral = names("ephemeralContainers");
    match containers
        .iter()
        .chain(&init)
        .chain(&ephemeral)
        .any(|container| container == asked)
    {
        true => Ok(asked.to_string()),
        false => Err(Status::bad_request(format!(
            "container {asked} is not valid for pod {name}"
        ))),
    }
}
