//! Which objects belong to an owner: those it controls and selects, those it may adopt, those it
//! must release. The same for pods, ReplicaSets and ControllerRevisions.

use std::sync::Arc;

use client::{Object, retry};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams};

use crate::{Error, meta};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Ours,
    /// It has no controller and the selector matches.
    Adopt,
    /// Ours, but the selector does not match any more.
    Release,
    /// It belongs to another controller, or the selector does not match.
    Ignore,
}

pub fn decide(owner: &ObjectMeta, selector: &LabelSelector, object: &ObjectMeta) -> Claim {
    let owner_uid = owner.uid.as_deref().unwrap_or_default();
    let owner_leaves = owner.deletion_timestamp.is_some();
    let matching = object
        .labels
        .as_ref()
        .is_some_and(|labels| semantics::label_selector::selects(selector, labels));
    match semantics::owner::controller_of(object) {
        Some(controller) if controller.uid != owner_uid => Claim::Ignore,
        Some(_) if matching => Claim::Ours,
        Some(_) if owner_leaves => Claim::Ignore,
        Some(_) => Claim::Release,
        None if !matching || owner_leaves || object.deletion_timestamp.is_some() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// Sorts out `objects`, adopting and releasing on the way; returns those that belong to `owner`.
/// `adoptable` says which orphans are worth having.
pub async fn claim<Owner, K>(
    client: &kube::Client,
    owner: &Owner,
    selector: &LabelSelector,
    objects: Vec<Arc<K>>,
    adoptable: impl Fn(&K) -> bool,
) -> Result<Vec<Arc<K>>, Error>
where
    Owner: Object + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    K: Object + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
{
    claim_with(client, owner, selector, objects, adoptable, &[]).await
}

/// Like [`claim`]; what is adopted also gets `finalizers`.
pub async fn claim_with<Owner, K>(
    client: &kube::Client,
    owner: &Owner,
    selector: &LabelSelector,
    objects: Vec<Arc<K>>,
    adoptable: impl Fn(&K) -> bool,
    finalizers: &[&str],
) -> Result<Vec<Arc<K>>, Error>
where
    Owner: Object + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    K: Object + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
{
    let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let mut ours = Vec::new();
    let mut owner_is_current = None;
    for object in objects {
        match decide(owner.meta(), selector, object.meta()) {
            Claim::Ours => ours.push(object),
            Claim::Ignore => {}
            Claim::Adopt if !adoptable(&object) => {}
            Claim::Adopt => {
                // Our copy may be older than the orphan: an owner that was deleted in between must
                // not adopt, or its dependents would be collected with it.
                let current = match owner_is_current {
                    Some(current) => current,
                    None => is_current(client, owner).await?,
                };
                owner_is_current = Some(current);
                let adoption = adoption(owner, object.meta(), finalizers);
                if current && patch(&api, object.meta(), adoption).await? {
                    ours.push(object);
                }
            }
            Claim::Release => {
                patch(&api, object.meta(), release(owner.meta(), object.meta())).await?;
            }
        }
    }
    Ok(ours)
}

fn adoption<Owner: Object>(
    owner: &Owner,
    object: &ObjectMeta,
    finalizers: &[&str],
) -> serde_json::Value {
    let mut metadata = serde_json::json!({
        "uid": object.uid,
        "ownerReferences": [meta::owner_reference(owner)],
    });
    if !finalizers.is_empty() {
        metadata["finalizers"] = finalizers.into();
    }
    serde_json::json!({"metadata": metadata})
}

fn release(owner: &ObjectMeta, object: &ObjectMeta) -> serde_json::Value {
    serde_json::json!({"metadata": {
        "uid": object.uid,
        "ownerReferences": [{"$patch": "delete", "uid": owner.uid}],
    }})
}

/// Whether the patch took effect; an object that is gone or another one by now does not matter.
async fn patch<K: Object + std::fmt::Debug>(
    api: &Api<K>,
    object: &ObjectMeta,
    patch: serde_json::Value,
) -> Result<bool, Error> {
    let name = object.name.as_deref().unwrap_or_default();
    match api
        .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
        .await
    {
        Ok(_) => Ok(true),
        Err(error)
            if retry::is_not_found(&error)
                || retry::is_conflict(&error)
                || retry::is_invalid(&error) =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

async fn is_current<Owner>(client: &kube::Client, owner: &Owner) -> Result<bool, Error>
where
    Owner: Object + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
{
    let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
    let api: Api<Owner> = Api::namespaced(client.clone(), namespace);
    let name = owner.meta().name.as_deref().unwrap_or_default();
    Ok(api.get_opt(name).await?.is_some_and(|current| {
        current.meta().uid == owner.meta().uid && current.meta().deletion_timestamp.is_none()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_controller_selector_and_deletion() {
        let selector: LabelSelector =
            serde_json::from_value(serde_json::json!({"matchLabels": {"app": "web"}})).unwrap();
        let owner = |leaving: bool| -> ObjectMeta {
            let time = leaving.then_some("2026-01-01T00:00:00Z");
            serde_json::from_value(serde_json::json!({"uid": "me", "deletionTimestamp": time}))
                .unwrap()
        };
        let object = |controller: Option<&str>, app: &str, leaving: bool| -> ObjectMeta {
            let owners = controller.map(|uid| {
                serde_json::json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid,
                    "controller": true}])
            });
            let time = leaving.then_some("2026-01-01T00:00:00Z");
            serde_json::from_value(serde_json::json!({
                "labels": {"app": app}, "ownerReferences": owners, "deletionTimestamp": time,
            }))
            .unwrap()
        };
        for (leaving, controller, app, object_leaving, expected) in [
            (false, Some("me"), "web", false, Claim::Ours),
            (false, Some("me"), "web", true, Claim::Ours),
            (true, Some("me"), "web", false, Claim::Ours),
            (false, Some("me"), "db", false, Claim::Release),
            (true, Some("me"), "db", false, Claim::Ignore),
            (false, Some("other"), "web", false, Claim::Ignore),
            (false, None, "web", false, Claim::Adopt),
            (false, None, "web", true, Claim::Ignore),
            (true, None, "web", false, Claim::Ignore),
            (false, None, "db", false, Claim::Ignore),
        ] {
            let object = object(controller, app, object_leaving);
            let decided = decide(&owner(leaving), &selector, &object);
            assert_eq!(decided, expected, "{leaving} {object:?}");
        }
    }
}
