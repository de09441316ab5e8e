//! `--runtime-config` and `--feature-gates`.

use api::catalogue::RuntimeConfig;
use api::features::FeatureGates;

use crate::harness::{Cluster, Decisions};

#[tokio::test(start_paused = true)]
async fn a_version_that_is_switched_off_is_neither_served_nor_discovered() {
    let cluster = Cluster::decided(Decisions {
        runtime_config: RuntimeConfig::parse("batch/v1/cronjobs=false,autoscaling/v2=false")
            .unwrap(),
        ..Decisions::default()
    })
    .await;
    let admin = cluster.admin();
    assert_eq!(admin.get("/apis/batch/v1/cronjobs").await.code, 404);
    assert_eq!(admin.get("/apis/batch/v1/jobs").await.code, 200);
    let discovered = admin.get("/apis/batch/v1").await.expect(200).to_string();
    assert!(!discovered.contains("cronjobs"), "{discovered}");
    // The version that the objects are stored in is switched off; the other one still works.
    let scalers = "/namespaces/default/horizontalpodautoscalers";
    let old = format!("/apis/autoscaling/v1{scalers}");
    assert_eq!(
        admin
            .get(&format!("/apis/autoscaling/v2{scalers}"))
            .await
            .code,
        404
    );
    cluster.namespace("default").await;
    let scaler = api::document!({
        "metadata": {"name": "a"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
    });
    admin.post(&old, &scaler).await.expect(201);
    assert_eq!(
        admin.get(&old).await.expect(200).list_at(&["items"]).len(),
        1
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn feature_gates_switch_streaming_lists_and_compression_off() {
    let cluster = Cluster::decided(Decisions {
        feature_gates: FeatureGates::parse("WatchList=false,APIResponseCompression=false").unwrap(),
        ..Decisions::default()
    })
    .await;
    let admin = cluster.admin();
    let path = "/api/v1/nodes?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let message = admin.get(path).await.failure(422, "Invalid");
    let words =
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    assert!(message.contains(words), "{message}");
    let gzip = cluster.admin().with_header("accept-encoding", "gzip");
    let answer = gzip.get("/openapi/v2").await;
    assert_eq!(answer.code, 200);
    assert!(answer.headers.get("content-encoding").is_none());
    cluster.stop().await;
}

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";

async fn with_migrations(runtime_config: &str, feature_gates: &str) -> Cluster {
    Cluster::decided(Decisions {
        runtime_config: RuntimeConfig::parse(runtime_config).unwrap(),
        feature_gates: FeatureGates::parse(feature_gates).unwrap(),
        ..Decisions::default()
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_off_by_default_needs_its_version_and_its_gate() {
    let version = "storagemigration.k8s.io/v1beta1=true";
    let gate = "StorageVersionMigrator=true";
    for (runtime_config, feature_gates) in [("", ""), (version, ""), ("", gate)] {
        let cluster = with_migrations(runtime_config, feature_gates).await;
        let admin = cluster.admin();
        assert_eq!(admin.get(MIGRATIONS).await.code, 404, "{feature_gates}");
        let groups = admin.get("/apis").await.expect(200).to_string();
        assert!(!groups.contains("storagemigration.k8s.io"), "{groups}");
        let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:storage-version-migrator-controller";
        let expected = if feature_gates.is_empty() { 404 } else { 200 };
        assert_eq!(admin.get(role).await.code, expected, "{feature_gates}");
        cluster.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn migrations_take_the_path_of_all_kinds() {
    let cluster = with_migrations(
        "storagemigration.k8s.io/v1beta1=true",
        "StorageVersionMigrator=true",
    )
    .await;
    let admin = cluster.admin();
    let groups = admin.get("/apis").await.expect(200).to_string();
    assert!(
        groups.contains("storagemigration.k8s.io/v1beta1"),
        "{groups}"
    );
    let listed = admin
        .get("/apis/storagemigration.k8s.io/v1beta1")
        .await
        .expect(200);
    let names: Vec<&str> = listed
        .list_at(&["resources"])
        .iter()
        .map(|resource| resource.str_at(&["name"]))
        .collect();
    assert_eq!(
        names,
        [
            "storageversionmigrations",
            "storageversionmigrations/status"
        ]
    );
    let openapi = admin
        .get("/openapi/v3/apis/storagemigration.k8s.io/v1beta1")
        .await;
    let openapi = openapi.expect(200).to_string();
    assert!(openapi.contains("io.k8s.api.storagemigration.v1beta1.StorageVersionMigration"));
    let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.storagemigration.k8s.io";
    let service = admin.get(service).await.expect(200);
    assert_eq!(
        service.i64_at(&["spec", "groupPriorityMinimum"]),
        Some(15800)
    );

    let mut migration = api::document!({
        "metadata": {"name": "a"},
        "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
        "status": {"resourceVersion": "1"},
    });
    let created = admin.post(MIGRATIONS, &migration).await.expect(201);
    assert_eq!(created.at(&["status"]), Some(&api::document!({})));
    migration.set(&["metadata", "name"], "b");
    migration.set(&["spec", "resource", "resource"], "");
    let message = admin
        .post(MIGRATIONS, &migration)
        .await
        .failure(422, "Invalid");
    assert!(
        message.contains("spec.resource.resource: Required value"),
        "{message}"
    );

    let one = format!("{MIGRATIONS}/a");
    let change = api::document!({"spec": {"resource": {"resource": "gadgets"}}});
    let message = admin.merge(&one, &change).await.failure(422, "Invalid");
    assert!(message.contains("field is immutable"), "{message}");
    let status = format!("{one}/status");
    let noted = api::document!({"status": {"resourceVersion": "7"}});
    admin.merge(&status, &noted).await.expect(200);
    let other = api::document!({"status": {"resourceVersion": "8"}});
    let message = admin.merge(&status, &other).await.failure(422, "Invalid");
    assert!(message.contains("status.resourceVersion"), "{message}");

    let table = cluster
        .admin()
        .with_header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let table = table.get(MIGRATIONS).await.expect(200);
    let cells = table.list_at(&["rows"])[0].list_at(&["cells"]).to_vec();
    assert_eq!(
        cells,
        ["a".into(), "widgets.example.com".into(), "Unknown".into()]
    );
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn feature_gates_switch_storage_version_hashes_and_mutating_policies_off() {
    let cluster =
        with_migrations("", "StorageVersionHash=false,MutatingAdmissionPolicy=false").await;
    let admin = cluster.admin();
    let listed = admin.get("/api/v1").await.expect(200).to_string();
    assert!(!listed.contains("storageVersionHash"));
    // The kinds are served all the same; nothing is changed by them.
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policy = api::document!({
        "metadata": {"name": "label"},
        "spec": {
            "reinvocationPolicy": "Never",
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"],
            }]},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
                "expression": "Object{metadata: Object.metadata{labels: {\"changed\": \"yes\"}}}",
            }}],
        },
    });
    let policies = format!("{group}/mutatingadmissionpolicies");
    admin.post(&policies, &policy).await.expect(201);
    let binding = api::document!({"metadata": {"name": "label"}, "spec": {"policyName": "label"}});
    let bindings = format!("{group}/mutatingadmissionpolicybindings");
    admin.post(&bindings, &binding).await.expect(201);
    cluster.namespace("default").await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let created = admin
        .post(maps, &crate::harness::config_map("a"))
        .await
        .expect(201);
    assert!(!created.has(&["metadata", "labels"]), "{created}");
    cluster.stop().await;
}
