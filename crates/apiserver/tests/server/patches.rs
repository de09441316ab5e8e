//! The three kinds of patches.

use api::Value;

use crate::harness::{Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn json_and_merge_patches() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let patch = br#"[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/b","value":"2"}]"#;
    let patched = admin
        .send("PATCH", &path, "application/json-patch+json", patch)
        .await
        .expect(200);
    assert_eq!(patched.str_at(&["data", "b"]), "2");
    let merged = admin
        .merge(&path, &api::document!({"data": {"a": null, "c": "3"}}))
        .await
        .expect(200);
    assert!(merged.at(&["data", "a"]).is_none());
    assert_eq!(merged.str_at(&["data", "c"]), "3");
    // A patch that names a stale version conflicts; one that breaks types is invalid.
    let stale = api::document!({"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}});
    admin.merge(&path, &stale).await.failure(409, "Conflict");
    admin
        .merge(&path, &api::document!({"data": 7}))
        .await
        .failure(422, "Invalid");
    let renamed = api::document!({"metadata": {"name": "b"}});
    admin
        .merge(&path, &renamed)
        .await
        .failure(400, "BadRequest");
    admin
        .send("PATCH", &path, "application/json-patch+json", b"{")
        .await
        .failure(400, "BadRequest");
}

#[tokio::test(start_paused = true)]
async fn strategic_patches_merge_lists_by_key() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = api::document!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "a", "image": "one"}, {"name": "b", "image": "two"}]},
            },
        },
    });
    let created = admin.post(deployments, &deployment).await.expect(201);
    assert_eq!(
        created
            .at(&["metadata", "generation"])
            .and_then(Value::as_i64),
        Some(1)
    );
    let patch = api::document!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "three"}]}}}});
    let path = format!("{deployments}/web");
    let patched = admin
        .send(
            "PATCH",
            &path,
            "application/strategic-merge-patch+json",
            &patch.to_json(),
        )
        .await
        .expect(200);
    let containers = patched
        .at(&["spec", "template", "spec", "containers"])
        .and_then(Value::as_array)
        .unwrap();
    let images: Vec<(&str, &str)> = containers
        .iter()
        .map(|container| (container.str_at(&["name"]), container.str_at(&["image"])))
        .collect();
    assert!(
        images.contains(&("a", "one")) && images.contains(&("b", "three")),
        "{images:?}"
    );
    assert_eq!(
        patched
            .at(&["metadata", "generation"])
            .and_then(Value::as_i64),
        Some(2)
    );
    let scale = admin.get(&format!("{path}/scale")).await.expect(200);
    assert_eq!(
        scale.at(&["spec", "replicas"]).and_then(Value::as_i64),
        Some(1)
    );
    assert_eq!(scale.str_at(&["status", "selector"]), "app=web");
    let scaled = admin
        .merge(
            &format!("{path}/scale"),
            &api::document!({"spec": {"replicas": 3}}),
        )
        .await
        .expect(200);
    assert_eq!(
        scaled.at(&["spec", "replicas"]).and_then(Value::as_i64),
        Some(3)
    );
    let found = admin.get(&path).await.expect(200);
    assert_eq!(
        found.at(&["spec", "replicas"]).and_then(Value::as_i64),
        Some(3)
    );
}

#[tokio::test(start_paused = true)]
async fn concurrent_patches_all_count() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let all = (0..10).map(|number| {
        let (admin, path) = (admin.clone(), path.clone());
        async move {
            let mut patch = Value::object();
            patch.set(&["data", &format!("k{number}")], "v");
            admin.merge(&path, &patch).await.expect(200)
        }
    });
    futures::future::join_all(all).await;
    let found = admin.get(&path).await.expect(200);
    assert_eq!(
        found.get("data").and_then(Value::as_object).unwrap().len(),
        11
    );
}
