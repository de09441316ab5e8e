//! Deletion of an object that cannot be read: it is removed as it is, past preconditions, finalizers
//! and admission. The caller has checked that the client may do that.

use api::Status;
use api::field::{FieldError, Path};
use store::{Compare, Operation, Transaction, TransactionResult};

use super::guarded_write::MODIFIED;
use super::{DeleteOptions, Target};
use crate::cache::key_of;
use crate::context::Context;
use crate::storage::{store_failure, store_key};

pub(crate) async fn delete_unread(context: &Context, target: &Target<'_>) -> Result<(), Status> {
    let server = &context.server;
    let (resource, namespace, name) = (target.requested, target.namespace, target.name);
    let kind = server.objects.kind(resource)?;
    server.objects.catch_up().await?;
    let key = key_of(namespace, name);
    let revision = match (kind.unreadable(&key), kind.get(&key)) {
        (Some(unreadable), _) => unreadable.revision,
        (None, Some(entry)) if entry.object().is_err() => entry.revision,
        _ => {
            let path = Path::new(DeleteOptions::IGNORE_READ_ERROR);
            let detail = "is exclusively used to delete corrupt object(s), try again by removing this option";
            let error = FieldError::invalid(&path, true, detail);
            let causes = vec![error.into()];
            return Err(Status::invalid(
                &resource.group,
                &resource.plural,
                name,
                causes,
            ));
        }
    };
    let store_key = store_key(&kind.resource, namespace, name);
    let transaction = Transaction {
        compare: vec![Compare::ModRevision {
            key: store_key.clone(),
            revision,
        }],
        then: vec![Operation::Delete { key: store_key }],
    };
    let result = server.objects.store().transact(transaction).await;
    match result.map_err(store_failure)? {
        TransactionResult::Committed { .. } => {
            tracing::warn!(
                kind = &*resource.kind,
                key,
                "an unreadable object was deleted"
            );
            Ok(())
        }
        TransactionResult::Failed { .. } => Err(resource.conflict(name, MODIFIED)),
    }
}
