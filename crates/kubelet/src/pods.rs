//! The pods of this node: takes them from the API's watch, gives each a worker, passes on hints
//! from the runtime, and finds what no longer belongs to any pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use client::{Change, Informer};
use k8s_openapi::{
    api::core::v1::{Node, Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Api;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::MissedTickBehavior,
};
use tokio_util::sync::CancellationToken;
use trace::Hop;

use crate::{
    admission::{Admission, Rejection, preemption},
    leftovers,
    measures::{Counter, Histogram},
    node_pressure::NodePressure,
    pod::{
        mailbox::Mailbox, resize, services::PodServices, termination::Termination, worker::Worker,
    },
    pod_spec::{is_critical, is_static},
    runtime::changes::Hint,
    shutdown_state::ShutdownState,
    static_pods::{
        Roster, key,
        mirror::{Mirrors, is_mirror},
    },
};

/// The loop comes around at least this often, and is stuck when it has not for so long.
const TURN: Duration = Duration::from_secs(60);
const STUCK: Duration = Duration::from_secs(300);
/// When a listing of what the node holds is tried again.
const SWEEP_RETRY: Duration = Duration::from_secs(1);

/// The pods this node works on, for its HTTP server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Pods {
    known: Arc<Mutex<BTreeMap<String, Known>>>,
    /// Wakes those who wait for a container's end.
    changed: Arc<Notify>,
    /// When the loop last came around, in microseconds; 0 before it runs.
    came_around: Arc<AtomicI64>,
}

/// What the loop that takes pods needs of the rest of the kubelet.
pub struct NodeHandles {
    pub services: Arc<PodServices>,
    /// The pods that the API has for this node.
    pub api_pods: Informer<Pod>,
    pub pressure: Arc<NodePressure>,
    pub shutdown: Arc<ShutdownState>,
}

impl NodeHandles {
    /// Whether the API still has this pod, and not another one of its name.
    fn has_pod(&self, pod: &Pod) -> bool {
        let (namespace, name) = key(pod);
        let found = self.api_pods.get(&namespace, &name);
        found.is_some_and(|found| found.metadata.uid == pod.metadata.uid)
    }

    fn places(&self) -> leftovers::Places {
        leftovers::Places {
            cri: self.services.cri.clone(),
            volumes: self.services.volumes.clone(),
            cgroups: self.services.cgroups.clone(),
            log_dir: self.services.settings.log_dir.clone(),
        }
    }
}

/// A pod as the watch delivered it.
#[derive(Clone)]
struct Arrival {
    pod: Arc<Pod>,
    /// Microseconds since the epoch.
    received: i64,
    bytes: u64,
}

/// Pods that cannot be decided on yet: one did not match the Node as we knew it, so that its newest
/// form decides; another has pushed others out and waits until they have ended.
#[derive(Default)]
struct Parked {
    /// They come back with the Node, where that was asked for.
    tasks: JoinSet<(Arrival, Option<Node>)>,
    uids: BTreeSet<String>,
}

/// Why a pod is not taken now.
enum Refusal {
    Rejected(Rejection),
    /// It will be, once these have ended.
    After(Vec<String>),
}

struct Known {
    pod: Arc<Pod>,
    mailbox: Arc<Mailbox>,
    /// Its worker has ended; the object is still there (a finalizer holds it).
    over: bool,
    /// The API no longer has it; its worker is still clearing up.
    gone: bool,
    /// This node has decided that it must end.
    ending: bool,
}

impl Pods {
    /// Whether the loop that takes pods has not come around for long.
    pub fn is_stuck(&self, now: i64) -> bool {
        let last = self.came_around.load(Ordering::Relaxed);
        last > 0 && now - last > STUCK.as_micros() as i64
    }

    /// When the loop that takes pods last came around, in microseconds; 0 before it runs.
    pub fn came_around(&self) -> i64 {
        self.came_around.load(Ordering::Relaxed)
    }

    pub fn list(&self) -> Vec<Arc<Pod>> {
        self.known
            .lock()
            .values()
            .map(|known| known.pod.clone())
            .collect()
    }

    /// Those that have neither ended nor are known to the API to have.
    pub fn active(&self) -> Vec<Arc<Pod>> {
        let known = self.known.lock();
        let active = known
            .values()
            .filter(|known| !known.over && !ended(&known.pod));
        active.map(|known| known.pod.clone()).collect()
    }

    /// Those that run on for all this node knows: a pod is told to end once.
    pub fn not_ending(&self) -> Vec<Arc<Pod>> {
        let known = self.known.lock();
        let staying = known
            .values()
            .filter(|known| !known.over && !known.gone && !known.ending);
        staying.map(|known| known.pod.clone()).collect()
    }

    /// Whether the pod is one of ours and known to have ended.
    pub fn has_ended(&self, uid: &str) -> bool {
        let known = self.known.lock();
        known
            .get(uid)
            .is_some_and(|known| known.over || ended(&known.pod))
    }

    /// Whether the API knows that the pod has ended, or has it no longer.
    pub fn told_end(&self, uid: &str) -> bool {
        let known = self.known.lock();
        known
            .get(uid)
            .is_none_or(|known| known.over || known.gone || ended(&known.pod))
    }

    /// The pod of that name; one that the API has goes before a namesake that is being cleared up.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let known = self.known.lock();
        known
            .values()
            .filter(|known| {
                let meta = &known.pod.metadata;
                meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(name)
            })
            .min_by_key(|known| known.gone)
            .map(|known| known.pod.clone())
    }

    /// Notified whenever something changed in the runtime.
    pub fn runtime_changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Runs until `shutdown`. Containers go on: the next kubelet finds them again.
    pub async fn run(
        &self,
        node: NodeHandles,
        mut hints: mpsc::Receiver<Hint>,
        mut manifests: watch::Receiver<Vec<Arc<Pod>>>,
        shutdown: CancellationToken,
    ) {
        let informer = &node.api_pods;
        let mut changes = informer.subscribe();
        let mut workers: JoinSet<String> = JoinSet::new();
        let (mut roster, mut mirrors) = (
            Roster::default(),
            Mirrors::new(
                node.services.client.clone(),
                node.services.node_object.clone(),
            ),
        );
        let mut parked = Parked::default();
        let mut synced = false;
        let mut sweeps = JoinSet::new();
        let mut listed = manifests.borrow_and_update().clone();
        let mut turns = tokio::time::interval(TURN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = node.services.environment.now_micros();
            self.came_around.store(now, Ordering::Relaxed);
            let moves = roster.follow(&listed);
            for pod in moves.stop {
                self.gone(&node.services.admission, &pod);
            }
            for pod in moves.start {
                self.start_static(&node, pod, &mut mirrors, &mut workers, &mut parked);
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = turns.tick() => {
                    if synced && sweeps.is_empty() {
                        sweeps.spawn(leftovers::list(node.places(), Duration::ZERO));
                    }
                }
                Some(Ok(found)) = sweeps.join_next() => match found {
                    Ok(found) => {
                        let of_api = informer.list();
                        let expected = of_api.iter().chain(&listed);
                        let expected = expected.filter_map(|pod| pod.metadata.uid.clone()).collect();
                        self.end_orphans(&node, found, &expected, &mut workers);
                    }
                    Err(status) => {
                        tracing::warn!(%status, "the runtime's sandboxes could not be listed");
                        sweeps.spawn(leftovers::list(node.places(), SWEEP_RETRY));
                    }
                },
                Ok(()) = manifests.changed() => listed = manifests.borrow_and_update().clone(),
                () = mirrors.tidy() => {}
                delivery = changes.next_delivery() => match delivery.change {
                    Change::Added(pod) | Change::Modified { new: pod, .. } if is_mirror(&pod) => {
                        self.mirrored(&roster, &mut mirrors, &pod, Some(pod.clone()));
                    }
                    Change::Deleted(pod) if is_mirror(&pod) => {
                        self.mirrored(&roster, &mut mirrors, &pod, None);
                    }
                    Change::Added(pod) => {
                        let arrival = Arrival { pod, received: delivery.received_micros, bytes: delivery.bytes };
                        self.take(&node, arrival, None, &mut workers, &mut parked);
                    }
                    Change::Modified { new, .. } => {
                        let arrival = Arrival { pod: new, received: delivery.received_micros, bytes: delivery.bytes };
                        self.take(&node, arrival, None, &mut workers, &mut parked);
                    }
                    Change::Deleted(pod) => self.gone(&node.services.admission, &pod),
                    Change::Resynced => {
                        if !synced {
                            synced = true;
                            sweeps.spawn(leftovers::list(node.places(), Duration::ZERO));
                        }
                    }
                },
                Some(hint) = hints.recv() => self.pass_on(hint),
                Some(Ok((mut arrival, fresh))) = parked.tasks.join_next() => {
                    let uid = arrival.pod.metadata.uid.clone().unwrap_or_default();
                    parked.uids.remove(&uid);
                    let (namespace, name) = key(&arrival.pod);
                    let now = match is_static(&arrival.pod) {
                        true => listed.iter().find(|pod| pod.metadata.uid == arrival.pod.metadata.uid).cloned(),
                        false => informer.get(&namespace, &name),
                    };
                    // It may have been changed, or be no more.
                    match now.filter(|now| now.metadata.uid == arrival.pod.metadata.uid) {
                        Some(now) => {
                            arrival.pod = now.clone();
                            self.take(&node, arrival, fresh.as_ref(), &mut workers, &mut parked);
                            if is_static(&now) {
                                self.tell_mirror(&now, mirrors.of(&key(&now)));
                            }
                        }
                        None => {
                            if let Some(next) = roster.ended(&uid) {
                                self.start_static(&node, next, &mut mirrors, &mut workers, &mut parked);
                            }
                        }
                    }
                }
                Some(ended) = workers.join_next() => {
                    if let Ok(uid) = ended {
                        node.services.admission.release(&uid);
                        node.services.probe_counts.forget(&uid);
                        let was = self.over(&uid);
                        match roster.ended(&uid) {
                            Some(next) => self.start_static(&node, next, &mut mirrors, &mut workers, &mut parked),
                            None => {
                                let key = was.filter(|pod| is_static(pod)).map(|pod| key(&pod));
                                if let Some(key) = key.filter(|key| roster.current(key).is_none()) {
                                    mirrors.hide(key);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn start_static(
        &self,
        node: &NodeHandles,
        pod: Arc<Pod>,
        mirrors: &mut Mirrors,
        workers: &mut JoinSet<String>,
        parked: &mut Parked,
    ) {
        let arrival = Arrival {
            pod: pod.clone(),
            received: node.services.environment.now_micros(),
            bytes: 0,
        };
        self.take(node, arrival, None, workers, parked);
        self.tell_mirror(&pod, mirrors.of(&key(&pod)));
        mirrors.show(pod);
    }

    /// The API has a mirror pod, or no longer has it.
    fn mirrored(&self, roster: &Roster, mirrors: &mut Mirrors, pod: &Pod, now: Option<Arc<Pod>>) {
        let key = key(pod);
        // A newer mirror of the same name may already be there.
        let newer = |other: Arc<Pod>| other.metadata.uid != pod.metadata.uid;
        if now.is_none() && mirrors.of(&key).is_some_and(newer) {
            return;
        }
        if let Some(current) = roster.current(&key) {
            self.tell_mirror(current, now.clone());
        }
        mirrors.found(key, now);
    }

    fn tell_mirror(&self, pod: &Pod, mirror: Option<Arc<Pod>>) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(known) = self.known.lock().get(uid) {
            known.mailbox.mirror(mirror);
        }
    }

    fn take(
        &self,
        node: &NodeHandles,
        arrival: Arrival,
        fresh: Option<&Node>,
        workers: &mut JoinSet<String>,
        parked: &mut Parked,
    ) {
        let Arrival {
            pod,
            received,
            bytes,
        } = arrival.clone();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if let Some(known) = self.known.lock().get_mut(&uid) {
            known.pod = pod.clone();
            if !known.over {
                known.mailbox.pod(pod);
            }
            return;
        }
        if parked.uids.contains(&uid) {
            return;
        }
        let mailbox = Arc::new(Mailbox::default());
        let worker = match self.admit(node, &pod, fresh) {
            Ok(()) => Worker::new(
                node.services.clone(),
                mailbox.clone(),
                pod.clone(),
                received,
            ),
            Err(Refusal::Rejected(rejection))
                if rejection.reason == "NodeAffinity" && fresh.is_none() =>
            {
                let services = node.services.clone();
                parked.uids.insert(uid);
                parked.tasks.spawn(async move {
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
                let admission = node.services.admission.clone();
                parked.uids.insert(uid);
                parked.tasks.spawn(async move {
                    admission.without(&victims).await;
                    (arrival, None)
                });
                return;
            }
            Err(Refusal::Rejected(rejection)) => {
                node.services
                    .telemetry
                    .measures
                    .count(Counter::AdmissionRejections, &[&rejection.reason]);
                node.services
                    .telemetry
                    .events
                    .warning(&pod, &rejection.reason, &rejection.message);
                let termination = Termination {
                    reason: rejection.reason,
                    message: format!("Pod was rejected: {}", rejection.message),
                    rejected: true,
                    ..Termination::default()
                };
                Worker::rejected(
                    node.services.clone(),
                    mailbox.clone(),
                    pod.clone(),
                    termination,
                )
            }
        };
        let entry = Known {
            pod: pod.clone(),
            mailbox,
            over: false,
            gone: false,
            ending: false,
        };
        self.known.lock().insert(uid.clone(), entry);
        workers.spawn(run_worker(uid.clone(), worker));
        let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        let now = node.services.environment.now_micros();
        node.services.telemetry.measures.observe(
            Histogram::ContainersPerPod,
            &[],
            containers as f64,
        );
        node.services.telemetry.measures.span(
            Histogram::PodWorkerStartDuration,
            &[],
            received,
            now,
        );
        node.services.telemetry.spans.record_bytes(
            &uid,
            Hop::WatchNode,
            "receive",
            received,
            bytes,
        );
    }

    /// Whether this node takes the pod. A critical one may push others out.
    fn admit(
        &self,
        node: &NodeHandles,
        pod: &Arc<Pod>,
        fresh: Option<&Node>,
    ) -> Result<(), Refusal> {
        let status = pod.status.as_ref();
        if ended(pod) {
            return Ok(());
        }
        if let Some(status) = status.filter(|status| status.start_time.is_some()) {
            let granted = resize::from_status(pod, status).map(Arc::new);
            node.services
                .admission
                .readmit(granted.unwrap_or_else(|| pod.clone()));
            return Ok(());
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if node.shutdown.now() {
            return Err(Refusal::Rejected(Rejection::node_shutdown()));
        }
        let cached = node.services.node_object.last_known();
        let object = fresh.or(cached.as_deref());
        let pressures = node.pressure.now();
        // News about a pod may come in another order than news about this one.
        node.services
            .admission
            .release_unless(|other| is_static(other) || node.has_pod(other));
        let rejections = match node.services.admission.admit(pod, object, &pressures) {
            Ok(()) => return Ok(()),
            Err(rejections) => rejections,
        };
        let critical = is_critical(pod);
        // What preemption cannot mend is the reason where there is such a one.
        if critical && let Some(other) = rejections.iter().find(|one| one.shortage.is_none()) {
            return Err(Refusal::Rejected(other.clone()));
        }
        let shortages: Vec<_> = rejections
            .iter()
            .filter_map(|rejection| rejection.shortage.clone())
            .collect();
        if critical && !shortages.is_empty() {
            let victims = preemption::victims(pod, &shortages, &node.services.admission.granted())
                .map_err(|missing| Refusal::Rejected(Rejection::no_victims(&missing)))?;
            for victim in &victims {
                node.services
                    .telemetry
                    .measures
                    .count(Counter::Preemptions, &[&shortages[0].resource]);
                self.preempt(node, victim);
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

    fn preempt(&self, node: &NodeHandles, victim: &Pod) {
        let uid = victim.metadata.uid.clone().unwrap_or_default();
        let message = "Preempted in order to admit critical pod";
        node.services
            .telemetry
            .events
            .warning(victim, "Preempting", message);
        let termination = Termination {
            reason: "Preempting".to_owned(),
            message: message.to_owned(),
            disruption: true,
            ..Termination::default()
        };
        // What it was granted is given back when it has ended.
        self.end(&uid, termination);
    }

    /// Has the pod's worker end it, for a reason that lies with the node.
    pub fn end(&self, uid: &str, termination: Termination) {
        if let Some(known) = self.known.lock().get_mut(uid) {
            known.ending = true;
            known.mailbox.end(termination);
        }
    }

    /// The API no longer has the pod. What it was granted is free at once, though its containers may
    /// still be ending: the scheduler does not count it any more either, and would see its next
    /// pods for this node rejected.
    fn gone(&self, admission: &Admission, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        admission.release(uid);
        let mut known = self.known.lock();
        match known.get_mut(uid) {
            Some(entry) if entry.over => {
                known.remove(uid);
            }
            Some(entry) => {
                entry.gone = true;
                // Its last form says how long its containers have: a forced deletion comes at once.
                if pod.metadata.deletion_timestamp.is_some() {
                    entry.mailbox.pod(Arc::new(pod.clone()));
                }
                entry.mailbox.removed();
            }
            None => {}
        }
    }

    /// Its worker has ended. Returns the pod.
    fn over(&self, uid: &str) -> Option<Arc<Pod>> {
        let mut known = self.known.lock();
        // Kept until the watch says it is gone, so that a late event does not revive it.
        let entry = known.get_mut(uid)?;
        entry.over = true;
        let (pod, gone) = (entry.pod.clone(), entry.gone);
        if gone {
            known.remove(uid);
        }
        Some(pod)
    }

    fn pass_on(&self, hint: Hint) {
        self.changed.notify_waiters();
        let known = self.known.lock();
        match hint {
            Hint::Pod { uid, sighting } => {
                if let Some(entry) = known.get(&uid) {
                    entry.mailbox.runtime_changed(sighting);
                }
            }
            Hint::All => {
                for entry in known.values() {
                    entry.mailbox.runtime_changed(None);
                }
            }
        }
    }

    /// Ends what this node holds of pods that nobody has any more. `expected`: UIDs that may not be
    /// known here yet.
    fn end_orphans(
        &self,
        node: &NodeHandles,
        found: BTreeMap<String, leftovers::Name>,
        expected: &BTreeSet<String>,
        workers: &mut JoinSet<String>,
    ) {
        for (uid, name) in found {
            if expected.contains(&uid) || self.known.lock().contains_key(&uid) {
                continue;
            }
            let pod = orphan(uid.clone(), name.namespace, name.name);
            tracing::info!(pod = uid, "ending a pod that the API no longer has");
            node.services
                .telemetry
                .measures
                .count(Counter::OrphanedRuntimePods, &[]);
            let (pod, mailbox) = (Arc::new(pod), Arc::new(Mailbox::default()));
            mailbox.removed();
            let entry = Known {
                pod: pod.clone(),
                mailbox: mailbox.clone(),
                over: false,
                gone: true,
                ending: false,
            };
            self.known.lock().insert(uid.clone(), entry);
            let worker = Worker::orphaned(node.services.clone(), mailbox, pod);
            workers.spawn(run_worker(uid, worker));
        }
    }
}

async fn run_worker(uid: String, worker: Worker) -> String {
    worker.run().await;
    uid
}

fn ended(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn orphan(uid: String, namespace: String, name: String) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace),
            uid: Some(uid),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            // Nobody can say what it wished for.
            termination_grace_period_seconds: Some(1),
            ..PodSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(pods: &Pods, uid: &str, over: bool) {
        let entry = Known {
            pod: Arc::new(orphan(uid.into(), "default".into(), "boat".into())),
            mailbox: Arc::default(),
            over,
            gone: false,
            ending: false,
        };
        pods.known.lock().insert(uid.into(), entry);
    }

    fn admission() -> Admission {
        Admission::new(crate::capacity::Capacity::default(), "n1", Vec::new())
    }

    fn uid_of(pod: &Pod) -> &str {
        pod.metadata.uid.as_deref().unwrap_or_default()
    }

    #[test]
    fn a_pod_is_told_to_end_once() {
        let pods = Pods::default();
        known(&pods, "a", false);
        known(&pods, "b", true);
        assert_eq!(pods.not_ending().len(), 1);
        pods.end("a", Termination::default());
        assert!(pods.not_ending().is_empty());
        assert!(!pods.has_ended("a") && pods.has_ended("b") && !pods.has_ended("c"));
    }

    #[test]
    fn a_new_pod_goes_before_its_deleted_namesake() {
        let pods = Pods::default();
        known(&pods, "a", false);
        known(&pods, "b", false);
        let old = pods.find("default", "boat").expect("a pod");
        assert_eq!(uid_of(&old), "a");
        pods.gone(&admission(), &old);
        let new = pods.find("default", "boat").expect("a pod");
        assert_eq!(uid_of(&new), "b");
    }

    #[test]
    fn a_pod_is_forgotten_when_object_and_worker_are_gone_in_either_order() {
        let pods = Pods::default();
        known(&pods, "a", false);
        known(&pods, "b", true);
        let all = pods.list();
        let admission = admission();
        for pod in &all {
            pods.gone(&admission, pod);
        }
        assert_eq!(pods.list().len(), 1, "a's worker is still clearing up");
        pods.over("a");
        assert!(pods.list().is_empty());
    }
}
