//! The controllers: each one a folder with a pure `plan` and a thin `reconcile`.
//!
//! Controllers reach the cluster only through the API, take keys, never events, and run on a
//! signal and on a slow period.

mod accounts;
mod daemonset;
mod deployment;
mod endpointslice;
mod garbage_collector;
mod hash;
mod history;
mod int_or_percent;
mod meta;
mod namespace;
mod node_lifecycle;
mod owned_pods;
mod replicaset;
mod serviceaccount;
mod statefulset;
mod watching;

pub use accounts::Accounts;
use client::Informers;
use environment::Environment;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trace::Recorder;

/// What the controllers share.
#[derive(Clone)]
pub struct Config {
    /// Acts as the controller it was handed to; see [`Config::acting_as`].
    pub client: kube::Client,
    pub accounts: Accounts,
    /// One for all controllers, with an identity of its own that reads everything.
    pub informers: Informers,
    pub environment: Environment,
    pub recorder: Recorder,
    /// Published to every namespace, so that pods can verify the API server.
    pub root_ca_pem: String,
}

impl Config {
    /// The same for the controller with the account `name` in `kube-system`.
    fn acting_as(mut self, name: &str) -> Config {
        self.client = self.accounts.client(name);
        self
    }
}

/// Runs all controllers until `shutdown`.
pub async fn run(config: Config, shutdown: CancellationToken) {
    let mut running = JoinSet::new();
    running.spawn(serviceaccount::run(config.clone(), shutdown.clone()));
    running.spawn(namespace::run(config.clone(), shutdown.clone()));
    running.spawn(deployment::run(config.clone(), shutdown.clone()));
    running.spawn(replicaset::run::<ReplicaSet>(
        config.clone(),
        shutdown.clone(),
    ));
    running.spawn(replicaset::run::<ReplicationController>(
        config.clone(),
        shutdown.clone(),
    ));
    running.spawn(statefulset::run(config.clone(), shutdown.clone()));
    running.spawn(daemonset::run(config.clone(), shutdown.clone()));
    running.spawn(endpointslice::run(config.clone(), shutdown.clone()));
    running.spawn(garbage_collector::run(config.clone(), shutdown.clone()));
    running.spawn(node_lifecycle::run(config, shutdown));
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a controller ended");
        }
    }
}

/// Why a reconcile did not finish; its key is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Object(String),
}
