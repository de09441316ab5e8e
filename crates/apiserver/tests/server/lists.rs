//! Lists: selectors, pages, revisions, forms.

use api::Value;

use crate::harness::{Client, Cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn names(list: &Value) -> Vec<String> {
    list.get("items")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(|item| item.str_at(&["metadata", "name"]).to_string())
        .collect()
}

async fn five(admin: &Client) {
    for name in ["a", "b", "c", "d", "e"] {
        let mut map = config_map(name);
        map.set(
            &["metadata", "labels", "vowel"],
            if "ae".contains(name) { "yes" } else { "no" },
        );
        admin.post(MAPS, &map).await.expect(201);
    }
}

#[tokio::test(start_paused = true)]
async fn selectors_choose() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    five(&admin).await;
    let by_label = admin
        .get(&format!("{MAPS}?labelSelector=vowel%3Dyes"))
        .await
        .expect(200);
    assert_eq!(names(&by_label), ["a", "e"]);
    let by_field = admin
        .get(&format!("{MAPS}?fieldSelector=metadata.name%3Dc"))
        .await
        .expect(200);
    assert_eq!(names(&by_field), ["c"]);
    admin
        .get(&format!("{MAPS}?fieldSelector=data.a%3D1"))
        .await
        .failure(400, "BadRequest");
    admin
        .get(&format!("{MAPS}?labelSelector=a%3D%3D%3Db"))
        .await
        .failure(400, "BadRequest");
    let all = admin.get("/api/v1/configmaps").await.expect(200);
    // And those by which the server says since when it notes the use of tokens, and how extension
    // servers recognize users.
    assert_eq!(names(&all).len(), 5 + 2);
    let item = &all.get("items").and_then(Value::as_array).unwrap()[0];
    assert!(item.get("kind").is_none() && item.get("apiVersion").is_none());
    assert!(!item.str_at(&["metadata", "resourceVersion"]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn pages_are_of_one_revision() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    five(&admin).await;
    let first = admin.get(&format!("{MAPS}?limit=2")).await.expect(200);
    assert_eq!(names(&first), ["a", "b"]);
    let remaining = first
        .at(&["metadata", "remainingItemCount"])
        .and_then(Value::as_i64);
    assert_eq!(remaining, Some(3));
    // What happens now does not show in the later pages.
    admin.delete(&format!("{MAPS}/d")).await.expect(200);
    admin.post(MAPS, &config_map("cc")).await.expect(201);
    let token = first.str_at(&["metadata", "continue"]);
    let second = admin
        .get(&format!("{MAPS}?limit=2&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(
        second.str_at(&["metadata", "resourceVersion"]),
        first.str_at(&["metadata", "resourceVersion"])
    );
    let token = second.str_at(&["metadata", "continue"]);
    let third = admin
        .get(&format!("{MAPS}?limit=2&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third.str_at(&["metadata", "continue"]), "");
    admin
        .get(&format!("{MAPS}?continue=nonsense"))
        .await
        .failure(400, "BadRequest");
    let exact = format!(
        "{MAPS}?resourceVersion={}&resourceVersionMatch=Exact",
        first.str_at(&["metadata", "resourceVersion"])
    );
    assert_eq!(
        names(&admin.get(&exact).await.expect(200)),
        ["a", "b", "c", "d", "e"]
    );
}

#[tokio::test(start_paused = true)]
async fn selective_pages_skip_what_does_not_match() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    five(&admin).await;
    let query = "labelSelector=vowel%3Dyes&limit=1";
    let first = admin.get(&format!("{MAPS}?{query}")).await.expect(200);
    assert_eq!(names(&first), ["a"]);
    assert!(first.at(&["metadata", "remainingItemCount"]).is_none());
    let token = first.str_at(&["metadata", "continue"]);
    let second = admin
        .get(&format!("{MAPS}?{query}&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&second), ["e"]);
    assert_eq!(second.str_at(&["metadata", "continue"]), "");
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_is_gone() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    five(&admin).await;
    let first = admin.get(&format!("{MAPS}?limit=2")).await.expect(200);
    // History is kept for five to ten minutes.
    admin.post(MAPS, &config_map("f")).await.expect(201);
    tokio::time::sleep(std::time::Duration::from_secs(601)).await;
    let token = first.str_at(&["metadata", "continue"]);
    let answer = admin.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    answer.failure(410, "Expired");
}

#[tokio::test(start_paused = true)]
async fn tables_and_metadata_by_accept() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    five(&admin).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = admin
        .clone()
        .with_header("accept", accept)
        .get(MAPS)
        .await
        .expect(200);
    assert_eq!(table.str_at(&["kind"]), "Table");
    assert_eq!(
        table.get("rows").and_then(Value::as_array).unwrap().len(),
        5
    );
    let accept = "text/html,application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = admin
        .clone()
        .with_header("accept", accept)
        .get(MAPS)
        .await
        .expect(200);
    assert_eq!(list.str_at(&["kind"]), "PartialObjectMetadataList");
    let item = &list.get("items").and_then(Value::as_array).unwrap()[0];
    assert!(item.get("data").is_none());
    let yaml = admin.clone().with_header("accept", "application/yaml");
    let answer = yaml.get(&format!("{MAPS}/a")).await;
    assert!(String::from_utf8_lossy(&answer.bytes).contains("kind: ConfigMap"));
}

#[tokio::test(start_paused = true)]
async fn large_lists_are_compressed_on_request() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut map = config_map("big");
    map.set(&["data", "a"], "x".repeat(200 * 1024));
    admin.post(MAPS, &map).await.expect(201);
    let zipped = admin
        .clone()
        .with_header("accept-encoding", "gzip")
        .get(MAPS)
        .await;
    assert_eq!(zipped.headers.get("content-encoding").unwrap(), "gzip");
    assert!(zipped.bytes.len() < 20 * 1024);
    let plain = admin.get(MAPS).await;
    assert!(plain.headers.get("content-encoding").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_list_goes_on_inconsistently_when_its_revision_is_gone() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    five(&admin).await;
    let page = |token: &str| format!("{MAPS}?limit=2&continue={token}");
    let token = |list: &Value| list.str_at(&["metadata", "continue"]).to_string();
    let first = admin.get(&format!("{MAPS}?limit=2")).await.expect(200);
    let expired = token(&first);
    admin.delete(&format!("{MAPS}/d")).await.expect(200);
    // Long enough for the history to be shortened twice.
    tokio::time::sleep(std::time::Duration::from_secs(660)).await;
    let status = admin.get(&page(&expired)).await.expect(410);
    assert_eq!(status.str_at(&["reason"]), "Expired");
    let version = ["metadata", "resourceVersion"];
    let second = admin.get(&page(&token(&status))).await.expect(200);
    assert_eq!(names(&second), ["c", "e"]);
    assert_ne!(second.str_at(&version), first.str_at(&version));
    assert_eq!(token(&second), "");
    admin
        .get(&page("bm9uc2Vuc2U"))
        .await
        .failure(400, "BadRequest");
    let elsewhere = format!(
        "/api/v1/namespaces/other/configmaps?continue={}",
        token(&status)
    );
    admin.get(&elsewhere).await.failure(400, "BadRequest");
}
