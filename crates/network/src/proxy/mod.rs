//! The service proxy: keeps the nf_tables table `coracle-<id>` in step with Services and
//! EndpointSlices. `plan` computes the desired rules, `diff` the changes, and this file carries them out.
//!
//! Level-triggered: a change only marks its Service; the plan is made from the newest state. When
//! the kernel refuses a batch, or someone else removed our table, the whole table is written anew.

mod diff;
mod ledger;
mod plan;
mod ruleset;
mod sticky;

#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use client::{Change, Informers, ObjectKey};
use environment::Environment;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio_util::sync::CancellationToken;
use trace::{Hop, Recorder, Span};

pub use diff::{Installed, diff, full};
pub use plan::{Backends, Endpoint, Frontend, Right, ServicePlan, plan};
pub use ruleset::Ranges;

use crate::names;
use crate::netlink::{self, Connection, conntrack};
use crate::nft::{self, Batch, Family};
use crate::node::foreign;
use crate::service_index::ServiceIndex;
use crate::subnet::Subnet;
use ledger::Ledger;

pub struct ProxyConfig {
    pub informers: Informers,
    pub node_name: String,
    pub cluster_id: String,
    pub service_cidr: Subnet,
    /// This node's pods.
    pub pod_cidr: Subnet,
    /// The addresses on which node ports answer.
    pub node_addresses: Vec<Ipv4Addr>,
    pub dns: Option<DnsRedirect>,
    pub environment: Environment,
    pub recorder: Recorder,
}

/// Port 53 of the DNS service leads to the node's own resolver, regardless of its endpoints.
#[derive(Clone, Debug)]
pub struct DnsRedirect {
    pub service_ip: Ipv4Addr,
    pub to: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is not a cluster id of six lower-case hex characters")]
    ClusterId(String),
    #[error("the DNS redirect needs an IPv4 target, not {0}")]
    DnsTarget(SocketAddr),
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    #[error(transparent)]
    Nft(#[from] nft::Error),
    #[error("the thread that writes to the kernel ended")]
    Writer,
}

/// How often we look whether our table is still there. Only others could have removed it.
const CHECK_PERIOD: Duration = Duration::from_secs(30);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// Runs until `shutdown`; the rules stay, so that Services work while the server restarts.
pub fn run(
    config: ProxyConfig,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), Error>> {
    // Boxed, so that it is compiled here, for speed, and not where it is awaited.
    Box::pin(run_until_shutdown(config, shutdown))
}

async fn run_until_shutdown(config: ProxyConfig, shutdown: CancellationToken) -> Result<(), Error> {
    if !names::is_cluster_id(&config.cluster_id) {
        return Err(Error::ClusterId(config.cluster_id));
    }
    let mut proxy = Proxy::new(&config)?;
    let services = config.informers.of::<Service>();
    let slices = config.informers.of::<EndpointSlice>();
    let (mut service_changes, mut slice_changes) = (services.subscribe(), slices.subscribe());
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        () = async { services.synced().await; slices.synced().await } => {}
    }
    let mut retry = FIRST_RETRY;
    let mut check =
        tokio::time::interval_at(tokio::time::Instant::now() + CHECK_PERIOD, CHECK_PERIOD);
    loop {
        while let Some(change) = service_changes.try_next() {
            proxy.note_service(change);
        }
        while let Some(change) = slice_changes.try_next() {
            proxy.note_slice(change);
        }
        match proxy.reconcile().await {
            Ok(()) => retry = FIRST_RETRY,
            Err(error) => {
                tracing::warn!(error = %environment::chain(&error), "service rules could not be written, trying the whole table again");
                proxy.installed = None;
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok(()),
                    () = tokio::time::sleep(retry) => {}
                }
                retry = (retry * 2).min(LONGEST_RETRY);
                continue;
            }
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            change = service_changes.next() => proxy.note_service(change),
            change = slice_changes.next() => proxy.note_slice(change),
            _ = check.tick() => {
                if let Err(error) = proxy.check_table().await {
                    let error = environment::chain(&error);
                    tracing::warn!(%error, "could not look for the table of service rules");
                }
            }
        }
    }
}

struct Proxy {
    ranges: Ranges,
    node_name: String,
    environment: Environment,
    recorder: Recorder,
    index: ServiceIndex,
    ledger: Ledger,
    /// Services to plan again, with the time of the first change since the last plan.
    dirty: BTreeMap<ObjectKey, i64>,
    touched: BTreeSet<Frontend>,
    /// Pods whose first rule is about to be written, with the time of the change.
    fresh_pods: BTreeMap<String, i64>,
    /// `None`: unknown, the whole table has to be written.
    installed: Option<Installed>,
    started: bool,
    connection: Option<Connection>,
}

impl Proxy {
    fn new(config: &ProxyConfig) -> Result<Proxy, Error> {
        let ranges = Ranges {
            cluster_id: config.cluster_id.clone(),
            services: config.service_cidr,
            pods: config.pod_cidr,
            gateway: config.pod_cidr.first(),
            node_addresses: config.node_addresses.clone(),
        };
        let (environment, recorder) = (config.environment.clone(), config.recorder.clone());
        Proxy::with_ranges(
            ranges,
            config.node_name.clone(),
            config.dns.as_ref(),
            environment,
            recorder,
        )
    }

    fn with_ranges(
        ranges: Ranges,
        node_name: String,
        dns: Option<&DnsRedirect>,
        environment: Environment,
        recorder: Recorder,
    ) -> Result<Proxy, Error> {
        let mut ledger = Ledger::default();
        if let Some(dns) = dns {
            ledger.update(&ObjectKey::new("", "dns"), Some(dns_plan(dns)?));
        }
        Ok(Proxy {
            ranges,
            node_name,
            environment,
            recorder,
            index: ServiceIndex::default(),
            ledger,
            dirty: BTreeMap::new(),
            touched: BTreeSet::new(),
            fresh_pods: BTreeMap::new(),
            installed: None,
            started: false,
            connection: Some(Connection::netfilter()?),
        })
    }

    fn mark(&mut self, service: ObjectKey) {
        let now = self.environment.now_micros();
        self.dirty.entry(service).or_insert(now);
    }

    fn note_service(&mut self, change: Change<Service>) {
        if let Some(service) = self.index.note_service(change) {
            self.mark(service);
        }
    }

    fn note_slice(&mut self, change: Change<EndpointSlice>) {
        for service in self.index.note_slice(change) {
            self.mark(service);
        }
    }

    /// Plans what was marked, and writes the difference (or everything) to the kernel.
    async fn reconcile(&mut self) -> Result<(), Error> {
        for (service, noted) in std::mem::take(&mut self.dirty) {
            let object = self.index.service(&service);
            let planned = object
                .and_then(|object| plan(object, self.index.slices(&service), &self.node_name));
            if let Some(planned) = &planned {
                let known = self.ledger.plan(&service);
                for pod in planned
                    .pods
                    .iter()
                    .filter(|pod| known.is_none_or(|known| !known.pods.contains(*pod)))
                {
                    self.fresh_pods.entry(pod.clone()).or_insert(noted);
                }
            }
            self.touched.extend(self.ledger.update(&service, planned));
        }
        let start = self.environment.now_micros();
        let (batch, mut installed) = match self.installed.take() {
            None => full(&self.ledger.desired(), &self.ranges),
            Some(mut installed) => {
                let changes: Vec<_> = self
                    .touched
                    .iter()
                    .map(|frontend| (*frontend, self.ledger.backends(frontend).cloned()))
                    .filter(|(frontend, backends)| {
                        installed.frontends().get(frontend) != backends.as_ref()
                    })
                    .collect();
                let mut batch =
                    Batch::new(Family::Ipv4, names::proxy_table(&self.ranges.cluster_id));
                installed.follow(changes, &self.ranges, &mut batch);
                (batch, installed)
            }
        };
        let bytes = batch.bytes() as u64;
        self.commit(batch).await?;
        let stale = installed.take_stale();
        self.installed = Some(installed);
        self.touched.clear();
        self.record_live_pods(start, bytes);
        let node_addresses = self.ranges.node_addresses.clone();
        if !stale.is_empty()
            && let Err(error) = self
                .with_kernel(move |kernel| Ok(forget_flows(kernel, &stale, &node_addresses)?))
                .await
        {
            let error = environment::chain(&error);
            tracing::warn!(%error, "UDP clients may keep sending to endpoints that are gone");
        }
        Ok(())
    }

    /// Pods that were there before we started have this span already.
    fn record_live_pods(&mut self, start: i64, bytes: u64) {
        let end = self.environment.now_micros();
        let pods = std::mem::take(&mut self.fresh_pods);
        if !std::mem::replace(&mut self.started, true) {
            return;
        }
        for (uid, noted) in pods {
            let span = Span {
                hop: Hop::After,
                name: "service rule live".to_owned(),
                component: "proxy".to_owned(),
                start,
                queue_us: (start - noted).max(0) as u64,
                work_us: (end - start).max(0) as u64,
                bytes,
                failure: None,
            };
            self.recorder.record(&uid, span);
        }
    }

    async fn commit(&mut self, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        self.with_kernel(move |connection| Ok(batch.commit(connection)?))
            .await
    }

    /// What others may have done meanwhile: removed our table, or begun to drop forwarded packets
    /// (Docker, started after us).
    async fn check_table(&mut self) -> Result<(), Error> {
        let name = names::proxy_table(&self.ranges.cluster_id);
        let (cluster_id, pods) = (self.ranges.cluster_id.clone(), self.ranges.pods);
        let tables = self
            .with_kernel(move |connection| {
                foreign::accept_pods(connection, &cluster_id, pods)?;
                Ok(nft::tables(connection)?)
            })
            .await?;
        if !tables
            .iter()
            .any(|table| table.family == Family::Ipv4 && table.name == name)
        {
            tracing::warn!(
                table = name,
                "the table of service rules was removed by someone, writing it again"
            );
            self.installed = None;
        }
        Ok(())
    }

    /// Runs `work` off the async threads. After a failure the connection is opened anew.
    async fn with_kernel<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let connection = self.connection.take();
        let task = tokio::task::spawn_blocking(move || {
            let mut connection = connection.map_or_else(Connection::netfilter, Ok)?;
            let outcome = work(&mut connection)?;
            Ok::<_, Error>((connection, outcome))
        });
        let (connection, outcome) = task.await.map_err(|_| Error::Writer)??;
        self.connection = Some(connection);
        Ok(outcome)
    }
}

/// Forgets UDP flows to these frontends that are answered by someone who is no endpoint (any more):
/// an endpoint that is gone, or the host that the client reached before there was an endpoint.
fn forget_flows(
    connection: &mut Connection,
    stale: &BTreeMap<Frontend, Vec<Endpoint>>,
    node_addresses: &[Ipv4Addr],
) -> Result<usize, netlink::Error> {
    conntrack::forget(connection, |flow| {
        let (protocol, port) = (flow.protocol, flow.asked.port());
        let by_address = Frontend::Address {
            address: *flow.asked.ip(),
            protocol,
            port,
        };
        let answering = Endpoint {
            address: *flow.answering.ip(),
            port: flow.answering.port(),
        };
        let translated = flow.answering != flow.asked;
        let gone = |frontend| {
            stale.get(&frontend).is_some_and(|endpoints| {
                // Without endpoints, a client that reaches something else may stay with it.
                !endpoints.contains(&answering) && (translated || !endpoints.is_empty())
            })
        };
        let by_node_port = || {
            node_addresses.contains(flow.asked.ip()) && gone(Frontend::NodePort { protocol, port })
        };
        protocol == plan::UDP && (gone(by_address) || by_node_port())
    })
}

fn dns_plan(dns: &DnsRedirect) -> Result<ServicePlan, Error> {
    let SocketAddr::V4(to) = dns.to else {
        return Err(Error::DnsTarget(dns.to));
    };
    let backends = Backends {
        endpoints: vec![Endpoint {
            address: *to.ip(),
            port: to.port(),
        }],
        affinity_seconds: None,
    };
    let frontends = [plan::UDP, plan::TCP].map(|protocol| {
        (
            Frontend::Address {
                address: dns.service_ip,
                protocol,
                port: 53,
            },
            backends.clone(),
        )
    });
    Ok(ServicePlan {
        frontends: frontends.into(),
        rights: [(dns.service_ip, Right::Resolver)].into(),
        ..ServicePlan::default()
    })
}
