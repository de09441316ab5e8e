//! The server's insides, shared by all requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::features::FeatureGates;
use environment::Environment;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admission_config::AdmissionConfig;
use crate::admission_hooks::AdmissionHooks;
use crate::admission_policies::AdmissionPolicies;
use crate::allocation::ServiceAllocator;
use crate::authentication::Authenticator;
use crate::authorization::Authorizer;
use crate::cache::Cache;
use crate::converters::Converters;
use crate::extension_servers::ExtensionServers;
use crate::heavy::Heavy;
use crate::kubelet_dialer::KubeletDialer;
use crate::metrics::Metrics;
use crate::node_samples::Samples;
use crate::objects::Objects;
use crate::served_kinds::ServedKinds;
use crate::startup::Startup;
use crate::storage::seconds_text;
use crate::webhook_client::WebhookClient;

pub(crate) struct Server {
    pub objects: Objects,
    pub environment: Environment,
    pub timelines: trace::Timelines,
    pub kinds: ServedKinds,
    /// The webhooks that convert custom resources.
    pub converters: Converters,
    /// The UIDs of the definitions whose instances are being deleted.
    pub cleanups: Mutex<BTreeSet<String>>,
    pub cache: Arc<Cache>,
    pub authenticator: Authenticator,
    pub authorizer: Arc<Authorizer>,
    pub services: ServiceAllocator,
    pub kubelets: Option<KubeletDialer>,
    pub extensions: ExtensionServers,
    /// The ways to the webhooks that are configured.
    pub webhooks: WebhookClient,
    pub hooks: AdmissionHooks,
    pub policies: AdmissionPolicies,
    /// What kubelets said of late about the use of nodes and pods.
    pub usage: Samples,
    pub metrics: Metrics,
    pub advertise: std::net::SocketAddr,
    /// Other servers may use the same store.
    pub shares_store: bool,
    pub admission: AdmissionConfig,
    pub feature_gates: FeatureGates,
    pub startup: Startup,
    /// Who is connected over the network.
    pub connections: Arc<serving::Ledger>,
    pub heavy: Heavy,
    /// Keeps the cache up to date; ends only when the store does.
    pub follower: JoinHandle<()>,
    /// Ends the background tasks.
    pub stop: CancellationToken,
    /// Ends the background tasks with the server.
    pub _stop: DropGuard,
}

impl Server {
    /// Now, as `metadata.creationTimestamp` has it.
    pub fn timestamp(&self) -> String {
        seconds_text(self.environment.now())
    }
}
