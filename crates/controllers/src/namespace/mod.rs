//! Namespace: when one is deleted, empties it, pods first, and then lets it go.

mod conditions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::controller::Outcome;
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
use crate::watching::{self, enqueue, own_key};
use crate::{Config, Error};

/// Content with finalizers or a grace period is looked at again after this; the end of the last
/// pod is seen at once.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_SELDOM: Duration = Duration::from_secs(8);
const FRESH_SECONDS: i64 = 60;

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
    let controller = Arc::new(Controller {
        config,
        namespaces,
        pods,
        deleting: Mutex::default(),
    });
    let reconcile = move |key: ObjectKey| {
        let controller = controller.clone();
        async move { controller.reconcile(&key.name).await }
    };
    watching::run("namespace", 10, queue, feeds, reconcile, shutdown).await;
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

impl Controller {
    async fn reconcile(&self, name: &str) -> Result<Outcome, Error> {
        let Some(namespace) = self.namespaces.get("", name) else {
            self.deleting.lock().remove(name);
            return Ok(Outcome::Done);
        };
        let Some(deleted_at) = namespace.metadata.deletion_timestamp.clone() else {
            return Ok(Outcome::Done);
        };
        let held = namespace
            .spec
            .as_ref()
            .and_then(|spec| spec.finalizers.as_ref())
            .is_some_and(|finalizers| finalizers.iter().any(|name| name == "kubernetes"));
        if !held {
            return Ok(Outcome::Done);
        }
        let left = self.grace_of(&namespace);
        if !left.is_zero() {
            return Ok(Outcome::After(left));
        }
        let age = self.config.environment.now().as_second() - deleted_at.0.as_second();
        let findings = self.empty(name, age).await;
        self.report(&namespace, name, &findings).await?;
        if findings.is_clean() {
            self.finalize(&namespace, name).await?;
            return Ok(Outcome::Done);
        }
        Ok(Outcome::After(match age < FRESH_SECONDS {
            true => LOOK_AGAIN,
            false => LOOK_SELDOM,
        }))
    }

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
                findings.discovery_failure = Some(error.to_string());
                return findings;
            }
        };
        // What is known is emptied; the namespace stays until all is.
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
                // What pods use must outlive them.
                findings.remaining.clear();
                findings.finalizers.clear();
                findings.pods_first = true;
                break;
            }
            let grace_left = is_pods && self.grace_left(namespace, age);
            if let Err(error) = self
                .empty_kind(kind, namespace, grace_left, &mut findings)
                .await
            {
                findings.deletion_failures.push(error.to_string());
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

    /// Whether some pod may still use its grace period.
    fn grace_left(&self, namespace: &str, age: i64) -> bool {
        self.pods.list_in(namespace).iter().any(|pod| {
            let grace = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.termination_grace_period_seconds)
                .unwrap_or(0);
            !semantics::pod::is_terminal(pod) && grace > age
        })
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
            // Only what we tell; emptying goes on.
            Err(error) if retry::is_conflict(&error) && !findings.is_clean() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes our finalizer away; the API server then removes the namespace.
    async fn finalize(&self, namespace: &Namespace, name: &str) -> Result<(), Error> {
        let namespaces: Api<Namespace> = Api::all(self.config.client.clone());
        let mut updated = match namespaces.get_opt(name).await? {
            Some(found) if found.metadata.uid == namespace.metadata.uid => found,
            _ => return Ok(()),
        };
        if let Some(finalizers) = updated
            .spec
            .as_mut()
            .and_then(|spec| spec.finalizers.as_mut())
        {
            finalizers.retain(|finalizer| finalizer != "kubernetes");
        }
        let body = serde_json::to_vec(&updated)
            .map_err(|error| Error::Object(format!("namespace {name}: {error}")))?;
        let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| Error::Object(error.to_string()))?;
        match self.config.client.request::<Namespace>(request).await {
            Err(error) if !retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
