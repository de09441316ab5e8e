//! Watches: where they begin, what they tell, how they end.

use api::Value;

use crate::harness::{Cluster, config_map, pod};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn a_watch_delivers_the_events_after_its_revision() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("before")).await.expect(201);
    let list = admin.get(MAPS).await.expect(200);
    let version = list.str_at(&["metadata", "resourceVersion"]);
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={version}"))
        .await;
    let created = admin.post(MAPS, &config_map("a")).await.expect(201);
    let (kind, object) = events.next().await.unwrap();
    assert_eq!((kind.as_str(), &object), ("ADDED", &created));
    let changed = admin
        .merge(&format!("{MAPS}/a"), &api::document!({"data": {"a": "2"}}))
        .await
        .expect(200);
    assert_eq!(
        events.next().await.unwrap(),
        ("MODIFIED".to_string(), changed)
    );
    admin.delete(&format!("{MAPS}/a")).await.expect(200);
    let (kind, object) = events.next().await.unwrap();
    assert_eq!(kind, "DELETED");
    let number = |object: &Value| -> u64 {
        object
            .str_at(&["metadata", "resourceVersion"])
            .parse()
            .unwrap()
    };
    assert!(number(&object) > number(&created) + 1);
    // From the past, the same story is told again.
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={version}"))
        .await;
    for expected in ["ADDED a", "MODIFIED a", "DELETED a"] {
        assert_eq!(events.summary().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_revision_a_watch_begins_with_the_state() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    admin.post(MAPS, &config_map("b")).await.expect(201);
    let mut events = admin.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(events.summary().await, "ADDED a");
    assert_eq!(events.summary().await, "ADDED b");
    admin.delete(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(events.summary().await, "DELETED a");
}

#[tokio::test(start_paused = true)]
async fn the_initial_state_ends_with_a_marked_bookmark() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = admin.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(events.summary().await, "ADDED a");
    let (kind, object) = events.next().await.unwrap();
    assert_eq!(kind, "BOOKMARK");
    let mark = object.str_at(&["metadata", "annotations", "k8s.io/initial-events-end"]);
    assert_eq!(mark, "true");
    let wrong = admin
        .get(&format!("{MAPS}?watch=true&sendInitialEvents=true"))
        .await;
    wrong.failure(422, "Invalid");
}

#[tokio::test(start_paused = true)]
async fn selectors_turn_changes_into_arrivals_and_departures() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&labelSelector=on%3Dyes"))
        .await;
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let label = |value: &str| api::document!({"metadata": {"labels": {"on": value}}});
    let path = format!("{MAPS}/a");
    admin.merge(&path, &label("yes")).await.expect(200);
    assert_eq!(events.summary().await, "ADDED a");
    admin
        .merge(&path, &api::document!({"data": {"x": "y"}}))
        .await
        .expect(200);
    assert_eq!(events.summary().await, "MODIFIED a");
    admin.merge(&path, &label("no")).await.expect(200);
    assert_eq!(events.summary().await, "DELETED a");
}

#[tokio::test(start_paused = true)]
async fn a_node_sees_its_pods_arrive() {
    let cluster = Cluster::start().await;
    cluster.namespace("default").await;
    let admin = cluster.admin();
    let mut events = admin
        .watch("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dn1")
        .await;
    for (name, node) in [("a", "n2"), ("b", "n1")] {
        admin.post(PODS, &pod(name)).await.expect(201);
        let binding =
            api::document!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        admin
            .post(&format!("{PODS}/{name}/binding"), &binding)
            .await
            .expect(201);
    }
    assert_eq!(events.summary().await, "ADDED b");
}

#[tokio::test(start_paused = true)]
async fn history_that_is_gone_is_an_error_event() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let list = admin.get(MAPS).await.expect(200);
    let version = list.str_at(&["metadata", "resourceVersion"]);
    for _ in 0..4200 {
        admin.post(MAPS, &config_map("a")).await.expect(201);
        admin.delete(&format!("{MAPS}/a")).await.expect(200);
    }
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&resourceVersion={version}"))
        .await;
    let (kind, status) = events.next().await.unwrap();
    assert_eq!(kind, "ERROR");
    assert_eq!(status.str_at(&["reason"]), "Expired");
    assert_eq!(status.get("code").and_then(Value::as_i64), Some(410));
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn bookmarks_and_the_end_come_in_time() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let list = admin.get(MAPS).await.expect(200);
    let version = list.str_at(&["metadata", "resourceVersion"]);
    let query =
        format!("watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=90");
    let mut events = admin.watch(&format!("{MAPS}?{query}")).await;
    // Another kind's change moves the bookmark on.
    admin
        .post(
            "/api/v1/namespaces",
            &api::document!({"metadata": {"name": "other"}}),
        )
        .await
        .expect(201);
    let (kind, object) = events.next().await.unwrap();
    assert_eq!(kind, "BOOKMARK");
    let number = |text: &str| -> u64 { text.parse().unwrap() };
    assert!(number(object.str_at(&["metadata", "resourceVersion"])) > number(version));
    let (kind, _) = events.next().await.unwrap();
    assert_eq!(kind, "BOOKMARK");
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_is_cut_off_and_no_request_waits() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    let mut slow = admin.watch(&format!("{MAPS}?watch=true")).await;
    let mut quick = admin
        .watch(&format!(
            "{MAPS}?watch=true&fieldSelector=metadata.name%3Dlast"
        ))
        .await;
    for _ in 0..700 {
        admin.post(MAPS, &config_map("a")).await.expect(201);
        admin.delete(&format!("{MAPS}/a")).await.expect(200);
    }
    admin.post(MAPS, &config_map("last")).await.expect(201);
    assert_eq!(quick.summary().await, "ADDED last");
    let mut seen = 0;
    while slow.next().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 1024);
}

#[tokio::test(start_paused = true)]
async fn a_large_beginning_comes_in_pieces_and_whole() {
    use http_body_util::BodyExt;
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    for index in 0..200 {
        let mut map = config_map(&format!("m{index:03}"));
        map.set(&["data", "a"], "x".repeat(1000));
        admin.post(MAPS, &map).await.expect(201);
    }
    let path = format!(
        "{MAPS}?watch=true&timeoutSeconds=5&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    for path in [
        path,
        format!("{MAPS}?watch=true&timeoutSeconds=5&resourceVersion=1"),
    ] {
        let mut body = admin.open("GET", &path, "", b"").await.into_body();
        let (mut pieces, mut names) = (0, Vec::new());
        let mut text = String::new();
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() < 80 * 1024, "{}", data.len());
            pieces += 1;
            text.push_str(std::str::from_utf8(&data).unwrap());
        }
        for line in text.lines() {
            let event = Value::from_json(line.as_bytes()).unwrap();
            if event.str_at(&["type"]) == "ADDED" {
                names.push(event.str_at(&["object", "metadata", "name"]).to_string());
            }
        }
        assert!(pieces > 2, "{pieces}");
        let expected: Vec<String> = (0..200).map(|index| format!("m{index:03}")).collect();
        assert_eq!(names, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_idle_ends_in_time() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("a")).await.expect(201);
    let mut events = admin
        .watch(&format!("{MAPS}?watch=true&timeoutSeconds=1"))
        .await;
    for index in 0..10_000 {
        let change = api::document!({"data": {"a": index.to_string()}});
        admin.merge(&format!("{MAPS}/a"), &change).await.expect(200);
        tokio::time::advance(std::time::Duration::from_millis(10)).await;
        if events.next().await.is_none() {
            return;
        }
    }
    panic!("the watch goes on");
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_begin_with_news_only() {
    let cluster = Cluster::start().await;
    let admin = cluster.admin();
    admin.post(MAPS, &config_map("old")).await.expect(201);
    for version in ["", "&resourceVersion=0"] {
        let path = format!(
            "{MAPS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan{version}"
        );
        admin.get(MAPS).await.expect(200);
        let mut events = admin.watch(&path).await;
        admin.post(MAPS, &config_map("new")).await.expect(201);
        assert_eq!(events.summary().await, "ADDED new");
        admin.delete(&format!("{MAPS}/new")).await.expect(200);
    }
}
