//! Several servers over one store: the `kubernetes` Service leads to those that live.

use std::sync::Arc;
use std::time::Duration;

use environment::Environment;
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};

use crate::harness::{Authority, Client, Cluster};

#[tokio::test(start_paused = true)]
async fn the_kubernetes_service_leads_to_the_servers_that_live() {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(1).mount();
    let store = Embedded::open(disk, environment.clone(), Options::default())
        .await
        .unwrap();
    let store: Arc<dyn store::Store> = store;
    let at = |address: &'static str| {
        let (store, environment) = (store.clone(), environment.clone());
        Cluster::at(address, true, store, Authority::new(), environment)
    };
    let first = at("192.0.2.1:6443").await;
    assert_eq!(addresses(&first.admin()).await, ["192.0.2.1"]);
    let second = at("192.0.2.2:6443").await;
    let admin = second.admin();
    assert_eq!(addresses(&admin).await, ["192.0.2.1", "192.0.2.2"]);
    // Both keep their records; nothing is written to the Service's objects meanwhile.
    let before = admin.get(ENDPOINTS).await.expect(200);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(admin.get(ENDPOINTS).await.expect(200), before);
    // One vanishes without a word.
    drop(first);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(addresses(&admin).await, ["192.0.2.2"]);
    // One leaves in order: no waiting for its record to end.
    let third = at("192.0.2.3:6443").await;
    assert_eq!(addresses(&admin).await, ["192.0.2.2", "192.0.2.3"]);
    third.stop().await;
    assert_eq!(addresses(&admin).await, ["192.0.2.2"]);
}

const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

/// Endpoints and EndpointSlice say the same.
async fn addresses(admin: &Client) -> Vec<String> {
    let endpoints = admin.get(ENDPOINTS).await.expect(200);
    let subsets = endpoints.list_at(&["subsets"]);
    assert_eq!(subsets.len(), 1);
    let text = |value: &api::Value, field: &str| value.str_at(&[field]).to_string();
    let listed = subsets[0].list_at(&["addresses"]).iter();
    let listed: Vec<String> = listed.map(|address| text(address, "ip")).collect();
    let slice = admin.get(SLICE).await.expect(200);
    let sliced = slice.list_at(&["endpoints"]).iter().map(|endpoint| {
        let addresses = endpoint.list_at(&["addresses"]);
        addresses[0].as_str().unwrap().to_string()
    });
    assert_eq!(sliced.collect::<Vec<_>>(), listed);
    listed
}
