//! The cluster's DNS on one node: names of Services, endpoints and pods from the informers' cache,
//! everything else from the node's own name servers.
//!
//! `zone` answers (pure), `server` speaks UDP and TCP, `forward` asks others.

mod forward;
mod names_index;
mod server;
mod zone;

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use client::Informers;
use environment::Environment;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio_util::sync::CancellationToken;
use trace::{Hop, Recorder, Span};

use names_index::NamesIndex;
use zone::Zone;

pub struct DnsConfig {
    pub informers: Informers,
    /// The gateway address and a port, both UDP and TCP.
    pub listen: SocketAddr,
    /// The address of the DNS Service, which leads here as well.
    pub service_ip: Ipv4Addr,
    /// For instance `cluster.local`.
    pub domain: String,
    /// Where the node's own name servers are listed.
    pub upstream_resolv_conf: PathBuf,
    pub environment: Environment,
    pub recorder: Recorder,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is not a domain name")]
    Domain(String),
    #[error("cannot listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the DNS socket failed")]
    Socket(#[source] std::io::Error),
}

/// Runs until `shutdown`. Queries that come before the first list is complete wait for it.
pub fn run(
    config: DnsConfig,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), Error>> {
    // Boxed, so that it is compiled here, for speed, and not where it is awaited.
    Box::pin(run_until_shutdown(config, shutdown))
}

async fn run_until_shutdown(config: DnsConfig, shutdown: CancellationToken) -> Result<(), Error> {
    let zone = Zone::new(&config.domain)?;
    let server = server::Server::bind(config.listen).await?;
    let index = Arc::new(RwLock::new(NamesIndex::default()));
    let forwarder = forward::Forwarder::new(
        config.upstream_resolv_conf.clone(),
        vec![config.listen.ip(), config.service_ip.into()],
        config.environment.clone(),
    );
    let follow = follow(&config, &index, &shutdown);
    let serve = async {
        let services = config.informers.of::<Service>();
        let slices = config.informers.of::<EndpointSlice>();
        services.synced().await;
        slices.synced().await;
        server
            .serve(zone, index.clone(), forwarder, shutdown.clone())
            .await
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => Ok(()),
        () = follow => Ok(()),
        outcome = serve => outcome,
    }
}

/// Keeps the index in step; ends at shutdown.
async fn follow(config: &DnsConfig, index: &RwLock<NamesIndex>, shutdown: &CancellationToken) {
    let services = config.informers.of::<Service>();
    let slices = config.informers.of::<EndpointSlice>();
    let (mut service_changes, mut slice_changes) = (services.subscribe(), slices.subscribe());
    let write = || {
        index
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    };
    loop {
        let fresh = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            change = service_changes.next() => write().note_service(change),
            change = slice_changes.next() => write().note_slice(change),
        };
        // Pods of the first list were announced by the process before us.
        if !(services.is_synced() && slices.is_synced()) {
            continue;
        }
        let now = config.environment.now_micros();
        for uid in fresh {
            let span = Span {
                hop: Hop::After,
                name: "DNS answers".to_owned(),
                component: "dns".to_owned(),
                start: now,
                queue_us: 0,
                work_us: 0,
                bytes: 0,
                failure: None,
            };
            config.recorder.record(&uid, span);
        }
    }
}
