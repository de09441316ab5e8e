//! The controllers: each one a folder with a pure `plan` and a thin `reconcile`.
//!
//! Controllers reach the cluster only through the API, take keys, never events, and run on a
//! signal and on a slow period.

mod deployment;
mod endpointslice;
mod garbage_collector;
mod meta;
mod namespace;
mod node_lifecycle;
mod replicaset;
mod serviceaccount;
mod watching;

use client::Informers;
use environment::Environment;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trace::Recorder;

/// What the controllers share.
#[derive(Clone)]
pub struct Config {
    pub client: kube::Client,
    pub informers: Informers,
    pub environment: Environment,
    pub recorder: Recorder,
    /// Published to every namespace, so that pods can verify the API server.
    pub root_ca_pem: String,
}

/// Runs all controllers until `shutdown`.
pub async fn run(config: Config, shutdown: CancellationToken) {
    let mut running = JoinSet::new();
    running.spawn(serviceaccount::run(config.clone(), shutdown.clone()));
    running.spawn(namespace::run(config.clone(), shutdown.clone()));
    running.spawn(deployment::run(config.clone(), shutdown.clone()));
    running.spawn(replicaset::run(config.clone(), shutdown.clone()));
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
