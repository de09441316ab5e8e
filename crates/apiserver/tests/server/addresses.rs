//! Addresses of Services and their records: pulled apart by somebody, they come together again.

use std::time::Duration;

use crate::harness::Cluster;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const RECORDS: &str = "/apis/networking.k8s.io/v1/ipaddresses";

fn service(address: &str) -> api::Value {
    api::document!({"metadata": {"name": "web"}, "spec": {
        "clusterIP": address, "ports": [{"port": 80}]}})
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_deleted_is_written_again_with_an_event() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin
        .post(SERVICES, &service("10.96.7.7"))
        .await
        .expect(201);
    let record = format!("{RECORDS}/10.96.7.7");
    let before = admin.get(&record).await.expect(200);
    admin.delete(&record).await.expect(200);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let after = admin.get(&record).await.expect(200);
    assert_eq!(after.at(&["spec"]), before.at(&["spec"]));
    assert_eq!(
        after.at(&["metadata", "labels"]),
        before.at(&["metadata", "labels"])
    );
    let events = admin
        .get("/api/v1/namespaces/default/events")
        .await
        .expect(200);
    let told = events.list_at(&["items"]);
    let reasons: Vec<&str> = told.iter().map(|event| event.str_at(&["reason"])).collect();
    assert_eq!(reasons, ["ClusterIPNotAllocated"]);
    // In order, it is left alone.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(admin.get(&record).await.expect(200), after);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_no_service_goes_and_its_address_can_be_had() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let record = |name: &str, labels: api::Value| {
        api::document!({"metadata": {"name": name, "labels": labels},
            "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "gone"}}})
    };
    let managed = api::document!({"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        "ipaddress.kubernetes.io/ip-family": "IPv4"});
    admin
        .post(RECORDS, &record("10.96.7.7", managed))
        .await
        .expect(201);
    let foreign = record("10.96.7.8", api::document!({}));
    admin.post(RECORDS, &foreign).await.expect(201);
    admin
        .post(SERVICES, &service("10.96.7.7"))
        .await
        .failure(422, "Invalid");
    tokio::time::sleep(Duration::from_secs(90)).await;
    admin
        .get(&format!("{RECORDS}/10.96.7.7"))
        .await
        .failure(404, "NotFound");
    admin
        .post(SERVICES, &service("10.96.7.7"))
        .await
        .expect(201);
    // Whoever made a record that is not ours keeps it.
    admin.get(&format!("{RECORDS}/10.96.7.8")).await.expect(200);
}
