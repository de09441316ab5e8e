//! NamespaceLifecycle: nothing is created in a namespace that is missing or going; the system's
//! namespaces are not deleted.

use api::{Status, catalogue};

use super::{Admitted, Operation};

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
    let Some(namespaces) = catalogue::find("", "v1", "namespaces") else {
        return Ok(());
    };
    let entry = server.find(namespaces, "", &namespace).await?;
    if admitted.operation != Operation::Create {
        return Ok(());
    }
    let phase = entry.field("status.phase");
    let terminating = match phase {
        Some(phase) => phase == "Terminating",
        None => entry.object()?.str_at(&["status", "phase"]) == "Terminating",
    };
    if !terminating {
        return Ok(());
    }
    let mut status = admitted.forbidden(format_args!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    ));
    if let Some(details) = &mut status.details {
        details.causes.push(api::Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_string(),
        });
    }
    Err(status)
}
