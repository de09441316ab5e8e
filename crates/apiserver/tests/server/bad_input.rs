//! Bad input gets Kubernetes' own answers and changes nothing.

use crate::harness::{Cluster, config_map, pod};
use apiserver::Identity;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn malformed_bodies_are_bad_requests() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let before = admin.get(MAPS).await.expect(200);
    let json = admin
        .send("POST", MAPS, "application/json", b"{\"kind\":")
        .await;
    json.failure(400, "BadRequest");
    let yaml = admin
        .send("POST", MAPS, "application/yaml", b"a: [1\nb: {")
        .await;
    yaml.failure(400, "BadRequest");
    let array = admin.send("POST", MAPS, "application/json", b"[]").await;
    array.failure(400, "BadRequest");
    let after = admin.get(MAPS).await.expect(200);
    assert_eq!(before, after);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_refused_warned_about_or_ignored() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let pods = "/api/v1/namespaces/default/pods";
    let mut odd = pod("odd");
    odd.set(&["spec", "colour"], "red");
    let message = admin
        .post(&format!("{pods}?fieldValidation=Strict"), &odd)
        .await
        .failure(400, "BadRequest");
    assert_eq!(
        message,
        "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: unknown field \"spec.colour\""
    );
    let warned = admin.post(pods, &odd).await;
    let warning = warned
        .headers
        .get("warning")
        .unwrap()
        .to_str()
        .unwrap()
        .to_string();
    assert_eq!(warning, "299 - \"unknown field \\\"spec.colour\\\"\"");
    let created = warned.expect(201);
    assert_eq!(created.at(&["spec", "colour"]), None);
    odd.set(&["metadata", "name"], "odd2");
    let ignored = admin
        .post(&format!("{pods}?fieldValidation=Ignore"), &odd)
        .await;
    assert!(ignored.headers.get("warning").is_none());
    ignored.expect(201);
}

#[tokio::test(start_paused = true)]
async fn wrong_types_are_bad_requests() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let mut wrong = pod("wrong");
    wrong.set(&["spec", "containers"], "none");
    let message = admin
        .post("/api/v1/namespaces/default/pods", &wrong)
        .await
        .failure(400, "BadRequest");
    assert!(message.contains("cannot unmarshal string"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_name_is_invalid() {
    let cluster = Cluster::start().await;
    let message = cluster
        .admin()
        .post(MAPS, &config_map("Not_A_Name"))
        .await
        .failure(422, "Invalid");
    assert!(
        message.starts_with("ConfigMap \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": a lowercase RFC 1123 subdomain"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_oversized_body_is_refused() {
    let cluster = Cluster::start().await;
    let body = vec![b' '; 3 * 1024 * 1024 + 1];
    let answer = cluster
        .admin()
        .send("POST", MAPS, "application/json", &body)
        .await;
    let message = answer.failure(413, "RequestEntityTooLarge");
    assert_eq!(message, "Request entity too large: limit is 3145728");
}

#[tokio::test(start_paused = true)]
async fn a_stale_resource_version_is_a_conflict() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut map = admin.post(MAPS, &config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    map.set(&["data", "a"], "2");
    let second = admin.put(&path, &map).await.expect(200);
    map.set(&["data", "a"], "3");
    let message = admin.put(&path, &map).await.failure(409, "Conflict");
    assert_eq!(
        message,
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    assert_eq!(admin.get(&path).await.expect(200), second);
}

#[tokio::test(start_paused = true)]
async fn media_types_that_are_not_spoken() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let answer = admin.send("POST", MAPS, "text/csv", b"a,b").await;
    let message = answer.failure(415, "UnsupportedMediaType");
    assert!(message.starts_with("the body of the request was in an unknown format - accepted media types include: application/json"));
    let csv = admin.clone().with_header("accept", "text/csv");
    csv.get(MAPS).await.failure(406, "NotAcceptable");
    let path = format!("{MAPS}/x");
    let patch = admin.send("PATCH", &path, "application/json", b"{}").await;
    let message = patch.failure(415, "UnsupportedMediaType");
    assert_eq!(message, "415: Unsupported Media Type");
    let apply = admin
        .send(
            "PATCH",
            &format!("{MAPS}/x"),
            "application/apply-patch+cbor",
            b"{}",
        )
        .await;
    apply.failure(415, "UnsupportedMediaType");
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_forbidden_request_names_what_is_forbidden() {
    let cluster = Cluster::start().await;
    let nobody = cluster.client(Identity::component("nobody", &[]));
    let message = nobody
        .get("/api/v1/namespaces/default/pods")
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "pods is forbidden: User \"nobody\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    let message = nobody
        .get("/api/v1/nodes/n1")
        .await
        .failure(403, "Forbidden");
    assert_eq!(
        message,
        "nodes \"n1\" is forbidden: User \"nobody\" cannot get resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let message = nobody.get("/metrics").await.failure(403, "Forbidden");
    assert_eq!(
        message,
        "forbidden: User \"nobody\" cannot get path \"/metrics\""
    );
}

#[tokio::test(start_paused = true)]
async fn mismatched_names_and_kinds() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let message = admin
        .put(&format!("{MAPS}/a"), &config_map("b"))
        .await
        .failure(400, "BadRequest");
    assert_eq!(
        message,
        "the name of the object (b) does not match the name on the URL (a)"
    );
    let mut elsewhere = config_map("c");
    elsewhere.set(&["metadata", "namespace"], "kube-system");
    let message = admin
        .post(MAPS, &elsewhere)
        .await
        .failure(400, "BadRequest");
    assert_eq!(
        message,
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    admin.post(MAPS, &pod("p")).await.failure(400, "BadRequest");
    let message = admin
        .post(MAPS, &config_map("a"))
        .await
        .failure(409, "AlreadyExists");
    assert_eq!(message, "configmaps \"a\" already exists");
}
