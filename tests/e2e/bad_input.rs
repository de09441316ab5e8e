//! Invalid input is rejected with Kubernetes' own messages and changes nothing.

use crate::cluster::{Cluster, eventually};

fn revision(cluster: &Cluster) -> serde_json::Value {
    cluster.object("configmap", "here")["metadata"]["resourceVersion"].clone()
}

#[test]
fn invalid_objects_are_rejected_with_the_messages_of_kubernetes() {
    let cluster = Cluster::start();
    cluster.kubectl(&["create", "configmap", "here", "--from-literal=a=b"]);
    let stored = || cluster.kubectl(&["get", "configmaps,pods,services,deployments", "-o", "name"]);
    // Controllers create some objects in every namespace, with a delay.
    let before = eventually("the cluster's certificate", || {
        Some(stored()).filter(|names| names.contains("kube-root-ca.crt"))
    });
    let check = |yaml: &str, words: &[&str]| {
        let said = cluster.apply_fails(yaml);
        for word in words {
            assert!(said.contains(word), "{word} is missing:\n{said}");
        }
        assert_eq!(stored(), before);
    };
    check("apiVersion: v1\nkind: [Pod\n", &["error"]);
    check(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndatum: {a: b}\n",
        &["unknown field \"datum\""],
    );
    check(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: three, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n",
        &["replicas"],
    );
    check(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n",
        &[
            "is invalid: metadata.name: Invalid value: \"Not_A_Name\"",
            "a lowercase RFC 1123 subdomain",
        ],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: []}\n",
        &["spec.containers: Required value"],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x, namespace: nowhere}\nspec: {containers: [{name: c, image: i}]}\n",
        &["namespaces \"nowhere\" not found"],
    );
    let large = "x".repeat(1_100_000);
    check(
        &format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large, annotations: {{}}}}\ndata: {{a: {large}}}\n"
        ),
        &["Too long"],
    );
    let larger = "y".repeat(4_000_000);
    check(
        &format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: larger}}\ndata: {{a: {larger}}}\n"
        ),
        &["too large"],
    );
}

#[test]
fn conflicts_bad_credentials_and_missing_permissions_are_rejected() {
    let cluster = Cluster::start();
    cluster.kubectl(&["create", "configmap", "here", "--from-literal=a=b"]);
    let mut stale = cluster.object("configmap", "here");
    cluster.kubectl(&["label", "configmap", "here", "x=y"]);
    stale["data"]["a"] = "c".into();
    let said = crate::cluster::with_input(
        &mut cluster.kubectl_command(&["replace", "-f", "-"]),
        &stale.to_string(),
        false,
    );
    assert!(
        said.contains(
            "the object has been modified; please apply your changes to the latest version"
        ),
        "{said}"
    );
    assert_eq!(cluster.object("configmap", "here")["data"]["a"], "b");

    let at = revision(&cluster);
    let said = cluster.kubectl_fails(&["get", "pods", "--as=stranger"]);
    assert!(
        said.contains("User \"stranger\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""),
        "{said}"
    );
    let said = cluster.kubectl_fails(&[
        "get",
        "pods",
        "--token=rubbish",
        "--client-certificate=/dev/null",
        "--client-key=/dev/null",
    ]);
    assert!(!said.is_empty());
    assert_eq!(revision(&cluster), at);
}

#[test]
fn pods_that_cannot_run_have_an_event_with_the_reason() {
    let cluster = Cluster::start();
    cluster.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec:
  containers: [{name: c, image: "coracle-test:1", resources: {requests: {cpu: "1000"}}}]
---
apiVersion: v1
kind: Service
metadata: {name: one}
spec: {type: NodePort, ports: [{port: 80, nodePort: 30123}]}
"#,
    );
    eventually("FailedScheduling", || {
        let events = cluster.kubectl(&["get", "events"]);
        events
            .contains("0/1 nodes are available: 1 Insufficient cpu")
            .then_some(())
    });
    eventually("the condition", || {
        let pod = cluster.object("pod", "huge");
        (pod["status"]["conditions"][0]["reason"] == "Unschedulable").then_some(())
    });
    let said = cluster.apply_fails(
        "apiVersion: v1\nkind: Service\nmetadata: {name: two}\nspec: {type: NodePort, ports: [{port: 80, nodePort: 30123}]}\n",
    );
    assert!(
        said.contains("provided port is already allocated"),
        "{said}"
    );
}
