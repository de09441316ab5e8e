//! What every controller of pods does with them: claim, create in growing batches, delete, and
//! remember what it did until the watch shows it. Not a controller itself.

pub mod claim;
pub mod expectations;
pub mod failures;
pub mod rank;

use std::sync::Arc;

use client::{Informer, Object, ObjectKey, events, retry};
use environment::Environment;
use expectations::{Deed, Expectations};
use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};

use crate::{Config, Error, meta};

/// At most this many pods are created or deleted in one round.
pub const BURST: usize = 500;

/// What a name made of a prefix ends with, and how long the prefix may be for that.
const SUFFIX: usize = 5;
const LONGEST_PREFIX: usize = 63 - SUFFIX;

/// A controller's hands.
pub struct PodControl {
    client: kube::Client,
    environment: Environment,
    pub events: events::Recorder,
    pub expectations: Expectations,
}

impl PodControl {
    /// `component` is who Events name.
    pub fn new(config: &Config, component: &str) -> PodControl {
        PodControl {
            client: config.client.clone(),
            environment: config.environment.clone(),
            events: events::Recorder::new(
                config.client.clone(),
                config.environment.clone(),
                component,
                None,
            ),
            expectations: Expectations::default(),
        }
    }

    /// Whether our cache of pods shows all that we did for the owner. What became of a write whose
    /// answer was lost is asked of the server first.
    pub async fn is_current(
        &self,
        key: &ObjectKey,
        owner: &str,
        pods: &Informer<Pod>,
    ) -> Result<bool, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        for (name, deed) in self.expectations.doubts(key, owner) {
            // Controllers may list pods but not all may get them.
            let named = ListParams::default().fields(&format!("metadata.name={name}"));
            let found = api.list(&named).await?.items.pop();
            match deed {
                Deed::Create => {
                    let own = found
                        .filter(|pod| semantics::owner::is_controlled_by(&pod.metadata, owner));
                    if let Some(uid) = own.and_then(|pod| pod.metadata.uid) {
                        self.expectations.created(key, owner, &uid, &name);
                    }
                }
                Deed::Delete(uid) => {
                    let stays = found.is_some_and(|pod| {
                        pod.metadata.uid.as_ref() == Some(&uid) && !meta::is_terminating(&pod)
                    });
                    if !stays {
                        self.expectations.deleted(key, owner, &uid, &name);
                    }
                }
            }
            self.expectations.settle(key, &name);
        }
        let shown = |name: &str| pods.get(&key.namespace, name);
        Ok(self.expectations.are_met(key, owner, shown))
    }

    /// The pods among `pods` that belong to `owner`.
    pub async fn claim<Owner>(
        &self,
        owner: &Owner,
        selector: &LabelSelector,
        pods: Vec<Arc<Pod>>,
        adoptable: impl Fn(&Pod) -> bool,
    ) -> Result<Vec<Arc<Pod>>, Error>
    where
        Owner: Object + kube::Resource<Scope = NamespaceResourceScope> + std::fmt::Debug,
    {
        claim::claim(&self.client, owner, selector, pods, adoptable).await
    }

    /// Creates pods in batches that double from one on, so that a quota or a webhook that refuses
    /// them is asked once and not a thousand times. Stops after a batch with a failure; returns
    /// how many were made and the first failure.
    pub async fn create_all<Owner: Object>(
        &self,
        key: &ObjectKey,
        owner: &Owner,
        pods: Vec<Pod>,
    ) -> (usize, Option<Error>) {
        let mut waiting = pods.into_iter().take(BURST).peekable();
        let (mut batch, mut made) = (1, 0);
        while waiting.peek().is_some() {
            let creating = waiting.by_ref().take(batch);
            let results = join_all(creating.map(|pod| self.create(key, owner, pod))).await;
            let mut failure = None;
            for result in results {
                match result {
                    Ok(created) => made += usize::from(created),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            if failure.is_some() {
                return (made, failure);
            }
            batch *= 2;
        }
        (made, None)
    }

    /// Whether the pod was made; a namespace that is being deleted takes none, which is no error.
    pub async fn create<Owner: Object>(
        &self,
        key: &ObjectKey,
        owner: &Owner,
        mut pod: Pod,
    ) -> Result<bool, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        // We choose the name, as the server would: by it we can ask whether the pod was made when
        // the answer is lost.
        let name = pod.metadata.name.get_or_insert_with(|| {
            let prefix = pod.metadata.generate_name.as_deref().unwrap_or_default();
            let prefix = &prefix[..prefix.len().min(LONGEST_PREFIX)];
            format!("{prefix}{}", self.environment.name_suffix(SUFFIX))
        });
        let name = name.clone();
        match api.create(&PostParams::default(), &pod).await {
            Ok(pod) => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                self.expectations.created(key, owner_uid(owner), uid, &name);
                self.events
                    .normal(owner, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(true)
            }
            Err(error) if retry::is_namespace_terminating(&error) => Ok(false),
            Err(error) => {
                if retry::is_outcome_unknown(&error) {
                    self.expectations
                        .doubt(key, owner_uid(owner), &name, Deed::Create);
                }
                let message = format!("Error creating: {}", client::retry::sentence(&error));
                self.events.warning(owner, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    /// Deletes pods side by side; returns how many are gone or going, and the first failure.
    pub async fn delete_all<Owner: Object>(
        &self,
        key: &ObjectKey,
        owner: &Owner,
        pods: &[Arc<Pod>],
    ) -> (usize, Option<Error>) {
        let deleting = pods.iter().take(BURST);
        let results = join_all(deleting.map(|pod| self.delete(key, owner, pod))).await;
        let (mut done, mut failure) = (0, None);
        for result in results {
            match result {
                Ok(()) => done += 1,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        (done, failure)
    }

    pub async fn delete<Owner: Object>(
        &self,
        key: &ObjectKey,
        owner: &Owner,
        pod: &Pod,
    ) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        // Recorded first: the watch may be quicker than the answer.
        self.expectations.deleted(key, owner_uid(owner), uid, name);
        match api.delete(name, &if_unchanged(pod)).await {
            Ok(_) => {
                self.events
                    .normal(owner, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(error) => {
                self.expectations.not_deleted(key, uid);
                if retry::is_not_found(&error) || retry::is_conflict(&error) {
                    return Ok(());
                }
                if retry::is_outcome_unknown(&error) {
                    let deed = Deed::Delete(uid.to_owned());
                    self.expectations.doubt(key, owner_uid(owner), name, deed);
                }
                let message = format!("Error deleting: {}", client::retry::sentence(&error));
                self.events.warning(owner, "FailedDelete", message);
                Err(error.into())
            }
        }
    }

    /// Deletes a pod that is still as our cache shows it, with an annotation that says it was us.
    /// False: it has changed; its event brings us back.
    pub async fn delete_marked<Owner: Object>(
        &self,
        key: &ObjectKey,
        owner: &Owner,
        pod: &Pod,
        annotation: &str,
    ) -> Result<bool, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let patch = serde_json::json!({"metadata": {
            "uid": uid,
            "resourceVersion": pod.metadata.resource_version,
            "annotations": {annotation: "true"},
        }});
        let marked = api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        let marked = match marked {
            Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => {
                return Ok(false);
            }
            marked => marked?,
        };
        self.expectations.deleted(key, owner_uid(owner), uid, name);
        match api.delete(name, &if_unchanged(&marked)).await {
            Ok(_) => {
                let message = format!("Deleted pod: {name}");
                self.events.normal(owner, "SuccessfulDelete", message);
                Ok(true)
            }
            Err(error) => {
                self.expectations.not_deleted(key, uid);
                if retry::is_not_found(&error) || retry::is_conflict(&error) {
                    return Ok(false);
                }
                if retry::is_outcome_unknown(&error) {
                    let deed = Deed::Delete(uid.to_owned());
                    self.expectations.doubt(key, owner_uid(owner), name, deed);
                }
                let message = format!("Error deleting: {}", client::retry::sentence(&error));
                self.events.warning(owner, "FailedDelete", message);
                Err(error.into())
            }
        }
    }

    /// Takes a finalizer off a pod; a pod that is gone has none.
    pub async fn remove_finalizer(&self, pod: &Pod, finalizer: &str) -> Result<(), Error> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let patch = serde_json::json!({"metadata": {
            "uid": pod.metadata.uid,
            "$deleteFromPrimitiveList/finalizers": [finalizer],
        }});
        match api
            .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Deletion of exactly that object, not of a later one of the same name.
pub fn of_uid(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

/// Whom to delete is decided by what the cache shows of a pod: one that has changed since, say
/// become ready, is decided about again when the change arrives.
fn if_unchanged(pod: &Pod) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: pod.metadata.resource_version.clone(),
        }),
        ..DeleteParams::default()
    }
}

/// A pod as the template says, controlled by `owner`, whose name is yet to be made of a prefix.
pub fn from_template<Owner: Object>(owner: &Owner, template: &PodTemplateSpec) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let name = owner.meta().name.as_deref().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: owner.meta().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![meta::owner_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

fn owner_uid<Owner: Object>(owner: &Owner) -> &str {
    owner.meta().uid.as_deref().unwrap_or_default()
}
