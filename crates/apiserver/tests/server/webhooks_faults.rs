//! Hooks that are down, slow or lying: what happens is what the failure policy says, in upstream's
//! words, and never more than that.

use std::sync::Arc;

use api::Value;
use tokio::sync::Notify;

use crate::harness::{Authority, Client, Cluster, config_map};
use crate::hook_server::{
    HookServer, Identity, MUTATING, Reply, VALIDATING, allowed, configure, patched, review,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CREATE: [&str; 1] = ["CREATE"];
const OF_MAPS: [&str; 1] = ["configmaps"];

async fn start() -> (Cluster, Client) {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    (cluster, admin)
}

/// What a creation answers when the hook that answers so is configured.
async fn created_with(path: &str, policy: &str, hook: Value) -> (u16, Value) {
    let (_cluster, admin) = start().await;
    let mut hook = hook;
    hook.set(&["failurePolicy"], policy);
    configure(&admin, path, "c", vec![hook]).await;
    let answer = admin.post(MAPS, &config_map("a")).await;
    (answer.code, answer.json())
}

#[track_caller]
fn failed_closed((code, status): (u16, Value), url: &str, why: &str) {
    assert_eq!(code, 500, "{status}");
    let told = format!("failed calling webhook \"h.example.com\": {why}");
    let told = told.replace("URL", url);
    let message = status.str_at(&["message"]);
    assert_eq!(message, format!("Internal error occurred: {told}"));
    assert_eq!(status.str_at(&["reason"]), "InternalError");
    let causes = status.list_at(&["details", "causes"]);
    assert_eq!(causes, [api::document!({"message": told})]);
}

/// The address of a server that has gone.
async fn nobody() -> HookServer {
    let mut server = HookServer::start(|_, review| allowed(review)).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.address = listener.local_addr().unwrap();
    server
}

#[tokio::test]
async fn a_hook_that_is_down_decides_by_its_failure_policy() {
    for path in [MUTATING, VALIDATING] {
        let server = nobody().await;
        let hook = server.hook("h", &CREATE, &OF_MAPS);
        let url = format!("https://{}/h?timeout=5s", server.address);
        let why = format!(
            "failed to call webhook: Post \"URL\": dial tcp {}: connect: connection refused",
            server.address
        );
        let closed = created_with(path, "Fail", hook.clone()).await;
        failed_closed(closed, &url, &why);
        let (code, open) = created_with(path, "Ignore", hook).await;
        assert_eq!(code, 201, "{open}");
    }
}

#[tokio::test]
async fn a_hook_that_never_answers_is_given_up_after_its_time() {
    let server = HookServer::start(|_, _| Reply::Never).await;
    let mut hook = server.hook("h", &CREATE, &OF_MAPS);
    hook.set(&["timeoutSeconds"], 1);
    let url = format!("https://{}/h?timeout=1s", server.address);
    let closed = created_with(VALIDATING, "Fail", hook.clone()).await;
    let why = "failed to call webhook: Post \"URL\": context deadline exceeded";
    failed_closed(closed, &url, why);
    let (code, _) = created_with(MUTATING, "Ignore", hook).await;
    assert_eq!(code, 201);
}

#[tokio::test]
async fn a_hook_that_begins_its_answer_and_never_ends_it_is_given_up_after_its_time() {
    let server = HookServer::start(|_, asked| {
        let mut answer = review(asked, api::document!({"allowed": true})).to_json();
        answer.pop();
        Reply::Begun(answer)
    })
    .await;
    let mut hook = server.hook("h", &CREATE, &OF_MAPS);
    hook.set(&["timeoutSeconds"], 1);
    let (code, status) = created_with(VALIDATING, "Fail", hook.clone()).await;
    assert_eq!(code, 500, "{status}");
    let message = status.str_at(&["message"]);
    assert!(message.ends_with("context deadline exceeded"), "{message}");
    let (code, _) = created_with(MUTATING, "Ignore", hook).await;
    assert_eq!(code, 201);
}

#[tokio::test]
async fn a_request_ends_at_its_own_deadline() {
    let (_cluster, admin) = start().await;
    let server = HookServer::start(|_, _| Reply::Never).await;
    let mut hook = server.hook("h", &CREATE, &OF_MAPS);
    hook.set(&["timeoutSeconds"], 30);
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let path = format!("{MAPS}?timeout=1s");
    let answer = admin.post(&path, &config_map("a")).await;
    assert!(matches!(answer.code, 500 | 504), "{}", answer.json());
    let asked = server.take();
    assert_eq!(asked.len(), 1);
    admin
        .get(&format!("{MAPS}/a"))
        .await
        .failure(404, "NotFound");
}

#[tokio::test]
async fn an_expired_certificate_is_not_believed() {
    let identity = Identity {
        is_expired: true,
        ..Identity::default()
    };
    let server = HookServer::with(identity, |_, review| allowed(review)).await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let (code, status) = created_with(VALIDATING, "Fail", hook).await;
    assert_eq!(code, 500);
    let message = status.str_at(&["message"]);
    let words = "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time ";
    assert!(message.contains(words), "{message}");
    assert!(
        message.ends_with("is after 2021-01-01T00:00:00Z"),
        "{message}"
    );
    assert!(server.take().is_empty());
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_name_is_not_believed() {
    let server = HookServer::start(|_, review| allowed(review)).await;
    let other = HookServer::start(|_, review| allowed(review)).await;
    let mut hook = server.hook("h", &CREATE, &OF_MAPS);
    let bundle = other.config("/").str_at(&["caBundle"]).to_string();
    hook.set(&["clientConfig", "caBundle"], bundle);
    let url = format!("https://{}/h?timeout=5s", server.address);
    let closed = created_with(VALIDATING, "Fail", hook).await;
    let why = "failed to call webhook: Post \"URL\": tls: failed to verify certificate: x509: certificate signed by unknown authority";
    failed_closed(closed, &url, why);
    let identity = Identity {
        names: vec!["other.example.com".to_string()],
        ..Identity::default()
    };
    let server = HookServer::with(identity, |_, review| allowed(review)).await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let url = format!("https://{}/h?timeout=5s", server.address);
    let closed = created_with(VALIDATING, "Fail", hook).await;
    let why = "failed to call webhook: Post \"URL\": tls: failed to verify certificate: x509: certificate is valid for other.example.com, not 127.0.0.1";
    failed_closed(closed, &url, why);
}

#[tokio::test]
async fn lies_are_refused_in_upstreams_words() {
    let with = |change: fn(&mut Value)| {
        move |_: &str, asked: &Value| {
            let mut answer = review(asked, api::document!({"allowed": true}));
            change(&mut answer);
            Reply::Json(answer)
        }
    };
    let server = HookServer::start(with(|answer| answer.set(&["response", "uid"], "other"))).await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let (code, status) = created_with(VALIDATING, "Fail", hook).await;
    assert_eq!(code, 500);
    let uid = server.requests()[0].str_at(&["uid"]).to_string();
    let why = format!(
        "received invalid webhook response: expected response.uid=\"{uid}\", got \"other\""
    );
    failed_closed((code, status), "", &why);

    let server = HookServer::start(with(|answer| drop(answer.remove(&["response"])))).await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let closed = created_with(MUTATING, "Fail", hook).await;
    failed_closed(
        closed,
        "",
        "received invalid webhook response: webhook response was absent",
    );

    let of_pods = with(|answer| *answer = api::document!({"kind": "Pod", "apiVersion": "v1"}));
    let server = HookServer::start(of_pods).await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let closed = created_with(MUTATING, "Fail", hook).await;
    failed_closed(
        closed,
        "",
        "failed to call webhook: no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/util/webhook/client.go:71\"",
    );

    let server = HookServer::start(with(|answer| {
        answer.set(&["response", "patch"], "W10=");
        answer.set(&["response", "patchType"], "JSONPatch");
    }))
    .await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let closed = created_with(VALIDATING, "Fail", hook).await;
    failed_closed(
        closed,
        "",
        "received invalid webhook response: validating webhook may not return response.patch",
    );
}

#[tokio::test]
async fn an_answer_of_ten_megabytes_is_refused() {
    let server = HookServer::start(|_, asked| {
        let mut answer = review(asked, api::document!({"allowed": true}));
        answer.set(
            &["response", "warnings"],
            vec![Value::from("x".repeat(10 << 20))],
        );
        Reply::Json(answer)
    })
    .await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let url = format!("https://{}/h?timeout=5s", server.address);
    let closed = created_with(VALIDATING, "Fail", hook).await;
    let why = "failed to call webhook: the answer of URL is larger than 6291456 bytes";
    failed_closed(closed, &url, why);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_other_codes_are_reported() {
    let elsewhere = HookServer::start(|_, review| allowed(review)).await;
    let to = format!("https://{}/h", elsewhere.address);
    let server =
        HookServer::start(move |_, _| Reply::Raw(307, Some(("location", to.clone())), Vec::new()))
            .await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let closed = created_with(VALIDATING, "Fail", hook).await;
    failed_closed(
        closed,
        "",
        "failed to call webhook: the server responded with the status code 307 but did not return more information",
    );
    assert!(elsewhere.take().is_empty());
    for (code, why) in [
        (404, "the server could not find the requested resource"),
        (
            500,
            "an error on the server (\"broken\") has prevented the request from succeeding",
        ),
    ] {
        let server = HookServer::start(move |_, _| {
            let text = Some(("content-type", "text/plain".to_string()));
            Reply::Raw(code, text, b"broken\n".to_vec())
        })
        .await;
        let hook = server.hook("h", &CREATE, &OF_MAPS);
        let closed = created_with(MUTATING, "Fail", hook).await;
        failed_closed(closed, "", &format!("failed to call webhook: {why}"));
    }
}

#[tokio::test]
async fn a_patch_cannot_make_another_object_of_it() {
    for (operations, told) in [
        (
            api::document!([{"op": "replace", "path": "/kind", "value": "Secret"}]),
            "converting (v1.Secret) to (v1.ConfigMap): unknown conversion",
        ),
        (
            api::document!([{"op": "replace", "path": "/kind", "value": "Nothing"}]),
            "no kind \"Nothing\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            api::document!([{"op": "add", "path": "/spec/a/b", "value": 1}]),
            "add operation does not apply: doc is missing path: \"/spec/a/b\": missing value",
        ),
        (
            api::document!([{"op": "remove", "path": "/data/none"}]),
            "error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
        ),
    ] {
        let server = HookServer::start(move |_, asked| patched(asked, &operations)).await;
        // Whatever its failure policy: this is no failure to call it.
        let hook = server.hook("h", &CREATE, &OF_MAPS);
        let (code, status) = created_with(MUTATING, "Ignore", hook).await;
        assert_eq!(code, 500, "{status}");
        let message = status.str_at(&["message"]);
        assert_eq!(message, format!("Internal error occurred: {told}"));
    }
}

#[tokio::test]
async fn a_patch_cannot_move_an_object_to_another_namespace() {
    let operations =
        api::document!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]);
    let server = HookServer::start(move |_, asked| patched(asked, &operations)).await;
    let hook = server.hook("h", &CREATE, &OF_MAPS);
    let (code, status) = created_with(MUTATING, "Fail", hook).await;
    assert_eq!(code, 400, "{status}");
    assert_eq!(
        status.str_at(&["message"]),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

#[tokio::test]
async fn an_update_that_a_hook_gives_another_name_is_refused() {
    let (_cluster, admin) = start().await;
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let operations = api::document!([{"op": "replace", "path": "/metadata/name", "value": "b"}]);
    let server = HookServer::start(move |_, asked| patched(asked, &operations)).await;
    let hook = server.hook("h", &["UPDATE"], &OF_MAPS);
    configure(&admin, MUTATING, "c", vec![hook]).await;
    let change = api::document!({"data": {"x": "y"}});
    let answer = admin.merge(&format!("{MAPS}/a"), &change).await;
    let message = answer.failure(422, "Invalid");
    assert!(
        message.contains("metadata.name: Invalid value: \"b\": field is immutable"),
        "{message}"
    );
}

#[tokio::test]
async fn an_update_that_a_hook_gives_another_uid_is_refused() {
    let (_cluster, admin) = start().await;
    let made = admin.post(MAPS, &config_map("a")).await.expect(201);
    let operations = api::document!([{"op": "replace", "path": "/metadata/uid", "value": "other"}]);
    let server = HookServer::start(move |_, asked| patched(asked, &operations)).await;
    let hook = server.hook("h", &["UPDATE"], &OF_MAPS);
    configure(&admin, MUTATING, "c", vec![hook]).await;
    let change = api::document!({"data": {"x": "y"}});
    let answer = admin.merge(&format!("{MAPS}/a"), &change).await;
    let message = answer.failure(422, "Invalid");
    assert!(
        message.contains("metadata.uid: Invalid value: \"other\": field is immutable"),
        "{message}"
    );
    let now = admin.get(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(now, made);
}

#[tokio::test]
async fn a_slow_hook_holds_up_only_what_it_concerns() {
    let (_cluster, admin) = start().await;
    let moment = Arc::new(Notify::new());
    let answers = moment.clone();
    let server =
        HookServer::start(move |_, asked| Reply::When(answers.clone(), Box::new(allowed(asked))))
            .await;
    let mut hook = server.hook("h", &CREATE, &OF_MAPS);
    hook.set(&["timeoutSeconds"], 30);
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let waiting = admin.clone();
    let held = tokio::spawn(async move { waiting.post(MAPS, &config_map("held")).await.code });
    server.asked(1).await;
    // The hook has its question and does not answer; what it is not asked about goes on.
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["a", "b", "c"] {
        let secret = api::document!({"metadata": {"name": name}});
        admin.post(secrets, &secret).await.expect(201);
    }
    admin
        .get(&format!("{MAPS}/held"))
        .await
        .failure(404, "NotFound");
    assert!(!held.is_finished());
    moment.notify_one();
    assert_eq!(held.await.unwrap(), 201);
    assert_eq!(server.take().len(), 1);
}

#[tokio::test]
async fn a_bundle_without_authorities_fails_the_call() {
    let server = HookServer::start(|_, review| allowed(review)).await;
    let mut hook = server.hook("h", &CREATE, &OF_MAPS);
    hook.set(&["clientConfig", "caBundle"], "bm9uZQ==");
    let closed = created_with(VALIDATING, "Fail", hook).await;
    failed_closed(
        closed,
        "",
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block",
    );
}

#[tokio::test]
async fn a_server_starts_while_a_hook_for_everything_is_down() {
    let environment = environment::Environment::simulated(1, 1_800_000_000_000_000);
    let disk = store::disk::SimulatedDisk::new(1).mount();
    let store = store::embedded::Embedded::open(disk, environment.clone(), Default::default())
        .await
        .unwrap();
    let cluster = Cluster::over(store.clone(), Authority::new(), environment.clone()).await;
    let admin = cluster.admin();
    let gone = nobody().await;
    let hook = gone.hook("h", &["CREATE", "UPDATE"], &["*/*"]);
    configure(&admin, VALIDATING, "c", vec![hook]).await;
    let trust = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    admin.delete(trust).await.expect(200);
    drop((cluster, admin));
    let cluster = Cluster::over(store, Authority::new(), environment).await;
    assert_eq!(cluster.admin().get(trust).await.code, 200);
    let refused = cluster.admin().post(MAPS, &config_map("a")).await;
    assert_ne!(refused.code, 201);
}
