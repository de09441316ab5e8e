//! Deployments behind Services: routing, DNS, rolling update, scaling, ownership.

use crate::cluster::{Cluster, eventually, repository};

fn demo() -> String {
    std::fs::read_to_string(repository().join("examples/demo.yaml"))
        .expect("demo")
        .replace("coracle-demo:1", "coracle-test:1")
}

/// The time limit of these tests.
fn visitor() -> String {
    std::fs::read_to_string(repository().join("examples/visitor.yaml"))
        .expect("visitor")
        .replace("coracle-demo:1", "coracle-test:1")
        .replace("timeout 2 wget", "timeout 10 wget")
        .replace("-lt 50 ", "-lt 2000 ")
}

#[test]
fn a_deployment_is_reached_by_its_service_name_during_a_rollout() {
    let cluster = Cluster::start();
    cluster.apply(&demo());
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    cluster.apply(&visitor());
    cluster.wait_for_phase("visitor", "Succeeded");
    assert!(
        cluster
            .kubectl(&["logs", "visitor"])
            .contains("Coracle carries you across.")
    );

    // A new template replaces every pod and keeps the Service answering.
    cluster.kubectl(&["set", "env", "deployment/web", "TIDE=low"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    let pods = cluster.kubectl(&["get", "pods", "-l", "app=web", "-o", "json"]);
    let pods: serde_json::Value = serde_json::from_str(&pods).expect("JSON");
    for pod in pods["items"].as_array().expect("items") {
        if pod["metadata"]["deletionTimestamp"].is_null() {
            assert_eq!(pod["spec"]["containers"][0]["env"][0]["value"], "low");
        }
    }
    cluster.kubectl(&["scale", "deployment/web", "--replicas=3"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    eventually("three endpoints", || {
        let slices = cluster.kubectl(&[
            "get",
            "endpointslices",
            "-l",
            "kubernetes.io/service-name=web",
            "-o",
            "jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].addresses[0]}",
        ]);
        (slices.split_whitespace().count() == 3).then_some(())
    });

    // The ReplicaSets and pods are deleted with their owner.
    cluster.kubectl(&["delete", "deployment", "web", "--timeout=120s"]);
    eventually("pods and sets to be gone", || {
        let left = cluster.kubectl(&["get", "pods,replicasets", "-l", "app=web", "-o", "name"]);
        left.trim().is_empty().then_some(())
    });
}

#[test]
fn a_deleted_namespace_disappears_with_its_objects() {
    let cluster = Cluster::start();
    cluster.kubectl(&["create", "namespace", "harbour"]);
    eventually("the default account", || {
        cluster
            .kubectl(&["get", "serviceaccounts", "-n", "harbour", "-o", "name"])
            .contains("serviceaccount/default")
            .then_some(())
    });
    cluster.kubectl(&[
        "create",
        "configmap",
        "chart",
        "-n",
        "harbour",
        "--from-literal=a=b",
    ]);
    cluster.kubectl(&[
        "create",
        "deployment",
        "web",
        "-n",
        "harbour",
        "--image=coracle-test:1",
        "--",
        "sleep",
        "1000",
    ]);
    cluster.kubectl(&["delete", "namespace", "harbour", "--timeout=120s"]);
    let gone = cluster.kubectl_fails(&["get", "namespace", "harbour"]);
    assert!(gone.contains("namespaces \"harbour\" not found"), "{gone}");
    assert_eq!(
        cluster
            .kubectl(&["get", "pods,configmaps", "-n", "harbour", "-o", "name"])
            .trim(),
        ""
    );
}
