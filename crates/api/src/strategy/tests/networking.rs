//! Ingresses, policies, address ranges.

use super::{made, strategy, texts};
use crate::document;
use crate::document::Value;

const GROUP: &str = "networking.k8s.io";

fn check(kind: &str, object: Value, expected: &[&str]) {
    let (_, errors) = made(GROUP, kind, object.clone());
    assert_eq!(errors, expected, "{object}");
}

#[test]
fn invalid_ingresses_are_rejected() {
    check(
        "Ingress",
        document!({"spec": {}}),
        &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
    );
    let path = |path: &str, kind: &str| {
        document!({"spec": {"rules": [{"host": "*.example.com", "http": {"paths": [{
            "path": path, "pathType": kind,
            "backend": {"service": {"name": "web", "port": {"number": 80}}},
        }]}}]}})
    };
    check("Ingress", path("/", "Prefix"), &[]);
    check(
        "Ingress",
        path("a//b", "Exact"),
        &[
            r#"spec.rules[0].http.paths[0].path: Invalid value: "a//b": must be an absolute path"#,
            r#"spec.rules[0].http.paths[0].path: Invalid value: "a//b": must not contain '//'"#,
        ],
    );
    check(
        "Ingress",
        path("/", "Odd"),
        &[
            r#"spec.rules[0].http.paths[0].pathType: Unsupported value: "Odd": supported values: "Exact", "ImplementationSpecific", "Prefix""#,
        ],
    );
    check(
        "Ingress",
        document!({"spec": {"defaultBackend": {"service": {"name": "web", "port": {}}}}}),
        &["spec.defaultBackend: Required value: port name or number is required"],
    );
    let (class, errors) = made(
        GROUP,
        "IngressClass",
        document!({"spec": {"controller": "none", "parameters": {"kind": "K", "name": "n"}}}),
    );
    assert_eq!(class.str_at(&["spec", "parameters", "scope"]), "Cluster");
    assert_eq!(
        errors,
        [
            r#"spec.controller: Invalid value: "none": must be a domain-prefixed path (such as "acme.io/foo")"#
        ]
    );
}

#[test]
fn invalid_network_policies_are_rejected() {
    let (object, errors) = made(
        GROUP,
        "NetworkPolicy",
        document!({"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 80}]}]}}),
    );
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(
        object.at(&["spec", "policyTypes"]),
        Some(&document!(["Ingress", "Egress"]))
    );
    check(
        "NetworkPolicy",
        document!({"spec": {"podSelector": {}, "ingress": [{
            "from": [{}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}],
            "ports": [{"port": 90, "endPort": 80}],
        }]}}),
        &[
            "spec.ingress[0].ports[0].endPort: Invalid value: 90: must be greater than or equal to `port`",
            "spec.ingress[0].from[0]: Required value: must specify a peer",
            r#"spec.ingress[0].from[1].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`"#,
        ],
    );
}

#[test]
fn invalid_service_cidrs_and_ip_addresses_are_rejected() {
    check(
        "ServiceCIDR",
        document!({"spec": {"cidrs": ["10.0.0.0/8", "11.0.0.0/8"]}}),
        &[
            r#"spec.cidrs: Invalid value: ["10.0.0.0/8","11.0.0.0/8"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"#,
        ],
    );
    let addresses = strategy(GROUP, "IPAddress");
    let named = |name: &str| {
        let object = document!({"metadata": {"name": name}, "spec": {"parentRef": {
            "resource": "services", "name": "web", "namespace": "default",
        }}});
        texts(addresses.validate_create(&object))
    };
    assert!(named("10.0.0.1").is_empty());
    assert_eq!(
        named("10.0.0.01"),
        [r#"metadata.name: Invalid value: "10.0.0.01": must not have leading 0s"#]
    );
}
