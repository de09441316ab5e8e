//! DELETE of an object that cannot be read: it is removed as it is, past preconditions, finalizers
//! and admission, for those who may do that.

use std::sync::Arc;

use api::field::{FieldError, Path};
use api::{Resource, Status};
use http::Response;
use store::{Compare, Operation, Transaction, TransactionResult};

use super::update::Target;
use crate::authorization::{Attributes, Decision};
use crate::body::Body;
use crate::cache::key_of;
use crate::response;
use crate::server::{Context, Server, store_failure};

const VERB: &str = "unsafe-delete-ignore-read-errors";

pub(super) async fn delete(
    context: &Context,
    resource: &Arc<Resource>,
) -> Result<Response<Body>, Status> {
    authorize(context)?;
    let server = &context.server;
    let Target {
        namespace, name, ..
    } = Target::of(context, resource);
    let kind = server.kind(resource)?;
    server.catch_up().await?;
    let key = key_of(namespace, name);
    let revision = match (kind.unreadable(&key), kind.get(&key)) {
        (Some(unreadable), _) => unreadable.revision,
        (None, Some(entry)) if entry.object().is_err() => entry.revision,
        _ => {
            let path = Path::new("ignoreStoreReadErrorWithClusterBreakingPotential");
            let detail = "is exclusively used to delete corrupt object(s), try again by removing this option";
            let error = FieldError::invalid(&path, true, detail);
            let causes = vec![error.into()];
            return Err(Status::invalid(
                &*resource.group,
                &*resource.plural,
                name,
                causes,
            ));
        }
    };
    let store_key = Server::store_key(&kind.resource, namespace, name);
    let transaction = Transaction {
        compare: vec![Compare::ModRevision {
            key: store_key.clone(),
            revision,
        }],
        then: vec![Operation::Delete { key: store_key }],
    };
    let result = server.store.transact(transaction).await;
    match result.map_err(store_failure)? {
        TransactionResult::Committed { .. } => {
            tracing::warn!(
                kind = &*resource.kind,
                key,
                "an unreadable object was deleted"
            );
            let success = api::document!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": name, "kind": resource.kind}, "code": 200,
            });
            response::encoded(200, &success, context.output.encoding)
        }
        TransactionResult::Failed { .. } => Err(resource.conflict(name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )),
    }
}

/// Besides the right to delete the object, which was checked with the request.
fn authorize(context: &Context) -> Result<(), Status> {
    let question = Attributes {
        verb: VERB.to_string(),
        ..Attributes::of(&context.info)
    };
    match context
        .server
        .authorizer
        .allows(&context.identity, &question)
    {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(Status::forbidden(
            &question.group,
            &question.resource,
            &question.name,
            format!("not permitted to do {VERB:?}, reason: {reason}"),
        )),
    }
}
