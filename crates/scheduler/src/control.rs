//! The scheduler's loop: takes in changes, decides one pod at a time, sends the writes off.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use client::{Change, Delivery, Informer, Subscription, events};
use environment::Environment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use semantics::pod::is_terminal;
use tokio::{
    sync::Notify,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use trace::{Hop, Span};

use crate::{
    Decisions, Framework, NodeResult, PodInfo, ProfileError, Registry, SCHEDULER_NAME, Scheduler,
    Snapshot, WaitingPods,
    cycle::Cycle,
    decide::decide,
    decision::SchedulingResult,
    disruption_budget::Budget,
    framework::{BindError, ClusterEvent, Permission, Preemption, UnschedulablePod},
    plugins::{default_binder::DefaultBinder, volume_binding::binder::VolumeBinder},
    pod_info::assigned_node,
    queue::{Queue, Queued, Rules},
    shapes::Shapes,
    storage_feed::{Followed, StorageFeed, sides},
    workload_selectors::InformedSelectors,
    writes::{self, Steps, Written, elapsed},
};

/// Above this many writes under way, decisions wait.
const MOST_WRITES: usize = 256;
/// Above this many pods that wait for something before their binding, decisions wait.
const MOST_PREPARING: usize = 4096;
/// The API refuses longer event messages.
const LONGEST_MESSAGE: usize = 1024;
/// The message about preemption where no node was even looked at.
const HOPELESS: &str =
    "preemption: 0/COUNT nodes are available: COUNT Preemption is not helpful for scheduling.";

pub(crate) struct Control {
    client: kube::Client,
    environment: Environment,
    recorder: trace::Recorder,
    decisions: Decisions,
    profiles: Arc<Profiles>,
    /// The state that each profile keeps, by its name.
    memories: BTreeMap<String, Memory>,
    waiting: WaitingPods,
    informer: Informer<Pod>,
    pods: Subscription<Pod>,
    nodes: Subscription<Node>,
    storage: StorageFeed,
    budgets: Informer<PodDisruptionBudget>,
    /// Decisions begin when all lists have been taken in: a node must not be given away twice.
    pods_listed: bool,
    nodes_listed: bool,
    queue: Queue,
    snapshot: Snapshot,
    writes: JoinSet<Written>,
    /// Bindings that have to wait for something else first, perhaps for minutes.
    preparing: JoinSet<Written>,
    /// Wakes those of `preparing`.
    changed: Arc<Notify>,
}

/// The frameworks by the name under which pods ask for them.
type Profiles = BTreeMap<String, Framework>;

struct Memory {
    shapes: Shapes,
    events: events::Recorder,
}

enum Event {
    Pod(Delivery<Pod>),
    Node(Change<Node>),
    Storage(Followed),
    Written(Result<Written, JoinError>),
    Decide,
    Due,
    Stop,
}

impl Control {
    pub(crate) fn new(
        scheduler: Scheduler,
        add: impl FnOnce(&mut Registry),
    ) -> Result<Control, ProfileError> {
        let Scheduler {
            client,
            informers,
            environment,
            recorder,
            configuration,
            decisions,
            waiting,
        } = scheduler;
        let informer = informers.of::<Pod>();
        let changed = Arc::new(Notify::new());
        let mut registry = Registry::in_tree(
            Arc::new(DefaultBinder::new(client.clone())),
            Some(Arc::new(InformedSelectors::new(&informers))),
            Some(VolumeBinder {
                client: client.clone(),
                pods: informer.clone(),
                nodes: informers.of(),
                claims: informers.of(),
                volumes: informers.of(),
                changed: changed.clone(),
                patience: Duration::from_secs(600),
            }),
        );
        add(&mut registry);
        let profiles = configuration.profiles.iter().map(|profile| {
            let framework = Framework::new(profile, &registry)?;
            Ok((profile.name().to_owned(), framework))
        });
        let profiles: Arc<Profiles> = Arc::new(profiles.collect::<Result<_, ProfileError>>()?);
        let memory = |name: &String| Memory {
            shapes: Shapes::default(),
            events: events::Recorder::new(client.clone(), environment.clone(), name, None),
        };
        let (gates, ranks) = (profiles.clone(), profiles.clone());
        let queue = Queue::new(Rules {
            may_enter: Box::new(move |pod| {
                let framework = gates.get(scheduler_name(&pod.pod));
                framework.is_none_or(|framework| framework.may_enter(pod))
            }),
            rank: Box::new(move |pod| {
                let framework = ranks.get(scheduler_name(&pod.pod));
                framework.map_or(0, |framework| framework.queue_sort.rank(pod))
            }),
            first_backoff: configuration.first_backoff,
            longest_backoff: configuration.longest_backoff,
        });
        Ok(Control {
            memories: profiles
                .keys()
                .map(|name| (name.clone(), memory(name)))
                .collect(),
            client,
            environment,
            recorder,
            decisions,
            profiles,
            waiting,
            pods: informer.subscribe(),
            informer,
            nodes: informers.of::<Node>().subscribe(),
            storage: StorageFeed::new(&informers),
            budgets: informers.of::<PodDisruptionBudget>(),
            pods_listed: false,
            nodes_listed: false,
            queue,
            snapshot: Snapshot::default(),
            writes: JoinSet::new(),
            preparing: JoinSet::new(),
            changed,
        })
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            match self.next(&shutdown).await {
                Event::Pod(delivery) => self.handle_pod(delivery),
                Event::Node(change) => self.handle_node(change),
                Event::Storage(followed) => self.handle_storage(followed),
                Event::Written(written) => self.handle_written(written),
                Event::Due => self.queue.release(Instant::now()),
                Event::Decide => {
                    self.decide_next();
                    // Let the binding go out before the next decision, also on one thread.
                    tokio::task::yield_now().await;
                }
                Event::Stop => break,
            }
        }
        // Bindings under way have been decided: see them through. Those that still wait for their
        // volumes are decided again by whoever comes next.
        while self.writes.join_next().await.is_some() {}
    }

    async fn next(&mut self, shutdown: &CancellationToken) -> Event {
        let can_decide = self.pods_listed
            && self.nodes_listed
            && self.storage.is_listed()
            && self.queue.has_ready()
            && self.writes.len() < MOST_WRITES
            && self.preparing.len() < MOST_PREPARING;
        let due = self.queue.next_due();
        let release = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Event::Stop,
            delivery = self.pods.next_delivery() => Event::Pod(delivery),
            change = self.nodes.next() => Event::Node(change),
            followed = self.storage.next() => Event::Storage(followed),
            Some(written) = self.writes.join_next() => Event::Written(written),
            Some(written) = self.preparing.join_next() => Event::Written(written),
            () = std::future::ready(()), if can_decide => Event::Decide,
            () = release => Event::Due,
        }
    }

    fn handle_pod(&mut self, delivery: Delivery<Pod>) {
        match &delivery.change {
            Change::Added(pod) | Change::Modified { new: pod, .. } => {
                let pod = pod.clone();
                self.set_pod(pod, delivery.received_micros, delivery.bytes);
            }
            Change::Deleted(pod) => self.drop_pod(pod),
            Change::Resynced => self.pods_listed = true,
        }
    }

    fn set_pod(&mut self, pod: Arc<Pod>, received_micros: i64, bytes: u64) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if is_terminal(&pod) {
            self.drop_pod(&pod);
        } else if let Some(node) = assigned_node(&pod) {
            self.queue.remove(uid);
            self.snapshot.remove_nomination(uid);
            let info = Arc::new(PodInfo::new(pod.clone()));
            let old = self.snapshot.placed(uid);
            let (old, confirmed) = old.map_or((None, false), |(old, c)| (Some(old.clone()), c));
            self.snapshot.confirm(info.clone(), node);
            match old {
                Some(old) if confirmed => {
                    if old.pod.metadata.labels != pod.metadata.labels {
                        let (old, new) = (&old, &info);
                        self.wake(&ClusterEvent::PodChanged { old, new });
                    }
                    if info.requests.is_less_somewhere_than(&old.requests) {
                        let node = self.snapshot.node(node);
                        let event = ClusterEvent::PodShrank { node };
                        wake(&mut self.queue, &self.profiles, &event);
                    }
                }
                _ => self.wake(&ClusterEvent::PodAdded(&info)),
            }
        } else if self.snapshot.is_assumed(uid) {
            // Decided, and its binding is under way: nothing to do with older states.
        } else if self.is_for_us(&pod) {
            let info = Arc::new(PodInfo::new(pod.clone()));
            // Nominations of an earlier scheduler count too.
            let status = pod.status.as_ref();
            if let Some(node) = status.and_then(|status| status.nominated_node_name.as_deref()) {
                self.snapshot.nominate(&info, Some(node));
            }
            let now_micros = self.environment.now_micros();
            if self.queue.set(info, Instant::now(), now_micros) {
                let span = Span {
                    hop: Hop::WatchScheduler,
                    name: "watch".to_owned(),
                    component: "scheduler".to_owned(),
                    start: received_micros,
                    queue_us: 0,
                    work_us: elapsed(received_micros, now_micros),
                    bytes,
                    failure: None,
                };
                self.recorder.record(uid, span);
            }
        } else {
            self.queue.remove(uid);
        }
    }

    fn drop_pod(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.queue.remove(uid);
        self.snapshot.remove_nomination(uid);
        self.waiting.reject(uid, "", "the pod is gone");
        self.changed.notify_waiters();
        let node = self.snapshot.placed_on(uid).map(str::to_owned);
        if let Some(removed) = self.snapshot.remove_pod(uid) {
            self.wake_after(&removed, node.as_deref());
        }
    }

    fn handle_node(&mut self, change: Change<Node>) {
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        match change {
            Change::Added(node) => {
                let name = name(&node);
                self.snapshot.set_node(node);
                if let Some(node) = self.snapshot.node(&name) {
                    wake(
                        &mut self.queue,
                        &self.profiles,
                        &ClusterEvent::NodeAdded(node),
                    );
                }
            }
            Change::Modified { old, new } => {
                let name = name(&new);
                self.snapshot.set_node(new);
                if let Some(new) = self.snapshot.node(&name) {
                    let event = ClusterEvent::NodeChanged { old: &old, new };
                    wake(&mut self.queue, &self.profiles, &event);
                }
            }
            Change::Deleted(node) => {
                self.snapshot.remove_node(&name(&node));
                self.changed.notify_waiters();
                self.wake(&ClusterEvent::NodeRemoved(&node));
            }
            Change::Resynced => self.nodes_listed = true,
        }
    }

    fn handle_storage(&mut self, followed: Followed) {
        let volumes = &mut self.snapshot.volumes;
        match followed {
            Followed::Claim(change) => match sides(change) {
                (_, Some(new)) => {
                    volumes.set_claim(new.clone());
                    self.wake(&ClusterEvent::Claim(&new));
                }
                (Some(old), None) => volumes.remove_claim(&old),
                (None, None) => {}
            },
            Followed::Volume(change) => match sides(change) {
                (_, Some(new)) => {
                    volumes.set_volume(new.clone());
                    self.wake(&ClusterEvent::Volume(&new));
                }
                (Some(old), None) => volumes.remove_volume(&old),
                (None, None) => {}
            },
            Followed::Class(change) => match sides(change) {
                (old, Some(new)) => {
                    volumes.set_class(new.clone());
                    let old = old.as_deref();
                    self.wake(&ClusterEvent::StorageClass { old, new: &new });
                }
                (Some(old), None) => volumes.remove_class(&old),
                (None, None) => {}
            },
            Followed::CsiNode(change) => match sides(change) {
                (old, Some(new)) => {
                    volumes.set_csi_node(new.clone());
                    let old = old.as_deref();
                    self.wake(&ClusterEvent::CsiNode { old, new: &new });
                }
                (Some(old), None) => volumes.remove_csi_node(&old),
                (None, None) => {}
            },
            Followed::Driver(change) => match sides(change) {
                (_, Some(new)) => {
                    volumes.set_driver(&new);
                    self.wake(&ClusterEvent::StorageRoom);
                }
                (Some(old), None) => volumes.remove_driver(&old),
                (None, None) => {}
            },
            Followed::Capacity(change) => match sides(change) {
                (_, Some(new)) => {
                    volumes.set_capacity(new);
                    self.wake(&ClusterEvent::StorageRoom);
                }
                (Some(old), None) => volumes.remove_capacity(&old),
                (None, None) => {}
            },
            Followed::Namespace(change) => match sides(change) {
                (_, Some(new)) => self.snapshot.set_namespace(&new.metadata),
                (Some(old), None) => self.snapshot.remove_namespace(&old.metadata),
                (None, None) => {}
            },
        }
        self.changed.notify_waiters();
    }

    fn decide_next(&mut self) {
        let Some(queued) = self.queue.pop() else {
            return;
        };
        let start_micros = self.environment.now_micros();
        let profiles = self.profiles.clone();
        let name = scheduler_name(&queued.pod.pod);
        let (Some(framework), Some(memory)) = (profiles.get(name), self.memories.get_mut(name))
        else {
            return;
        };
        let environment = &self.environment;
        let decision = decide(
            framework,
            &mut memory.shapes,
            &queued.pod,
            &self.snapshot,
            || environment.random_u64(),
        );
        let end_micros = self.environment.now_micros();
        let placed = matches!(decision.outcome, SchedulingResult::Placed { .. });
        // Of a pod that stays pending the first attempt is enough of a trace.
        if placed || queued.attempts == 1 {
            let span = Span {
                hop: Hop::Schedule,
                name: if placed {
                    "filter and score"
                } else {
                    "unschedulable"
                }
                .to_owned(),
                component: "scheduler".to_owned(),
                start: start_micros,
                queue_us: elapsed(queued.since_micros, start_micros),
                work_us: elapsed(start_micros, end_micros),
                bytes: 0,
                failure: None,
            };
            self.recorder.record(&queued.pod.uid, span);
        }
        let pod = queued.pod.clone();
        let attempt = queued.attempts;
        match &decision.outcome {
            SchedulingResult::Placed { node } => {
                self.place(framework, queued, node.clone(), end_micros)
            }
            SchedulingResult::Unschedulable { message } => {
                let (mut message, now) = (message.clone(), Instant::now());
                if self.snapshot.node_count() > 0
                    && let Err(reason) = self.preempt_for(framework, &pod, &decision.nodes)
                {
                    message = format!("{message} {reason}");
                }
                let rejected_by = decision.rejected_by.clone();
                self.queue.give_up(queued, rejected_by, now, end_micros);
                self.explain(pod.clone(), "Unschedulable", message);
            }
        }
        let (key, uid) = (pod.key.clone(), pod.uid.clone());
        let record = self.decisions.push(key, uid, end_micros, attempt, decision);
        self.recorder.explain(&pod.uid, record);
    }

    /// Preempts pods if that lets the pod run, and nominates it for their node; otherwise says why
    /// preemption does not help.
    fn preempt_for(
        &mut self,
        framework: &Framework,
        pod: &Arc<PodInfo>,
        results: &[NodeResult],
    ) -> Result<(), String> {
        let budgets: Vec<Budget> = self
            .budgets
            .list()
            .iter()
            .filter_map(|budget| Budget::of(budget))
            .collect();
        let Ok(cycle) = Cycle::begin(framework, pod, &self.snapshot) else {
            return Err(HOPELESS.replace("COUNT", &self.snapshot.node_count().to_string()));
        };
        let unschedulable = UnschedulablePod {
            trials: &cycle,
            budgets: &budgets,
            results,
            random: self.environment.random_u64(),
        };
        let mut reasons = Vec::new();
        let found = framework.post_filters.iter().find_map(|plugin| {
            let found = plugin.post_filter(&unschedulable);
            found
                .map_err(|reason| reasons.push(reason.to_string()))
                .ok()
        });
        let Some(Preemption { node, victims }) = found else {
            return match reasons.is_empty() {
                true => Ok(()),
                false => Err(reasons.join(" ")),
            };
        };
        for victim in &victims {
            let message = format!("Preempted by pod {} on node {node}", pod.uid);
            if let Some(memory) = self.memories.get(&framework.scheduler_name) {
                let victim = victim.pod.as_ref();
                memory.events.normal(victim, "Preempted", message);
            }
        }
        // Pods of lower priority that are nominated for the node have to be decided again.
        for lesser in self
            .snapshot
            .nominated_with_lower_priority(&node, pod.priority)
        {
            self.snapshot.nominate(&lesser, None);
            self.writes
                .spawn(writes::withdraw(self.client.clone(), lesser));
        }
        self.snapshot.nominate(pod, Some(&node));
        self.writes.spawn(writes::preempt(
            self.client.clone(),
            self.environment.clone(),
            pod.clone(),
            node,
            victims,
        ));
        Ok(())
    }

    /// Puts the pod on its node's account, asks for permission and sends the binding off.
    fn place(&mut self, framework: &Framework, queued: Queued, node: String, decided_micros: i64) {
        let pod = queued.pod.clone();
        self.snapshot.remove_nomination(&pod.uid);
        framework.reserve(&pod, &node, &mut self.snapshot);
        let mut waits: BTreeMap<&'static str, Duration> = BTreeMap::new();
        for plugin in &framework.permits {
            match plugin.permit(&pod, &node) {
                Permission::Allow => {}
                Permission::Wait(limit) => {
                    waits.insert(plugin.name(), limit);
                }
                Permission::Reject(reason) => {
                    framework.unreserve(&pod, &mut self.snapshot);
                    let count = self.snapshot.node_count();
                    let message = format!("0/{count} nodes are available: 1 {reason}.");
                    let rejected_by = BTreeSet::from([plugin.name()]);
                    let now = Instant::now();
                    self.queue.give_up(queued, rejected_by, now, decided_micros);
                    self.explain(pod, "Unschedulable", message);
                    return;
                }
            }
        }
        let Some(binder) = framework.binder(&pod) else {
            framework.unreserve(&pod, &mut self.snapshot);
            let now = Instant::now();
            self.queue.try_later(queued, now, decided_micros);
            self.explain(pod, "SchedulerError", "no plugin binds this pod".to_owned());
            return;
        };
        let permission = (!waits.is_empty()).then(|| self.waiting.add(&pod.uid, &waits));
        let preparations = framework.pre_bind(&pod, &node, &self.snapshot);
        let tasks = match preparations.is_empty() && permission.is_none() {
            true => &mut self.writes,
            false => &mut self.preparing,
        };
        let steps = Steps {
            permission,
            preparations,
            binder,
        };
        tasks.spawn(writes::bind(
            steps,
            self.environment.clone(),
            self.recorder.clone(),
            queued,
            node,
            decided_micros,
        ));
    }

    fn handle_written(&mut self, written: Result<Written, JoinError>) {
        match written {
            Ok(Written::Condition | Written::Preempted) => {}
            Ok(Written::Bound {
                queued,
                node,
                result: Ok(()),
            }) => {
                self.snapshot.volumes.release(&queued.pod.uid);
                let message = format!("Successfully assigned {} to {node}", queued.pod.key);
                let name = scheduler_name(&queued.pod.pod);
                if let Some(memory) = self.memories.get(name) {
                    let pod = queued.pod.pod.as_ref();
                    memory.events.normal(pod, "Scheduled", message);
                }
                if let Some(framework) = self.profiles.get(name) {
                    framework.post_bind(&queued.pod, &node);
                }
            }
            Ok(Written::Bound {
                queued,
                result: Err(error),
                ..
            }) => self.binding_failed(queued, &error),
            // The pod stays assumed: its node may or may not have been written.
            Err(error) => tracing::error!(%error, "a write panicked"),
        }
    }

    fn binding_failed(&mut self, queued: Queued, error: &BindError) {
        let pod = queued.pod.clone();
        tracing::warn!(pod = %pod.key, error = %environment::chain(error), "binding failed");
        let was_assumed = self.snapshot.is_assumed(&pod.uid);
        let node = self.snapshot.placed_on(&pod.uid).map(str::to_owned);
        if let Some(framework) = self.profiles.get(scheduler_name(&pod.pod)) {
            framework.unreserve(&pod, &mut self.snapshot);
        }
        self.wake_after(&pod, node.as_deref());
        // It may have been deleted, recreated, or bound by another scheduler.
        let current = self.informer.get(&pod.key.namespace, &pod.key.name);
        let current = current.filter(|current| {
            current.metadata.uid.as_deref() == Some(&pod.uid)
                && was_assumed
                && assigned_node(current).is_none()
                && !is_terminal(current)
                && self.is_for_us(current)
        });
        let Some(current) = current else {
            return;
        };
        let pod = Arc::new(PodInfo::new(current));
        let queued = Queued {
            pod: pod.clone(),
            ..queued
        };
        let now_micros = self.environment.now_micros();
        if let BindError::NotPermitted { plugin, message } = error {
            let rejected_by = BTreeSet::from([*plugin]);
            self.queue
                .give_up(queued, rejected_by, Instant::now(), now_micros);
            let count = self.snapshot.node_count();
            let message = format!("0/{count} nodes are available: 1 {message}.");
            self.explain(pod, "Unschedulable", message);
            return;
        }
        self.queue.try_later(queued, Instant::now(), now_micros);
        let framework = self.profiles.get(scheduler_name(&pod.pod));
        let binder = framework.and_then(|framework| framework.binder(&pod));
        let (point, plugin) = match error {
            BindError::Unprepared(error) => ("PreBind", error.plugin),
            _ => ("Bind", binder.map_or("", |binder| binder.name())),
        };
        let cause = environment::chain(error);
        let message = format!("running {point} plugin \"{plugin}\": {cause}");
        self.explain(pod, "SchedulerError", message);
    }

    /// Reports why the pod is not scheduled: in an event, and in the pod's condition.
    fn explain(&mut self, pod: Arc<PodInfo>, reason: &'static str, message: String) {
        if let Some(memory) = self.memories.get(scheduler_name(&pod.pod)) {
            let text = truncate(message.clone());
            memory
                .events
                .warning(pod.pod.as_ref(), "FailedScheduling", text);
        }
        self.writes.spawn(writes::explain(
            self.client.clone(),
            self.environment.clone(),
            pod,
            reason,
            message,
        ));
    }

    /// Wakes the pods that may fit now that `pod` has left the node. On a node with nominated pods
    /// only these are tried: the space is theirs.
    fn wake_after(&mut self, pod: &PodInfo, node: Option<&str>) {
        let node = node.and_then(|name| self.snapshot.node(name));
        let event = ClusterEvent::PodRemoved { pod, node };
        let nominated = node.map_or(Vec::new(), |node| self.snapshot.nominated_on(&node.name));
        if nominated.is_empty() || node.is_none() {
            wake(&mut self.queue, &self.profiles, &event);
            return;
        }
        let crowded = node.map(|node| {
            let mut crowded = node.clone();
            for other in &nominated {
                crowded.add_pod(other.clone());
            }
            crowded
        });
        let to_others = ClusterEvent::PodRemoved {
            pod,
            node: crowded.as_ref(),
        };
        wake_each(
            &mut self.queue,
            &self.profiles,
            &event,
            |waiting| match nominated
                .iter()
                .any(|nominated| nominated.uid == waiting.uid)
            {
                true => &event,
                false => &to_others,
            },
        );
    }

    fn is_for_us(&self, pod: &Pod) -> bool {
        pod.metadata.deletion_timestamp.is_none() && self.profiles.contains_key(scheduler_name(pod))
    }

    fn wake(&mut self, event: &ClusterEvent<'_>) {
        wake(&mut self.queue, &self.profiles, event);
    }
}

fn wake(queue: &mut Queue, profiles: &Profiles, event: &ClusterEvent<'_>) {
    wake_each(queue, profiles, event, |_| event);
}

/// As `wake`, where what happened is not the same to every pod.
fn wake_each<'e>(
    queue: &mut Queue,
    profiles: &Profiles,
    event: &ClusterEvent<'_>,
    seen_by: impl Fn(&PodInfo) -> &'e ClusterEvent<'e>,
) {
    let listeners = || {
        let all = profiles.values();
        all.flat_map(|framework| framework.listeners(event))
            .collect()
    };
    if queue.is_empty_of(listeners) {
        return;
    }
    queue.wake(Instant::now(), |pod, rejected_by| {
        let framework = profiles.get(scheduler_name(&pod.pod));
        framework.is_some_and(|framework| framework.may_help(seen_by(pod), pod, rejected_by))
    });
}

/// Which profile the pod asks for.
fn scheduler_name(pod: &Pod) -> &str {
    let name = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref());
    name.filter(|name| !name.is_empty())
        .unwrap_or(SCHEDULER_NAME)
}

fn truncate(message: String) -> String {
    const SUFFIX: &str = " ...";
    if message.len() <= LONGEST_MESSAGE {
        return message;
    }
    let mut end = LONGEST_MESSAGE - SUFFIX.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned() + SUFFIX
}
