//! serviceaccounts/token: a signed token for the account, bound to a pod, secret or node if asked.

use std::sync::Arc;

use api::apply::Write;
use api::field::{FieldError, Path};
use api::{Cause, Resource, Status, Value};
use http::Response;

use crate::admission::{self, Admitted, Operation};
use crate::authentication::Binding;
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::options;
use crate::registry::set_owners;
use crate::response;
use crate::storage::seconds_text;

const DEFINITION: &str = "io.k8s.api.authentication.v1.TokenRequest";
const GROUP: &str = "authentication.k8s.io";
const LEAST_SECONDS: i64 = 600;
const DEFAULT_SECONDS: i64 = 3600;
const MOST_SECONDS: i64 = 1 << 32;
/// The projected token volume asks for this; such tokens live a year, as upstream extends them.
const EXTENDED_FOR: i64 = 3607;
const YEAR: i64 = 365 * 24 * 3600;

pub(super) async fn create(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let server = &context.server;
    let info = &context.info;
    let mut request = decode::of_kind(context, GROUP, "v1", "TokenRequest", body)?;
    request.set_missing(&["spec", "expirationSeconds"], DEFAULT_SECONDS);
    let manager = options::manager(context);
    let write = Write::of_kind(
        (DEFINITION, "authentication.k8s.io/v1", "TokenRequest"),
        "token",
        &manager,
        server.timestamp(),
    );
    let owners = api::apply::update(&write, None, &mut request);
    for (field, expected, told) in [
        (
            "name",
            &info.name,
            "must match the service account name if specified",
        ),
        (
            "namespace",
            &info.namespace,
            "must match the service account namespace if specified",
        ),
    ] {
        let given = request.str_at(&["metadata", field]);
        if !given.is_empty() && given != expected {
            let path = Path::new("metadata").child(field);
            let error = FieldError::invalid(&path, given, told);
            return Err(invalid(&info.name, vec![error]));
        }
    }
    let mut admitted = Admitted {
        context,
        resource,
        subresource: "token",
        operation: Operation::Create,
        object: &mut request,
        old: None,
    };
    admission::mutate(&mut admitted).await?;
    let entry = server
        .objects
        .get(resource, &info.namespace, &info.name)
        .await?;
    let account = entry.object()?;
    let uid = account.str_at(&["metadata", "uid"]);
    let asked_uid = request.str_at(&["metadata", "uid"]);
    if !asked_uid.is_empty() && asked_uid != uid {
        return Err(Status::conflict(
            GROUP,
            "TokenRequest",
            &info.name,
            format_args!(
                "the UID in the token request ({asked_uid}) does not match the UID of the service account ({uid})"
            ),
        ));
    }
    let seconds = request
        .at(&["spec", "expirationSeconds"])
        .and_then(Value::as_i64)
        .unwrap_or(DEFAULT_SECONDS);
    check_seconds(seconds)?;
    let mut audiences: Vec<String> = request
        .at(&["spec", "audiences"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|audience| audience.as_str().map(str::to_string))
        .collect();
    let own = &server.authenticator.tokens.issuer;
    if audiences.is_empty() {
        audiences.push(own.clone());
    }
    let binding = bound_to(context, &request).await?;
    let on_pod = matches!(&binding.object, Some(("pod", ..)));
    let extends = on_pod && seconds == EXTENDED_FOR && audiences.iter().all(|name| name == own);
    let lifetime = if extends { YEAR } else { seconds };
    let warn_after = extends.then_some(seconds);
    let token = server
        .authenticator
        .tokens
        .issue(&entry, uid, &audiences, lifetime, warn_after, &binding)
        .ok_or_else(|| Status::internal("failed to generate token"))?;
    let now = server.environment.now();
    let expires = now
        .checked_add(jiff::SignedDuration::from_secs(seconds))
        .unwrap_or(now);
    for (field, value) in [
        ("name", info.name.as_str()),
        ("namespace", info.namespace.as_str()),
        ("uid", uid),
    ] {
        request.set(&["metadata", field], value);
    }
    request.set(&["metadata", "creationTimestamp"], seconds_text(now));
    request.set(&["spec", "audiences"], api::document!(audiences));
    request.set(&["spec", "expirationSeconds"], seconds);
    if request.at(&["spec", "boundObjectRef"]).is_none() {
        request.set(&["spec", "boundObjectRef"], Value::Null);
    }
    request.set(
        &["status"],
        api::document!({"token": token, "expirationTimestamp": seconds_text(expires)}),
    );
    set_owners(&mut request, owners);
    response::encoded(201, &request, context.output.encoding)
}

fn check_seconds(seconds: i64) -> Result<(), Status> {
    let path = Path::new("spec").child("expirationSeconds");
    let detail = match seconds {
        _ if seconds < LEAST_SECONDS => "may not specify a duration less than 10 minutes",
        _ if seconds > MOST_SECONDS => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    let error = FieldError::invalid(&path, seconds, detail);
    Err(invalid("", vec![error]))
}

fn invalid(name: &str, errors: Vec<FieldError>) -> Status {
    let causes = errors.into_iter().map(Cause::from).collect();
    Status::invalid(GROUP, "TokenRequest", name, causes)
}

async fn bound_to(context: &Context, request: &Value) -> Result<Binding, Status> {
    let reference = request.at(&["spec", "boundObjectRef"]);
    let Some(reference) = reference.filter(|reference| !reference.is_null()) else {
        return Ok(Binding::default());
    };
    let server = &context.server;
    let info = &context.info;
    let (kind, name) = (reference.str_at(&["kind"]), reference.str_at(&["name"]));
    let (claim, plural) = match (reference.str_at(&["apiVersion"]), kind) {
        ("v1" | "", "Pod") => ("pod", "pods"),
        ("v1" | "", "Secret") => ("secret", "secrets"),
        ("v1" | "", "Node") => ("node", "nodes"),
        (version, kind) => {
            // Upstream names the group, also where it is empty.
            let (group, version) = api::resource::split_api_version(version);
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let resource = &server.cache.resource("", plural);
    let namespace = if resource.namespaced {
        info.namespace.as_str()
    } else {
        ""
    };
    let object = server
        .objects
        .get(resource, namespace, name)
        .await?
        .object()?;
    let uid = object.str_at(&["metadata", "uid"]).to_string();
    let asked = reference.str_at(&["uid"]);
    if !asked.is_empty() && asked != uid {
        return Err(Status::conflict(
            "",
            kind,
            name,
            format_args!(
                "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    let mut node = None;
    if claim == "pod" {
        if object.str_at(&["spec", "serviceAccountName"]) != info.name {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                info.name
            )));
        }
        let node_name = object.str_at(&["spec", "nodeName"]);
        let nodes = server.cache.named("", "nodes");
        if !node_name.is_empty() {
            let found = server
                .objects
                .find(&nodes.resource, "", node_name)
                .await
                .ok();
            let node_object = found
                .and_then(|entry| entry.object().ok())
                .unwrap_or_default();
            let node_uid = node_object.str_at(&["metadata", "uid"]).to_string();
            node = Some((node_name.to_string(), node_uid));
        }
    }
    Ok(Binding {
        object: Some((claim, name.to_string(), uid)),
        node,
    })
}
