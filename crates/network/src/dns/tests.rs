//! The zone's answers, and the server with real sockets and a name server of the test's own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, RwLock};

use client::Change;
use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::forward::{Forwarder, name_servers};
use super::server::Server;
use super::zone::ZoneLookup;
use super::*;
use crate::testing::in_fresh_namespace;

fn service(index: &mut NamesIndex, namespace: &str, name: &str, spec: Value) {
    let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
    index.note_service(Change::Added(Arc::new(
        serde_json::from_value(object).unwrap(),
    )));
}

fn endpoints(index: &mut NamesIndex, namespace: &str, service: &str, list: Value) -> Vec<String> {
    let object = json!({
        "metadata": {"namespace": namespace, "name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": list,
    });
    index.note_slice(Change::Added(Arc::new(
        serde_json::from_value(object).unwrap(),
    )))
}

fn example() -> NamesIndex {
    let mut index = NamesIndex::default();
    let ports =
        json!([{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    service(
        &mut index,
        "default",
        "kubernetes",
        json!({"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443}]}),
    );
    service(
        &mut index,
        "prod",
        "web",
        json!({"clusterIP": "10.96.5.5", "ports": ports}),
    );
    service(
        &mut index,
        "prod",
        "db",
        json!({"clusterIP": "None", "ports": [{"name": "http", "port": 8080}]}),
    );
    service(
        &mut index,
        "prod",
        "alias",
        json!({"type": "ExternalName", "externalName": "web.prod.svc.cluster.local"}),
    );
    service(
        &mut index,
        "prod",
        "out",
        json!({"type": "ExternalName", "externalName": "example.org"}),
    );
    service(
        &mut index,
        "prod",
        "lost",
        json!({"type": "ExternalName", "externalName": "none.prod.svc.cluster.local"}),
    );
    let fresh = endpoints(
        &mut index,
        "prod",
        "db",
        json!([
            {"addresses": ["10.244.0.7"], "hostname": "db-0", "targetRef": {"kind": "Pod", "uid": "u7"}},
            {"addresses": ["10.244.0.8"]},
            {"addresses": ["10.244.0.9"], "conditions": {"ready": false}},
        ]),
    );
    assert_eq!(fresh, ["u7"]);
    index
}

/// `code answers | additionals`, one string per question.
fn ask(name: &str, kind: RecordType) -> String {
    let zone = Zone::new("cluster.local").unwrap();
    match zone.answer(&example(), &Name::from_ascii(name).unwrap(), kind) {
        ZoneLookup::Elsewhere => "elsewhere".to_owned(),
        ZoneLookup::Answered(answer) => {
            let negative = answer
                .authorities
                .iter()
                .any(|record| record.record_type() == RecordType::SOA);
            assert_eq!(
                negative,
                answer.answers.is_empty(),
                "an empty answer comes with SOA"
            );
            let mut shown: Vec<String> = answer
                .answers
                .iter()
                .map(|record| record.data.to_string())
                .collect();
            shown.extend(
                answer
                    .additionals
                    .iter()
                    .map(|record| format!("+{} {}", record.name, record.data)),
            );
            if let Some(name) = answer.continue_at {
                shown.push(format!("→{name}"));
            }
            format!("{:?} {}", answer.code, shown.join(", "))
        }
    }
}

#[test]
fn services_have_addresses() {
    assert_eq!(
        ask("kubernetes.default.svc.cluster.local.", RecordType::A),
        "NoError 10.96.0.1"
    );
    assert_eq!(
        ask("WEB.Prod.svc.Cluster.Local.", RecordType::A),
        "NoError 10.96.5.5"
    );
    assert_eq!(
        ask("web.prod.svc.cluster.local.", RecordType::AAAA),
        "NoError "
    );
    assert_eq!(
        ask("web.prod.svc.cluster.local.", RecordType::MX),
        "NoError "
    );
    assert_eq!(
        ask("web.default.svc.cluster.local.", RecordType::A),
        "NXDomain "
    );
    assert_eq!(ask("web.prod.cluster.local.", RecordType::A), "NXDomain ");
    assert_eq!(
        ask("example.org.default.svc.cluster.local.", RecordType::A),
        "NXDomain "
    );
}

#[test]
fn headless_services_have_their_endpoints() {
    assert_eq!(
        ask("db.prod.svc.cluster.local.", RecordType::A),
        "NoError 10.244.0.8, 10.244.0.7"
    );
    assert_eq!(
        ask("db-0.db.prod.svc.cluster.local.", RecordType::A),
        "NoError 10.244.0.7"
    );
    assert_eq!(
        ask("10-244-0-8.db.prod.svc.cluster.local.", RecordType::A),
        "NoError 10.244.0.8"
    );
    assert_eq!(
        ask("10-244-0-9.db.prod.svc.cluster.local.", RecordType::A),
        "NXDomain "
    );
    assert_eq!(
        ask("db-0.web.prod.svc.cluster.local.", RecordType::A),
        "NXDomain "
    );
}

#[test]
fn ports_have_names() {
    assert_eq!(
        ask("_http._tcp.web.prod.svc.cluster.local.", RecordType::SRV),
        "NoError 0 100 80 web.prod.svc.cluster.local., +web.prod.svc.cluster.local. 10.96.5.5"
    );
    assert_eq!(
        ask("_http._udp.web.prod.svc.cluster.local.", RecordType::SRV),
        "NXDomain "
    );
    assert_eq!(
        ask("_http._tcp.web.prod.svc.cluster.local.", RecordType::A),
        "NoError "
    );
    assert_eq!(
        ask("_http._tcp.db.prod.svc.cluster.local.", RecordType::SRV),
        "NoError 0 50 8080 10-244-0-8.db.prod.svc.cluster.local., 0 50 8080 db-0.db.prod.svc.cluster.local., \
         +10-244-0-8.db.prod.svc.cluster.local. 10.244.0.8, +db-0.db.prod.svc.cluster.local. 10.244.0.7"
    );
}

#[test]
fn aliases_are_followed_inside_and_handed_on_outside() {
    assert_eq!(
        ask("alias.prod.svc.cluster.local.", RecordType::A),
        "NoError web.prod.svc.cluster.local., 10.96.5.5"
    );
    assert_eq!(
        ask("out.prod.svc.cluster.local.", RecordType::A),
        "NoError example.org., →example.org."
    );
    assert_eq!(
        ask("out.prod.svc.cluster.local.", RecordType::CNAME),
        "NoError example.org."
    );
    assert_eq!(
        ask("lost.prod.svc.cluster.local.", RecordType::A),
        "NoError none.prod.svc.cluster.local."
    );
}

#[test]
fn addresses_have_names() {
    assert_eq!(
        ask("5.5.96.10.in-addr.arpa.", RecordType::PTR),
        "NoError web.prod.svc.cluster.local."
    );
    assert_eq!(
        ask("7.0.244.10.in-addr.arpa.", RecordType::PTR),
        "NoError db-0.db.prod.svc.cluster.local."
    );
    assert_eq!(
        ask("9.0.244.10.in-addr.arpa.", RecordType::PTR),
        "elsewhere"
    );
    assert_eq!(ask("1.1.1.1.in-addr.arpa.", RecordType::PTR), "elsewhere");
}

#[test]
fn pods_and_the_rest_of_the_tree() {
    assert_eq!(
        ask("10-244-0-7.prod.pod.cluster.local.", RecordType::A),
        "NoError 10.244.0.7"
    );
    assert_eq!(
        ask("ten.prod.pod.cluster.local.", RecordType::A),
        "NXDomain "
    );
    for empty in [
        "svc.cluster.local.",
        "prod.svc.cluster.local.",
        "cluster.local.",
    ] {
        assert_eq!(ask(empty, RecordType::A), "NoError ", "{empty}");
    }
    assert_eq!(
        ask("nowhere.svc.cluster.local.", RecordType::A),
        "NXDomain "
    );
    assert!(ask("dns-version.cluster.local.", RecordType::TXT).contains("1.1.0"));
    assert_eq!(ask("example.org.", RecordType::A), "elsewhere");
    assert_eq!(ask("notcluster.local.", RecordType::A), "elsewhere");
}

#[test]
fn a_deleted_service_is_forgotten() {
    let mut index = example();
    let object = json!({"metadata": {"namespace": "prod", "name": "web"}});
    index.note_service(Change::Deleted(Arc::new(
        serde_json::from_value(object).unwrap(),
    )));
    assert_eq!(index.target("prod", "web"), None);
    assert!(index.names_of(Ipv4Addr::new(10, 96, 5, 5)).is_empty());
}

#[test]
fn name_servers_are_read_like_the_c_library_does() {
    let text = "# comment\nsearch x\nnameserver 192.0.2.1\n nameserver\t2001:db8::1\nnameserver fe80::1%eth0\nnameserver 192.0.2.4\nnameserver bad";
    let servers: Vec<String> = name_servers(text)
        .iter()
        .map(SocketAddr::to_string)
        .collect();
    assert_eq!(
        servers,
        ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1]:53"]
    );
}

fn question(name: &str, kind: RecordType, payload: Option<u16>) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.id = 4711;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    if let Some(payload) = payload {
        let mut edns = Edns::new();
        edns.set_max_payload(payload);
        message.set_edns(edns);
    }
    message.to_vec().unwrap()
}

async fn over_udp(server: SocketAddr, bytes: &[u8]) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(bytes, server).await.unwrap();
    let mut buffer = vec![0; 65_535];
    let length = tokio::time::timeout(std::time::Duration::from_secs(60), socket.recv(&mut buffer))
        .await
        .unwrap();
    Message::from_vec(&buffer[..length.unwrap()]).unwrap()
}

async fn over_tcp(server: SocketAddr, bytes: &[u8]) -> Message {
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream
        .write_all(&[&(bytes.len() as u16).to_be_bytes(), bytes].concat())
        .await
        .unwrap();
    let length = stream.read_u16().await.unwrap();
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await.unwrap();
    Message::from_vec(&buffer).unwrap()
}

#[test]
fn the_server_speaks_udp_and_tcp_and_asks_others() {
    in_fresh_namespace(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let resolv_conf = directory.path().join("resolv.conf");
            // The first of these is ourselves and must be skipped.
            std::fs::write(&resolv_conf, "nameserver 127.0.0.1\nnameserver 127.0.0.2\n").unwrap();
            let upstream = UdpSocket::bind("127.0.0.2:53").await.unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 512];
                while let Ok((length, client)) = upstream.recv_from(&mut buffer).await {
                    let mut message = Message::from_vec(&buffer[..length])
                        .unwrap()
                        .into_response();
                    let name = message.queries[0].name().clone();
                    assert!(
                        !name.to_ascii().ends_with("cluster.local."),
                        "never asked for {name}"
                    );
                    if name.to_ascii().starts_with("silent") {
                        continue;
                    }
                    message.add_answer(Record::from_rdata(
                        name,
                        60,
                        RData::A(A::new(192, 0, 2, 80)),
                    ));
                    let bytes = message.to_vec().unwrap();
                    // Someone guessing comes first.
                    let _ = upstream
                        .send_to(&[&[bytes[0] ^ 1], &bytes[1..]].concat(), client)
                        .await;
                    let _ = upstream.send_to(&bytes, client).await;
                }
            });
            let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
            let address = server.address();
            let mut index = example();
            let crowd: Vec<Value> = (0..2000)
                .map(|number: u32| {
                    let address = Ipv4Addr::from(0x0af5_0000 + number);
                    json!({"addresses": [address.to_string()]})
                })
                .collect();
            service(&mut index, "prod", "crowd", json!({"clusterIP": "None"}));
            endpoints(&mut index, "prod", "crowd", json!(crowd));
            let many: Vec<Value> = (1..=100)
                .map(|last| json!({"addresses": [format!("10.244.1.{last}")]}))
                .collect();
            service(&mut index, "prod", "many", json!({"clusterIP": "None"}));
            endpoints(&mut index, "prod", "many", json!(many));
            let zone = Zone::new("cluster.local").unwrap();
            let forwarder = Forwarder::new(resolv_conf, vec![address.ip()], Environment::system());
            let shutdown = CancellationToken::new();
            let serving = tokio::spawn(server.serve(
                zone,
                Arc::new(RwLock::new(index)),
                forwarder,
                shutdown.clone(),
            ));

            let web = question("web.prod.svc.cluster.local.", RecordType::A, None);
            for answer in [over_udp(address, &web).await, over_tcp(address, &web).await] {
                assert_eq!(
                    (answer.metadata.id, answer.metadata.authoritative),
                    (4711, true)
                );
                assert_eq!(answer.answers[0].data, RData::A(A::new(10, 96, 5, 5)));
                assert_eq!(answer.answers[0].ttl, 30);
            }
            let many = "many.prod.svc.cluster.local.";
            let small = over_udp(address, &question(many, RecordType::A, None)).await;
            assert!(small.metadata.truncation && small.answers.is_empty());
            let large = over_udp(address, &question(many, RecordType::A, Some(4096))).await;
            assert_eq!(
                (large.metadata.truncation, large.answers.len()),
                (false, 100)
            );
            assert_eq!(
                over_tcp(address, &question(many, RecordType::A, None))
                    .await
                    .answers
                    .len(),
                100
            );

            // Regardless of the size that the client accepts and of the size of the Service.
            let crowd = "crowd.prod.svc.cluster.local.";
            let huge = over_udp(address, &question(crowd, RecordType::A, Some(65_000))).await;
            assert!(huge.metadata.truncation && huge.answers.is_empty());
            let huge = over_tcp(address, &question(crowd, RecordType::A, None)).await;
            assert_eq!(
                (huge.metadata.truncation, huge.answers.len()),
                (false, 1000)
            );

            // The other one is waited for for a moment only, which a busy machine may take from it.
            let patiently = async |name: &str, records: usize| {
                let asked = question(name, RecordType::A, None);
                let mut answer = over_udp(address, &asked).await;
                for _ in 0..30 {
                    if answer.answers.len() >= records {
                        break;
                    }
                    answer = over_udp(address, &asked).await;
                }
                answer
            };
            let outside = patiently("example.org.", 1).await;
            assert_eq!(outside.metadata.id, 4711);
            assert_eq!(outside.answers[0].data, RData::A(A::new(192, 0, 2, 80)));
            let alias = patiently("out.prod.svc.cluster.local.", 2).await;
            assert_eq!(alias.answers.len(), 2);
            let silent = over_udp(address, &question("silent.example.", RecordType::A, None)).await;
            assert_eq!(silent.metadata.response_code, ResponseCode::ServFail);
            let refused = over_tcp(address, &question("example.org.", RecordType::A, None)).await;
            assert_eq!(
                refused.metadata.response_code,
                ResponseCode::ServFail,
                "nobody listens there on TCP"
            );

            let mut garbage = web.clone();
            garbage.truncate(20);
            assert_eq!(
                over_udp(address, &garbage).await.metadata.response_code,
                ResponseCode::FormErr
            );
            shutdown.cancel();
            serving.await.unwrap().unwrap();
        });
    });
}

#[test]
fn the_work_for_one_service_does_not_grow_with_the_others() {
    let counts = [100, 1_000, 10_000].map(|size| {
        let mut index = NamesIndex::default();
        for number in 0..size {
            let name = format!("service-{number}");
            let spec = json!({"clusterIP": "None", "ports": [{"name": "http", "port": 80}]});
            service(&mut index, "default", &name, spec);
            let address = format!("10.244.{}.{}", number / 250, 1 + number % 250);
            endpoints(
                &mut index,
                "default",
                &name,
                json!([{"addresses": [address]}]),
            );
        }
        let before = environment::work::visited();
        let list = json!([{"addresses": ["10.245.0.1"]}, {"addresses": ["10.245.0.2"]}]);
        endpoints(&mut index, "default", "service-7", list);
        environment::work::visited() - before
    });
    assert!(counts[0] > 0);
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}
