//! A namespace's deletion and creations in it that were admitted before: nothing is left behind.

use std::sync::Arc;

use environment::Environment;
use parking_lot::Mutex;
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};
use store::{
    Error, KeyRange, LeaseId, Operation, RangeRequest, RangeResult, Revision, SnapshotStream,
    Store, Transaction, TransactionResult, WatchStream,
};

use crate::harness::{Authority, Client, Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/n/configmaps";

/// A store that does something else first when a certain key is about to be written.
struct Interrupted {
    store: Arc<dyn Store>,
    key: &'static str,
    first: Mutex<Option<Client>>,
    interrupt: fn(Client) -> futures::future::BoxFuture<'static, ()>,
}

#[async_trait::async_trait]
impl Store for Interrupted {
    async fn revision(&self) -> Result<Revision, Error> {
        self.store.revision().await
    }

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResult, Error> {
        let is_it = |operation: &Operation| match operation {
            Operation::Put { key, .. } => key.ends_with(self.key.as_bytes()),
            Operation::Delete { .. } => false,
        };
        if transaction.then.iter().any(is_it) {
            let client = self.first.lock().take();
            if let Some(client) = client {
                (self.interrupt)(client).await;
            }
        }
        self.store.transact(transaction).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResult, Error> {
        self.store.range(request).await
    }

    async fn watch(&self, range: KeyRange, from: Revision) -> Result<WatchStream, Error> {
        self.store.watch(range, from).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.store.compact(revision).await
    }

    async fn snapshot(&self) -> Result<SnapshotStream, Error> {
        self.store.snapshot().await
    }

    async fn grant_lease(&self, seconds: u64) -> Result<LeaseId, Error> {
        self.store.grant_lease(seconds).await
    }

    async fn keep_lease_alive(&self, lease: LeaseId) -> Result<(), Error> {
        self.store.keep_lease_alive(lease).await
    }
}

/// Two servers over one store, with the namespace `n`. Before the second one writes a ConfigMap
/// `late`, the first one does `interrupt`.
async fn servers(
    interrupt: fn(Client) -> futures::future::BoxFuture<'static, ()>,
) -> (Cluster, Cluster) {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(1).mount();
    let store: Arc<dyn Store> = Embedded::open(disk, environment.clone(), Options::default())
        .await
        .unwrap();
    let first = Cluster::over(store.clone(), Authority::new(), environment.clone()).await;
    first.namespace("n").await;
    let interrupted = Arc::new(Interrupted {
        store,
        key: "/configmaps/n/late",
        first: Mutex::new(Some(first.admin())),
        interrupt,
    });
    let second = Cluster::over(interrupted, Authority::new(), environment).await;
    (first, second)
}

#[tokio::test(start_paused = true)]
async fn a_creation_admitted_before_the_deletion_of_its_namespace_is_refused() {
    let (_first, second) = servers(|client| {
        Box::pin(async move {
            client.delete("/api/v1/namespaces/n").await.expect(200);
        })
    })
    .await;
    let message = second
        .admin()
        .post(MAPS, &config_map("late"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "configmaps \"late\" is forbidden: unable to create new content in namespace n because it is being terminated"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_into_a_namespace_that_is_gone() {
    let (first, second) = servers(|client| {
        Box::pin(async move {
            client.delete("/api/v1/namespaces/n").await.expect(200);
            let mut namespace = client.get("/api/v1/namespaces/n").await.expect(200);
            namespace.remove(&["spec", "finalizers"]);
            client
                .put("/api/v1/namespaces/n/finalize", &namespace)
                .await
                .expect(200);
        })
    })
    .await;
    let message = second
        .admin()
        .post(MAPS, &config_map("late"))
        .await
        .failure(404, "NotFound");
    assert_eq!(message, "namespaces \"n\" not found");
    let left = first.admin().get(MAPS).await.expect(200);
    assert!(left.list_at(&["items"]).is_empty(), "{left}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_only_changed_takes_the_object() {
    let (_first, second) = servers(|client| {
        Box::pin(async move {
            let labels = api::document!({"metadata": {"labels": {"a": "b"}}});
            let path = "/api/v1/namespaces/n";
            client.merge(path, &labels).await.expect(200);
        })
    })
    .await;
    let admin = second.admin();
    admin.post(MAPS, &config_map("late")).await.expect(201);
    admin
        .post(MAPS, &config_map("late"))
        .await
        .failure(409, "AlreadyExists");
}
