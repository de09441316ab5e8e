//! The controllers: each one a folder with a pure `plan` and a thin `reconcile`.
//!
//! Controllers reach the cluster only through the API, take keys, never events, and run on a
//! signal and on a slow period. Each acts under the ServiceAccount that upstream gives it.

mod accounts;
mod certificates;
mod clusterrole_aggregation;
mod cronjob;
mod daemonset;
mod deployment;
mod discovery;
mod disruption;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod ephemeral_volume;
mod finalizers;
mod garbage_collector;
mod hash;
mod history;
mod int_or_percent;
mod job;
mod legacy_token_cleaner;
pub mod local_path;
mod lookup;
mod meta;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod owned_pods;
mod persistent_volume;
mod pod_gc;
mod podautoscaler;
mod pv_protection;
mod pvc_protection;
mod replicaset;
mod resource_quota;
mod service_cidr;
mod service_pods;
mod serviceaccount;
mod serviceaccount_token;
mod statefulset;
mod storage_version_migrator;
mod taint_eviction;
mod token_signer;
mod ttl_after_finished;
mod vac_protection;
mod validatingadmissionpolicy_status;
mod watching;
mod written;

pub use accounts::Accounts;
use client::Informers;
use client::election::Election;
use environment::Environment;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use std::time::Duration;

pub use token_signer::TokenSigner;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use trace::Recorder;

/// The configuration that all controllers share.
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
    /// The identity of this process in the leader election; without one there is no election.
    pub candidate: Option<String>,
    /// Signs certificates for kubelets and clients; without it requests stay unsigned.
    pub authority: Option<Authority>,
    /// Signs the tokens that live in Secrets; without it they stay empty.
    pub token_signer: Option<TokenSigner>,
    /// How long a namespace that is deleted is left alone before it is emptied. Zero where the API
    /// server compares the namespace when it writes an object, as ours does; others may let one in
    /// for some seconds ([`NAMESPACE_GRACE`]).
    pub namespace_grace: Duration,
    /// The range that nodes get their pod ranges from; without it nodes bring their own.
    pub pod_range: Option<String>,
    /// The pod ranges that were given to nodes by name, whether these have joined or not.
    pub reserved_pod_ranges: Option<ReservedPodRanges>,
    /// Some controllers run only with a gate that is off by default.
    pub feature_gates: api::features::FeatureGates,
    /// Which of [`NAMES`] do not run.
    pub without: Vec<String>,
}

/// Lists (node, pod range). An error means that they are not known at the moment.
pub type ReservedPodRanges = std::sync::Arc<
    dyn Fn() -> Result<Vec<(String, String)>, Box<dyn std::error::Error + Send + Sync>>
        + Send
        + Sync,
>;

/// The grace that upstream's controller gives: its API server looks at a cache.
pub const NAMESPACE_GRACE: Duration = Duration::from_secs(5);

/// The cluster's certificate authority.
#[derive(Clone)]
pub struct Authority {
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Config {
    /// The same for the controller with the account `name` in `kube-system`.
    fn acting_as(mut self, name: &str) -> Config {
        if name != THE_SET_ITSELF {
            self.client = self.accounts.client(name);
        }
        self
    }

    /// Posts Events in the name of `component`.
    fn events(&self, component: &str) -> client::events::Recorder {
        client::events::Recorder::new(
            self.client.clone(),
            self.environment.clone(),
            component,
            None,
        )
    }
}

/// Runs all controllers until `shutdown`, while this set is the elected one.
pub fn run(config: Config, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
    // Boxed, so that it is compiled here: the body of an async function is compiled where it is
    // awaited.
    Box::pin(run_elected(config, shutdown))
}

async fn run_elected(config: Config, shutdown: CancellationToken) {
    let Some(holder) = config.candidate.clone() else {
        return run_all(config, shutdown).await;
    };
    let election = Election {
        client: config.client.clone(),
        environment: config.environment.clone(),
        namespace: "kube-system".to_string(),
        name: "kube-controller-manager".to_string(),
        holder,
    };
    let lead = |term| {
        let informers = config.informers.with_empty_caches();
        let config = Config {
            informers,
            ..config.clone()
        };
        run_all(config, term)
    };
    election.run(lead, shutdown).await;
}

/// Who makes the accounts' tokens has none: it acts as all controllers together.
const THE_SET_ITSELF: &str = "";

/// Declares what runs: module, name to leave it out by, account to act as.
macro_rules! controllers {
    ($($controller:ident $(<$kind:ident>)?, $name:literal as $account:expr;)*) => {
        /// The names of all controllers, to leave some out by.
        pub const NAMES: &[&str] = &[$($name),*];

        fn start_all(config: &Config, running: &mut JoinSet<()>, shutdown: &CancellationToken) {
            $(if !config.without.iter().any(|name| name == $name) {
                let config = config.clone().acting_as($account);
                running.spawn($controller::run$(::<$kind>)?(config, shutdown.clone()));
            })*
        }
    };
}

controllers! {
    serviceaccount, "serviceaccount" as "service-account-controller";
    serviceaccount_token, "serviceaccount-token" as THE_SET_ITSELF;
    legacy_token_cleaner, "legacy-token-cleaner" as "legacy-service-account-token-cleaner";
    namespace, "namespace" as "namespace-controller";
    endpoints, "endpoints" as "endpoint-controller";
    endpointslice, "endpointslice" as "endpointslice-controller";
    endpointslice_mirroring, "endpointslice-mirroring" as "endpointslicemirroring-controller";
    garbage_collector, "garbage-collector" as "generic-garbage-collector";
    node_lifecycle, "node-lifecycle" as "node-controller";
    taint_eviction, "taint-eviction" as "node-controller";
    node_ipam, "node-ipam" as "node-controller";
    resource_quota, "resource-quota" as "resourcequota-controller";
    clusterrole_aggregation, "clusterrole-aggregation" as "clusterrole-aggregation-controller";
    certificates, "certificates" as "certificate-controller";
    service_cidr, "service-cidr" as "service-cidrs-controller";
    persistent_volume, "persistent-volume" as "persistent-volume-binder";
    pv_protection, "pv-protection" as "pv-protection-controller";
    pvc_protection, "pvc-protection" as "pvc-protection-controller";
    vac_protection, "vac-protection" as "volumeattributesclass-protection-controller";
    validatingadmissionpolicy_status, "validatingadmissionpolicy-status" as "validatingadmissionpolicy-status-controller";
    ephemeral_volume, "ephemeral-volume" as "ephemeral-volume-controller";
    local_path, "local-path" as "local-path-provisioner";
    storage_version_migrator, "storage-version-migrator" as "storage-version-migrator-controller";
    deployment, "deployment" as "deployment-controller";
    statefulset, "statefulset" as "statefulset-controller";
    daemonset, "daemonset" as "daemon-set-controller";
    job, "job" as "job-controller";
    cronjob, "cronjob" as "cronjob-controller";
    ttl_after_finished, "ttl-after-finished" as "ttl-after-finished-controller";
    disruption, "disruption" as "disruption-controller";
    pod_gc, "pod-gc" as "pod-garbage-collector";
    podautoscaler, "podautoscaler" as "horizontal-pod-autoscaler";
    replicaset<ReplicaSet>, "replicaset" as "replicaset-controller";
    replicaset<ReplicationController>, "replicationcontroller" as "replication-controller";
}

async fn run_all(config: Config, shutdown: CancellationToken) {
    let mut running = JoinSet::new();
    start_all(&config, &mut running, &shutdown);
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a controller ended");
        }
    }
}

/// Why a reconcile did not finish; its key is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its message is the server's own, because conditions and Events repeat it. `kube::Error` is
    /// no source here: it would print the whole `Status` once more.
    #[error("{}", client::retry::sentence(.0))]
    Api(kube::Error),
    #[error("the request could not be built")]
    Request(#[from] http::Error),
    #[error("the object could not be converted")]
    Convert(#[from] serde_json::Error),
    #[error("error auto signing csr")]
    Sign(#[from] certificates::SigningError),
    #[error("the pod ranges of invited nodes cannot be read")]
    PodRanges(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Something about the object that is reconciled.
    #[error("{0}")]
    Object(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Error {
        Error::Api(error)
    }
}
