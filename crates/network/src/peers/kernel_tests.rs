//! Routes to other nodes in the real kernel, in a namespace of the test's own; and the node's
//! condition as a scripted API gets to see it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::testing::{CLUSTER, PATIENCE, in_fresh_namespace, run as command};

fn link_with_address() {
    for arguments in [
        "link add up0 type veth peer name up1",
        "link set up1 up",
        "address add 192.0.2.1/24 dev up0",
        "link set up0 up",
    ] {
        ip(arguments);
    }
}

fn ip(arguments: &str) -> String {
    let words = std::iter::once("ip").chain(arguments.split(' '));
    command(&words.collect::<Vec<_>>())
}

/// The routes with our mark, one per line.
fn our_routes() -> Vec<String> {
    let listing = ip("-4 route show table all proto 67");
    let mut lines: Vec<String> = listing
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().take(5).collect();
            words.join(" ")
        })
        .collect();
    lines.sort();
    lines
}

fn peer(name: &str, created: i64, range: &str, address: [u8; 4]) -> Peer {
    Peer {
        created,
        name: name.to_owned(),
        ranges: vec![range.to_owned()],
        address: Some(address.into()),
        unavailable: false,
    }
}

fn bounds() -> Bounds {
    Bounds {
        own: "10.244.0.0/24".parse().unwrap(),
        cluster: Some("10.244.0.0/16".parse().unwrap()),
        services: "10.96.0.0/12".parse().unwrap(),
        host: host_networks().unwrap(),
    }
}

#[test]
fn only_believed_ranges_of_nodes_on_the_link_get_a_route() {
    in_fresh_namespace(|| {
        link_with_address();
        let peers = [
            peer("own", 1, "10.244.0.0/24", [192, 0, 2, 1]),
            peer("good", 2, "10.244.1.0/24", [192, 0, 2, 2]),
            peer("half-of-the-world", 3, "0.0.0.0/1", [192, 0, 2, 3]),
            peer("thief", 4, "10.244.1.0/24", [192, 0, 2, 4]),
            peer("our-twin", 5, "10.244.0.0/24", [192, 0, 2, 5]),
            peer("link-thief", 6, "192.0.2.0/24", [192, 0, 2, 6]),
            peer("routed", 7, "10.244.7.0/24", [203, 0, 113, 7]),
            peer("us", 8, "10.244.8.0/24", [192, 0, 2, 1]),
            peer("loopback", 9, "10.244.9.0/24", [127, 0, 0, 9]),
        ];
        let before = ip("-4 route show table main");
        let plan = plan::plan(peers.iter(), "own", &bounds());
        let metric = metric(CLUSTER);
        let unreachable = install(&plan, metric).unwrap();
        assert_eq!(our_routes(), ["10.244.1.0/24 via 192.0.2.2 dev up0"]);
        let lost: Vec<String> = unreachable.values().map(Ipv4Addr::to_string).collect();
        assert_eq!(lost, ["203.0.113.7", "192.0.2.1", "127.0.0.9"]);

        // The router's network comes to a link of ours; our own routes are no conflict.
        ip("address add 203.0.113.1/24 dev up0");
        let plan = plan::plan(peers.iter(), "own", &bounds());
        assert_eq!(install(&plan, metric).unwrap().len(), 2);
        let both = [
            "10.244.1.0/24 via 192.0.2.2 dev up0",
            "10.244.7.0/24 via 203.0.113.7 dev up0",
        ];
        assert_eq!(our_routes(), both);
        // Someone removes one; the next round puts it back and leaves the other alone.
        ip("route del 10.244.1.0/24");
        install(&plan, metric).unwrap();
        assert_eq!(our_routes(), both);

        ip("address del 203.0.113.1/24 dev up0");
        install(&Plan::default(), metric).unwrap();
        assert_eq!(ip("-4 route show table main"), before);
    });
}

type Frame = Result<http_body::Frame<Bytes>, Infallible>;

/// Serves Nodes and their changes, and keeps what is written.
#[derive(Clone)]
struct Api {
    nodes: Arc<Mutex<Vec<Value>>>,
    watch: Arc<Mutex<Option<mpsc::UnboundedSender<Frame>>>>,
    written: mpsc::UnboundedSender<(String, Value)>,
}

impl Api {
    fn client(&self) -> kube::Client {
        let api = self.clone();
        client::connect::from_service(tower::service_fn(
            move |request: http::Request<kube::client::Body>| {
                let api = api.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    Ok::<_, Infallible>(api.answer(&parts.method, &parts.uri, &body))
                }
            },
        ))
    }

    fn answer(
        &self,
        method: &http::Method,
        uri: &http::Uri,
        body: &[u8],
    ) -> http::Response<StreamBody<futures::stream::BoxStream<'static, Frame>>> {
        let (sender, mut frames) = mpsc::unbounded_channel::<Frame>();
        let send = |value: Value| {
            let bytes = Bytes::from(format!("{value}\n"));
            let _ = sender.send(Ok(http_body::Frame::data(bytes)));
        };
        if method != http::Method::GET {
            let body: Value = serde_json::from_slice(body).unwrap();
            if uri.path().ends_with("/status") {
                let mut nodes = self.nodes.lock().unwrap();
                nodes[0]["status"]["conditions"] = body["status"]["conditions"].clone();
                let version = nodes[0]["metadata"]["resourceVersion"].as_str().unwrap();
                let next = version.parse::<u64>().unwrap() + 1;
                nodes[0]["metadata"]["resourceVersion"] = json!(next.to_string());
                let event = json!({"type": "MODIFIED", "object": nodes[0]});
                let bytes = Bytes::from(format!("{event}\n"));
                if let Some(watch) = &*self.watch.lock().unwrap() {
                    let _ = watch.send(Ok(http_body::Frame::data(bytes)));
                }
                send(nodes[0].clone());
            } else {
                send(body.clone());
            }
            let _ = self.written.send((uri.path().to_owned(), body));
        } else if uri.query().unwrap_or_default().contains("watch=true") {
            *self.watch.lock().unwrap() = Some(sender);
        } else {
            let items = self.nodes.lock().unwrap().clone();
            send(json!({"metadata": {"resourceVersion": "1"}, "items": items}));
        }
        let stream = futures::stream::poll_fn(move |context| frames.poll_recv(context)).boxed();
        http::Response::builder()
            .header("content-type", "application/json")
            .body(StreamBody::new(stream))
            .unwrap()
    }
}

#[test]
fn a_node_behind_a_router_says_that_its_network_is_unavailable_until_it_is_not() {
    in_fresh_namespace(|| {
        link_with_address();
        let node = |name: &str, created: &str, range: &str, address: &str| {
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "uid": name, "creationTimestamp": created, "resourceVersion": "1"},
                "spec": {"podCIDR": range, "podCIDRs": [range]},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]},
            })
        };
        let nodes = vec![
            node("own", "2024-01-02T00:00:00Z", "10.244.1.0/24", "192.0.2.1"),
            node(
                "server",
                "2024-01-01T00:00:00Z",
                "10.244.0.0/24",
                "203.0.113.5",
            ),
        ];
        let (written, mut writes) = mpsc::unbounded_channel();
        let api = Api {
            nodes: Arc::new(Mutex::new(nodes)),
            watch: Arc::default(),
            written,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let environment = Environment::system();
            let shutdown = CancellationToken::new();
            let config = PeersConfig {
                informers: Informers::new(api.client(), environment.clone()),
                node_client: api.client(),
                node_name: "own".to_owned(),
                cluster_id: CLUSTER.to_owned(),
                pod_cidr: "10.244.1.0/24".parse().unwrap(),
                cluster_cidr: Some("10.244.0.0/16".parse().unwrap()),
                service_cidr: "10.96.0.0/12".parse().unwrap(),
                environment,
            };
            let peers = tokio::spawn(run(config, shutdown.clone()));
            let mut next = async || {
                let written = tokio::time::timeout(PATIENCE, writes.recv()).await;
                written.expect("something is written").unwrap()
            };
            let (path, patch) = next().await;
            assert_eq!(path, "/api/v1/nodes/own/status");
            let condition = &patch["status"]["conditions"][0];
            assert_eq!(condition["type"], "NetworkUnavailable");
            assert_eq!(
                (&condition["status"], &condition["reason"]),
                (&json!("True"), &json!("NoRouteCreated"))
            );
            let message = condition["message"].as_str().unwrap().to_owned();
            assert!(message.contains("server (203.0.113.5)"), "{message}");
            let (path, event) = next().await;
            assert!(path.ends_with("/events"), "{path}");
            assert_eq!(event["reason"], "NetworkUnavailable");
            assert_eq!(event["message"], json!(message));
            assert!(our_routes().is_empty());

            ip("address add 203.0.113.1/24 dev up0");
            let (_, patch) = next().await;
            let condition = &patch["status"]["conditions"][0];
            assert_eq!(
                (&condition["status"], &condition["reason"]),
                (&json!("False"), &json!("RouteCreated"))
            );
            assert_eq!(our_routes(), ["10.244.0.0/24 via 203.0.113.5 dev up0"]);
            shutdown.cancel();
            peers.await.unwrap();
        });
    });
}
