//! Informers against a scripted server: paging, resuming, expiry, broken streams, projections.

use std::{sync::Arc, time::Duration};

use crate::script::{End, Reply, Script};
use client::{Change, Informers, Subscription};
use environment::Environment;
use k8s_openapi::api::core::v1::ConfigMap;

fn object(name: &str, version: u64, value: &str) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"uid-{name}","resourceVersion":"{version}"}},"data":{{"v":"{value}"}}}}"#
    )
}

fn list(version: u64, token: &str, items: &[String]) -> Reply {
    let items = items.join(",");
    Reply::Json(
        200,
        format!(
            r#"{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{items}]}}"#
        ),
    )
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn bookmark(version: u64) -> String {
    event(
        "BOOKMARK",
        &format!(r#"{{"kind":"ConfigMap","metadata":{{"resourceVersion":"{version}"}}}}"#),
    )
}

fn status(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","status":"Failure","code":{code},"reason":"{reason}","message":"m"}}"#
    )
}

fn informers(script: &Script) -> Informers {
    Informers::new(script.client(), Environment::simulated(1, 0))
}

async fn next(subscription: &mut Subscription<ConfigMap>) -> String {
    let name = |object: &Arc<ConfigMap>| {
        let value = object.data.as_ref().and_then(|data| data.get("v")).cloned();
        format!(
            "{}={}",
            object.metadata.name.as_deref().unwrap_or_default(),
            value.unwrap_or_default()
        )
    };
    let change = tokio::time::timeout(Duration::from_secs(3600), subscription.next());
    match change.await.expect("a change") {
        Change::Added(object) => format!("added {}", name(&object)),
        Change::Modified { old, new } => format!("modified {} to {}", name(&old), name(&new)),
        Change::Deleted(object) => format!("deleted {}", name(&object)),
        Change::Resynced => "resynced".to_owned(),
    }
}

async fn expect(subscription: &mut Subscription<ConfigMap>, expected: &[&str]) {
    for expected in expected {
        assert_eq!(next(subscription).await, *expected);
    }
}

fn watch_versions(script: &Script) -> Vec<String> {
    let requests = script.requests();
    let watches = requests
        .iter()
        .filter(|request| request.contains("watch=true"));
    watches
        .map(|request| {
            let rest = request.split("resourceVersion=").nth(1).unwrap_or_default();
            rest.split('&').next().unwrap_or_default().to_owned()
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn lists_in_pages_and_follows_the_watch() {
    let script = Script::new(vec![
        list(5, "next page", &[object("a", 1, "1")]),
        list(5, "", &[object("b", 2, "1")]),
        Reply::Watch(
            vec![
                event("ADDED", &object("c", 6, "1")),
                event("MODIFIED", &object("a", 7, "2")),
                event("DELETED", &object("b", 8, "last")),
            ],
            End::Open,
        ),
    ]);
    let informer = informers(&script).of::<ConfigMap>();
    assert!(!informer.is_synced());
    let mut changes = informer.subscribe();
    informer.synced().await;
    assert_eq!(informer.list().len(), 2);
    expect(
        &mut changes,
        &[
            "added a=1",
            "added b=1",
            "resynced",
            "added c=1",
            "modified a=1 to a=2",
            "deleted b=last",
        ],
    )
    .await;
    assert!(informer.get("default", "b").is_none());
    assert_eq!(informer.list_in("default").len(), 2);
    assert!(informer.list_in("other").is_empty());

    let requests = script.requests();
    assert_eq!(requests[0], "GET /api/v1/configmaps?limit=500 ");
    assert_eq!(
        requests[1],
        "GET /api/v1/configmaps?limit=500&continue=next%20page "
    );
    assert!(requests[2].contains("watch=true&allowWatchBookmarks=true&resourceVersion=5&"));
    let seconds: u64 = requests[2]
        .split("timeoutSeconds=")
        .nth(1)
        .and_then(|text| text.trim().parse().ok())
        .expect("timeoutSeconds");
    assert!((290..=580).contains(&seconds));
}

#[tokio::test(start_paused = true)]
async fn resumes_after_the_last_event_or_bookmark() {
    let script = Script::new(vec![
        list(5, "", &[]),
        Reply::Watch(vec![event("ADDED", &object("a", 6, "1"))], End::Closed),
        Reply::Watch(vec![bookmark(9)], End::Closed),
        Reply::Watch(vec![], End::Broken),
        Reply::Unreachable,
        Reply::Json(503, status(503, "ServiceUnavailable")),
        Reply::Json(429, "slow down".to_owned()),
        Reply::Watch(vec![event("MODIFIED", &object("a", 10, "2"))], End::Open),
    ]);
    let informer = informers(&script).of::<ConfigMap>();
    let mut changes = informer.subscribe();
    expect(
        &mut changes,
        &["resynced", "added a=1", "modified a=1 to a=2"],
    )
    .await;
    assert_eq!(watch_versions(&script), ["5", "6", "9", "9", "9", "9", "9"]);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_watch_event_is_received_again() {
    let whole = event("ADDED", &object("a", 6, "1")) + &event("ADDED", &object("b", 7, "1"));
    let (first, rest) = whole.split_at(20);
    let (second, third) = rest.split_at(whole.len() - 40);
    let cut = event("MODIFIED", &object("a", 8, "2"));
    let script = Script::new(vec![
        list(5, "", &[]),
        Reply::Watch(
            vec![first.into(), second.into(), third.into(), cut[..30].into()],
            End::Broken,
        ),
        Reply::Watch(vec!["\n".into(), cut], End::Open),
    ]);
    let informer = informers(&script).of::<ConfigMap>();
    let mut changes = informer.subscribe();
    expect(
        &mut changes,
        &["resynced", "added a=1", "added b=1", "modified a=1 to a=2"],
    )
    .await;
    assert_eq!(watch_versions(&script), ["5", "7"]);
}

#[tokio::test(start_paused = true)]
async fn relists_when_the_resource_version_has_expired() {
    let script = Script::new(vec![
        list(
            5,
            "",
            &[
                object("a", 1, "1"),
                object("b", 2, "1"),
                object("same", 3, "1"),
            ],
        ),
        // In the stream, and as the answer itself.
        Reply::Watch(vec![event("ERROR", &status(410, "Expired"))], End::Closed),
        list(20, "", &[object("a", 12, "2"), object("same", 3, "1")]),
        Reply::Json(410, status(410, "Gone")),
        list(
            30,
            "",
            &[
                object("a", 12, "2"),
                object("same", 3, "1"),
                object("c", 25, "1"),
            ],
        ),
    ]);
    let informer = informers(&script).of::<ConfigMap>();
    let mut changes = informer.subscribe();
    expect(
        &mut changes,
        &["added a=1", "added b=1", "added same=1", "resynced"],
    )
    .await;
    expect(
        &mut changes,
        &["deleted b=1", "modified a=1 to a=2", "resynced"],
    )
    .await;
    expect(&mut changes, &["added c=1", "resynced"]).await;
    assert_eq!(watch_versions(&script)[..2], ["5", "20"]);
}

#[tokio::test(start_paused = true)]
async fn expired_pages_are_replaced_by_one_full_list() {
    let script = Script::new(vec![
        list(5, "token", &[object("a", 1, "1")]),
        Reply::Json(410, status(410, "Expired")),
        list(9, "", &[object("b", 8, "1")]),
    ]);
    let informer = informers(&script).of::<ConfigMap>();
    informer.synced().await;
    let mut changes = informer.subscribe();
    expect(&mut changes, &["added b=1", "resynced"]).await;
    assert_eq!(script.requests()[2], "GET /api/v1/configmaps ");
}

#[tokio::test(start_paused = true)]
async fn a_failing_list_is_retried_with_backoff() {
    let mut replies: Vec<Reply> = (0..6).map(|_| Reply::Unreachable).collect();
    replies.push(Reply::Json(200, "not json".to_owned()));
    replies.push(list(5, "", &[]));
    let script = Script::new(replies);
    let began = tokio::time::Instant::now();
    informers(&script).of::<ConfigMap>().synced().await;
    let least = 50 * (1 + 2 + 4 + 8 + 16 + 32 + 64);
    let waited = began.elapsed().as_millis();
    assert!((least..=2 * least).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_connection_is_abandoned_after_the_timeout() {
    let script = Script::new(vec![
        list(5, "", &[]),
        Reply::Watch(vec![], End::Open),
        Reply::Watch(vec![event("ADDED", &object("a", 6, "1"))], End::Open),
    ]);
    let informer = informers(&script).of::<ConfigMap>();
    let mut changes = informer.subscribe();
    expect(&mut changes, &["resynced", "added a=1"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_is_skipped() {
    let bad = r#"{"metadata":{"name":"bad","resourceVersion":"7"},"data":17}"#;
    let script = Script::new(vec![
        list(5, "", &[bad.to_owned(), object("a", 1, "1")]),
        Reply::Watch(
            vec![
                event("ADDED", bad),
                event("FUTURE", bad),
                event("ADDED", &object("b", 8, "1")),
            ],
            End::Closed,
        ),
    ]);
    let informer = informers(&script).of::<ConfigMap>();
    let mut changes = informer.subscribe();
    expect(&mut changes, &["added a=1", "resynced", "added b=1"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_gets_the_newest_state_once() {
    let other = object("gone", 9, "2").replace("uid-gone", "uid-other");
    let script = Script::new(vec![
        list(5, "", &[object("a", 1, "1"), object("gone", 2, "1")]),
        Reply::Watch(
            vec![
                event("MODIFIED", &object("a", 6, "2")),
                event("MODIFIED", &object("a", 7, "3")),
                event("DELETED", &object("gone", 8, "last")),
                event("ADDED", &other),
                event("ADDED", &object("brief", 10, "1")),
                event("DELETED", &object("brief", 11, "1")),
            ],
            End::Open,
        ),
    ]);
    let informer = informers(&script).of::<ConfigMap>();
    let mut early = informer.subscribe();
    expect(&mut early, &["added a=1", "added gone=1", "resynced"]).await;
    let mut fast = informer.subscribe();
    tokio::time::sleep(Duration::from_secs(1)).await;
    expect(
        &mut early,
        &["modified a=1 to a=3", "deleted gone=last", "added gone=2"],
    )
    .await;
    assert!(
        early.try_next().is_none(),
        "what came and went is not shown"
    );
    drop(early);
    expect(&mut fast, &["added a=3", "added gone=2", "resynced"]).await;
}

#[tokio::test(start_paused = true)]
async fn informers_of_the_same_kind_and_scope_share_a_reflector() {
    #[derive(Clone, serde::Deserialize)]
    struct NameOnly {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    }
    impl kube::Resource for NameOnly {
        type DynamicType = ();
        type Scope = k8s_openapi::NamespaceResourceScope;
        fn kind((): &()) -> std::borrow::Cow<'_, str> {
            "Pod".into()
        }
        fn group((): &()) -> std::borrow::Cow<'_, str> {
            "".into()
        }
        fn version((): &()) -> std::borrow::Cow<'_, str> {
            "v1".into()
        }
        fn plural((): &()) -> std::borrow::Cow<'_, str> {
            "pods".into()
        }
        fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            &self.metadata
        }
        fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
            &mut self.metadata
        }
    }
    let script = Script::new(vec![list(5, "", &[object("a", 1, "1")])]);
    let informers = informers(&script);
    let first = informers.with_selector::<NameOnly>("spec.nodeName=n-1");
    let second = informers.with_selector::<NameOnly>("spec.nodeName=n-1");
    first.synced().await;
    assert!(second.get("default", "a").is_some());
    let requests = script.requests();
    let uri = "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn-1&limit=500 ";
    assert_eq!(requests[0], uri);
    let lists = requests.iter().filter(|request| request.contains("limit"));
    assert_eq!(lists.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn reflectors_end_with_their_last_handle() {
    let script = Script::new(vec![list(5, "", &[])]);
    let informers = informers(&script);
    let informer = informers.of::<ConfigMap>();
    drop(informers);
    informer.synced().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    drop(informer);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(metrics.num_alive_tasks() < before);
}
