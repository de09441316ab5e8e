//! A node without containers: it registers, renews its Lease, and "runs" the pods bound to it by
//! writing the status that a kubelet would write. Running pods are kept in a [`Machine`], which
//! survives a crash of the node's process as real containers do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::controller::Reconciled;
use client::{Change, Informer, Informers, ObjectKey, WorkQueue, retry};
use environment::Environment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use trace::{Hop, Recorder, Span};

const HEARTBEAT: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i64 = 40;
/// The longest time that a pod takes to start or to stop.
const SLOWEST_STEP_MICROS: u64 = 300_000;
/// The exit code of a container that was killed by SIGKILL.
const KILLED: i32 = 137;
/// The environment variable with exit codes by a pod's completion index, such as `0,1,never`.
const EXIT_CODES: &str = "EXIT_CODES";

/// A machine and the pods that run on it. Clones are the same machine.
#[derive(Clone)]
pub struct Machine {
    name: String,
    number: u8,
    /// Whether containers fail only where `EXIT_CODES` says so.
    reliable: bool,
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    /// The pods, by UID.
    pods: BTreeMap<String, Sandbox>,
    addresses_used: u16,
}

#[derive(Clone)]
struct Sandbox {
    address: String,
    /// Microseconds since the epoch.
    started: i64,
    /// When its containers exit by themselves, if they do.
    ends: i64,
    /// When the pod will have stopped, once it is being stopped.
    stopped: Option<i64>,
}

impl Machine {
    /// `number` distinguishes the addresses of several machines.
    pub fn new(name: impl Into<String>, number: u8) -> Machine {
        Machine {
            name: name.into(),
            number,
            reliable: false,
            running: Arc::default(),
        }
    }

    /// Containers fail only where their `EXIT_CODES` say so.
    pub fn reliable(mut self) -> Machine {
        self.reliable = true;
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The UIDs of the running pods.
    pub fn pods(&self) -> Vec<String> {
        self.running.lock().pods.keys().cloned().collect()
    }

    fn sandbox(&self, uid: &str, environment: &Environment) -> Sandbox {
        let mut running = self.running.lock();
        if let Some(sandbox) = running.pods.get(uid) {
            return sandbox.clone();
        }
        running.addresses_used += 1;
        let address = running.addresses_used;
        let started = environment.now_micros() + step(environment);
        let sandbox = Sandbox {
            address: format!("10.{}.{}.{}", self.number, address / 250, address % 250 + 2),
            started,
            ends: started + step(environment),
            stopped: None,
        };
        running.pods.insert(uid.to_owned(), sandbox.clone());
        sandbox
    }

    /// Starts or continues to stop a pod. Returns how long it still takes.
    fn stop(&self, uid: &str, grace: i64, environment: &Environment) -> Duration {
        let mut running = self.running.lock();
        let now = environment.now_micros();
        let Some(sandbox) = running.pods.get_mut(uid) else {
            return Duration::ZERO;
        };
        let longest = grace.max(0).saturating_mul(1_000_000);
        let stopped = *sandbox
            .stopped
            .get_or_insert_with(|| now + step(environment).min(longest));
        Duration::from_micros(u64::try_from(stopped - now).unwrap_or(0))
    }

    fn remove(&self, uid: &str) {
        self.running.lock().pods.remove(uid);
    }
}

fn step(environment: &Environment) -> i64 {
    (environment.random_u64() % SLOWEST_STEP_MICROS) as i64
}

/// The process on the machine that talks to the API server.
pub struct FakeNode {
    pub machine: Machine,
    pub client: kube::Client,
    pub informers: Informers,
    pub environment: Environment,
    pub recorder: Recorder,
}

impl FakeNode {
    /// Runs until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let selector = format!("spec.nodeName={}", self.machine.name);
        let pods = self.informers.with_selector::<Pod>(&selector);
        let queue = WorkQueue::new();
        let mut changes = pods.subscribe();
        let node = Arc::new(self);
        let feed = {
            let (queue, pods, node) = (queue.clone(), pods.clone(), node.clone());
            async move {
                loop {
                    let delivery = changes.next_delivery().await;
                    match delivery.change {
                        Change::Added(pod) => {
                            node.record(
                                &pod,
                                Hop::WatchNode,
                                delivery.received_micros,
                                delivery.bytes,
                            );
                            queue.add(ObjectKey::of(&*pod));
                        }
                        Change::Modified { new: pod, .. } => queue.add(ObjectKey::of(&*pod)),
                        Change::Deleted(_) => {}
                        Change::Resynced => {
                            for pod in pods.list() {
                                queue.add(ObjectKey::of(&*pod));
                            }
                        }
                    }
                }
            }
        };
        let reconcile = {
            let node = node.clone();
            move |key: ObjectKey| {
                let (node, pods) = (node.clone(), pods.clone());
                async move { node.reconcile(&pods, &key).await }
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = node.stay_alive() => {}
            () = feed => {}
            () = client::controller::run("fake-node", queue, 4, reconcile, shutdown.clone()) => {}
        }
    }

    /// Registers the node and keeps renewing its Lease and status.
    async fn stay_alive(&self) {
        loop {
            let pause = match self.heartbeat().await {
                Ok(()) => HEARTBEAT,
                Err(error) => {
                    tracing::debug!(node = self.machine.name, %error, "no heartbeat");
                    Duration::from_secs(1)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn heartbeat(&self) -> Result<(), kube::Error> {
        let name = &self.machine.name;
        let nodes: Api<Node> = Api::all(self.client.clone());
        if nodes.get_opt(name).await?.is_none() {
            let node = object(json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            }))?;
            ignore_existing(nodes.create(&PostParams::default(), &node).await)?;
        }
        let now = self.environment.now().to_string();
        let resources = json!({"cpu": "16", "memory": "32Gi", "pods": "110"});
        let status = json!({"status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": format!("192.168.0.{}", self.machine.number)}],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "the fake node is ready", "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }],
        }});
        let parameters = PatchParams::default();
        nodes
            .patch_status(name, &parameters, &Patch::Strategic(status))
            .await?;

        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let renewed = format!("{:.6}", self.environment.now());
        let spec = json!({
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": renewed,
        });
        if leases.get_opt(name).await?.is_none() {
            let lease = object(json!({"metadata": {"name": name}, "spec": spec}))?;
            ignore_existing(leases.create(&PostParams::default(), &lease).await)?;
        } else {
            let patch = Patch::Merge(json!({"spec": spec}));
            leases.patch(name, &parameters, &patch).await?;
        }
        Ok(())
    }

    /// Brings one pod into the state that its object asks for.
    async fn reconcile(
        &self,
        pods: &Informer<Pod>,
        key: &ObjectKey,
    ) -> Result<Reconciled, kube::Error> {
        let Some(pod) = pods.get(&key.namespace, &key.name) else {
            return Ok(Reconciled::Done);
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        if pod.metadata.deletion_timestamp.is_some() {
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
            let remaining = self.machine.stop(&uid, grace, &self.environment);
            if !remaining.is_zero() {
                return Ok(Reconciled::After(remaining));
            }
            if runs_once(&pod) && !has_ended(&pod) {
                self.end(&api, &pod, KILLED).await?;
            }
            let parameters = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions {
                    uid: Some(uid.clone()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            match api.delete(&key.name, &parameters).await {
                Ok(_) => {}
                // The pod has been deleted, or there is another pod of that name.
                Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
            self.machine.remove(&uid);
            return Ok(Reconciled::Done);
        }
        if has_ended(&pod) {
            return Ok(Reconciled::Done);
        }
        let sandbox = self.machine.sandbox(&uid, &self.environment);
        let remaining = sandbox.started - self.environment.now_micros();
        if remaining > 0 {
            return Ok(Reconciled::After(Duration::from_micros(
                remaining.unsigned_abs(),
            )));
        }
        if is_ready(&pod, &sandbox) {
            if !runs_once(&pod) {
                return Ok(Reconciled::Done);
            }
            let remaining = sandbox.ends - self.environment.now_micros();
            if remaining > 0 {
                let remaining = Duration::from_micros(remaining.unsigned_abs());
                return Ok(Reconciled::After(remaining));
            }
            let code = match requested_exit(&pod) {
                RequestedExit::Never => return Ok(Reconciled::Done),
                RequestedExit::Code(code) => code,
                // Some fail, and their Job retries.
                RequestedExit::Unspecified => {
                    i32::from(!self.machine.reliable && sandbox.ends % 7 == 0)
                }
            };
            self.end(&api, &pod, code).await?;
            return Ok(Reconciled::Done);
        }
        let status = self.running_status(&pod, &uid, &sandbox);
        let (begin, bytes) = (self.environment.now_micros(), status.to_string().len());
        match api
            .patch_status(
                &key.name,
                &PatchParams::default(),
                &Patch::Strategic(status),
            )
            .await
        {
            Ok(_) => {
                self.record(&pod, Hop::Status, begin, bytes as u64);
                Ok(Reconciled::Done)
            }
            Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => {
                Ok(Reconciled::Done)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports that all containers of a pod have terminated.
    async fn end(&self, api: &Api<Pod>, pod: &Pod, exit_code: i32) -> Result<(), kube::Error> {
        let now = self.environment.now().to_string();
        let phase = match exit_code {
            0 => "Succeeded",
            _ => "Failed",
        };
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let statuses: Vec<_> = containers
            .map(|container| {
                json!({
                    "name": container.name,
                    "image": container.image.clone().unwrap_or_default(),
                    "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"running": null, "terminated":
                        {"exitCode": exit_code, "startedAt": now, "finishedAt": now}},
                })
            })
            .collect();
        let status = json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}],
                "containerStatuses": statuses,
            },
        });
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Strategic(status);
        match api
            .patch_status(name, &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Records a hop of the timeline as a kubelet does.
    fn record(&self, pod: &Pod, hop: Hop, start: i64, bytes: u64) {
        let span = Span {
            hop,
            name: hop.title().to_owned(),
            component: "fake node".to_owned(),
            start,
            queue_us: 0,
            work_us: (self.environment.now_micros() - start).unsigned_abs(),
            bytes,
            failure: None,
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.recorder.record(uid, span);
    }

    fn running_status(&self, pod: &Pod, uid: &str, sandbox: &Sandbox) -> serde_json::Value {
        let now = self.environment.now().to_string();
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let statuses: Vec<_> = containers
            .map(|container| {
                json!({
                    "name": container.name,
                    "image": container.image.clone().unwrap_or_default(),
                    "imageID": "",
                    "containerID": format!("fake://{uid}/{}", container.name),
                    "ready": true,
                    "started": true,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                })
            })
            .collect();
        json!({
            "metadata": {"uid": uid},
            "status": {
                "phase": "Running",
                "hostIP": format!("192.168.0.{}", self.machine.number),
                "podIP": sandbox.address,
                "podIPs": [{"ip": sandbox.address}],
                "startTime": now,
                "conditions": [
                    condition("Initialized"), condition("Ready"), condition("ContainersReady"),
                ],
                "containerStatuses": statuses,
            },
        })
    }
}

fn runs_once(pod: &Pod) -> bool {
    let policy = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref());
    matches!(policy, Some("Never" | "OnFailure"))
}

/// The exit code that a pod's `EXIT_CODES` ask for.
enum RequestedExit {
    Unspecified,
    Never,
    Code(i32),
}

fn requested_exit(pod: &Pod) -> RequestedExit {
    let codes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.containers.first())
        .flat_map(|container| container.env.iter().flatten())
        .find(|variable| variable.name == EXIT_CODES)
        .and_then(|variable| variable.value.as_deref());
    let Some(codes) = codes else {
        return RequestedExit::Unspecified;
    };
    let index = pod.metadata.annotations.as_ref().and_then(|all| {
        all.get("batch.kubernetes.io/job-completion-index")?
            .parse()
            .ok()
    });
    match codes.split(',').nth(index.unwrap_or(0)) {
        Some("never") => RequestedExit::Never,
        Some(code) => code
            .parse()
            .map_or(RequestedExit::Unspecified, RequestedExit::Code),
        None => RequestedExit::Unspecified,
    }
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the pod's status already reports that it runs in this sandbox.
fn is_ready(pod: &Pod, sandbox: &Sandbox) -> bool {
    pod.status.as_ref().is_some_and(|status| {
        status.pod_ip.as_ref() == Some(&sandbox.address)
            && status
                .conditions
                .iter()
                .flatten()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

fn object<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> Result<K, kube::Error> {
    serde_json::from_value(value).map_err(kube::Error::SerdeError)
}

fn ignore_existing<K>(result: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(error) if retry::is_already_exists(&error) => Ok(()),
        Err(error) => Err(error),
    }
}
