//! The service table in the real kernel: real packets between namespaces, and `nft` as an oracle.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex};

use super::plan::{TCP, UDP};
use super::*;
use crate::node;
use crate::testing::{
    CLUSTER, Host, Pod, ask_again, ask_tcp, ask_udp, in_fresh_namespace, ruleset, run,
};

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 1, 1);
/// The node's primary address.
const NODE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Another address of the node.
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);

/// A node with two addresses.
fn host() -> Host {
    for address in [NODE, OTHER] {
        run(&[
            "ip",
            "address",
            "add",
            &format!("{address}/32"),
            "dev",
            "lo",
        ]);
    }
    Host::new()
}

fn ranges(host: &Host) -> Ranges {
    Ranges {
        cluster_id: CLUSTER.to_owned(),
        services: host.network.service_cidr,
        pods: host.network.pod_cidr,
        gateway: host.network.gateway,
        node_addresses: vec![NODE],
    }
}

fn at(address: Ipv4Addr, port: u16) -> [Frontend; 2] {
    [TCP, UDP].map(|protocol| Frontend::Address {
        address,
        protocol,
        port,
    })
}

fn behind(pods: &[&Pod], affinity_seconds: Option<u32>) -> Backends {
    let mut endpoints: Vec<Endpoint> = pods
        .iter()
        .map(|pod| Endpoint {
            address: pod.address,
            port: 8080,
        })
        .collect();
    endpoints.sort();
    Backends {
        endpoints,
        affinity_seconds,
    }
}

/// The kernel's state and our mirror of it.
struct Table {
    ranges: Ranges,
    connection: Connection,
    installed: Installed,
}

impl Table {
    fn new(ranges: Ranges, desired: &BTreeMap<Frontend, Backends>) -> Table {
        let mut connection = Connection::netfilter().unwrap();
        let (batch, installed) = full(desired, &ranges);
        batch.commit(&mut connection).unwrap();
        Table {
            ranges,
            connection,
            installed,
        }
    }

    fn become_like(&mut self, desired: &BTreeMap<Frontend, Backends>) {
        diff(desired, &mut self.installed, &self.ranges)
            .commit(&mut self.connection)
            .unwrap();
    }
}

fn served_by(pods: &[&Pod]) -> BTreeMap<Frontend, Backends> {
    at(SERVICE, 80)
        .into_iter()
        .map(|frontend| (frontend, behind(pods, None)))
        .collect()
}

#[test]
fn a_service_address_leads_to_its_endpoints() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let (a, b, client) = (host.pod("a"), host.pod("b"), host.pod("client"));
        a.serve(8080);
        b.serve(8080);
        let mut table = Table::new(ranges(&host), &served_by(&[&a]));

        // From a pod (its address is kept), from the node, and from the endpoint itself.
        let asked = client.namespace.run(|| ask_tcp(SERVICE, 80).unwrap());
        assert_eq!(asked, format!("a {}", client.address));
        assert_eq!(
            client.namespace.run(|| ask_udp(SERVICE, 80).unwrap()),
            format!("a {}", client.address)
        );
        assert_eq!(
            ask_tcp(SERVICE, 80).unwrap(),
            format!("a {}", host.network.gateway)
        );
        assert_eq!(
            ask_udp(SERVICE, 80).unwrap(),
            format!("a {}", host.network.gateway)
        );
        assert_eq!(
            a.namespace.run(|| ask_tcp(SERVICE, 80).unwrap()),
            format!("a {}", host.network.gateway)
        );

        // Two endpoints share the load; then one leaves.
        table.become_like(&served_by(&[&a, &b]));
        let answers: Vec<String> = (0..40).map(|_| ask_tcp(SERVICE, 80).unwrap()).collect();
        assert!(answers.iter().any(|answer| answer.starts_with("a ")));
        assert!(answers.iter().any(|answer| answer.starts_with("b ")));
        table.become_like(&served_by(&[&b]));
        assert!((0..10).all(|_| ask_tcp(SERVICE, 80).unwrap().starts_with("b ")));

        // No endpoint left, an unknown port, an unknown address: refused at once, not timed out.
        table.become_like(&served_by(&[]));
        for (address, port) in [
            (SERVICE, 80),
            (SERVICE, 81),
            (Ipv4Addr::new(10, 96, 200, 1), 80),
        ] {
            for refused in [
                client.namespace.run(|| ask_tcp(address, port)),
                ask_tcp(address, port),
            ] {
                assert_eq!(
                    refused.unwrap_err().kind(),
                    std::io::ErrorKind::ConnectionRefused
                );
            }
            let refused = client.namespace.run(|| ask_udp(address, port)).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
fn without_rules_nothing_leaves_the_machine() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let pod = host.pod("a");
        // A way out that must not be taken.
        run(&[
            "ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1",
        ]);
        run(&["ip", "link", "set", "up1", "up"]);
        run(&["ip", "address", "add", "192.0.2.1/24", "dev", "up0"]);
        run(&["ip", "link", "set", "up0", "up"]);
        run(&["ip", "route", "add", "default", "via", "192.0.2.2"]);
        let before = sent("up0");
        let route = run(&["ip", "route", "get", "10.96.3.3"]);
        assert!(route.contains("dev c7e57ed-gw"), "{route}");
        let _ = pod.namespace.run(|| {
            UdpSocket::bind("0.0.0.0:0")
                .unwrap()
                .send_to(b"x", "10.96.3.3:9")
        });
        let _ = UdpSocket::bind("0.0.0.0:0")
            .unwrap()
            .send_to(b"x", "10.96.3.3:9");
        run(&["ip", "link", "delete", "c7e57ed-gw"]);
        let route = std::process::Command::new("ip")
            .args(["route", "get", "10.96.3.3"])
            .output()
            .unwrap();
        assert!(!route.status.success(), "unreachable once the link is gone");
        assert_eq!(sent("up0"), before);
    });
}

/// A packet sent that way would first have asked for its neighbour.
fn sent(link: &str) -> usize {
    run(&["ip", "neighbour", "show", "dev", link])
        .lines()
        .count()
}

#[test]
fn clients_with_affinity_stay_while_their_endpoint_does() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let pods: Vec<Pod> = (0..4).map(|index| host.pod(&format!("p{index}"))).collect();
        pods.iter().for_each(|pod| pod.serve(8080));
        let client = host.pod("client");
        let desired = |pods: &[&Pod]| -> BTreeMap<Frontend, Backends> {
            at(SERVICE, 80)
                .into_iter()
                .map(|frontend| (frontend, behind(pods, Some(600))))
                .collect()
        };
        let all: Vec<&Pod> = pods.iter().collect();
        let mut table = Table::new(ranges(&host), &desired(&all));
        let ask = || client.namespace.run(|| ask_tcp(SERVICE, 80).unwrap());
        let first = ask();
        assert!((0..20).all(|_| ask() == first));
        let survivors: Vec<&Pod> = all
            .iter()
            .filter(|pod| !first.starts_with(&pod.name))
            .copied()
            .collect();
        table.become_like(&desired(&survivors));
        let second = ask();
        assert_ne!(first, second);
        assert!((0..20).all(|_| ask() == second));
        // The one that left comes back; the client stays where it is now.
        table.become_like(&desired(&all));
        assert!((0..20).all(|_| ask() == second));
    });
}

#[test]
fn a_udp_client_is_moved_off_a_lost_endpoint() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let (a, b, client) = (host.pod("a"), host.pod("b"), host.pod("client"));
        a.serve(8080);
        b.serve(8080);
        let mut table = Table::new(ranges(&host), &served_by(&[&a]));
        client.namespace.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((SERVICE, 80)).unwrap();
            let ask = || ask_again(&socket).unwrap();
            assert!(ask().starts_with("a "));
            table.become_like(&served_by(&[&b]));
            assert!(ask().starts_with("a "), "the kernel remembers the flow");
            let stale = table.installed.take_stale();
            assert_eq!(
                forget_flows(&mut table.connection, &stale, &[NODE]).unwrap(),
                1
            );
            // An answer to what was asked twice may still lie there.
            assert!((0..100).any(|_| ask().starts_with("b ")));
            assert_eq!(
                forget_flows(&mut table.connection, &stale, &[NODE]).unwrap(),
                0
            );
            table.become_like(&served_by(&[&a, &b]));
            assert!(table.installed.take_stale().is_empty(), "nobody was lost");
        });
    });
}

#[test]
fn node_ports_answer_on_the_nodes_primary_address_only() {
    in_fresh_namespace(|| {
        let host = host();
        let (a, client) = (host.pod("a"), host.pod("client"));
        a.serve(8080);
        let node_port = Frontend::NodePort {
            protocol: TCP,
            port: 30080,
        };
        let mut table = Table::new(ranges(&host), &[(node_port, behind(&[&a], None))].into());
        assert_eq!(
            client.namespace.run(|| ask_tcp(NODE, 30080).unwrap()),
            format!("a {}", client.address)
        );
        assert!(ask_tcp(NODE, 30080).unwrap().starts_with("a "));
        for elsewhere in [OTHER, host.network.gateway, a.address] {
            let asked = client.namespace.run(|| ask_tcp(elsewhere, 30080));
            assert!(asked.is_err(), "{elsewhere}: {asked:?}");
            assert!(ask_tcp(elsewhere, 30080).is_err(), "{elsewhere}");
        }
        assert!(ask_tcp(Ipv4Addr::LOCALHOST, 30080).is_err());

        // Without endpoints the port is refused, also where a process of the node listens on it.
        let own = std::net::TcpListener::bind((NODE, 30080)).unwrap();
        table.become_like(&[(node_port, behind(&[], None))].into());
        let refused = client.namespace.run(|| ask_tcp(NODE, 30080)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        drop(own);
        table.become_like(&BTreeMap::new());
        assert!(ask_tcp(NODE, 30080).is_err());
        assert_eq!(table.installed, Installed::default());
    });
}

#[test]
fn an_external_ip_that_names_the_node_does_not_take_its_node_ports() {
    in_fresh_namespace(|| {
        let host = host();
        let (a, thief, client) = (host.pod("a"), host.pod("thief"), host.pod("client"));
        a.serve(8080);
        thief.serve(8080);
        let node_port = Frontend::NodePort {
            protocol: TCP,
            port: 30080,
        };
        let external = |port| Frontend::Address {
            address: NODE,
            protocol: TCP,
            port,
        };
        let desired = [
            (node_port, behind(&[&a], None)),
            (external(30080), behind(&[&thief], None)),
            (external(30081), behind(&[&thief], None)),
        ];
        let _table = Table::new(ranges(&host), &desired.into());
        let ask = |port| client.namespace.run(|| ask_tcp(NODE, port).unwrap());
        assert!((0..10).all(|_| ask(30080).starts_with("a ")));
        assert!(ask(30081).starts_with("thief "), "other ports are free");
    });
}

/// The client keeps its source port, as DNS servers and games do.
#[test]
fn a_udp_client_that_asked_too_early_is_answered_once_there_is_an_endpoint() {
    in_fresh_namespace(|| {
        let host = host();
        let (a, client) = (host.pod("a"), host.pod("client"));
        a.serve(8080);
        let frontends = [
            (
                NODE,
                30053,
                Frontend::NodePort {
                    protocol: UDP,
                    port: 30053,
                },
            ),
            (
                OTHER,
                53,
                Frontend::Address {
                    address: OTHER,
                    protocol: UDP,
                    port: 53,
                },
            ),
            (
                SERVICE,
                53,
                Frontend::Address {
                    address: SERVICE,
                    protocol: UDP,
                    port: 53,
                },
            ),
        ];
        let mut table = Table::new(ranges(&host), &BTreeMap::new());
        let sockets: Vec<UdpSocket> = client.namespace.run(|| {
            let bind = |(address, port, _): &(Ipv4Addr, u16, Frontend)| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.connect((*address, *port)).unwrap();
                // Nobody answers; the kernel remembers that the node itself was asked.
                socket.send(b"?").unwrap();
                socket
                    .set_read_timeout(Some(crate::testing::PATIENCE))
                    .unwrap();
                let refused = socket.recv(&mut [0; 8]).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
                socket
            };
            frontends.iter().map(bind).collect()
        });
        table.become_like(
            &frontends
                .map(|(_, _, frontend)| (frontend, behind(&[&a], None)))
                .into(),
        );
        let stale = table.installed.take_stale();
        assert_eq!(stale.len(), 3);
        assert_eq!(
            forget_flows(&mut table.connection, &stale, &[NODE]).unwrap(),
            2,
            "what was asked of the ClusterIP was refused and not remembered"
        );
        for socket in sockets {
            assert!(ask_again(&socket).unwrap().starts_with("a "));
        }
        // Flows that are in order stay, and so do those to the same port of other addresses.
        let bystander = UdpSocket::bind("0.0.0.0:0").unwrap();
        let _ = bystander.send_to(b"?", (host.network.gateway, 30053));
        assert_eq!(
            forget_flows(&mut table.connection, &stale, &[NODE]).unwrap(),
            0
        );
        // The endpoint goes: what it was sent is forgotten on every kind of frontend.
        table.become_like(&BTreeMap::new());
        let stale = table.installed.take_stale();
        assert_eq!(
            forget_flows(&mut table.connection, &stale, &[NODE]).unwrap(),
            3
        );
    });
}

#[test]
fn traffic_passing_through_comes_back_through_us() {
    in_fresh_namespace(|| {
        // An endpoint outside, a client outside: both on links of the node.
        let host = host();
        let (server, client) = (host.pod("server"), host.pod("client"));
        server.serve(8080);
        let narrow = Ranges {
            pods: "10.244.0.128/25".parse().unwrap(),
            ..ranges(&host)
        };
        let node_port = Frontend::NodePort {
            protocol: TCP,
            port: 30080,
        };
        let mut desired = served_by(&[&server]);
        desired.insert(node_port, behind(&[&server], None));
        desired.extend(at(OTHER, 80).map(|frontend| (frontend, behind(&[&server], None))));
        let _table = Table::new(narrow, &desired);
        for (address, port) in [(SERVICE, 80), (NODE, 30080), (OTHER, 80)] {
            let answer = client.namespace.run(|| ask_tcp(address, port).unwrap());
            assert!(
                !answer.contains(&client.address.to_string()),
                "{address} is masqueraded: {answer}"
            );
        }
    });
}

/// In every order of changes, writing only differences ends where writing everything ends.
#[test]
fn differences_add_up_to_the_whole() {
    let mut seed: u64 = 0x5eed;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut history = Vec::new();
    let mut state: BTreeMap<Frontend, Backends> = BTreeMap::new();
    for _ in 0..60 {
        for _ in 0..=random(3) {
            let port = 80 + random(3) as u16;
            let frontend = match random(4) {
                0 => Frontend::NodePort {
                    protocol: TCP,
                    port: 30_000 + port,
                },
                1 => Frontend::Address {
                    address: Ipv4Addr::new(192, 0, 2, 1),
                    protocol: UDP,
                    port,
                },
                _ => Frontend::Address {
                    address: Ipv4Addr::new(10, 96, 0, random(3) as u8),
                    protocol: TCP,
                    port,
                },
            };
            if random(4) == 0 {
                state.remove(&frontend);
                continue;
            }
            let mut endpoints: Vec<Endpoint> = (0..random(5))
                .map(|_| Endpoint {
                    address: Ipv4Addr::new(10, 244, 0, 2 + random(6) as u8),
                    port: 8080,
                })
                .collect();
            endpoints.sort();
            endpoints.dedup();
            let affinity_seconds = (random(3) == 0).then_some(600);
            state.insert(
                frontend,
                Backends {
                    endpoints,
                    affinity_seconds,
                },
            );
        }
        history.push(state.clone());
    }
    in_fresh_namespace(move || {
        let host = Host::new();
        let mut table = Table::new(ranges(&host), &BTreeMap::new());
        for desired in history {
            table.become_like(&desired);
            let by_differences = sorted_listing();
            let (batch, mut installed) = full(&desired, &table.ranges);
            table.installed.take_stale();
            installed.take_stale();
            assert_eq!(installed, table.installed);
            batch.commit(&mut table.connection).unwrap();
            assert_eq!(by_differences, sorted_listing());
        }
    });
}

/// The table as `nft` prints it, without order among chains and among elements.
fn sorted_listing() -> Vec<String> {
    let listing = run(&["nft", "list", "table", "ip", "coracle-7e57ed"]);
    let mut words: Vec<String> = listing
        .replace("elements = {", "\n")
        .split(['\n', ','])
        .map(|line| line.trim().trim_end_matches('}').trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    words.sort();
    words
}

#[test]
fn a_refused_batch_names_its_operation_and_changes_nothing() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let mut table = Table::new(ranges(&host), &BTreeMap::new());
        let before = ruleset();
        let mut batch = Batch::new(Family::Ipv4, names::proxy_table(CLUSTER));
        batch.add_chain(&nft::Chain::regular("fresh"));
        batch.delete_elements("services", &[nft::Element::key(vec![0; 12])]);
        let error = batch.commit(&mut table.connection).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert!(
            error
                .to_string()
                .contains("delete elements of set services"),
            "{error}"
        );
        assert_eq!(ruleset(), before);
        let generation = nft::generation(&mut table.connection).unwrap();
        table.become_like(
            &at(SERVICE, 80)
                .map(|frontend| (frontend, Backends::default()))
                .into(),
        );
        assert_eq!(
            nft::generation(&mut table.connection).unwrap(),
            generation,
            "an empty batch is not sent"
        );
    });
}

#[derive(Default)]
struct Spans(Mutex<Vec<(String, Span)>>);

impl trace::Sink for Spans {
    fn record(&self, uid: &str, span: Span) {
        self.0.lock().unwrap().push((uid.to_owned(), span));
    }
}

#[test]
fn changes_of_objects_become_rules_and_spans() {
    use super::tests::{from, service, slice};
    use serde_json::json;
    in_fresh_namespace(|| {
        let host = Host::new();
        let (a, client) = (host.pod("a"), host.pod("client"));
        a.serve(8080);
        let resolver = UdpSocket::bind((host.network.gateway, 0)).unwrap();
        let dns = DnsRedirect {
            service_ip: host.network.dns_ip,
            to: resolver.local_addr().unwrap(),
        };
        let spans = Arc::new(Spans::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut proxy = Proxy::with_ranges(
                ranges(&host),
                "n".to_owned(),
                Some(&dns),
                Environment::system(),
                Recorder::new(spans.clone()),
            )
            .unwrap();
            proxy.reconcile().await.unwrap();
            let web = service(json!({"clusterIP": SERVICE, "ports": [{"port": 80, "targetPort": 8080}]}));
            proxy.note_service(Change::Added(Arc::new(web)));
            proxy.reconcile().await.unwrap();
            assert!(client.namespace.run(|| ask_tcp(SERVICE, 80)).is_err());

            let address = a.address.to_string();
            let ready = slice("web-1", json!([{"port": 8080}]), &[(&address, "n", true, true, false)]);
            proxy.note_slice(Change::Added(Arc::new(ready)));
            proxy.reconcile().await.unwrap();
            assert_eq!(client.namespace.run(|| ask_tcp(SERVICE, 80).unwrap()), format!("a {}", client.address));
            {
                let spans = spans.0.lock().unwrap();
                let (uid, span) = &spans[0];
                assert_eq!((spans.len(), uid.as_str()), (1, format!("uid-{address}").as_str()));
                assert_eq!((span.hop, span.name.as_str()), (Hop::After, "service rule live"));
            }

            // The DNS service has no endpoints, yet its port answers.
            let kube_dns = from(json!({"metadata": {"namespace": "kube-system", "name": "kube-dns"},
                "spec": {"clusterIP": host.network.dns_ip, "ports": [{"port": 53, "protocol": "UDP"}]}}));
            proxy.note_service(Change::Added(Arc::new(kube_dns)));
            proxy.reconcile().await.unwrap();
            let asking = std::thread::spawn({
                let service_ip = dns.service_ip;
                move || client.namespace.run(|| ask_udp(service_ip, 53).unwrap())
            });
            let mut buffer = [0; 8];
            let (_, from) = resolver.recv_from(&mut buffer).unwrap();
            resolver.send_to(b"here", from).unwrap();
            assert_eq!(asking.join().unwrap(), "here");

            // A wall is raised after we started; the next check makes a door.
            run(&["nft", "add table ip wall; add chain ip wall pass { type filter hook forward priority 0; policy drop; }"]);
            proxy.check_table().await.unwrap();
            assert_eq!(ruleset().matches("comment \"coracle-7e57ed\"").count(), 2);
            run(&["nft", "delete", "table", "ip", "wall"]);

            // Someone removes the table; the next check writes it again.
            run(&["nft", "delete", "table", "ip", "coracle-7e57ed"]);
            proxy.check_table().await.unwrap();
            proxy.reconcile().await.unwrap();
            assert!(ask_tcp(SERVICE, 80).unwrap().starts_with("a "));
        });
        node::remove_all(CLUSTER).unwrap();
        assert_eq!(ruleset(), "");
    });
}

/// What one change sends to the kernel does not grow with the number of services.
#[test]
fn one_change_among_a_thousand_services_is_as_small_as_among_ten() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let frontend = |index: u32| Frontend::Address {
            address: Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 96, 0, 0)) + 20 + index),
            protocol: TCP,
            port: 80,
        };
        let backends = |index: u32, count: u32| Backends {
            endpoints: (0..count)
                .map(|slot| Endpoint {
                    address: Ipv4Addr::from(0x0af4_0002 + (index * 10 + slot) % 200),
                    port: 8080,
                })
                .collect(),
            affinity_seconds: None,
        };
        let cost_among = |services: u32| {
            let desired: BTreeMap<Frontend, Backends> = (0..services)
                .map(|index| (frontend(index), backends(index, 10)))
                .collect();
            let mut table = Table::new(ranges(&host), &desired);
            let mut batch = Batch::new(Family::Ipv4, names::proxy_table(CLUSTER));
            let change = [(frontend(3), Some(backends(3, 9)))];
            table.installed.follow(change, &table.ranges, &mut batch);
            let cost = (batch.len(), batch.bytes());
            batch.commit(&mut table.connection).unwrap();
            cost
        };
        // Among ten, the endpoint that goes was nobody else's: that is told as well.
        let (thousand, ten) = (cost_among(1000), cost_among(10));
        assert!(thousand <= ten, "{thousand:?} {ten:?}");
    });
}
