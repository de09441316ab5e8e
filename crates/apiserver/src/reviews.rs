//! The kinds that are questions: TokenReview, SelfSubjectReview, the SubjectAccessReview family and
//! SelfSubjectRulesReview. Answered on the spot, never stored.

use std::collections::BTreeMap;

use api::{Resource, Status, Value};
use http::Response;

use crate::authentication::Refusal;
use crate::authorization::{Attributes, Rule};
use crate::body::Body;
use crate::decode;
use crate::identity::Identity;
use crate::response;
use crate::server::Context;

pub(crate) fn is_review(resource: &Resource) -> bool {
    resource.verbs == ["create"] && resource.kind.ends_with("Review")
}

pub(crate) async fn create(
    context: &Context,
    resource: &'static Resource,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let mut review = decode::object(context, resource, body)?;
    let status = match resource.kind {
        "TokenReview" => {
            if review.str_at(&["spec", "token"]).is_empty() {
                let message = "token is required for TokenReview in authentication";
                return Err(Status::bad_request(message));
            }
            token(context, &review).await
        }
        "SelfSubjectReview" => api::document!({"userInfo": user_info(&context.identity)}),
        "SelfSubjectRulesReview" => rules(context, &mut review)?,
        "SelfSubjectAccessReview" => {
            check(context, resource, &review)?;
            access(context, &review, &context.identity)
        }
        _ => {
            if resource.namespaced {
                let namespace = context.info.namespace.as_str();
                crate::verbs::create::settle_namespace(resource, namespace, &mut review)?;
            }
            check(context, resource, &review)?;
            access(context, &review, &subject(&review))
        }
    };
    review.set(&["status"], status);
    let created = api::document!({"creationTimestamp": null});
    if review.get("metadata").is_none() {
        review.set(&["metadata"], created);
    }
    response::encoded(201, &review, context.output.encoding)
}

/// Upstream's errors name no kind here.
fn check(context: &Context, resource: &Resource, review: &Value) -> Result<(), Status> {
    let namespace = &context.info.namespace;
    let errors = api::strategy::review::access(resource.kind, review, namespace);
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let causes = errors.into_iter().map(api::Cause::from).collect();
            Err(Status::invalid(resource.group, "", "", causes))
        }
    }
}

fn user_info(identity: &Identity) -> Value {
    let mut info = api::document!({"username": identity.user, "groups": identity.groups});
    if !identity.uid.is_empty() {
        info.set(&["uid"], identity.uid.as_str());
    }
    if !identity.extra.is_empty() {
        info.set(&["extra"], api::document!(identity.extra));
    }
    info
}

async fn token(context: &Context, review: &Value) -> Value {
    let strings = |path: &[&str]| strings(review.at(path));
    let audiences = strings(&["spec", "audiences"]);
    let token = review.str_at(&["spec", "token"]);
    match context
        .server
        .authenticator
        .tokens
        .verify(token, &audiences)
        .await
    {
        Ok(verified) => {
            let mut status =
                api::document!({"authenticated": true, "user": user_info(&verified.identity)});
            status.set(&["audiences"], api::document!(verified.audiences));
            status
        }
        // What is no token of ours at all is not told more.
        Err(Refusal::Signature) => api::document!({"user": {}, "error": "invalid bearer token"}),
        Err(refusal) => api::document!({
            "user": {}, "error": format!("[invalid bearer token, the token is {refusal}]"),
        }),
    }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_string))
        .collect()
}

fn subject(review: &Value) -> Identity {
    let mut extra = BTreeMap::new();
    let given = review.at(&["spec", "extra"]).and_then(Value::as_object);
    for (name, values) in given.into_iter().flat_map(|extra| extra.iter()) {
        extra.insert(name.to_string(), strings(Some(values)));
    }
    Identity {
        user: review.str_at(&["spec", "user"]).to_string(),
        groups: strings(review.at(&["spec", "groups"])),
        uid: review.str_at(&["spec", "uid"]).to_string(),
        extra,
    }
}

fn access(context: &Context, review: &Value, identity: &Identity) -> Value {
    let on_path = review.at(&["spec", "nonResourceAttributes"]);
    let attributes = match review.at(&["spec", "resourceAttributes"]) {
        Some(asked) if !asked.is_null() => {
            let text = |name: &str| asked.str_at(&[name]).to_string();
            Attributes {
                verb: text("verb"),
                is_resource: true,
                group: text("group"),
                resource: text("resource"),
                subresource: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
                path: String::new(),
            }
        }
        _ => {
            let text = |name: &str| {
                on_path
                    .map_or("", |asked| asked.str_at(&[name]))
                    .to_string()
            };
            Attributes {
                verb: text("verb"),
                path: text("path"),
                ..Attributes::default()
            }
        }
    };
    match context.server.authorizer.allows(identity, &attributes) {
        Some(reason) if reason.is_empty() => api::document!({"allowed": true}),
        Some(reason) => api::document!({"allowed": true, "reason": reason}),
        None => api::document!({"allowed": false}),
    }
}

fn rules(context: &Context, review: &mut Value) -> Result<Value, Status> {
    let namespace = review.str_at(&["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rules = context
        .server
        .authorizer
        .rules(&context.identity, namespace);
    let (on_paths, on_resources): (Vec<Rule>, Vec<Rule>) =
        rules.into_iter().partition(|rule| !rule.paths.is_empty());
    let documents =
        |rules: &[Rule]| -> Vec<Value> { rules.iter().map(Rule::to_document).collect() };
    let mut status = api::document!({"incomplete": false});
    status.set(&["resourceRules"], documents(&on_resources));
    status.set(&["nonResourceRules"], documents(&on_paths));
    Ok(status)
}
