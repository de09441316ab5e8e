//! Namespace: deletes everything in a namespace that is being deleted, pods first, and then removes
//! its finalizer.

mod conditions;
mod plan;

use std::collections::BTreeMap;
use std::time::Duration;

use client::controller::Reconciled;
use client::{Informer, ObjectKey, WorkQueue, retry};
use conditions::Findings;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::discovery::{self, Served};
use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::{Config, Error};

pub async fn run(config: Config, shutdown: CancellationToken) {
    let namespaces = config.informers.of::<Namespace>();
    let pods = config.informers.of::<Pod>();
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&namespaces, &queue, own_key),
        enqueue(&pods, &queue, {
            let (namespaces, pods) = (namespaces.clone(), pods.clone());
            move |pod: &Pod| emptied(&namespaces, &pods, pod)
        }),
    );
    let controller = Controller {
        config,
        namespaces,
        pods,
        deleting: Mutex::default(),
    };
    watching::run("namespace", 10, queue, feeds, controller, shutdown).await;
}

/// The pod's namespace, if it is being deleted and this was its last pod. To look at all that is
/// left each time that one of many pods goes would be too much.
fn emptied(namespaces: &Informer<Namespace>, pods: &Informer<Pod>, pod: &Pod) -> Vec<ObjectKey> {
    let name = pod.metadata.namespace.as_deref().unwrap_or_default();
    if pods.count_in(name) > 0 {
        return Vec::new();
    }
    namespaces
        .get("", name)
        .filter(|namespace| namespace.metadata.deletion_timestamp.is_some())
        .map(|namespace| ObjectKey::of(&*namespace))
        .into_iter()
        .collect()
}

struct Controller {
    config: Config,
    namespaces: Informer<Namespace>,
    pods: Informer<Pod>,
    /// The namespaces whose deletion we saw: UID and when.
    deleting: Mutex<BTreeMap<String, (String, Instant)>>,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        let name = key.name.as_str();
        let Some(namespace) = self.namespaces.get("", name) else {
            self.deleting.lock().remove(name);
            return Ok(Reconciled::Done);
        };
        let Some(deleted_at) = namespace.metadata.deletion_timestamp.clone() else {
            return Ok(Reconciled::Done);
        };
        if !plan::has_our_finalizer(&namespace) {
            return Ok(Reconciled::Done);
        }
        let left = self.grace_of(&namespace);
        if !left.is_zero() {
            return Ok(Reconciled::After(left));
        }
        let age = self.config.environment.now().as_second() - deleted_at.0.as_second();
        let findings = self.empty(name, age).await;
        self.report(&namespace, name, &findings).await?;
        if findings.is_clean() {
            self.finalize(&namespace, name).await?;
            return Ok(Reconciled::Done);
        }
        Ok(Reconciled::After(plan::until_next_look(age)))
    }
}

impl Controller {
    /// How long a namespace is still left alone, counted from when we saw its deletion.
    fn grace_of(&self, namespace: &Namespace) -> Duration {
        let grace = self.config.namespace_grace;
        if grace.is_zero() {
            return grace;
        }
        let name = namespace.metadata.name.clone().unwrap_or_default();
        let uid = namespace.metadata.uid.clone().unwrap_or_default();
        let mut deleting = self.deleting.lock();
        let seen = deleting
            .entry(name)
            .or_insert_with(|| (uid.clone(), Instant::now()));
        if seen.0 != uid {
            *seen = (uid, Instant::now());
        }
        grace.saturating_sub(seen.1.elapsed())
    }

    /// Asks for the deletion of everything in the namespace; other kinds only once no pod is left.
    async fn empty(&self, namespace: &str, age: i64) -> Findings {
        let mut findings = Findings::default();
        let discovered = match discovery::discover(&self.config.client).await {
            Ok(discovered) => discovered,
            Err(error) => {
                findings.discovery_failure = Some(environment::chain(&error).to_string());
                return findings;
            }
        };
        // Known kinds are emptied; the namespace stays until all kinds are.
        findings.discovery_failure = discovered.failure();
        let kinds = discovered
            .kinds
            .into_iter()
            .filter(|kind| kind.namespaced && kind.preferred && kind.allows(&["delete", "list"]));
        let (pods, others): (Vec<Served>, Vec<Served>) =
            kinds.partition(|kind| kind.group.is_empty() && kind.plural == "pods");
        for kind in pods.iter().chain(&others) {
            let is_pods = kind.plural == "pods" && kind.group.is_empty();
            if !is_pods && findings.remaining.contains_key("pods.") {
                // Objects that pods use must outlive the pods.
                findings.remaining.clear();
                findings.finalizers.clear();
                findings.pods_first = true;
                break;
            }
            let grace_left = is_pods && plan::has_grace_left(&self.pods.list_in(namespace), age);
            if let Err(error) = self
                .empty_kind(kind, namespace, grace_left, &mut findings)
                .await
            {
                findings
                    .deletion_failures
                    .push(environment::chain(&error).to_string());
            }
        }
        findings
    }

    async fn empty_kind(
        &self,
        kind: &Served,
        namespace: &str,
        grace_left: bool,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let objects = kind.metadata_api(&self.config.client, namespace);
        let all = ListParams::default();
        let list = match objects.list_metadata(&all).await {
            // The kind vanished since discovery.
            Err(error) if retry::is_not_found(&error) => return Ok(()),
            list => list?,
        };
        if list.items.is_empty() {
            return Ok(());
        }
        if kind.allows(&["deletecollection"]) {
            let parameters = DeleteParams::background();
            objects.delete_collection(&parameters, &all).await?;
        } else {
            for object in &list.items {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                match objects.delete(name, &DeleteParams::background()).await {
                    Err(error) if !retry::is_not_found(&error) => return Err(error.into()),
                    _ => {}
                }
            }
        }
        let left = objects.list_metadata(&all).await?.items;
        if left.is_empty() {
            return Ok(());
        }
        let mut held = false;
        for finalizer in left
            .iter()
            .flat_map(|object| object.metadata.finalizers.iter().flatten())
        {
            held = true;
            *findings.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        let name = format!("{}.{}", kind.plural, kind.group);
        findings.remaining.insert(name, left.len());
        if !held && !grace_left {
            findings.deletion_failures.push(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {}/{}, Resource={}",
                kind.group, kind.version, kind.plural
            ));
        }
        Ok(())
    }

    async fn report(
        &self,
        namespace: &Namespace,
        name: &str,
        findings: &Findings,
    ) -> Result<(), Error> {
        let status = namespace.status.clone().unwrap_or_default();
        let before = status.conditions.clone().unwrap_or_default();
        let now = Time(self.config.environment.now());
        let after = conditions::updated(&before, findings, &now);
        if after == before || findings.is_clean() && before.is_empty() {
            return Ok(());
        }
        let mut updated = namespace.clone();
        let status = updated.status.get_or_insert_default();
        status.conditions = Some(after);
        let namespaces: Api<Namespace> = Api::all(self.config.client.clone());
        match namespaces
            .replace_status(name, &PostParams::default(), &updated)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if retry::is_not_found(&error) => Ok(()),
            // Only the status write failed; emptying continues.
            Err(error) if retry::is_conflict(&error) && !findings.is_clean() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes our finalizer; the API server then removes the namespace.
    async fn finalize(&self, namespace: &Namespace, name: &str) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(self.config.client.clone());
        let mut updated = match namespaces.get_opt(name).await? {
            Some(found) if found.metadata.uid == namespace.metadata.uid => found,
            _ => return Ok(()),
        };
        plan::remove_our_finalizer(&mut updated);
        let body = serde_json::to_vec(&updated)?;
        let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)?;
        match self.config.client.request::<Namespace>(request).await {
            Err(error) if !retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
