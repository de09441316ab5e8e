//! Requests to the kubelet's own server: HEAD in both protocols, and how often the API server is
//! asked about callers.

use http::{Method, Request};
use k8s_openapi::api::authentication::v1::TokenRequest;
use kube::{Api, api::PostParams};

use crate::harness::Node;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_is_answered_as_upstream_does_in_both_protocols() {
    let node = Node::start().await;
    for protocol in ["h2", "http/1.1"] {
        for (path, code) in [
            ("/healthz", 200),
            ("/healthz/ping", 200),
            ("/metrics", 200),
            ("/metrics/resource", 200),
            ("/configz", 200),
            ("/pods", 405),
            ("/runningpods/", 405),
            ("/stats/summary", 405),
            ("/logs/", 405),
            ("/containerLogs/default/web/main?follow=true", 405),
            ("/exec/default/web/main", 405),
            ("/run/default/web/main", 405),
        ] {
            let asked = (Method::HEAD, path);
            let answer = node
                .administrator
                .ask(node.kubelet_port, protocol, asked, None);
            let (answered, length, body) = answer.await;
            assert_eq!(answered, code, "{protocol} {path}");
            assert!(body.is_empty(), "{protocol} {path}");
            assert!(
                length.is_some_and(|length| length != "0"),
                "{protocol} {path}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_is_asked_once_about_a_caller() {
    let node = Node::start().await;
    // The API server counts what it is asked.
    let asked = async || {
        let request = Request::get("/metrics")
            .body(Vec::new())
            .expect("a request");
        let page = node.admin.request_text(request).await.expect("metrics");
        let count = |plural: &str| -> u64 {
            let lines = page.lines().filter(|line| {
                line.starts_with("apiserver_request_total") && line.contains(plural)
            });
            let numbers = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            numbers.sum()
        };
        (count("\"tokenreviews\""), count("\"subjectaccessreviews\""))
    };
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(node.admin.clone(), "default");
    let token = accounts
        .create_token_request("default", &PostParams::default(), &TokenRequest::default())
        .await
        .expect("a token");
    let token = token.status.and_then(|status| status.token);
    let token = token.expect("a token");
    let before = asked().await;
    let ask = async |token: &str| {
        let path = (Method::GET, "/pods");
        let asking = node
            .administrator
            .ask(node.kubelet_port, "http/1.1", path, Some(token));
        asking.await.0
    };
    for _ in 0..5 {
        assert_eq!(ask(&token).await, 403);
        assert_eq!(ask("nonsense").await, 401);
    }
    let after = asked().await;
    // Two tokens; of the good one's user, whether it may get "pods" or "proxy" of the node.
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 2));
    // A refusal is believed for half a minute, what is known of a token for two.
    node.move_clock(31_000_000);
    assert_eq!(ask(&token).await, 403);
    let later = asked().await;
    assert_eq!((later.0 - after.0, later.1 - after.1), (0, 2));
    node.move_clock(120_000_000);
    assert_eq!(ask(&token).await, 403);
    let latest = asked().await;
    assert_eq!((latest.0 - later.0, latest.1 - later.1), (1, 2));
}
