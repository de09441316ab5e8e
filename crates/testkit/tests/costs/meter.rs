//! Counts what a piece of work costs a simulated cluster: syncs, transactions, bytes on disk and
//! allocations. Not time: that is `make bench`.

use std::future::Future;
use std::ops::Sub;
use std::time::Duration;

use apiserver::{Body, Identity};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use testkit::{Builder, Cluster};
use tokio::runtime::Runtime;
use tower::Service;

/// Simulated time after which everything that follows from a write has happened, retries and
/// periodic work not.
const SETTLED: Duration = Duration::from_millis(700);

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// What something cost. Allocations are those of the one thread everything runs on; growing a
/// buffer counts as one of the new size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub fsyncs: u64,
    pub transactions: u64,
    pub disk_bytes: u64,
    pub allocations: u64,
    pub allocated_bytes: u64,
}

impl Sub for Cost {
    type Output = Cost;

    fn sub(self, other: Cost) -> Cost {
        Cost {
            fsyncs: self.fsyncs.saturating_sub(other.fsyncs),
            transactions: self.transactions.saturating_sub(other.transactions),
            disk_bytes: self.disk_bytes.saturating_sub(other.disk_bytes),
            allocations: self.allocations.saturating_sub(other.allocations),
            allocated_bytes: self.allocated_bytes.saturating_sub(other.allocated_bytes),
        }
    }
}

/// The median of each count: what grows now and then (a table, the simulated disk) drops out.
pub fn median(costs: &[Cost]) -> Cost {
    let of = |count: fn(&Cost) -> u64| {
        let mut counts: Vec<u64> = costs.iter().map(count).collect();
        counts.sort_unstable();
        counts[counts.len() / 2]
    };
    Cost {
        fsyncs: of(|cost| cost.fsyncs),
        transactions: of(|cost| cost.transactions),
        disk_bytes: of(|cost| cost.disk_bytes),
        allocations: of(|cost| cost.allocations),
        allocated_bytes: of(|cost| cost.allocated_bytes),
    }
}

/// A cluster on one thread under simulated time, with a counter of what it does.
pub struct Meter {
    runtime: Runtime,
    pub cluster: Cluster,
}

impl Meter {
    pub fn start(cluster: Builder) -> Meter {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("runtime");
        let cluster = runtime
            .block_on(cluster.simulated(7).start())
            .expect("start");
        let meter = Meter { runtime, cluster };
        // What the controllers would make.
        let account =
            br#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
        meter.run(meter.send(Method::POST, ACCOUNTS, Bytes::from_static(account)));
        meter.settle();
        meter
    }

    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Lets everything happen that is due.
    pub fn settle(&self) {
        self.run(async { tokio::time::sleep(SETTLED).await });
    }

    /// Does `work`, lets its consequences happen, and says what both cost.
    pub fn measure<T>(&self, work: impl Future<Output = T>) -> (T, Cost) {
        let store = self.cluster.store().expect("the server runs");
        let before = store.counters();
        let mut result = None;
        let allocated = allocation_counter::measure(|| {
            result = Some(self.run(work));
            self.settle();
        });
        let after = store.counters();
        let cost = Cost {
            fsyncs: after.fsyncs - before.fsyncs,
            transactions: after.transactions - before.transactions,
            disk_bytes: after.bytes_written - before.bytes_written,
            allocations: allocated.count_total,
            allocated_bytes: allocated.bytes_total,
        };
        (result.expect("the work was done"), cost)
    }

    /// Sends a request past any client library, so that only the server's cost is counted. Gives
    /// the body as the server gave it, piece by piece.
    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> Vec<Bytes> {
        let mut body = self.open(method, path, body).await;
        let mut pieces = Vec::with_capacity(4);
        while let Some(frame) = body.frame().await {
            pieces.extend(frame.expect("frame").into_data());
        }
        pieces
    }

    /// Begins a watch and goes on reading it.
    pub fn watch(&self, path: &str) {
        self.run(async {
            let mut body = self.open(Method::GET, path, Bytes::new()).await;
            tokio::spawn(async move { while body.frame().await.is_some() {} });
        });
    }

    async fn open(&self, method: Method, path: &str, body: Bytes) -> Body {
        let content = match method {
            Method::PATCH => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(Full::new(body))
            .expect("request");
        let server = self.cluster.network().server().expect("the server runs");
        let mut service = server.in_process(Identity::administrator());
        let Ok(response) = service.call(request).await;
        assert!(
            response.status().is_success(),
            "{path}: {}",
            response.status()
        );
        response.into_body()
    }
}
