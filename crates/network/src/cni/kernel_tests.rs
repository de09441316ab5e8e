//! The plugin against the real kernel, in namespaces of the test's own.

use std::net::Ipv4Addr;

use serde_json::json;

use super::*;
use crate::node;
use crate::testing::{
    CLUSTER, Host, Namespace, ask_tcp, ask_udp, first_entry, in_fresh_namespace, ruleset, run,
};

#[test]
fn pods_reach_each_other_and_the_node() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let (a, b) = (host.pod("a"), host.pod("b"));
        a.serve(8080);
        b.serve(8080);
        assert_eq!(
            ask_tcp(a.address, 8080).unwrap(),
            format!("a {}", host.network.gateway)
        );
        assert_eq!(
            b.namespace.run(|| ask_tcp(a.address, 8080).unwrap()),
            format!("a {}", b.address)
        );
        assert_eq!(
            a.namespace.run(|| ask_udp(b.address, 8080).unwrap()),
            format!("b {}", a.address)
        );
        let shown = a.namespace.run(|| run(&["ip", "address", "show", "eth0"]));
        assert!(
            shown.contains("mtu 1400") && shown.contains(&format!("inet {}/32", a.address)),
            "{shown}"
        );
        for pod in [&a, &b] {
            host.call(
                "CHECK",
                &pod.name,
                &pod.namespace.path(),
                &host.configuration("1.0.0"),
            )
            .unwrap();
        }
    });
}

#[test]
fn a_deleted_pod_leaves_nothing() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let configuration = host.configuration("1.1.0");
        let pod = host.pod_with("a", &configuration);
        let path = pod.namespace.path();
        assert!(run(&["ip", "route"]).contains(&pod.address.to_string()));
        host.call("DEL", "a", &path, &configuration).unwrap();
        assert!(!run(&["ip", "route"]).contains(&pod.address.to_string()));
        assert!(first_entry(&host.state().join("addresses")).is_none());
        assert!(first_entry(&host.state().join("records")).is_none());
        host.call("DEL", "a", &path, &configuration).unwrap();
        host.call("DEL", "never", "/nonexistent", &configuration)
            .unwrap();
        assert!(matches!(
            host.call("CHECK", "a", &path, &configuration),
            Err(Error::Check(_))
        ));
    });
}

#[test]
fn an_interrupted_add_can_be_repeated() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let first = host.pod("a");
        let second = host.pod("a");
        assert_eq!(first.address, second.address);
        second.serve(80);
        assert!(ask_tcp(second.address, 80).unwrap().starts_with("a "));
    });
}

#[test]
fn garbage_collection_keeps_the_valid() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let mut configuration = host.configuration("1.1.0");
        let (a, _b) = (host.pod("a"), host.pod("b"));
        configuration["cni.dev/valid-attachments"] =
            json!([{"containerID": "a", "ifname": "eth0"}]);
        host.call("GC", "", "", &configuration).unwrap();
        host.call("CHECK", "a", &a.namespace.path(), &configuration)
            .unwrap();
        assert_eq!(
            std::fs::read_dir(host.state().join("addresses"))
                .unwrap()
                .count(),
            1
        );
        host.call("STATUS", "", "", &configuration).unwrap();
        node::remove_all(CLUSTER).unwrap();
        assert!(matches!(
            host.call("STATUS", "", "", &configuration),
            Err(Error::NotReady(_))
        ));
    });
}

#[test]
fn host_ports_lead_to_the_pod() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let mut configuration = host.configuration("1.0.0");
        configuration["runtimeConfig"] = json!({"portMappings": [
            {"hostPort": 9090, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 9090, "containerPort": 80, "protocol": "udp"},
            {"hostPort": 9191, "containerPort": 80, "protocol": "tcp", "hostIP": host.network.gateway},
        ]});
        let pod = host.pod_with("a", &configuration);
        pod.serve(80);
        let other = host.pod("b");
        let gateway = host.network.gateway;
        assert_eq!(
            other.namespace.run(|| ask_tcp(gateway, 9090).unwrap()),
            format!("a {}", other.address)
        );
        assert_eq!(
            other.namespace.run(|| ask_udp(gateway, 9090).unwrap()),
            format!("a {}", other.address)
        );
        assert_eq!(
            other.namespace.run(|| ask_tcp(gateway, 9191).unwrap()),
            format!("a {}", other.address)
        );
        assert_eq!(
            pod.namespace.run(|| ask_tcp(gateway, 9090).unwrap()),
            format!("a {gateway}"),
            "through itself"
        );
        assert!(ask_tcp(gateway, 9090).unwrap().starts_with("a "));
        assert_eq!(
            ask_tcp(Ipv4Addr::LOCALHOST, 9090).unwrap(),
            format!("a {gateway}")
        );
        assert!(ask_tcp(Ipv4Addr::LOCALHOST, 9191).is_err());

        let rival = Namespace::new();
        let refusal = host
            .call("ADD", "rival", &rival.path(), &configuration)
            .unwrap_err();
        assert!(
            matches!(&refusal, Error::HostPort { port: 9090, .. }),
            "{refusal}"
        );
        assert_eq!(
            std::fs::read_dir(host.state().join("records"))
                .unwrap()
                .count(),
            2
        );
        assert!(
            ask_tcp(gateway, 9090).unwrap().starts_with("a "),
            "the rival's failure took nothing away"
        );

        // Setting the node up again keeps what is open.
        node::setup(&host.network).unwrap();
        assert!(ask_tcp(gateway, 9090).unwrap().starts_with("a "));
        host.call("DEL", "a", "", &configuration).unwrap();
        assert!(ask_tcp(gateway, 9090).is_err());
        assert!(!ruleset().contains("9090"));
    });
}

#[test]
fn answers_have_the_form_of_their_version() {
    in_fresh_namespace(|| {
        let host = Host::new();
        for version in VERSIONS {
            let namespace = Namespace::new();
            let name = format!("v{version}");
            let result = host
                .call(
                    "ADD",
                    &name,
                    &namespace.path(),
                    &host.configuration(version),
                )
                .unwrap();
            let result: serde_json::Value = serde_json::from_str(&result).unwrap();
            assert_eq!(result["cniVersion"], version);
            assert_eq!(
                result["ips"][0]["version"].is_string(),
                version.starts_with("0."),
                "{result}"
            );
            assert_eq!(result["interfaces"][1]["name"], "eth0");
            assert_eq!(result["interfaces"][1]["sandbox"], namespace.path());
            assert_eq!(
                result["interfaces"][1]["mtu"].is_number(),
                version == "1.1.0"
            );
        }
        let old = host
            .call("ADD", "x", "/", &host.configuration("0.2.0"))
            .unwrap_err();
        assert_eq!(old.failure("0.2.0").code, 1);
        let unknown = host
            .call("EAT", "x", "/", &host.configuration("1.0.0"))
            .unwrap_err();
        assert_eq!(unknown.failure("1.0.0").code, 4);
        let version = host
            .call("VERSION", "", "", &host.configuration("1.0.0"))
            .unwrap();
        assert_eq!(
            version,
            r#"{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}"#
        );
        let gone = host
            .call("ADD", "x", "/nonexistent", &host.configuration("1.0.0"))
            .unwrap_err();
        assert_eq!(gone.failure("1.0.0").code, 100);
    });
}

/// What `write_configuration` writes, completed as a runtime does, is a request we can serve.
#[test]
fn the_written_configuration_works() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let (conf, bin) = (
            host.directory.path().join("net.d"),
            host.directory.path().join("bin"),
        );
        for _ in 0..2 {
            write_configuration(
                &conf,
                &bin,
                "/bin/true".as_ref(),
                &host.network,
                &host.state(),
            )
            .unwrap();
        }
        assert_eq!(
            std::fs::read_link(bin.join(PLUGIN)).unwrap(),
            std::path::Path::new("/bin/true")
        );
        assert_eq!(std::fs::read_dir(&conf).unwrap().count(), 1);
        let list = std::fs::read(first_entry(&conf).unwrap()).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
        let mut plugin = list["plugins"][0].clone();
        assert_eq!(
            (&plugin["type"], &plugin["capabilities"]),
            (&json!(PLUGIN), &json!({"portMappings": true}))
        );
        plugin["cniVersion"] = list["cniVersion"].clone();
        plugin["name"] = list["name"].clone();
        plugin["runtimeConfig"] =
            json!({"portMappings": [{"hostPort": 7070, "containerPort": 80}]});
        let pod = host.pod_with("a", &plugin);
        pod.serve(80);
        assert!(
            ask_tcp(host.network.gateway, 7070)
                .unwrap()
                .starts_with("a ")
        );
    });
}

#[test]
fn odd_names_are_refused_before_anything_happens() {
    let configuration = b"{}";
    for (container, interface) in [
        ("../x", "eth0"),
        ("", "eth0"),
        ("a", "eth0/.."),
        ("a", "longer-than-fifteen"),
    ] {
        let variables = Variables {
            command: Some("DEL".to_owned()),
            container: Some(container.to_owned()),
            namespace: None,
            interface: Some(interface.to_owned()),
        };
        assert!(variables.attachment().is_err(), "{container} {interface}");
        assert!(answer(&variables, configuration).is_err());
    }
}
