//! PodSecurity through the API: what a namespace's labels refuse, warn about, and may say.

use api::Value;

use crate::harness::{Answer, Cluster, pod};

fn namespace(name: &str, labels: Value) -> Value {
    let mut namespace = api::document!({"metadata": {"name": name}});
    for (mode, level) in labels.fields_at(&[]) {
        let label = format!("pod-security.kubernetes.io/{mode}");
        namespace.set(&["metadata", "labels", &label], level.clone());
    }
    namespace
}

fn warnings(answer: &Answer) -> Vec<String> {
    let all = answer.headers.get_all("warning").iter();
    all.map(|value| value.to_str().unwrap().to_string())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn levels_are_enforced_and_warned_about() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let labels = api::document!({"enforce": "baseline", "warn": "restricted"});
    admin
        .post("/api/v1/namespaces", &namespace("guarded", labels))
        .await
        .expect(201);
    let account = api::document!({"metadata": {"name": "default"}});
    let accounts = "/api/v1/namespaces/guarded/serviceaccounts";
    admin.post(accounts, &account).await.expect(201);
    let pods = "/api/v1/namespaces/guarded/pods";
    let mut privileged = pod("p");
    privileged.set(&["spec", "hostNetwork"], true);
    let message = admin
        .post(pods, &privileged)
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"
    );
    let plain = admin.post(pods, &pod("q")).await;
    let told = warnings(&plain);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains(
            "would violate PodSecurity \\\"restricted:latest\\\": allowPrivilegeEscalation != false"
        ),
        "{told:?}"
    );
    plain.expect(201);
    // A controller is warned about the pods it will make, never refused.
    let deployment = api::document!({
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": privileged.get("spec")},
        },
    });
    let path = "/apis/apps/v1/namespaces/guarded/deployments";
    let made = admin.post(path, &deployment).await;
    assert!(warnings(&made)[0].contains("host namespaces (hostNetwork=true)"));
    made.expect(201);
    // A rising level looks at what is there.
    let patch = api::document!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let raised = admin.merge("/api/v1/namespaces/guarded", &patch).await;
    let told = warnings(&raised);
    assert!(told[0].contains("existing pods in namespace \\\"guarded\\\" violate the new PodSecurity enforce level \\\"restricted:latest\\\""), "{told:?}");
    assert!(told[1].contains("q: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn labels_must_make_sense() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let labels = api::document!({"enforce": "nonsense"});
    let message = admin
        .post("/api/v1/namespaces", &namespace("odd", labels))
        .await
        .failure(422, "Invalid");
    assert_eq!(
        message,
        "Namespace \"odd\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"nonsense\": must be one of privileged, baseline, restricted"
    );
}
