//! The parameters of policies: objects of any kind that bindings name or select.

use std::sync::Arc;

use api::{Reason, Resource, Value};

use crate::admission_policies::{Named, ParamKind, ParamRef};
use crate::cache::CachedObject;
use crate::converted;
use crate::server::Server;

/// Why there are no parameters. The words are upstream's.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParameterError {
    #[error("failed to find resource referenced by paramKind: '{0}'")]
    UnknownKind(String),
    #[error(
        "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
    )]
    NoNamespace,
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    ClusterScoped,
    #[error("one of name or selector must be provided")]
    Nothing,
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
    #[error("{0}")]
    Selector(String),
    #[error(transparent)]
    Unreadable(#[from] api::Status),
}

/// The resource of the kind of parameters. Kinds come and go, so that each request looks for it.
pub(super) fn resource_of(
    server: &Server,
    kind: &ParamKind,
) -> Result<Arc<Resource>, ParameterError> {
    let kinds = server.kinds.snapshot();
    let found = kinds.find_kind(&kind.group, &kind.version, &kind.kind);
    found
        .cloned()
        .ok_or_else(|| ParameterError::UnknownKind(kind.to_string()))
}

/// The parameters that a binding means, for a request in `namespace`. Where `is_read` is false no
/// expression reads them, and only their number counts.
pub(super) async fn collect(
    server: &Server,
    resource: &Resource,
    reference: &ParamRef,
    namespace: &str,
    is_read: bool,
) -> Result<Vec<Value>, ParameterError> {
    let namespace = match (resource.namespaced, reference.namespace.as_str(), namespace) {
        (true, "", "") => return Err(ParameterError::NoNamespace),
        (true, "", namespace) | (true, namespace, _) => namespace,
        (false, "", _) => "",
        (false, ..) => return Err(ParameterError::ClusterScoped),
    };
    let entries = match &reference.named {
        Named::Nothing => return Err(ParameterError::Nothing),
        Named::One(name) => match server.objects.find(resource, namespace, name).await {
            Ok(entry) => vec![entry],
            Err(status) if status.reason == Reason::NotFound => Vec::new(),
            Err(status) => return Err(status.into()),
        },
        Named::Selected(selector) => {
            let selector = selector.as_ref();
            let selector = selector.map_err(|why| ParameterError::Selector(why.clone()))?;
            let prefix = match namespace {
                "" => String::new(),
                namespace => format!("{namespace}/"),
            };
            let kind = server.objects.kind(resource)?;
            let snapshot = server.cache.snapshot(&kind);
            let of_namespace = snapshot.range(&prefix, "");
            let selected = of_namespace.filter(|entry| selector.matches(|key| entry.label(key)));
            selected.cloned().collect()
        }
    };
    if entries.is_empty() && reference.must_exist {
        return Err(ParameterError::NotFound);
    }
    let mut documents = Vec::with_capacity(entries.len());
    for entry in entries {
        documents.push(match is_read {
            true => document(server, resource, &entry).await?,
            false => Value::Null,
        });
    }
    Ok(documents)
}

/// A parameter in the version that the policy names.
async fn document(
    server: &Server,
    resource: &Resource,
    entry: &CachedObject,
) -> Result<Value, ParameterError> {
    let stored = entry.object_with_version()?;
    if resource.is_custom() {
        return Ok(converted::as_requested(server, resource, stored).await?);
    }
    Ok(match resource.is_stored_as_itself() {
        true => stored,
        false => api::conversion::from_storage(resource, stored),
    })
}
