//! One watch over the pods of all simulated nodes. It counts bindings as they appear, and has the
//! nodes report and terminate their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use environment::Environment;
use futures::StreamExt;
use kube::core::WatchEvent;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use super::Report;
use super::names::pods_path;
use super::nodes::{self, Nodes};
use super::pace::Pace;
use super::requests::Requests;

/// The number of status writes and deletions that may be in flight.
const WRITES: usize = 32;

/// The fields of a pod that the watcher needs.
#[derive(Clone, Debug, Deserialize)]
struct SeenPod {
    metadata: SeenMetadata,
    #[serde(default)]
    spec: SeenSpec,
    #[serde(default)]
    status: SeenStatus,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenMetadata {
    name: String,
    uid: String,
    #[serde(default)]
    resource_version: String,
    deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeenSpec {
    #[serde(default)]
    node_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SeenStatus {
    #[serde(default)]
    phase: String,
}

#[derive(Deserialize)]
struct SeenList {
    metadata: ListMetadata,
    items: Vec<SeenPod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

/// A request that a simulated node has to send for one of its pods.
enum PodAction {
    ReportRunning {
        node: usize,
        name: String,
        uid: String,
    },
    Terminate {
        name: String,
        uid: String,
    },
}

#[derive(Default)]
struct State {
    /// Pods that were bound before the watch began are not counted.
    bound: BTreeSet<String>,
    pace: Pace,
    running: BTreeSet<String>,
    /// Pods that are reported as running after the measurement, by UID.
    unreported: BTreeMap<String, (usize, String)>,
    ending: BTreeSet<String>,
    problem: Option<String>,
}

impl State {
    fn forget(&mut self, uid: &str) {
        self.ending.insert(uid.to_owned());
        self.unreported.remove(uid);
        self.running.remove(uid);
    }
}

pub struct Watcher {
    state: Arc<Mutex<State>>,
    /// Notified of every change of the state.
    changed: Arc<Notify>,
    report: watch::Sender<bool>,
    /// Contains at most one action per pod.
    actions: mpsc::UnboundedSender<PodAction>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Watcher {
    /// Starts the watch. No binding after this call is missed.
    pub async fn start(requests: &Requests, nodes: &Nodes, report: Report) -> Result<Watcher> {
        let state: Arc<Mutex<State>> = Arc::default();
        let changed = Arc::new(Notify::new());
        let (report, reports) = watch::channel(report == Report::AtOnce);
        let (actions, wanted) = mpsc::unbounded_channel();
        let list = list(requests).await?;
        let environment = Environment::system();
        let mut follower = Follower {
            requests: requests.clone(),
            names: nodes.names(),
            state: state.clone(),
            changed: changed.clone(),
            report: reports,
            actions: actions.clone(),
            last_seen_micros: environment.now_micros(),
            environment,
        };
        for pod in &list.items {
            // Pods that were created with a node name run at once and are not counted.
            state.lock().bound.insert(pod.metadata.uid.clone());
            if let Some(node) = follower.names.get(&pod.spec.node_name) {
                let _ = actions.send(PodAction::ReportRunning {
                    node: *node,
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                });
            }
        }
        let tasks = vec![
            tokio::spawn(async move { follower.run(list.metadata.resource_version).await }),
            tokio::spawn(carry_out(requests.clone(), wanted)),
        ];
        Ok(Watcher {
            state,
            changed,
            report,
            actions,
            tasks,
        })
    }

    /// Waits until `pods` pods have been bound. Gives up when none was bound for `patience`.
    pub async fn wait_for(&mut self, pods: usize, patience: Duration) -> Result<Pace> {
        self.wait(patience, |state| (state.pace.count(), pods), "bound")
            .await?;
        Ok(std::mem::take(&mut self.state.lock().pace))
    }

    /// Has the nodes report all their pods as running.
    pub fn report_all(&self) {
        self.report.send_replace(true);
        let unreported = std::mem::take(&mut self.state.lock().unreported);
        for (uid, (node, name)) in unreported {
            let _ = self
                .actions
                .send(PodAction::ReportRunning { node, name, uid });
        }
    }

    /// Waits until all counted pods are running.
    pub async fn wait_until_running(&mut self, patience: Duration) -> Result<()> {
        let progress = |state: &State| {
            let expected = state.bound.difference(&state.ending).count();
            (state.running.len(), expected)
        };
        self.wait(patience, progress, "running").await
    }

    async fn wait(
        &self,
        patience: Duration,
        progress: impl Fn(&State) -> (usize, usize),
        what: &str,
    ) -> Result<()> {
        let mut last = 0;
        loop {
            let notified = self.changed.notified();
            let (reached, wanted) = {
                let state = self.state.lock();
                if let Some(problem) = &state.problem {
                    bail!("{problem}");
                }
                progress(&state)
            };
            if reached >= wanted {
                return Ok(());
            }
            let moved = reached != last;
            last = reached;
            if tokio::time::timeout(patience, notified).await.is_err() && !moved {
                bail!(
                    "{reached} of {wanted} pods were {what}, and no further pod within {patience:?} \
                     (--patience)"
                );
            }
        }
    }
}

async fn list(requests: &Requests) -> Result<SeenList> {
    let text = requests
        .send(http::Method::GET, &pods_path(), super::requests::JSON, b"")
        .await
        .context("listing pods")?;
    Ok(serde_json::from_str(&text)?)
}

struct Follower {
    requests: Requests,
    names: BTreeMap<String, usize>,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
    report: watch::Receiver<bool>,
    actions: mpsc::UnboundedSender<PodAction>,
    environment: Environment,
    /// The time of the last watch event.
    last_seen_micros: i64,
}

impl Follower {
    /// Follows the pods. A watch that ends with a restart of the server continues where it was, or
    /// from a new list.
    async fn run(&mut self, mut version: String) {
        loop {
            let lost = match self.follow(&mut version).await {
                Ok(lost) => lost,
                Err(problem) => {
                    self.state.lock().problem = Some(format!("watching pods: {problem:#}"));
                    self.changed.notify_waiters();
                    return;
                }
            };
            if lost && let Ok(list) = list(&self.requests).await {
                version = list.metadata.resource_version;
                for pod in &list.items {
                    // Pods that were bound during the gap count as bound at its beginning.
                    self.observe(pod, self.last_seen_micros);
                }
                self.observe_missing(&list.items);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Follows one watch to its end. Returns whether the next one must begin with a new list.
    async fn follow(&mut self, version: &mut String) -> Result<bool> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}",
            pods_path()
        );
        let request = http::Request::get(path).body(Vec::new())?;
        let events = self
            .requests
            .client
            .request_events::<SeenPod>(request)
            .await;
        let events = match events {
            Ok(events) => events,
            // The server restarts.
            Err(_) => return Ok(false),
        };
        futures::pin_mut!(events);
        while let Some(event) = events.next().await {
            let now_micros = self.environment.now_micros();
            match event {
                Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                    version.clone_from(&pod.metadata.resource_version);
                    self.observe(&pod, now_micros);
                }
                Ok(WatchEvent::Deleted(pod)) => {
                    version.clone_from(&pod.metadata.resource_version);
                    self.observe_deletion(&pod);
                }
                Ok(WatchEvent::Bookmark(bookmark)) => {
                    version.clone_from(&bookmark.metadata.resource_version);
                }
                Ok(WatchEvent::Error(status)) if status.code == 410 => return Ok(true),
                Ok(WatchEvent::Error(status)) => bail!("{}", status.message),
                Err(_) => return Ok(false),
            }
            self.last_seen_micros = now_micros;
        }
        Ok(false)
    }

    fn observe(&mut self, pod: &SeenPod, at_micros: i64) {
        let Some(node) = self.names.get(&pod.spec.node_name).copied() else {
            return;
        };
        let SeenMetadata { name, uid, .. } = &pod.metadata;
        let (name, uid) = (name.clone(), uid.clone());
        let mut state = self.state.lock();
        if pod.metadata.deletion_timestamp.is_some() {
            if state.ending.insert(uid.clone()) {
                state.unreported.remove(&uid);
                state.running.remove(&uid);
                let _ = self.actions.send(PodAction::Terminate { name, uid });
            }
        } else if pod.status.phase == "Running" {
            state.running.insert(uid);
        } else if state.bound.insert(uid.clone()) {
            state.pace.add(at_micros);
            if *self.report.borrow() {
                let _ = self
                    .actions
                    .send(PodAction::ReportRunning { node, name, uid });
            } else {
                state.unreported.insert(uid, (node, name));
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn observe_deletion(&mut self, pod: &SeenPod) {
        self.state.lock().forget(&pod.metadata.uid);
        self.changed.notify_waiters();
    }

    /// Forgets pods that were deleted during a gap, so that nobody waits for them.
    fn observe_missing(&mut self, listed: &[SeenPod]) {
        let listed: BTreeSet<&str> = listed.iter().map(|pod| &*pod.metadata.uid).collect();
        let mut state = self.state.lock();
        let is_missing = |uid: &&String| !listed.contains(uid.as_str());
        let missing: Vec<String> = state.bound.iter().filter(is_missing).cloned().collect();
        missing.iter().for_each(|uid| state.forget(uid));
        drop(state);
        self.changed.notify_waiters();
    }
}

/// Sends the requests of the nodes, several at once. A pod may have been deleted meanwhile.
async fn carry_out(requests: Requests, mut actions: mpsc::UnboundedReceiver<PodAction>) {
    let environment = Environment::system();
    let room = Arc::new(Semaphore::new(WRITES));
    while let Some(action) = actions.recv().await {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        let requests = requests.clone();
        let now = environment.now();
        tokio::spawn(async move {
            let done = match &action {
                PodAction::ReportRunning { node, name, uid } => {
                    let now = format!("{now:.0}");
                    nodes::report_running(&requests, *node, name, uid, &now).await
                }
                PodAction::Terminate { name, uid } => nodes::terminate(&requests, name, uid).await,
            };
            if let Err(error) = done
                && !client::retry::is_not_found(&error)
            {
                print_error!(
                    "warning: a simulated node could not write the status of a pod: {}",
                    client::retry::sentence(&error)
                );
            }
            drop(permit);
        });
    }
}
