//! The work of one request does not grow with the number of objects that it does not concern: counted
//! in entries of the watch cache that are looked at, among a hundred, a thousand and ten thousand
//! Services and pods of one namespace.

use std::sync::Arc;

use api::Value;
use apiserver::Identity;
use environment::{Environment, work};
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};
use store::{Operation, Store, Transaction};

use crate::harness::{Authority, Client, Cluster, config_map, pod};

const SIZES: [usize; 3] = [100, 1_000, 10_000];
const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server whose store had this many Services, with the records of their addresses, and pods, each
/// on a node of its own, before it began.
async fn cluster_with(count: usize) -> Cluster {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(1).mount();
    let store: Arc<dyn Store> = Embedded::open(disk, environment.clone(), Options::default())
        .await
        .unwrap();
    let numbers: Vec<usize> = (0..count).collect();
    for some in numbers.chunks(30) {
        let then = some.iter().flat_map(|number| objects(*number)).collect();
        let compare = Vec::new();
        store.transact(Transaction { compare, then }).await.unwrap();
    }
    let cluster = Cluster::over(store, Authority::new(), environment).await;
    cluster.namespace("default").await;
    cluster
}

fn objects(number: usize) -> Vec<Operation> {
    let address = format!("10.100.{}.{}", number / 250, 1 + number % 250);
    let metadata = |name: &str| {
        api::document!({"name": name.to_string(), "namespace": "default",
            "uid": format!("{name}-uid"), "creationTimestamp": "2026-01-01T00:00:00Z"})
    };
    let service = api::document!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(&format!("service-{number}")),
        "spec": {"type": "NodePort", "clusterIP": address.clone(), "clusterIPs": [address.clone()],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80,
                "nodePort": 30_000 + (number % 2_000) as i64}]},
        "status": {"loadBalancer": {}},
    });
    let record = api::document!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": address.clone(), "uid": format!("{address}-uid"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": "default",
            "name": format!("service-{number}")}},
    });
    let mut bound = pod("bound");
    bound.set(&["metadata"], metadata(&format!("pod-{number}")));
    bound.set(&["spec", "nodeName"], format!("node-{number}"));
    bound.set(
        &["spec", "volumes"],
        vec![api::document!({"name": "v", "configMap": {"name": format!("map-{number}")}})],
    );
    let put = |key: String, object: Value| Operation::Put {
        key: key.into(),
        value: object.to_json().into(),
        lease: None,
    };
    vec![
        put(
            format!("/registry/services/specs/default/service-{number}"),
            service,
        ),
        put(format!("/registry/ipaddresses/{address}"), record),
        put(format!("/registry/pods/default/pod-{number}"), bound),
    ]
}

fn service(name: &str, kind: &str) -> Value {
    api::document!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": kind, "selector": {"app": "a"}, "ports": [{"port": 80}]}})
}

/// What is looked at for each of these requests, of which none concerns the others.
async fn measure(cluster: &Cluster) -> Vec<(&'static str, u64)> {
    let admin = cluster.admin();
    // The first request reads what there is; the following ones what has changed.
    admin
        .post(SERVICES, &service("first", "ClusterIP"))
        .await
        .expect(201);
    admin.post(PODS, &pod("first")).await.expect(201);
    let mut counts = Vec::new();
    let mut count = |what, before: u64| counts.push((what, work::visited() - before));

    let before = work::visited();
    let made = admin.post(SERVICES, &service("second", "ClusterIP")).await;
    made.expect(201);
    count("a Service is created", before);

    let before = work::visited();
    let made = admin.post(SERVICES, &service("third", "NodePort")).await;
    made.expect(201);
    count("a Service with a node port is created", before);

    let before = work::visited();
    let patch = api::document!({"spec": {"type": "NodePort"}});
    let changed = admin.merge(&format!("{SERVICES}/second"), &patch).await;
    changed.expect(200);
    count("a Service is changed", before);

    let before = work::visited();
    let gone = admin.delete(&format!("{SERVICES}/third")).await;
    gone.expect(200);
    count("a Service is deleted", before);

    let before = work::visited();
    admin.post(PODS, &pod("second")).await.expect(201);
    count("a pod is created", before);

    admin
        .post(
            "/api/v1/namespaces/default/configmaps",
            &config_map("map-7"),
        )
        .await
        .expect(201);
    let kubelet: Client = cluster.client(Identity::node("node-7"));
    let before = work::visited();
    let map = "/api/v1/namespaces/default/configmaps/map-7";
    kubelet.get(map).await.expect(200);
    count("a kubelet reads what a pod of its node names", before);

    let stranger: Client = cluster.client(Identity::node("node-8"));
    let before = work::visited();
    assert_eq!(stranger.get(map).await.code, 403);
    count("a kubelet is refused what no pod of its node names", before);
    counts
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_request_does_not_grow_with_the_others() {
    let mut least: Vec<(&'static str, u64)> = Vec::new();
    for size in SIZES {
        let cluster = cluster_with(size).await;
        let counts = measure(&cluster).await;
        if least.is_empty() {
            least = counts;
            continue;
        }
        for ((what, count), (_, least)) in counts.iter().zip(&least) {
            assert!(
                *count <= least + 10,
                "{what}: {count} entries are looked at among {size}, {least} among {}",
                SIZES[0]
            );
        }
    }
}
