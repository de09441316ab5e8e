//! Takes pods from the API's watch and from manifests, admits or rejects them, gives each a worker,
//! and terminates what the node has of pods that no source has any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use client::{Change, Informer};
use k8s_openapi::{
    api::core::v1::{Node, Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Api;
use semantics::pod::is_terminal;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;
use trace::Hop;

use super::{Pods, leftovers};
use crate::{
    admission::{Rejection, preemption},
    measures::{Counter, Histogram},
    node_pressure::NodePressure,
    pod::{
        lifecycle::Lifecycle, mailbox::Mailbox, resize, services::PodServices,
        termination::Termination, worker::Worker,
    },
    pod_spec::{is_critical, is_static, uid},
    runtime::changes::Hint,
    shutdown_state::ShutdownState,
    static_pods::{
        Roster, key,
        mirror::{Mirrors, is_mirror},
    },
};

/// The loop comes around at least this often.
const TURN: Duration = Duration::from_secs(60);
/// Pause before a failed listing of what the node has of pods is tried again.
const SWEEP_RETRY: Duration = Duration::from_secs(1);

/// The parts of the kubelet that the intake of pods uses.
pub struct NodeHandles {
    pub services: Arc<PodServices>,
    /// The pods that the API has for this node.
    pub api_pods: Informer<Pod>,
    pub pressure: Arc<NodePressure>,
    pub shutdown: Arc<ShutdownState>,
}

/// Runs until `shutdown`. Containers keep running: the next kubelet finds them again.
pub async fn run(
    node: NodeHandles,
    pods: Pods,
    hints: mpsc::Receiver<Hint>,
    manifests: watch::Receiver<Vec<Arc<Pod>>>,
    shutdown: CancellationToken,
) {
    let services = &node.services;
    let mirrors = Mirrors::new(services.client.clone(), services.node_object.clone());
    let intake = Intake {
        node,
        pods,
        workers: JoinSet::new(),
        roster: Roster::default(),
        mirrors,
        parked: Parked::default(),
        listed: Vec::new(),
        sweeps: JoinSet::new(),
        is_synced: false,
    };
    intake.run(hints, manifests, shutdown).await;
}

/// The names of pods of which the node has something, by UID.
type Leftovers = Result<BTreeMap<String, leftovers::Name>, tonic::Status>;

struct Intake {
    node: NodeHandles,
    pods: Pods,
    /// They return the pod's UID.
    workers: JoinSet<String>,
    roster: Roster,
    mirrors: Mirrors,
    parked: Parked,
    /// The static pods that the manifests list now.
    listed: Vec<Arc<Pod>>,
    sweeps: JoinSet<Leftovers>,
    /// The watch has delivered all pods of this node once.
    is_synced: bool,
}

/// A pod as the watch delivered it.
#[derive(Clone)]
struct Arrival {
    pod: Arc<Pod>,
    /// Microseconds since the epoch.
    received: i64,
    bytes: u64,
}

/// Pods that cannot be decided on yet: one does not match the Node as we know it, so that its newest
/// form is read first; another preempts pods and waits until they have ended.
#[derive(Default)]
struct Parked {
    /// They return the Node where that was read.
    tasks: JoinSet<(Arrival, Option<Node>)>,
    uids: BTreeSet<String>,
}

/// Why a pod is not admitted now.
enum Refusal {
    Rejected(Rejection),
    /// It will be admitted once these pods have ended.
    After(Vec<String>),
}

impl Intake {
    async fn run(
        mut self,
        mut hints: mpsc::Receiver<Hint>,
        mut manifests: watch::Receiver<Vec<Arc<Pod>>>,
        shutdown: CancellationToken,
    ) {
        let mut changes = self.node.api_pods.subscribe();
        self.listed = manifests.borrow_and_update().clone();
        let mut turns = tokio::time::interval(TURN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = self.node.services.environment.now_micros();
            self.pods.came_around.store(now, Ordering::Relaxed);
            let moves = self.roster.follow(&self.listed);
            for pod in moves.stop {
                self.pods.deleted(&self.node.services.admission, &pod);
            }
            for pod in moves.start {
                self.start_static(pod);
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = turns.tick() => {
                    if self.is_synced && self.sweeps.is_empty() {
                        self.sweep(Duration::ZERO);
                    }
                }
                Some(Ok(found)) = self.sweeps.join_next() => self.swept(found),
                Ok(()) = manifests.changed() => {
                    self.listed = manifests.borrow_and_update().clone();
                }
                () = self.mirrors.tidy() => {}
                delivery = changes.next_delivery() => {
                    let (received, bytes) = (delivery.received_micros, delivery.bytes);
                    self.deliver(delivery.change, received, bytes);
                }
                Some(hint) = hints.recv() => self.pods.pass_on(hint),
                Some(Ok((arrival, fresh))) = self.parked.tasks.join_next() => {
                    self.unpark(arrival, fresh.as_ref());
                }
                Some(ended) = self.workers.join_next() => {
                    if let Ok(uid) = ended {
                        self.worker_ended(&uid);
                    }
                }
            }
        }
    }

    /// Takes over a change of the API's pods.
    fn deliver(&mut self, change: Change<Pod>, received: i64, bytes: u64) {
        match change {
            Change::Added(pod) | Change::Modified { new: pod, .. } if is_mirror(&pod) => {
                self.mirrored(&pod, Some(pod.clone()));
            }
            Change::Deleted(pod) if is_mirror(&pod) => self.mirrored(&pod, None),
            Change::Added(pod) | Change::Modified { new: pod, .. } => {
                let arrival = Arrival {
                    pod,
                    received,
                    bytes,
                };
                self.accept(arrival, None);
            }
            Change::Deleted(pod) => self.pods.deleted(&self.node.services.admission, &pod),
            Change::Resynced => {
                if !self.is_synced {
                    self.is_synced = true;
                    self.sweep(Duration::ZERO);
                }
            }
        }
    }

    /// A parked pod can be decided on, if it is still there.
    fn unpark(&mut self, mut arrival: Arrival, fresh: Option<&Node>) {
        let uid = uid(&arrival.pod);
        self.parked.uids.remove(&uid);
        let has_uid = |pod: &Arc<Pod>| pod.metadata.uid == arrival.pod.metadata.uid;
        let (namespace, name) = key(&arrival.pod);
        let now = match is_static(&arrival.pod) {
            true => self.listed.iter().find(|pod| has_uid(pod)).cloned(),
            false => self.node.api_pods.get(&namespace, &name),
        };
        // It may have been changed, or be deleted.
        match now.filter(has_uid) {
            Some(now) => {
                arrival.pod = now.clone();
                self.accept(arrival, fresh);
                if is_static(&now) {
                    self.pods.update_mirror(&now, self.mirrors.of(&key(&now)));
                }
            }
            None => {
                if let Some(next) = self.roster.ended(&uid) {
                    self.start_static(next);
                }
            }
        }
    }

    fn worker_ended(&mut self, uid: &str) {
        self.node.services.admission.release(uid);
        self.node.services.probe_counts.forget(uid);
        let was = self.pods.finished(uid);
        match self.roster.ended(uid) {
            Some(next) => self.start_static(next),
            None => {
                let key = was.filter(|pod| is_static(pod)).map(|pod| key(&pod));
                if let Some(key) = key.filter(|key| self.roster.current(key).is_none()) {
                    self.mirrors.hide(key);
                }
            }
        }
    }

    fn start_static(&mut self, pod: Arc<Pod>) {
        let arrival = Arrival {
            pod: pod.clone(),
            received: self.node.services.environment.now_micros(),
            bytes: 0,
        };
        self.accept(arrival, None);
        self.pods.update_mirror(&pod, self.mirrors.of(&key(&pod)));
        self.mirrors.show(pod);
    }

    /// The API has a mirror pod, or no longer has it.
    fn mirrored(&mut self, pod: &Pod, now: Option<Arc<Pod>>) {
        let key = key(pod);
        // A newer mirror of the same name may already be there.
        let is_newer = |other: Arc<Pod>| other.metadata.uid != pod.metadata.uid;
        if now.is_none() && self.mirrors.of(&key).is_some_and(is_newer) {
            return;
        }
        if let Some(current) = self.roster.current(&key) {
            self.pods.update_mirror(current, now.clone());
        }
        self.mirrors.found(key, now);
    }

    /// Passes the pod to its worker. One that is new gets a worker if it is admitted, and one that only
    /// reports the rejection if it is not. `fresh`: the Node, if it was just read.
    fn accept(&mut self, arrival: Arrival, fresh: Option<&Node>) {
        let Arrival {
            pod,
            received,
            bytes,
        } = arrival.clone();
        let uid = uid(&pod);
        if self.pods.update(&pod) || self.parked.uids.contains(&uid) {
            return;
        }
        let (services, mailbox) = (self.node.services.clone(), Arc::new(Mailbox::default()));
        let telemetry = &services.telemetry;
        let worker = match self.admit(&pod, fresh) {
            Ok(()) => Worker::new(services.clone(), mailbox.clone(), pod.clone(), received),
            Err(Refusal::Rejected(rejection))
                if rejection.reason == "NodeAffinity" && fresh.is_none() =>
            {
                self.parked.uids.insert(uid);
                self.parked.tasks.spawn(async move {
                    let api: Api<Node> = Api::all(services.client.clone());
                    let object = &services.node_object;
                    let last = object.last_known().unwrap_or_default();
                    let fresh = api.get(object.name()).await;
                    let fresh = fresh.unwrap_or_else(|_| Node::clone(&last));
                    (arrival, Some(fresh))
                });
                return;
            }
            Err(Refusal::After(victims)) => {
                let admission = services.admission.clone();
                self.parked.uids.insert(uid);
                self.parked.tasks.spawn(async move {
                    admission.without(&victims).await;
                    (arrival, None)
                });
                return;
            }
            Err(Refusal::Rejected(rejection)) => {
                let Rejection {
                    reason, message, ..
                } = rejection;
                let measures = &telemetry.measures;
                measures.count(Counter::AdmissionRejections, &[&reason]);
                telemetry.events.warning(&pod, &reason, &message);
                let termination = Termination {
                    reason,
                    message: format!("Pod was rejected: {message}"),
                    rejected: true,
                    ..Termination::default()
                };
                Worker::rejected(services.clone(), mailbox.clone(), pod.clone(), termination)
            }
        };
        self.pods.insert(pod.clone(), mailbox, Lifecycle::Running);
        self.workers.spawn(run_worker(uid.clone(), worker));
        let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        let now = services.environment.now_micros();
        let measures = &telemetry.measures;
        measures.observe(Histogram::ContainersPerPod, &[], containers as f64);
        measures.span(Histogram::PodWorkerStartDuration, &[], received, now);
        telemetry
            .spans
            .record_bytes(&uid, Hop::WatchNode, "receive", received, bytes);
    }

    /// Whether this node admits the pod. A critical pod may preempt others.
    fn admit(&self, pod: &Arc<Pod>, fresh: Option<&Node>) -> Result<(), Refusal> {
        let admission = &self.node.services.admission;
        if is_terminal(pod) {
            return Ok(());
        }
        let status = pod.status.as_ref();
        if let Some(status) = status.filter(|status| status.start_time.is_some()) {
            let granted = resize::from_status(pod, status).map(Arc::new);
            admission.readmit(granted.unwrap_or_else(|| pod.clone()));
            return Ok(());
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if self.node.shutdown.now() {
            return Err(Refusal::Rejected(Rejection::node_shutdown()));
        }
        let cached = self.node.services.node_object.last_known();
        let object = fresh.or(cached.as_deref());
        let pressures = self.node.pressure.now();
        // Events about other pods may come later than the event about this one.
        admission.release_unless(|other| is_static(other) || self.api_has(other));
        let rejections = match admission.admit(pod, object, &pressures) {
            Ok(()) => return Ok(()),
            Err(rejections) => rejections,
        };
        let critical = is_critical(pod);
        // A reason that preemption cannot remove is reported first.
        if critical && let Some(other) = rejections.iter().find(|one| one.shortage.is_none()) {
            return Err(Refusal::Rejected(other.clone()));
        }
        let shortages: Vec<_> = rejections
            .iter()
            .filter_map(|rejection| rejection.shortage.clone())
            .collect();
        if critical && !shortages.is_empty() {
            let victims = preemption::victims(pod, &shortages, &admission.granted())
                .map_err(|missing| Refusal::Rejected(Rejection::no_victims(&missing)))?;
            for victim in &victims {
                let measures = &self.node.services.telemetry.measures;
                measures.count(Counter::Preemptions, &[&shortages[0].resource]);
                self.preempt(victim);
            }
            if !victims.is_empty() {
                let uid = |pod: &Arc<Pod>| pod.metadata.uid.clone();
                return Err(Refusal::After(victims.iter().filter_map(uid).collect()));
            }
        }
        let first = rejections.into_iter().next();
        let first = first.unwrap_or_else(Rejection::unknown);
        Err(Refusal::Rejected(first))
    }

    /// Whether the API still has this pod, and not another one of its name.
    fn api_has(&self, pod: &Pod) -> bool {
        let (namespace, name) = key(pod);
        let found = self.node.api_pods.get(&namespace, &name);
        found.is_some_and(|found| found.metadata.uid == pod.metadata.uid)
    }

    /// Ends a pod to make room. What it was granted is released when it has ended.
    fn preempt(&self, victim: &Pod) {
        let message = "Preempted in order to admit critical pod";
        let events = &self.node.services.telemetry.events;
        events.warning(victim, "Preempting", message);
        let termination = Termination {
            reason: "Preempting".to_owned(),
            message: message.to_owned(),
            disruption: true,
            ..Termination::default()
        };
        self.pods.end(&uid(victim), termination);
    }

    /// Lists what the node has of pods, after `pause`.
    fn sweep(&mut self, pause: Duration) {
        let services = &self.node.services;
        let places = leftovers::Places {
            cri: services.cri.clone(),
            volumes: services.volumes.clone(),
            cgroups: services.cgroups.clone(),
            log_dir: services.settings.log_dir.clone(),
        };
        self.sweeps.spawn(leftovers::list(places, pause));
    }

    /// Terminates what the node has of pods that no source has any more.
    fn swept(&mut self, found: Leftovers) {
        let found = match found {
            Ok(found) => found,
            Err(status) => {
                tracing::warn!(%status, "the runtime's sandboxes could not be listed");
                self.sweep(SWEEP_RETRY);
                return;
            }
        };
        // Some of them may not have a worker yet.
        let of_api = self.node.api_pods.list();
        let expected = of_api.iter().chain(&self.listed);
        let expected: BTreeSet<String> = expected
            .filter_map(|pod| pod.metadata.uid.clone())
            .collect();
        for (uid, name) in found {
            if expected.contains(&uid) || self.pods.contains(&uid) {
                continue;
            }
            let services = self.node.services.clone();
            tracing::info!(pod = uid, "ending a pod that the API no longer has");
            let measures = &services.telemetry.measures;
            measures.count(Counter::OrphanedRuntimePods, &[]);
            let pod = Arc::new(orphan(uid.clone(), name.namespace, name.name));
            let mailbox = Arc::new(Mailbox::default());
            mailbox.deleted();
            self.pods
                .insert(pod.clone(), mailbox.clone(), Lifecycle::Deleted);
            let worker = Worker::orphaned(services, mailbox, pod);
            self.workers.spawn(run_worker(uid, worker));
        }
    }
}

async fn run_worker(uid: String, worker: Worker) -> String {
    worker.run().await;
    uid
}

/// A pod of which only the name is known.
pub(super) fn orphan(uid: String, namespace: String, name: String) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace),
            uid: Some(uid),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            // Its grace period is unknown.
            termination_grace_period_seconds: Some(1),
            ..PodSpec::default()
        }),
        status: None,
    }
}
