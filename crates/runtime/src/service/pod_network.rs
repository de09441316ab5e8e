//! The pods' network through CNI: attached, released, checked and collected.

use std::{net::IpAddr, path::Path, sync::Arc};

use super::{Error, host::Host, sandbox_table::SandboxTable};
use crate::{
    records::SandboxRecord,
    sandbox::{
        cni::{self, Attachment, Network},
        netns,
    },
};

pub struct PodNetwork {
    host: Arc<Host>,
    sandboxes: Arc<SandboxTable>,
}

impl PodNetwork {
    pub fn new(host: Arc<Host>, sandboxes: Arc<SandboxTable>) -> PodNetwork {
        PodNetwork { host, sandboxes }
    }

    /// Attaches a sandbox to the network and returns its addresses. A failure leaves no network
    /// namespace behind.
    pub async fn attach(&self, record: &SandboxRecord, netns: &Path) -> Result<Vec<IpAddr>, Error> {
        let result = match self.configured() {
            Ok(network) => network.add(&attachment(record, Some(netns))).await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            // `add` has undone what it did, so there is nothing left to release.
            netns::remove(netns).map_err(Error::file(netns))?;
            self.sandboxes
                .update(&record.id, |record| record.network_released = true)?;
        }
        result.map_err(|source| Error::Network {
            sandbox: record.id.clone(),
            source,
        })
    }

    /// Detaches a sandbox from the network, unless that has been done.
    pub async fn release(&self, sandbox: &str) -> Result<(), Error> {
        let record = self.sandboxes.record(sandbox)?;
        let (Some(path), false) = (&record.netns, record.network_released) else {
            return Ok(());
        };
        netns::discard_if_empty(path).map_err(Error::file(path))?;
        let failed = |source| Error::NetworkRemoval {
            sandbox: sandbox.into(),
            source,
        };
        match self.configured() {
            Ok(network) => {
                let netns = path.exists().then_some(path.as_path());
                let released = network.del(&attachment(&record, netns)).await;
                released.map_err(failed)?;
            }
            // The caller will try again: a network that is not configured now has the pod's addresses.
            Err(source) if !record.addresses.is_empty() => return Err(failed(source)),
            // No network is configured that could be asked; the interfaces go with the namespace.
            Err(error) => {
                let error = environment::chain(&error);
                tracing::warn!(%error, sandbox, "releasing a pod's network without CNI");
            }
        }
        netns::remove(path).map_err(Error::file(path))?;
        self.sandboxes
            .update(sandbox, |record| record.network_released = true)
    }

    /// Whether a pod could be attached now, as far as the plugins can say.
    pub async fn status(&self) -> Result<(), cni::Error> {
        self.configured()?.status().await
    }

    /// Asks the plugins whether the pods that outlived the last server are still attached. A pod that
    /// lost its network is logged and not ended: the kubelet decides about pods.
    pub async fn check_all(&self) {
        let Ok(network) = self.configured() else {
            return;
        };
        for record in &self.sandboxes.ready() {
            let Some(netns) = record.netns.as_deref() else {
                continue;
            };
            if let Err(error) = network.check(&attachment(record, Some(netns))).await {
                let error = environment::chain(&error);
                tracing::warn!(%error, sandbox = record.id, "a pod's network is not as it was made");
            }
        }
    }

    /// Releases what the plugins keep for sandboxes that do not exist any more.
    pub async fn collect(&self) {
        let Ok(network) = self.configured() else {
            return;
        };
        let ids = self.sandboxes.collect(|record| Some(record.id.clone()));
        if let Err(error) = network.collect(&ids).await {
            let error = environment::chain(&error);
            tracing::warn!(%error, "collecting network attachments without a sandbox");
        }
    }

    /// The network as configured now: a changed file counts from the next pod on.
    fn configured(&self) -> Result<Network, cni::Error> {
        let config = self.host.config();
        let cache = config.state.join("cni");
        let network = Network::load(&config.cni_conf_dir, &config.cni_bin_dirs, &cache)?;
        Ok(network.with_own_plugin(config.own_plugin.clone()))
    }
}

fn attachment<'a>(record: &'a SandboxRecord, netns: Option<&'a Path>) -> Attachment<'a> {
    let metadata = record.config.metadata.as_ref();
    Attachment {
        sandbox: &record.id,
        netns,
        pod_name: metadata.map_or("", |metadata| &metadata.name),
        pod_namespace: metadata.map_or("", |metadata| &metadata.namespace),
        pod_uid: metadata.map_or("", |metadata| &metadata.uid),
        port_mappings: &record.config.port_mappings,
        annotations: &record.config.annotations,
        dns: record.config.dns_config.as_ref(),
        cgroup_parent: record
            .config
            .linux
            .as_ref()
            .map_or("", |linux| &linux.cgroup_parent),
    }
}
