//! Proxy and DNS as they run in a cluster: fed by informers over a small scripted API, used by a pod
//! with real packets. A pod asks the DNS service for a name and connects to the answer.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::Informers;
use environment::Environment;
use futures::StreamExt as _;
use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trace::Recorder;

use crate::testing::{CLUSTER, Host, PATIENCE, RESEND, ask_tcp, in_fresh_namespace};

type Frames = mpsc::UnboundedReceiver<Result<http_body::Frame<Bytes>, Infallible>>;

/// Lists nothing, and watches that the test writes to, one per path.
#[derive(Clone, Default)]
struct Api {
    watches: Arc<
        Mutex<
            Vec<(
                String,
                mpsc::UnboundedSender<Result<http_body::Frame<Bytes>, Infallible>>,
            )>,
        >,
    >,
}

impl Api {
    fn client(&self) -> kube::Client {
        let api = self.clone();
        client::connect::from_service(tower::service_fn(
            move |request: http::Request<kube::client::Body>| {
                let response = api.answer(request.uri());
                async move { Ok::<_, Infallible>(response) }
            },
        ))
    }

    fn answer(
        &self,
        uri: &http::Uri,
    ) -> http::Response<
        StreamBody<
            futures::stream::BoxStream<'static, Result<http_body::Frame<Bytes>, Infallible>>,
        >,
    > {
        let (sender, mut frames): (_, Frames) = mpsc::unbounded_channel();
        if uri.query().unwrap_or_default().contains("watch=true") {
            self.watches
                .lock()
                .unwrap()
                .push((uri.path().to_owned(), sender));
        } else {
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
            let _ = sender.send(Ok(http_body::Frame::data(Bytes::from(list.to_string()))));
        }
        let stream = futures::stream::poll_fn(move |context| frames.poll_recv(context)).boxed();
        http::Response::builder()
            .header("content-type", "application/json")
            .body(StreamBody::new(stream))
            .unwrap()
    }

    /// Sends an event once the watch is there.
    async fn send(&self, path: &str, kind: &str, object: Value) {
        loop {
            {
                let watches = self.watches.lock().unwrap();
                if let Some((_, sender)) = watches.iter().find(|(watched, _)| watched == path) {
                    let line = format!("{}\n", json!({"type": kind, "object": object}));
                    sender
                        .send(Ok(http_body::Frame::data(Bytes::from(line))))
                        .unwrap();
                    return;
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

#[test]
fn a_pod_finds_a_service_by_its_name() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let (web, client) = (host.pod("web"), host.pod("client"));
        web.serve(8080);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let api = Api::default();
            let environment = Environment::system();
            let informers = Informers::new(api.client(), environment.clone());
            let shutdown = CancellationToken::new();
            let listen = SocketAddr::from((host.network.gateway, 53));
            let dns = tokio::spawn(crate::dns::run(
                crate::dns::DnsConfig {
                    informers: informers.clone(),
                    listen,
                    service_ip: host.network.dns_ip,
                    domain: "cluster.local".to_owned(),
                    upstream_resolv_conf: "/nonexistent".into(),
                    environment: environment.clone(),
                    recorder: Recorder::off(),
                },
                shutdown.clone(),
            ));
            let proxy = tokio::spawn(crate::proxy::run(
                crate::proxy::ProxyConfig {
                    informers,
                    node_name: "n".to_owned(),
                    cluster_id: CLUSTER.to_owned(),
                    service_cidr: host.network.service_cidr,
                    pod_cidr: host.network.pod_cidr,
                    node_addresses: Vec::new(),
                    dns: Some(crate::proxy::DnsRedirect { service_ip: host.network.dns_ip, to: listen }),
                    environment,
                    recorder: Recorder::off(),
                },
                shutdown.clone(),
            ));
            api.send(SERVICES, "ADDED", json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"namespace": "default", "name": "web", "resourceVersion": "2"},
                "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 80, "targetPort": 8080}]},
            })).await;
            let slice = |addresses: &[Ipv4Addr], version: &str| json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"namespace": "default", "name": "web-1", "resourceVersion": version,
                    "labels": {"kubernetes.io/service-name": "web"}},
                "addressType": "IPv4", "ports": [{"port": 8080}],
                "endpoints": addresses.iter().map(|address| json!({"addresses": [address]})).collect::<Vec<_>>(),
            });
            api.send(SLICES, "ADDED", slice(&[web.address], "3")).await;

            let dns_ip = host.network.dns_ip;
            let client = Arc::new(client);
            let asking = client.clone();
            let answer = eventually(move || asking.namespace.run(|| {
                let address = resolve(dns_ip, "web.default.svc.cluster.local.")?;
                ask_tcp(address, 80)
            })).await;
            assert_eq!(answer, format!("web {}", client.address));

            // The endpoint goes; connections are refused soon after.
            api.send(SLICES, "MODIFIED", slice(&[], "4")).await;
            eventually(move || match ask_tcp(Ipv4Addr::new(10, 96, 7, 7), 80) {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
                _ => Err(std::io::ErrorKind::WouldBlock.into()),
            }).await;
            shutdown.cancel();
            dns.await.unwrap().unwrap();
            proxy.await.unwrap().unwrap();
        });
    });
}

/// Tries until it works or patience ends, off the runtime's thread but in its namespace.
async fn eventually<T: Send + 'static>(
    attempt: impl Fn() -> std::io::Result<T> + Send + Sync + 'static,
) -> T {
    let attempt = Arc::new(attempt);
    let deadline = tokio::time::Instant::now() + 2 * PATIENCE;
    let here = Arc::new(std::fs::File::open("/proc/thread-self/ns/net").unwrap());
    loop {
        let (attempt, here) = (attempt.clone(), here.clone());
        let outcome = tokio::task::spawn_blocking(move || {
            nix::sched::setns(&*here, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            attempt()
        });
        match outcome.await.unwrap() {
            Ok(value) => return value,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn resolve(server: Ipv4Addr, name: &str) -> std::io::Result<Ipv4Addr> {
    let mut question = Message::query();
    question.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Short: a question asked before the rules are there is lost, and the next one is not.
    socket.set_read_timeout(Some(4 * RESEND))?;
    socket.connect((server, 53))?;
    socket.send(&question.to_vec().unwrap())?;
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer)?;
    let answer = Message::from_vec(&buffer[..length]).unwrap();
    match answer.answers.first().map(|record| &record.data) {
        Some(RData::A(address)) => Ok(address.0),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    }
}
