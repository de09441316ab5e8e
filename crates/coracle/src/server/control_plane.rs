//! Starts the parts of the control plane: API server, controllers and scheduler.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::{
    AdmissionConfig, AggregationConfig, ApiServer, FrontProxy, Identity, KubeletClient,
    UnknownPodRange,
};
use client::Informers;
use client::election::Election;
use environment::{Environment, chain};
use tokio_util::sync::CancellationToken;
use trace::{Recorder, Timelines};
use tracing::error;

use crate::cluster_arguments::ClusterArguments;
use crate::layout::{CLUSTER_DOMAIN, Layout, Settings};
use crate::pki;
use crate::prepare::{Prepared, scheduler_configuration};
use crate::process::Tasks;
use crate::storage::Storage;
use crate::ticket;

/// Everything that the parts are started from.
pub struct ControlPlane<'a> {
    pub layout: &'a Layout,
    pub cluster: &'a ClusterArguments,
    pub prepared: &'a Prepared,
    pub environment: &'a Environment,
    pub recorder: &'a Recorder,
}

impl ControlPlane<'_> {
    pub async fn start_api_server(
        &self,
        storage: &Storage,
        timelines: Timelines,
    ) -> Result<ApiServer> {
        let Prepared { settings, pki, .. } = self.prepared;
        let store = &self.cluster.store;
        let has_node = self.cluster.enabled("node");
        let advertised = advertised(settings, has_node, self.prepared.node_address)?;
        let config = apiserver::Config {
            store: storage.store.clone(),
            environment: self.environment.clone(),
            timelines,
            client_ca_pem: pki.authority.clone(),
            service_account_key_pem: pki.service_account_key.clone(),
            issuer: format!("https://kubernetes.default.svc.{CLUSTER_DOMAIN}"),
            service_range: settings.service_range.clone(),
            dns_service_ip: settings.service_address(10)?.to_string(),
            advertise: SocketAddr::new(advertised, settings.api_port),
            shares_store: store.is_shared(),
            kubelet_client: Some(KubeletClient {
                ca_pem: pki.authority.clone(),
                certificate_pem: pki.kubelet_client.certificate.clone(),
                key_pem: pki.kubelet_client.key.clone(),
            }),
            aggregation: AggregationConfig {
                front_proxy: Some(FrontProxy {
                    ca_pem: pki.front_proxy_authority.clone(),
                    allowed_names: vec![pki::FRONT_PROXY_CLIENT.to_string()],
                    certificate_pem: pki.front_proxy_client.certificate.clone(),
                    key_pem: pki.front_proxy_client.key.clone(),
                }),
                ..AggregationConfig::default()
            },
            cluster_domain: CLUSTER_DOMAIN.to_string(),
            compaction: store.compaction_interval(),
            runtime_config: self.cluster.runtime_config.clone(),
            feature_gates: self.cluster.feature_gates.clone(),
            admission: AdmissionConfig {
                enabled: self.cluster.enable_admission_plugins.clone(),
                pod_ranges: Some(Arc::new({
                    let (layout, settings) = (self.layout.clone(), settings.clone());
                    move |name: &str| {
                        let assigned = ticket::assigned_pod_ranges(&layout, &settings);
                        let assigned = assigned
                            .map_err(|error| UnknownPodRange(chain(error.as_ref()).to_string()))?;
                        let mut assigned = assigned.into_iter();
                        Ok(assigned.find_map(|(node, range)| (node == name).then_some(range)))
                    }
                })),
            },
        };
        let api = ApiServer::start(config).await;
        api.context("starting the API server")
    }

    /// Serves the API on a bound port until `shutdown` is cancelled.
    pub fn listen(
        &self,
        api: &ApiServer,
        listener: TcpListener,
        shutdown: &CancellationToken,
        tasks: &Tasks,
    ) -> Result<()> {
        let pki = &self.prepared.pki;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let tls = pki.api_server_tls()?;
        let (api, shutdown) = (api.clone(), shutdown.clone());
        tasks.spawn("API server", async move {
            Ok(api.serve(listener, tls, shutdown).await?)
        });
        Ok(())
    }

    pub fn start_controllers(&self, api: &ApiServer, tasks: &Tasks) -> Result<()> {
        let Prepared { settings, pki, .. } = self.prepared;
        let client = component_client(api, "system:kube-controller-manager");
        let config = controllers::Config {
            informers: Informers::new(client.clone(), self.environment.clone()),
            client,
            accounts: controllers::Accounts::new({
                let api = api.clone();
                move |name| {
                    let identity = Identity::service_account("kube-system", name);
                    client::connect::from_service(api.in_process(identity))
                }
            }),
            environment: self.environment.clone(),
            recorder: self.recorder.clone(),
            root_ca_pem: pki.authority.clone(),
            candidate: Some(self.candidate()),
            authority: Some(controllers::Authority {
                certificate_pem: pki.authority.clone(),
                key_pem: pki.authority_key.clone(),
            }),
            token_signer: Some(pki::token_signer(&pki.service_account_key)?),
            // An upstream API server may share the etcd, and needs upstream's grace period.
            namespace_grace: match self.cluster.store.is_shared() {
                true => controllers::NAMESPACE_GRACE,
                false => Duration::ZERO,
            },
            pod_range: Some(settings.pod_range.clone()),
            reserved_pod_ranges: Some(Arc::new({
                let (layout, settings) = (self.layout.clone(), settings.clone());
                move || {
                    let assigned = ticket::assigned_pod_ranges(&layout, &settings);
                    assigned.map_err(|error| -> Box<dyn std::error::Error + Send + Sync> {
                        error.into()
                    })
                }
            })),
            feature_gates: self.cluster.feature_gates.clone(),
            without: Vec::new(),
        };
        let shutdown = tasks.shutdown();
        tasks.spawn("controllers", async move {
            controllers::run(config, shutdown).await;
            Ok(())
        });
        Ok(())
    }

    pub fn start_scheduler(&self, api: &ApiServer, tasks: &Tasks) -> Result<()> {
        let client = component_client(api, "system:kube-scheduler");
        let configuration = scheduler_configuration(self.layout, self.cluster)?;
        let informers = Informers::new(client.clone(), self.environment.clone());
        let (environment, recorder) = (self.environment.clone(), self.recorder.clone());
        let shutdown = tasks.shutdown();
        let election = Election {
            client: client.clone(),
            environment: environment.clone(),
            namespace: "kube-system".to_string(),
            name: "kube-scheduler".to_string(),
            holder: self.candidate(),
        };
        tasks.spawn("scheduler", async move {
            let lead = |term| {
                let scheduler = scheduler::Scheduler {
                    configuration: configuration.clone(),
                    ..scheduler::Scheduler::new(
                        client.clone(),
                        informers.with_empty_caches(),
                        environment.clone(),
                        recorder.clone(),
                    )
                };
                async move {
                    // The configuration was checked before the start, so that this is a defect.
                    if let Err(error) = scheduler.run(term).await {
                        let error = chain(&error);
                        error!("The scheduler cannot run with its configuration: {error}");
                    }
                }
            };
            election.run(lead, shutdown).await;
            Ok(())
        });
        Ok(())
    }

    /// The name under which this server takes part in leader elections: of several servers that
    /// share a store, one leads.
    fn candidate(&self) -> String {
        let settings = &self.prepared.settings;
        format!("{}_{}", settings.node_name, settings.cluster_id)
    }
}

/// The address of the endpoint of the Service `kubernetes`. Pods of this machine reach the gateway
/// regardless of the machine's address. A server without a node has no gateway.
fn advertised(settings: &Settings, has_node: bool, node_address: IpAddr) -> Result<IpAddr> {
    match has_node {
        true => Ok(settings.gateway()?.into()),
        false => Ok(node_address),
    }
}

/// A client of a component that runs in this process.
fn component_client(api: &ApiServer, user: &str) -> kube::Client {
    let identity = Identity::component(user, &["system:authenticated"]);
    client::connect::from_service(api.in_process(identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_node_advertises_the_gateway_of_its_pods() {
        let settings = Settings::example();
        let machine: IpAddr = "192.0.2.1".parse().unwrap();
        let address = |has_node| {
            advertised(&settings, has_node, machine)
                .unwrap()
                .to_string()
        };
        assert_eq!(address(true), "10.244.0.1");
        assert_eq!(address(false), "192.0.2.1");
    }
}
