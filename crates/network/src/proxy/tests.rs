//! Plans and claims, without a kernel.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::plan::{SCTP, TCP, UDP};
use super::*;

pub fn service(spec: Value) -> Service {
    from(json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec}))
}

/// Endpoints as (address, node, ready, serving, terminating).
pub fn slice(
    name: &str,
    ports: Value,
    endpoints: &[(&str, &str, bool, bool, bool)],
) -> EndpointSlice {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(address, node, ready, serving, terminating)| {
            json!({
                "addresses": [address], "nodeName": node,
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
                "targetRef": {"kind": "Pod", "name": address, "uid": format!("uid-{address}")},
            })
        })
        .collect();
    from(json!({
        "metadata": {"namespace": "default", "name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    }))
}

pub fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn address(text: &str, protocol: u8, port: u16) -> Frontend {
    Frontend::Address {
        address: text.parse().unwrap(),
        protocol,
        port,
    }
}

fn endpoints(plan: &ServicePlan, frontend: &Frontend) -> Vec<String> {
    plan.frontends[frontend]
        .endpoints
        .iter()
        .map(|endpoint| format!("{}:{}", endpoint.address, endpoint.port))
        .collect()
}

const READY: (bool, bool, bool) = (true, true, false);

fn ready(
    address: &'static str,
    node: &'static str,
) -> (&'static str, &'static str, bool, bool, bool) {
    (address, node, READY.0, READY.1, READY.2)
}

#[test]
fn ports_are_matched_by_name_and_protocol() {
    let service = service(json!({"clusterIP": "10.96.1.1", "ports": [
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "peer", "port": 9, "protocol": "SCTP"},
    ]}));
    let slices = [slice(
        "a",
        json!([{"name": "http", "port": 8080}, {"name": "dns", "port": 5353, "protocol": "UDP"}, {"name": "http", "port": 1, "protocol": "UDP"}]),
        &[ready("10.244.0.3", "n"), ready("10.244.0.2", "n")],
    )];
    let plan = plan(&service, &slices, "n").unwrap();
    assert_eq!(
        endpoints(&plan, &address("10.96.1.1", TCP, 80)),
        ["10.244.0.2:8080", "10.244.0.3:8080"]
    );
    assert_eq!(
        endpoints(&plan, &address("10.96.1.1", UDP, 53)),
        ["10.244.0.2:5353", "10.244.0.3:5353"]
    );
    assert_eq!(endpoints(&plan, &address("10.96.1.1", SCTP, 9)), [""; 0]);
    assert_eq!(plan.pods.len(), 2);
}

#[test]
fn slices_add_up_and_repeat_nothing() {
    let service = service(json!({"clusterIP": "10.96.1.1", "ports": [{"port": 80}]}));
    let mut foreign = slice("c", json!([{"port": 8080}]), &[]);
    foreign.address_type = "IPv6".to_owned();
    let slices = [
        slice("a", json!([{"port": 8080}]), &[ready("10.244.0.2", "n")]),
        slice(
            "b",
            json!([{"port": 8080}]),
            &[ready("10.244.0.2", "n"), ready("10.244.0.9", "m")],
        ),
        foreign,
    ];
    let plan = plan(&service, &slices, "n").unwrap();
    assert_eq!(
        endpoints(&plan, &address("10.96.1.1", TCP, 80)),
        ["10.244.0.2:8080", "10.244.0.9:8080"]
    );
}

#[test]
fn terminating_endpoints_are_used_only_when_no_other_is_ready() {
    let service = service(json!({"clusterIP": "10.96.1.1", "ports": [{"port": 80}]}));
    let draining = ("10.244.0.5", "n", false, true, true);
    let stopped = ("10.244.0.6", "n", false, false, true);
    let starting = ("10.244.0.7", "n", false, true, false);
    let frontend = address("10.96.1.1", TCP, 80);
    let of = |list: &[_]| {
        let slices = [slice("a", json!([{"port": 80}]), list)];
        endpoints(&plan(&service, &slices, "n").unwrap(), &frontend)
    };
    assert_eq!(of(&[draining, stopped, starting]), ["10.244.0.5:80"]);
    assert_eq!(of(&[draining, ready("10.244.0.8", "n")]), ["10.244.0.8:80"]);
    assert_eq!(of(&[stopped, starting]), [""; 0]);
    let silent: EndpointSlice = from(
        json!({"metadata": {}, "addressType": "IPv4", "ports": [{"port": 80}],
        "endpoints": [{"addresses": ["10.244.0.4"]}]}),
    );
    assert_eq!(
        endpoints(&plan(&service, &[silent], "n").unwrap(), &frontend),
        ["10.244.0.4:80"]
    );
}

#[test]
fn local_policies_keep_to_the_node() {
    let slices = [slice(
        "a",
        json!([{"port": 80}]),
        &[ready("10.244.0.2", "here"), ready("10.244.1.2", "there")],
    )];
    let external = service(
        json!({"type": "NodePort", "clusterIP": "10.96.1.1", "externalTrafficPolicy": "Local",
        "externalIPs": ["192.0.2.1"], "ports": [{"port": 80, "nodePort": 30080}]}),
    );
    let planned = plan(&external, &slices, "here").unwrap();
    assert_eq!(endpoints(&planned, &address("10.96.1.1", TCP, 80)).len(), 2);
    assert_eq!(
        endpoints(&planned, &address("192.0.2.1", TCP, 80)),
        ["10.244.0.2:80"]
    );
    assert_eq!(
        endpoints(
            &planned,
            &Frontend::NodePort {
                protocol: TCP,
                port: 30080
            }
        ),
        ["10.244.0.2:80"]
    );
    let internal = service(
        json!({"clusterIP": "10.96.1.1", "internalTrafficPolicy": "Local", "ports": [{"port": 80}]}),
    );
    let planned = plan(&internal, &slices, "there").unwrap();
    assert_eq!(
        endpoints(&planned, &address("10.96.1.1", TCP, 80)),
        ["10.244.1.2:80"]
    );
    let planned = plan(&internal, &slices, "elsewhere").unwrap();
    assert_eq!(endpoints(&planned, &address("10.96.1.1", TCP, 80)), [""; 0]);
}

#[test]
fn services_without_an_address_ask_for_nothing() {
    let none: [EndpointSlice; 0] = [];
    for spec in [
        json!({"clusterIP": "None", "ports": [{"port": 80}]}),
        json!({"clusterIP": "", "ports": [{"port": 80}]}),
        json!({"type": "ExternalName", "externalName": "example.org", "clusterIP": "10.96.1.1"}),
        json!({"clusterIP": "fd00::1", "ports": [{"port": 80}]}),
    ] {
        assert_eq!(plan(&service(spec), &none, "n"), None);
    }
}

#[test]
fn affinity_is_read_with_its_default() {
    let none: [EndpointSlice; 0] = [];
    let spec =
        json!({"clusterIP": "10.96.1.1", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]});
    let planned = plan(&service(spec), &none, "n").unwrap();
    assert_eq!(
        planned.frontends.values().next().unwrap().affinity_seconds,
        Some(10_800)
    );
    let spec = json!({"clusterIP": "10.96.1.1", "sessionAffinity": "ClientIP", "ports": [{"port": 80}],
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}});
    let planned = plan(&service(spec), &none, "n").unwrap();
    assert_eq!(
        planned.frontends.values().next().unwrap().affinity_seconds,
        Some(5)
    );
}

#[test]
fn a_contested_address_goes_to_the_first_and_then_to_the_next() {
    let backends = |last: u8| Backends {
        endpoints: vec![Endpoint {
            address: [10, 244, 0, last].into(),
            port: 80,
        }],
        affinity_seconds: None,
    };
    let frontend = address("192.0.2.1", TCP, 80);
    let plan = |last: u8| {
        Some(ServicePlan {
            frontends: [(frontend, backends(last))].into(),
            ..ServicePlan::default()
        })
    };
    let (a, b) = (ObjectKey::new("ns", "a"), ObjectKey::new("ns", "b"));
    let mut ledger = Ledger::default();
    assert_eq!(ledger.update(&b, plan(2)).len(), 1);
    assert_eq!(ledger.backends(&frontend), Some(&backends(2)));
    assert_eq!(ledger.update(&a, plan(1)).len(), 1);
    assert_eq!(ledger.backends(&frontend), Some(&backends(1)));
    assert!(ledger.update(&a, plan(1)).is_empty(), "nothing changed");
    assert_eq!(ledger.update(&a, None).len(), 1);
    assert_eq!(ledger.backends(&frontend), Some(&backends(2)));
    ledger.update(&b, None);
    assert!(ledger.desired().is_empty());
}

/// Services as the API has them: name, when created, and the rest of the object.
fn claimants(services: &[(&str, &str, Value)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (name, created, rest) in services {
        let mut object = rest.clone();
        object["metadata"] =
            json!({"namespace": "default", "name": name, "creationTimestamp": created});
        let service: Service = from(object);
        let endpoint = format!("10.244.0.{}", name.len());
        let slices = [slice(
            "s",
            json!([{"port": 8080}]),
            &[ready(Box::leak(endpoint.into_boxed_str()), "n")],
        )];
        ledger.update(
            &ObjectKey::new("default", *name),
            plan(&service, &slices, "n"),
        );
    }
    ledger
}

/// Who answers at a frontend: the last byte of the endpoint is the length of the Service's name.
fn holder(ledger: &Ledger, frontend: &Frontend) -> Option<u8> {
    let endpoint = ledger.backends(frontend)?.endpoints.first()?;
    Some(endpoint.address.octets()[3])
}

#[test]
fn an_external_ip_never_takes_an_address_that_others_were_given() {
    let port = json!([{"port": 443}]);
    let victim = json!({"spec": {"clusterIP": "10.96.0.1", "ports": port}});
    let thief = json!({"spec": {"clusterIP": "10.96.0.9", "externalIPs": ["10.96.0.1"],
        "ports": [{"name": "", "port": 443}, {"name": "", "port": 444}]}});
    let (old, new) = ("2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z");
    // The thief is older, and the first by name.
    for services in [
        [
            ("kubernetes", new, victim.clone()),
            ("a", old, thief.clone()),
        ],
        [
            ("a", old, thief.clone()),
            ("kubernetes", new, victim.clone()),
        ],
    ] {
        let mut ledger = claimants(&services);
        assert_eq!(holder(&ledger, &address("10.96.0.1", TCP, 443)), Some(10));
        // Not even a port that the owner leaves unused.
        assert_eq!(holder(&ledger, &address("10.96.0.1", TCP, 444)), None);
        assert!(
            !ledger
                .desired()
                .contains_key(&address("10.96.0.1", TCP, 444))
        );
        assert_eq!(holder(&ledger, &address("10.96.0.9", TCP, 444)), Some(1));
        // When the owner goes, the address is free, and all of its ports are told to have changed.
        let touched = ledger.update(&ObjectKey::new("default", "kubernetes"), None);
        assert_eq!(touched.len(), 2, "{touched:?}");
        assert_eq!(holder(&ledger, &address("10.96.0.1", TCP, 444)), Some(1));
    }

    // The resolver's address is an owner's too.
    let mut ledger = claimants(&[(
        "a",
        old,
        json!({"spec": {"clusterIP": "10.96.0.9", "externalIPs": ["10.96.0.10"],
            "ports": [{"port": 53, "protocol": "TCP"}, {"port": 9153}]}}),
    )]);
    let redirect = DnsRedirect {
        service_ip: [10, 96, 0, 10].into(),
        to: "10.244.0.77:53".parse().unwrap(),
    };
    ledger.update(
        &ObjectKey::new("", "dns"),
        Some(dns_plan(&redirect).unwrap()),
    );
    assert_eq!(holder(&ledger, &address("10.96.0.10", TCP, 53)), Some(77));
    assert_eq!(holder(&ledger, &address("10.96.0.10", TCP, 9153)), None);
}

#[test]
fn of_two_services_the_stronger_right_wins_and_then_the_older_service() {
    let (old, new) = ("2020-01-01T00:00:00Z", "2024-01-01T00:00:00Z");
    let external = |cluster_ip: &str| json!({"spec": {"clusterIP": cluster_ip, "externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]}});
    let balanced = json!({"spec": {"clusterIP": "10.96.0.3", "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let at = address("192.0.2.1", TCP, 80);
    let contested = claimants(&[
        ("a", new, external("10.96.0.1")),
        ("bb", old, external("10.96.0.2")),
    ]);
    assert_eq!(holder(&contested, &at), Some(2), "the older one");
    let contested = claimants(&[
        ("a", old, external("10.96.0.1")),
        ("bb", old, external("10.96.0.2")),
    ]);
    assert_eq!(holder(&contested, &at), Some(1), "the first by name");
    let mut contested = claimants(&[("a", old, external("10.96.0.1")), ("ccc", new, balanced)]);
    assert_eq!(holder(&contested, &at), Some(3), "the load balancer's");
    // The same Service made anew is younger, and that is noticed though it asks for the same.
    contested.update(&ObjectKey::new("default", "ccc"), None);
    assert_eq!(holder(&contested, &at), Some(1));
}

#[test]
fn the_difference_of_equal_states_is_nothing() {
    let ranges = Ranges {
        cluster_id: "000000".to_owned(),
        services: "10.96.0.0/16".parse().unwrap(),
        pods: "10.244.0.0/24".parse().unwrap(),
        gateway: [10, 244, 0, 1].into(),
        node_addresses: vec![[192, 0, 2, 1].into()],
    };
    let one = Backends {
        endpoints: vec![Endpoint {
            address: [10, 244, 0, 2].into(),
            port: 80,
        }],
        affinity_seconds: None,
    };
    let desired: BTreeMap<_, _> = [(address("10.96.0.1", TCP, 80), one)].into();
    let (_, mut installed) = full(&desired, &ranges);
    let before = installed.clone();
    assert!(diff(&desired, &mut installed, &ranges).is_empty());
    assert_eq!(installed, before);
    assert!(!diff(&BTreeMap::new(), &mut installed, &ranges).is_empty());
    assert_eq!(installed, Installed::default());
}
