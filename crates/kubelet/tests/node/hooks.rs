//! Lifecycle hooks.

use std::io::{Read, Write};

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::harness::{ATTEMPTS, Node, ready};

/// The container's server speaks no TLS, though its hook says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_over_https_is_tried_over_http() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).expect("a request");
            let good = bytes[..count].starts_with(b"GET /hook ");
            let status = if good { "200 OK" } else { "400 Bad Request" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("answered");
        }
    });
    let node = Node::start().await;
    let hook = json!({"httpGet": {"scheme": "HTTPS", "port": port, "path": "/hook"}});
    node.create(
        "web",
        json!({"containers": [{"name": "main", "image": "busybox",
            "imagePullPolicy": "IfNotPresent", "lifecycle": {"postStart": hook}}]}),
    )
    .await;
    node.wait("web", ready).await;
    server.join().expect("both were asked");
    let fallbacks = "kubelet_lifecycle_handler_http_fallbacks_total";
    node.metric(fallbacks, |count| count == 1.0).await;
    let words = format!(
        "request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, retry with HTTP succeeded"
    );
    let events: Api<Event> = Api::namespaced(node.admin.clone(), "default");
    for attempt in 0.. {
        let list = events.list(&ListParams::default()).await.expect("events");
        let mut found = list.items.into_iter().filter(|event| {
            event.reason.as_deref() == Some("LifecycleHTTPFallback")
                && event.type_.as_deref() == Some("Warning")
        });
        if found.any(|event| event.message.as_deref() == Some(&words)) {
            break;
        }
        assert!(attempt < ATTEMPTS, "the fallback was not reported");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    node.close().await;
}
