//! The one watch over the pods of all simulated nodes: it counts bindings as they appear and, beside
//! that, has the nodes report or end their pods.

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
use super::nodes::{self, Nodes};
use super::pace::Pace;
use super::requests::Requests;
use super::workload::pods_path;

/// So many writes of nodes are under way at most.
const WRITES: usize = 32;

/// What the watcher needs of a pod.
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

/// What a node has to do about a pod.
enum Duty {
    Run {
        node: usize,
        name: String,
        uid: String,
    },
    End {
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
    /// Pods whose report waits for the end of the measurement, by uid.
    later: BTreeMap<String, (usize, String)>,
    ending: BTreeSet<String>,
    problem: Option<String>,
}

impl State {
    fn forget(&mut self, uid: &str) {
        self.ending.insert(uid.to_owned());
        self.later.remove(uid);
        self.running.remove(uid);
    }
}

pub struct Watcher {
    state: Arc<Mutex<State>>,
    /// Told of every change of the state.
    changed: Arc<Notify>,
    report: watch::Sender<bool>,
    /// Holds no more than there are pods.
    duties: mpsc::UnboundedSender<Duty>,
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
    /// Begins to watch; from now on nothing is missed.
    pub async fn start(requests: &Requests, nodes: &Nodes, report: Report) -> Result<Watcher> {
        let state: Arc<Mutex<State>> = Arc::default();
        let changed = Arc::new(Notify::new());
        let (report, reports) = watch::channel(report == Report::AtOnce);
        let (duties, wanted) = mpsc::unbounded_channel();
        let list = list(requests).await?;
        let environment = Environment::system();
        let mut follower = Follower {
            requests: requests.clone(),
            names: nodes.names(),
            state: state.clone(),
            changed: changed.clone(),
            report: reports,
            duties: duties.clone(),
            last_seen_micros: environment.now_micros(),
            environment,
        };
        for pod in &list.items {
            // Pods that were made on their nodes run at once and do not count.
            state.lock().bound.insert(pod.metadata.uid.clone());
            if let Some(node) = follower.names.get(&pod.spec.node_name) {
                let _ = duties.send(Duty::Run {
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
            duties,
            tasks,
        })
    }

    /// Waits until so many pods have been bound, but only while some still are.
    pub async fn wait_for(&mut self, pods: usize, patience: Duration) -> Result<Pace> {
        self.wait(patience, |state| (state.pace.count(), pods), "bound")
            .await?;
        Ok(std::mem::take(&mut self.state.lock().pace))
    }

    /// Lets the nodes report what they have been given.
    pub fn report_all(&self) {
        self.report.send_replace(true);
        let later = std::mem::take(&mut self.state.lock().later);
        for (uid, (node, name)) in later {
            let _ = self.duties.send(Duty::Run { node, name, uid });
        }
    }

    /// Waits until all pods that were counted run.
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
                bail!("{reached} of {wanted} pods were {what}, and no more within {patience:?}");
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
    duties: mpsc::UnboundedSender<Duty>,
    environment: Environment,
    /// When the last event came.
    last_seen_micros: i64,
}

impl Follower {
    /// Follows the pods. A watch that ends with a restart of the server goes on where it was, or
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
                    // Bound while nobody looked: counted as early as that can have been.
                    self.take(pod, self.last_seen_micros);
                }
                self.take_missing(&list.items);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether the watch cannot go on where it was.
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
            // The server is away for a moment.
            Err(_) => return Ok(false),
        };
        futures::pin_mut!(events);
        while let Some(event) = events.next().await {
            let now_micros = self.environment.now_micros();
            match event {
                Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                    version.clone_from(&pod.metadata.resource_version);
                    self.take(&pod, now_micros);
                }
                Ok(WatchEvent::Deleted(pod)) => {
                    version.clone_from(&pod.metadata.resource_version);
                    self.take_gone(&pod);
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

    fn take(&mut self, pod: &SeenPod, at_micros: i64) {
        let Some(node) = self.names.get(&pod.spec.node_name).copied() else {
            return;
        };
        let SeenMetadata { name, uid, .. } = &pod.metadata;
        let (name, uid) = (name.clone(), uid.clone());
        let mut state = self.state.lock();
        if pod.metadata.deletion_timestamp.is_some() {
            if state.ending.insert(uid.clone()) {
                state.later.remove(&uid);
                state.running.remove(&uid);
                let _ = self.duties.send(Duty::End { name, uid });
            }
        } else if pod.status.phase == "Running" {
            state.running.insert(uid);
        } else if state.bound.insert(uid.clone()) {
            state.pace.add(at_micros);
            if *self.report.borrow() {
                let _ = self.duties.send(Duty::Run { node, name, uid });
            } else {
                state.later.insert(uid, (node, name));
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn take_gone(&mut self, pod: &SeenPod) {
        self.state.lock().forget(&pod.metadata.uid);
        self.changed.notify_waiters();
    }

    /// Pods that went while nobody looked are not waited for.
    fn take_missing(&mut self, listed: &[SeenPod]) {
        let listed: BTreeSet<&str> = listed.iter().map(|pod| &*pod.metadata.uid).collect();
        let mut state = self.state.lock();
        let is_missing = |uid: &&String| !listed.contains(uid.as_str());
        let missing: Vec<String> = state.bound.iter().filter(is_missing).cloned().collect();
        missing.iter().for_each(|uid| state.forget(uid));
        drop(state);
        self.changed.notify_waiters();
    }
}

/// What nodes do about their pods, several at once. A pod that has gone meanwhile is no problem.
async fn carry_out(requests: Requests, mut duties: mpsc::UnboundedReceiver<Duty>) {
    let environment = Environment::system();
    let room = Arc::new(Semaphore::new(WRITES));
    while let Some(duty) = duties.recv().await {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        let requests = requests.clone();
        let now = environment.now();
        tokio::spawn(async move {
            let done = match &duty {
                Duty::Run { node, name, uid } => {
                    let now = format!("{now:.0}");
                    nodes::report_running(&requests, *node, name, uid, &now).await
                }
                Duty::End { name, uid } => nodes::finish(&requests, name, uid).await,
            };
            if let Err(error) = done
                && !client::retry::is_not_found(&error)
            {
                complain!("a simulated node could not write: {error}");
            }
            drop(permit);
        });
    }
}
