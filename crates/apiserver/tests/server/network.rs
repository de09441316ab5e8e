//! What admission says about networks: pod ranges of nodes, and external addresses of Services.

use std::sync::Arc;

use api::Value;
use apiserver::{AdmissionConfig, Identity, UnknownPodRange};

use crate::harness::Cluster;

const NODES: &str = "/api/v1/nodes";
const SERVICES: &str = "/api/v1/namespaces/default/services";

fn node(name: &str, ranges: &[&str]) -> Value {
    let mut node = api::document!({"metadata": {"name": name}});
    if let Some(first) = ranges.first() {
        node.set(&["spec", "podCIDR"], *first);
        let all: Vec<Value> = ranges.iter().map(|range| Value::from(*range)).collect();
        node.set(&["spec", "podCIDRs"], all);
    }
    node
}

/// A cluster that gave node `one` its range, and does not know about `lost` at the moment.
async fn cluster() -> Cluster {
    Cluster::admitting(AdmissionConfig {
        pod_ranges: Some(Arc::new(|name: &str| match name {
            "one" => Ok(Some("10.244.1.0/24".to_string())),
            "lost" => Err(UnknownPodRange("nodes.json: damaged".to_string())),
            _ => Ok(None),
        })),
        ..AdmissionConfig::default()
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_node_registers_with_no_pod_range_but_the_one_it_was_given() {
    let cluster = cluster().await;
    let one = cluster.client(Identity::node("one"));
    for wrong in [
        &["0.0.0.0/1"][..],
        &["10.244.2.0/24"],
        &["10.244.0.0/16"],
        &["10.244.1.0/24", "fd00::/64"],
    ] {
        let message = one
            .post(NODES, &node("one", wrong))
            .await
            .failure(403, "Forbidden");
        assert_eq!(
            message,
            format!(
                "nodes \"one\" is forbidden: node \"one\" is not allowed to set pod CIDRs that the cluster did not give to it: {} (given: 10.244.1.0/24)",
                wrong.join(", ")
            )
        );
    }
    let made = one.post(NODES, &node("one", &["10.244.1.0/24"])).await;
    let made = made.expect(201);
    assert_eq!(made.str_at(&["spec", "podCIDR"]), "10.244.1.0/24");
    one.post(NODES, &node("one", &["10.244.1.0/24"]))
        .await
        .failure(409, "AlreadyExists");

    // A node that was given none brings none, and does not choose one later.
    let two = cluster.client(Identity::node("two"));
    let message = two
        .post(NODES, &node("two", &["10.244.2.0/24"]))
        .await
        .failure(403, "Forbidden");
    assert!(
        message.ends_with("10.244.2.0/24 (given: none)"),
        "{message}"
    );
    two.post(NODES, &node("two", &[])).await.expect(201);
    for patch in [
        api::document!({"spec": {"podCIDR": "0.0.0.0/1"}}),
        api::document!({"spec": {"podCIDRs": ["0.0.0.0/1"]}}),
    ] {
        two.merge(&format!("{NODES}/two"), &patch)
            .await
            .failure(403, "Forbidden");
    }
    // The cluster itself gives it one; what the node writes afterwards is not in the way.
    let given = api::document!({"spec": {"podCIDR": "10.244.2.0/24"}});
    let admin = cluster.admin();
    admin
        .merge(&format!("{NODES}/two"), &given)
        .await
        .expect(200);
    let labels = api::document!({"metadata": {"labels": {"example.com/colour": "red"}}});
    two.merge(&format!("{NODES}/two"), &labels)
        .await
        .expect(200);
    two.post(NODES, &node("two", &["10.244.2.0/24"]))
        .await
        .failure(409, "AlreadyExists");

    // Not to know is not to have given anything.
    let lost = cluster.client(Identity::node("lost"));
    let message = lost
        .post(NODES, &node("lost", &["10.244.3.0/24"]))
        .await
        .failure(500, "InternalError");
    assert!(message.contains("nodes.json: damaged"), "{message}");
}

fn service(addresses: &[&str]) -> Value {
    let mut service = api::document!({
        "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]},
    });
    let list: Vec<Value> = addresses
        .iter()
        .map(|address| Value::from(*address))
        .collect();
    service.set(&["spec", "externalIPs"], list);
    service
}

#[tokio::test(start_paused = true)]
async fn external_ips_are_denied_where_the_plugin_is_enabled() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    admin
        .post(SERVICES, &service(&["192.0.2.1"]))
        .await
        .expect(201);

    let cluster = Cluster::admitting(AdmissionConfig {
        enabled: vec!["DenyServiceExternalIPs".to_string()],
        ..AdmissionConfig::default()
    })
    .await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let message = admin
        .post(SERVICES, &service(&["192.0.2.1"]))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "services \"web\" is forbidden: Use of external IPs is denied by admission control"
    );
    admin.post(SERVICES, &service(&[])).await.expect(201);
    let more = api::document!({"spec": {"externalIPs": ["192.0.2.1"]}});
    admin
        .merge(&format!("{SERVICES}/web"), &more)
        .await
        .failure(403, "Forbidden");
}
