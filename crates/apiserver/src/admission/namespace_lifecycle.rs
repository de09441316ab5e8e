//! NamespaceLifecycle: nothing is created in a namespace that is missing or going; the system's
//! namespaces are not deleted.

use api::{Resource, Status};
use store::Compare;

use super::{Admitted, Operation};
use crate::cache::CachedObject;
use crate::server::Server;
use crate::storage::store_key;

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) async fn admit(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    if admitted.is("", "Namespace") {
        let name = admitted.name();
        if admitted.operation == Operation::Delete && IMMORTAL.contains(&name) {
            return Err(Status::forbidden(
                "",
                "namespaces",
                name,
                "this namespace may not be deleted",
            ));
        }
        return Ok(());
    }
    let namespace = admitted.namespace();
    if namespace.is_empty() || admitted.operation == Operation::Delete {
        return Ok(());
    }
    let server = &admitted.context.server;
    let namespaces = server.cache.named("", "namespaces");
    let entry = server
        .objects
        .find(&namespaces.resource, "", &namespace)
        .await?;
    if admitted.operation == Operation::Create && is_terminating(&entry)? {
        let refused = admitted.forbidden(words(&namespace));
        return Err(with_cause(refused, &namespace));
    }
    Ok(())
}

/// The condition under which a namespace that takes new content still is as it was when this was
/// asked. Without it an object that was admitted before its namespace's deletion could be written
/// after the namespace was emptied, and stay for ever.
pub(crate) async fn unchanged(
    server: &Server,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Compare, Status> {
    let namespaces = &server.cache.resource("", "namespaces");
    let entry = server.objects.find(namespaces, "", namespace).await?;
    if is_terminating(&entry)? {
        let refused = resource.forbidden(name, words(namespace));
        return Err(with_cause(refused, namespace));
    }
    Ok(Compare::ModRevision {
        key: store_key(namespaces, "", namespace),
        revision: entry.revision,
    })
}

fn is_terminating(namespace: &CachedObject) -> Result<bool, Status> {
    Ok(match namespace.field("status.phase") {
        Some(phase) => phase == "Terminating",
        None => namespace.object()?.str_at(&["status", "phase"]) == "Terminating",
    })
}

fn words(namespace: &str) -> String {
    format!("unable to create new content in namespace {namespace} because it is being terminated")
}

fn with_cause(mut status: Status, namespace: &str) -> Status {
    if let Some(details) = &mut status.details {
        details.causes.push(api::Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_string(),
        });
    }
    status
}
