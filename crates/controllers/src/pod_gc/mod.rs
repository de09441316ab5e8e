//! Deletes pods that no other component deletes: ended ones beyond a threshold, those of nodes that
//! are gone or out of service, and unscheduled ones on their way out.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::{Change, Informer, retry};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::owned_pods::of_uid;
use crate::{Config, Error};
use plan::{Reason, Removal};

/// A sweep; between sweeps only the going of nodes and of unscheduled pods is acted on.
const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must have been away before its pods are given up: its object may only be late.
const QUARANTINE: Duration = Duration::from_secs(40);
const MOST_ENDED: usize = 12_500;

pub async fn run(config: Config, shutdown: CancellationToken) {
    let pods = config.informers.of::<Pod>();
    let nodes = config.informers.of::<Node>();
    let collector = Collector {
        config,
        pods,
        nodes,
        away_since: BTreeMap::new(),
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = collector.collect() => {}
    }
}

struct Collector {
    config: Config,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    /// Nodes that pods name and that do not exist, and since when we know. Bounded by the pods.
    away_since: BTreeMap<String, Instant>,
}

impl Collector {
    async fn collect(mut self) {
        self.pods.synced().await;
        self.nodes.synced().await;
        let mut changes = self.pods.subscribe();
        let mut sweep = tokio::time::interval(PERIOD);
        loop {
            tokio::select! {
                biased;
                _ = sweep.tick() => self.sweep().await,
                change = changes.next() => {
                    if let Change::Added(pod) | Change::Modified { new: pod, .. } = change
                        && plan::is_unscheduled_and_leaving(&pod)
                    {
                        let removal = Removal { pod, reason: Reason::Unscheduled };
                        self.remove_or_log(&removal).await;
                    }
                }
            }
        }
    }

    async fn sweep(&mut self) {
        let (pods, nodes) = (self.pods.list(), self.nodes.list());
        let away = plan::nodes_away(&pods, &nodes);
        self.away_since.retain(|name, _| away.contains(name));
        for name in away {
            self.away_since.entry(name).or_insert_with(Instant::now);
        }
        let mut gone = BTreeSet::new();
        for (name, since) in &self.away_since {
            if since.elapsed() >= QUARANTINE && self.is_gone(name).await {
                gone.insert(name.clone());
            }
        }
        for removal in plan::plan(&pods, &nodes, &gone, MOST_ENDED) {
            self.remove_or_log(&removal).await;
        }
    }

    /// Asked of the server: the cache has been wrong for long enough to doubt it.
    async fn is_gone(&self, name: &str) -> bool {
        let nodes: Api<Node> = Api::all(self.config.client.clone());
        matches!(nodes.get_opt(name).await, Ok(None))
    }

    async fn remove_or_log(&self, removal: &Removal) {
        if let Err(error) = self.remove(removal).await {
            let name = removal.pod.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(pod = name, %error, "a pod was not collected");
        }
    }

    /// Marks the pod as failed, so that what counts it counts it so, and deletes it at once.
    async fn remove(&self, removal: &Removal) -> Result<(), Error> {
        let pod = &removal.pod;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.config.client.clone(), namespace);
        if !semantics::pod::is_terminal(pod) {
            let now = self.config.environment.now();
            let patch = Patch::Strategic(plan::failure_patch(removal, now));
            match api
                .patch_status(name, &PatchParams::default(), &patch)
                .await
            {
                Ok(_) => {}
                Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let parameters = of_uid(uid).grace_period(0);
        match api.delete(name, &parameters).await {
            Ok(_) => Ok(()),
            Err(error) if retry::is_not_found(&error) || retry::is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
