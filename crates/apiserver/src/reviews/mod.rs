//! The kinds that are questions: TokenReview, SelfSubjectReview, the SubjectAccessReview family and
//! SelfSubjectRulesReview. Answered on the spot, never stored.

mod access;

use std::sync::Arc;

use api::apply::Write;
use api::{Resource, Status, Value};
use http::Response;

use crate::admission;
use crate::authorization::{Rule, node_name};
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::negotiate::Form;
use crate::options;
use crate::registry::set_owners;
use crate::response;
use crate::verbs::{go_type, respond_not_listed};

pub(crate) async fn create(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let mut review = decode::object(context, resource, body)?;
    let manager = options::manager(context);
    let write = Write::new(resource, "", &manager, context.server.timestamp());
    let owners = api::apply::update(&write, None, &mut review);
    admission::review(context, resource, &mut review).await?;
    let status = match &*resource.kind {
        "TokenReview" => token(context, &review).await?,
        "SelfSubjectReview" => {
            let created = context.server.timestamp();
            review.set(&["metadata", "creationTimestamp"], created);
            api::document!({"userInfo": context.identity.user_info()})
        }
        "SelfSubjectRulesReview" => {
            let status = rules(context, &review)?;
            // The question is not repeated in the answer.
            review.set(&["metadata"], Value::object());
            review.set(&["spec"], Value::object());
            status
        }
        "SelfSubjectAccessReview" => access::of_self(context, &review)?,
        "LocalSubjectAccessReview" => access::local(context, &mut review)?,
        _ => access::of_subject(context, &review)?,
    };
    api::schema::forget_empty(resource, &mut review);
    review.set(&["status"], status);
    if review.get("metadata").is_none() {
        review.set(&["metadata"], Value::object());
    }
    // The answers of these are objects of their own, not what was sent.
    if !matches!(
        &*resource.kind,
        "SelfSubjectReview" | "SelfSubjectRulesReview"
    ) {
        set_owners(&mut review, owners);
    }
    match context.output.form {
        Form::Object => response::encoded(201, &review, context.output.encoding),
        Form::PartialObjectMetadata => response::encoded(
            201,
            &crate::verbs::partial(&review),
            context.output.encoding,
        ),
        Form::PartialObjectMetadataList => Err(respond_not_listed(&go_type(resource, ""))),
        Form::Table => Err(Status::new(
            api::Reason::NotAcceptable,
            format!(
                "the resource {}, Resource={} does not support being converted to a Table",
                api_group_version(resource),
                &*resource.plural
            ),
        )),
    }
}

fn api_group_version(resource: &Resource) -> String {
    format!("{}/{}", &*resource.group, &*resource.version)
}

async fn token(context: &Context, review: &Value) -> Result<Value, Status> {
    let audiences = strings(review.at(&["spec", "audiences"]));
    let token = review.str_at(&["spec", "token"]);
    if token.is_empty() {
        return Err(Status::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let tokens = &context.server.authenticator.tokens;
    Ok(match tokens.verify(token, &audiences) {
        Ok(verified) => {
            let mut status =
                api::document!({"authenticated": true, "user": verified.identity.user_info()});
            status.set(&["audiences"], api::document!(verified.audiences));
            status
        }
        Err(refusal) => api::document!({"user": {}, "error": refusal.told()}),
    })
}

fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_string))
        .collect()
}

fn rules(context: &Context, review: &Value) -> Result<Value, Status> {
    let namespace = review.str_at(&["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let identity = &context.identity;
    let rules = context.server.authorizer.rules(identity, namespace);
    let documents = |wanted: fn(&Rule) -> Option<Value>| -> Vec<Value> {
        rules.iter().filter_map(wanted).collect()
    };
    let is_node = node_name(identity).is_some();
    let mut status = api::document!({"incomplete": is_node});
    if is_node {
        let why = "node authorizer does not support user rule resolution";
        status.set(&["evaluationError"], why);
    }
    status.set(&["resourceRules"], documents(Rule::on_resources));
    status.set(&["nonResourceRules"], documents(Rule::on_paths));
    Ok(status)
}
