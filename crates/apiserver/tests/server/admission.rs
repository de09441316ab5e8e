//! The admission chain, and the addresses and ports of Services.

use api::Value;

use crate::harness::{Cluster, config_map, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";

#[tokio::test(start_paused = true)]
async fn namespaces_must_exist_and_not_be_going() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let message = admin
        .post("/api/v1/namespaces/nowhere/configmaps", &config_map("a"))
        .await
        .failure(404, "NotFound");
    assert_eq!(message, "namespaces \"nowhere\" not found");
    cluster.namespace("going").await;
    let going = admin.delete("/api/v1/namespaces/going").await.expect(200);
    assert_eq!(going.str_at(&["status", "phase"]), "Terminating");
    let message = admin
        .post("/api/v1/namespaces/going/configmaps", &config_map("a"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "configmaps \"a\" is forbidden: unable to create new content in namespace going because it is being terminated"
    );
    // Once more changes nothing.
    let again = admin.delete("/api/v1/namespaces/going").await.expect(200);
    assert_eq!(again, going);
    let finalized = api::document!({"metadata": {"name": "going"}, "spec": {"finalizers": []}});
    admin
        .put("/api/v1/namespaces/going/finalize", &finalized)
        .await
        .expect(200);
    admin
        .get("/api/v1/namespaces/going")
        .await
        .failure(404, "NotFound");
    let message = admin
        .delete("/api/v1/namespaces/default")
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "namespaces \"default\" is forbidden: this namespace may not be deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_get_an_account_a_token_tolerations_and_a_priority() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let made = admin.post(PODS, &pod("a")).await.expect(201);
    assert_eq!(made.str_at(&["spec", "serviceAccountName"]), "default");
    assert_eq!(
        made.at(&["spec", "priority"]).and_then(Value::as_i64),
        Some(0)
    );
    assert_eq!(made.str_at(&["status", "phase"]), "Pending");
    let tolerations = made
        .at(&["spec", "tolerations"])
        .and_then(Value::as_array)
        .unwrap();
    assert_eq!(tolerations.len(), 2);
    let volume = &made
        .at(&["spec", "volumes"])
        .and_then(Value::as_array)
        .unwrap()[0];
    assert!(volume.str_at(&["name"]).starts_with("kube-api-access-"));
    let container = &made
        .at(&["spec", "containers"])
        .and_then(Value::as_array)
        .unwrap()[0];
    let mount = &container
        .get("volumeMounts")
        .and_then(Value::as_array)
        .unwrap()[0];
    assert_eq!(
        mount.str_at(&["mountPath"]),
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
    let mut critical = pod("b");
    critical.set(&["spec", "priorityClassName"], "system-node-critical");
    critical.set(&["spec", "automountServiceAccountToken"], false);
    let made = admin.post(PODS, &critical).await.expect(201);
    assert_eq!(
        made.at(&["spec", "priority"]).and_then(Value::as_i64),
        Some(2_000_001_000)
    );
    assert!(made.at(&["spec", "volumes"]).is_none());
    let mut unknown = pod("c");
    unknown.set(&["spec", "priorityClassName"], "none-such");
    let message = admin.post(PODS, &unknown).await.failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"c\" is forbidden: no PriorityClass with name none-such was found"
    );
    let mut unknown = pod("d");
    unknown.set(&["spec", "serviceAccountName"], "none-such");
    let message = admin.post(PODS, &unknown).await.failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods \"d\" is forbidden: error looking up service account default/none-such: serviceaccount \"none-such\" not found"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_a_moment_for_the_default_account() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let early = pod("a");
    let (made, ()) = tokio::join!(admin.post(PODS, &early), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        cluster.namespace("default").await;
    });
    made.expect(201);
    let namespace = api::document!({"metadata": {"name": "bare"}});
    admin
        .post("/api/v1/namespaces", &namespace)
        .await
        .expect(201);
    let refused = admin.post("/api/v1/namespaces/bare/pods", &pod("a")).await;
    refused.failure(403, "Forbidden");
}

fn service(name: &str, spec: Value) -> Value {
    let mut service =
        api::document!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}});
    service.set(&["spec"], spec);
    if service.at(&["spec", "ports"]).is_none() {
        service.set(&["spec", "ports"], api::document!([{"port": 80}]));
    }
    service
}

#[tokio::test(start_paused = true)]
async fn services_get_addresses_and_ports_of_their_own() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let kubernetes = admin
        .get(&format!("{SERVICES}/kubernetes"))
        .await
        .expect(200);
    assert_eq!(kubernetes.str_at(&["spec", "clusterIP"]), "10.96.0.1");
    let slice = admin
        .get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
        .await
        .expect(200);
    assert!(slice.to_string().contains("192.0.2.1"));
    admin
        .get("/api/v1/namespaces/kube-system/services/kube-dns")
        .await
        .expect(200);
    let a = admin
        .post(SERVICES, &service("a", Value::object()))
        .await
        .expect(201);
    let address = a.str_at(&["spec", "clusterIP"]);
    assert!(address.starts_with("10."), "{a}");
    let message = admin
        .post(
            SERVICES,
            &service("b", api::document!({"clusterIP": address})),
        )
        .await
        .failure(422, "Invalid");
    assert_eq!(
        message,
        format!(
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed to allocate IP {address}: provided IP is already allocated"
        )
    );
    admin
        .post(
            SERVICES,
            &service("b", api::document!({"clusterIP": "192.168.0.1"})),
        )
        .await
        .failure(422, "Invalid");
    let headless = admin
        .post(
            SERVICES,
            &service("h", api::document!({"clusterIP": "None"})),
        )
        .await
        .expect(201);
    assert_eq!(headless.str_at(&["spec", "clusterIP"]), "None");
    let ported = admin
        .post(
            SERVICES,
            &service("n", api::document!({"type": "NodePort"})),
        )
        .await
        .expect(201);
    let port = ported
        .at(&["spec", "ports"])
        .and_then(Value::as_array)
        .unwrap()[0]
        .get("nodePort")
        .and_then(Value::as_i64)
        .unwrap();
    assert!((30000..=32767).contains(&port));
    let taken = api::document!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let message = admin
        .post(SERVICES, &service("m", taken))
        .await
        .failure(422, "Invalid");
    assert!(
        message.contains("provided port is already allocated"),
        "{message}"
    );
    // An update without the address keeps it; a deleted service frees it.
    let kept = admin
        .put(
            &format!("{SERVICES}/a"),
            &service("a", api::document!({"ports": [{"port": 81}]})),
        )
        .await
        .expect(200);
    assert_eq!(kept.str_at(&["spec", "clusterIP"]), address);
    admin.delete(&format!("{SERVICES}/a")).await.expect(200);
    admin.get(SERVICES).await.expect(200);
    admin
        .post(
            SERVICES,
            &service("b", api::document!({"clusterIP": address})),
        )
        .await
        .expect(201);
}

#[tokio::test(start_paused = true)]
async fn concurrent_services_never_share_an_address() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let asked = (0..8).map(|number| {
        let admin = admin.clone();
        async move {
            let spec = api::document!({"clusterIP": "10.96.0.77"});
            admin
                .post(SERVICES, &service(&format!("s{number}"), spec))
                .await
                .code
        }
    });
    let codes = futures::future::join_all(asked).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1);
    assert_eq!(codes.iter().filter(|code| **code == 422).count(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_pod_written_without_what_admission_added_keeps_it() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let created = admin.post(PODS, &pod("a")).await.expect(201);
    let path = format!("{PODS}/a");
    let mut bare = created.clone();
    for field in ["priority", "preemptionPolicy", "tolerations"] {
        bare.remove(&["spec", field]);
    }
    bare.set(&["metadata", "labels", "new"], "label");
    let updated = admin.put(&path, &bare).await.expect(200);
    for field in ["priority", "preemptionPolicy", "tolerations"] {
        let path = ["spec", field];
        assert_eq!(updated.at(&path), created.at(&path), "{field}");
    }
    assert_eq!(updated.str_at(&["metadata", "labels", "new"]), "label");
    let patch = api::document!({"spec": {"tolerations": null, "priority": null}});
    let patched = admin.merge(&path, &patch).await.expect(200);
    assert_eq!(patched.get("spec"), created.get("spec"));
}

#[tokio::test(start_paused = true)]
async fn one_priority_class_is_the_default() {
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let class = |name: &str| api::document!({"metadata": {"name": name}, "value": 5, "globalDefault": true});
    let first = admin.post(CLASSES, &class("first")).await.expect(201);
    admin.get(CLASSES).await.expect(200);
    let message = admin
        .post(CLASSES, &class("second"))
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass first is already marked as default. Only one default can exist"
    );
    admin
        .put(&format!("{CLASSES}/first"), &first)
        .await
        .expect(200);
}

#[tokio::test(start_paused = true)]
async fn services_get_what_their_type_needs() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let ports = || api::document!([{"port": 80}]);
    let external = api::document!({
        "metadata": {"name": "external"}, "spec": {"type": "ExternalName", "externalName": "example.com"},
    });
    let external = admin.post(SERVICES, &external).await.expect(201);
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert!(external.at(&["spec", field]).is_none(), "{external}");
    }
    let headless = api::document!({
        "metadata": {"name": "headless"},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": ports()},
    });
    let headless = admin.post(SERVICES, &headless).await.expect(201);
    assert_eq!(headless.str_at(&["spec", "clusterIP"]), "None");
    assert_eq!(headless.str_at(&["spec", "ipFamilyPolicy"]), "SingleStack");

    let numbered = api::document!({
        "metadata": {"name": "numbered"}, "spec": {"type": "NodePort", "selector": {"a": "b"}, "ports": ports()},
    });
    let numbered = admin.post(SERVICES, &numbered).await.expect(201);
    let port = |service: &Value| {
        let ports = service.at(&["spec", "ports"]).and_then(Value::as_array);
        ports.unwrap()[0].get("nodePort").and_then(Value::as_i64)
    };
    assert!(port(&numbered).is_some_and(|port| port >= 30000));
    let path = format!("{SERVICES}/numbered");
    // Left out, it stays; with the type it goes, and the address with the next type.
    let mut update = numbered.clone();
    update.set(&["spec", "ports"], ports());
    let kept = admin.put(&path, &update).await.expect(200);
    assert_eq!(port(&kept), port(&numbered));
    let plain = admin
        .merge(&path, &api::document!({"spec": {"type": "ClusterIP"}}))
        .await
        .expect(200);
    assert_eq!(port(&plain), None);
    let address = ["spec", "clusterIP"];
    assert_eq!(plain.at(&address), numbered.at(&address));
    let name = api::document!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let name = admin.merge(&path, &name).await.expect(200);
    assert!(name.at(&address).is_none(), "{name}");
    let again = api::document!({"spec": {"type": "ClusterIP", "externalName": null}});
    let again = admin.merge(&path, &again).await.expect(200);
    assert!(again.str_at(&address).starts_with("10."), "{again}");
}
