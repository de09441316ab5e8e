//! The API server: filter chain → generic verb handlers → admission → registry → store and watch
//! cache. One path for all kinds; what is truly a kind's own lives in `api::strategy`.
//!
//! It does not know what a scheduler, a controller or a kubelet is: they are identities that ask.

mod address_repair;
mod admission;
mod admission_config;
mod admission_hooks;
mod admission_policies;
mod aggregation;
mod allocation;
mod authentication;
mod authorization;
mod body;
mod bootstrap;
mod cache;
mod changed_versions;
mod context;
mod converted;
mod converters;
mod custom;
mod decode;
mod dispatch;
mod endpoints;
mod enveloped;
mod extension_servers;
mod filters;
mod front_proxy_headers;
mod gzip;
mod heavy;
mod hops;
mod https;
mod identity;
mod in_process;
mod kubelet_dialer;
mod metrics;
mod negotiate;
mod node_samples;
mod objects;
mod options;
mod pod_references;
mod query;
mod registry;
mod request;
mod response;
mod reviews;
mod served_kinds;
mod server;
mod service_endpoints;
mod startup;
mod storage;
mod subresources;
mod token_uses;
mod unstored;
mod unverified;
mod usage;
mod verbs;
mod webhook_client;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Resource;
use api::catalogue::{self, Catalogue, RuntimeConfig};
use api::features::FeatureGates;
use environment::Environment;
use futures::future::BoxFuture;
use store::{CompactionTurn, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use authentication::Authenticator;
use authorization::Authorizer;
use metrics::Metrics;
use objects::Objects;
use served_kinds::ServedKinds;
use server::Server;
use startup::{Stage, Startup};

pub use admission_config::{AdmissionConfig, GivenPodRanges, OPTIONAL_PLUGINS, UnknownPodRange};
pub use body::Body;
pub use enveloped::Enveloped;
pub use extension_servers::{AggregationConfig, DialServices, DirectDialer, FrontProxy};
pub use identity::Identity;
pub use in_process::InProcess;
pub use served_kinds::AddKindError;

/// History is kept this long for lists that are being paged through, unless configured otherwise.
pub const COMPACTION: Duration = Duration::from_secs(300);

/// What the server needs to know and is given.
pub struct Config {
    pub store: Arc<dyn Store>,
    pub environment: Environment,
    pub timelines: trace::Timelines,
    /// Client certificates signed by these are believed.
    pub client_ca_pem: String,
    /// PKCS#8 ECDSA P-256; signs and verifies ServiceAccount tokens.
    pub service_account_key_pem: String,
    /// The `iss` of ServiceAccount tokens, and their default audience.
    pub issuer: String,
    /// The CIDR ClusterIPs come from.
    pub service_range: String,
    pub dns_service_ip: String,
    /// Where the `kubernetes` Service leads.
    pub advertise: SocketAddr,
    /// Other servers may use the same store: the `kubernetes` Service leads to all of them.
    pub shares_store: bool,
    /// How to reach kubelets for logs; without it, pod logs answer an error.
    pub kubelet_client: Option<KubeletClient>,
    pub cluster_domain: String,
    /// How long the store's history is kept; zero for ever.
    pub compaction: Duration,
    pub admission: AdmissionConfig,
    /// `--runtime-config`.
    pub runtime_config: RuntimeConfig,
    /// `--feature-gates`.
    pub feature_gates: FeatureGates,
    pub aggregation: AggregationConfig,
}

/// The certificate the API server shows to kubelets, and the authority that signed theirs.
#[derive(Clone)]
pub struct KubeletClient {
    pub ca_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the store failed")]
    Store(#[from] store::Error),
    #[error("configuration: {0}")]
    Configuration(String),
    #[error("listening")]
    Listen(#[source] std::io::Error),
    #[error("setting up the cluster's first objects")]
    Bootstrap(#[source] api::Status),
}

/// Signs ServiceAccount tokens as the API server believes them; for who writes them into Secrets.
pub struct TokenSigner(authentication::claims::SigningKey);

impl TokenSigner {
    /// With the key of [`Config::service_account_key_pem`].
    pub fn from_pem(pem: &str) -> Result<TokenSigner, Error> {
        authentication::claims::SigningKey::from_pem(pem).map(TokenSigner)
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &api::Value) -> Option<String> {
        self.0.sign(claims)
    }
}

/// A running API server. Cheap to clone; the last clone's drop ends its background tasks.
#[derive(Clone)]
pub struct ApiServer {
    server: Arc<Server>,
    stop: CancellationToken,
}

impl ApiServer {
    /// Fills the caches from the store and makes the cluster's first objects where they lack.
    pub fn start(config: Config) -> BoxFuture<'static, Result<ApiServer, Error>> {
        // Boxed here and below, so that it is compiled in this crate, for speed: the body of an async
        // function is compiled where it is awaited.
        Box::pin(ApiServer::start_all(config))
    }

    async fn start_all(config: Config) -> Result<ApiServer, Error> {
        let Config {
            store, environment, ..
        } = config;
        config.admission.check()?;
        for gate in config.feature_gates.without_effect() {
            tracing::warn!(gate, "this feature gate has no effect");
        }
        for version in config.runtime_config.not_available() {
            tracing::warn!(
                version,
                "runtime-config asks for what is not generally available and not served"
            );
        }
        for (kind, gate) in catalogue::gated_off(&config.runtime_config, &config.feature_gates) {
            tracing::warn!(
                kind = %kind.qualified(),
                gate,
                "runtime-config asks for a kind whose feature gate is off; it is not served"
            );
        }
        let catalogue = Catalogue::of_configured(&config.runtime_config, &config.feature_gates);
        // Those that are switched off too: another version of the kind may be served.
        let built_in: Vec<_> = catalogue::built_in().resources().cloned().collect();
        let mut defined = custom::Initial::default();
        let filled = cache::fill(&*store, &built_in, |definitions| {
            defined = custom::initial(definitions);
            defined.resources.clone()
        });
        let (cache, additions) = filled.await?;
        defined.serve(&catalogue);
        let cache = Arc::new(cache);
        let stop = CancellationToken::new();
        let (authenticator, uses) = Authenticator::new(
            &config.client_ca_pem,
            config.aggregation.front_proxy.as_ref(),
            &config.service_account_key_pem,
            &config.issuer,
            cache.clone(),
            environment.clone(),
        )?;
        let services = allocation::ServiceAllocator::new(
            cache.clone(),
            environment.clone(),
            &config.service_range,
        )?;
        let kubelets = match &config.kubelet_client {
            Some(client) => Some(kubelet_dialer::KubeletDialer::new(client)?),
            None => None,
        };
        let extensions = extension_servers::ExtensionServers::new(
            &config.aggregation,
            &config.client_ca_pem,
            stop.clone(),
        )?;
        let follower = tokio::spawn(cache::follow(
            cache.clone(),
            additions,
            store.clone(),
            stop.clone(),
        ));
        let startup = Startup::default();
        startup.finish(Stage::Storage);
        if !config.compaction.is_zero() {
            tokio::spawn(compact(store.clone(), config.compaction, stop.clone()));
        }
        let endpoints = webhook_client::CachedServices::new(cache.clone(), environment.clone());
        let webhooks = webhook_client::WebhookClient::new(Arc::new(endpoints));
        let server = Arc::new(Server {
            authorizer: Arc::new(Authorizer::new(cache.clone(), bootstrap::node_rules())),
            environment,
            timelines: config.timelines,
            objects: Objects::new(store, cache.clone()),
            kinds: ServedKinds::new(catalogue, cache.clone()),
            converters: converters::Converters::default(),
            cleanups: Default::default(),
            stop: stop.clone(),
            webhooks,
            hooks: admission_hooks::AdmissionHooks::new(&cache),
            policies: admission_policies::AdmissionPolicies::new(&cache),
            cache,
            authenticator,
            services,
            kubelets,
            extensions,
            usage: node_samples::Samples::default(),
            metrics: Metrics::default(),
            advertise: config.advertise,
            shares_store: config.shares_store,
            admission: config.admission,
            feature_gates: config.feature_gates,
            startup,
            connections: serving::Ledger::new(serving::Bounds::default()),
            heavy: heavy::Heavy::new(),
            follower,
            _stop: stop.clone().drop_guard(),
        });
        tokio::spawn(token_uses::note(Arc::downgrade(&server), uses));
        let facts = bootstrap::Facts {
            dns_service_ip: config.dns_service_ip,
        };
        let repair = bootstrap::run(&server, &facts)
            .await
            .map_err(Error::Bootstrap)?;
        let weak = Arc::downgrade(&server);
        tokio::spawn(address_repair::keep(weak, repair, stop.clone()));
        if server.shares_store {
            let stop = stop.clone();
            tokio::spawn(bootstrap::endpoints::keep(Arc::downgrade(&server), stop));
        }
        let published = aggregation::publish_trust(&server).await;
        published.map_err(Error::Bootstrap)?;
        let registrar = aggregation::register(&server).await;
        let registrar = registrar.map_err(Error::Bootstrap)?;
        let weak = Arc::downgrade(&server);
        tokio::spawn(custom::run(weak, defined.known, stop.clone()));
        server.objects.catch_up().await.map_err(Error::Bootstrap)?;
        server.startup.finish(Stage::ApiServices);
        let weak = Arc::downgrade(&server);
        tokio::spawn(aggregation::follow(weak.clone(), registrar, stop.clone()));
        tokio::spawn(aggregation::keep_trust(weak, stop.clone()));
        server.startup.finish(Stage::Synced);
        Ok(ApiServer { server, stop })
    }

    /// Serves HTTPS until `shutdown`, then lets requests in flight end.
    pub fn serve(
        &self,
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let leave = async {
                shutdown.cancelled().await;
                if let Err(problem) = bootstrap::endpoints::leave(&self.server).await {
                    tracing::warn!(%problem, "the kubernetes Service still leads to this server");
                }
            };
            let serve = https::serve(self.server.clone(), listener, tls, shutdown.clone());
            tokio::join!(serve, leave).0
        })
    }

    /// Ends the background tasks. Called before the store is closed, which they would otherwise take
    /// for a failure.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Serves one more kind from now on, with what the store has of it already.
    pub async fn add_kind(&self, resource: Resource) -> Result<(), AddKindError> {
        self.server.kinds.add(Arc::new(resource)).await
    }

    /// Serves an added kind no more and ends its watches; false if there is none of that name. Its
    /// objects stay in the store.
    pub async fn remove_kind(&self, group: &str, version: &str, plural: &str) -> bool {
        let kinds = &self.server.kinds;
        let removed = kinds.remove(group, version, plural).await;
        if let Some(resource) = &removed {
            self.server.metrics.forget(resource);
        }
        removed.is_some()
    }

    /// A transport for a component of this process that acts as `identity`. Its requests pass the
    /// same authorization and admission as those from the network.
    pub fn in_process(&self, identity: Identity) -> InProcess {
        InProcess::new(self.server.clone(), identity)
    }
}

/// Forgets history that is older than one period, in turn with the others who share the store.
async fn compact(store: Arc<dyn Store>, period: Duration, stop: CancellationToken) {
    let mut turn = CompactionTurn::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(period) => {}
        }
        match store.compact_in_turn(turn).await {
            Ok(next) => turn = next,
            Err(problem) => {
                tracing::warn!(%problem, "the store's history could not be shortened");
            }
        }
    }
}
