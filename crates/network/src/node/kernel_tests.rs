//! Set-up and removal against the real kernel, in a namespace of the test's own.

use super::*;
use crate::testing::{CLUSTER, Host, ask_tcp, in_fresh_namespace, ruleset, run};

fn kernel_state() -> [String; 3] {
    [
        run(&["ip", "-oneline", "link"]),
        // Of IPv4: the kernel makes its own for IPv6, in its own time.
        run(&["ip", "-4", "route", "show", "table", "all"]),
        ruleset(),
    ]
}

#[test]
fn removal_restores_what_was_there() {
    in_fresh_namespace(|| {
        let before = kernel_state();
        let host = Host::new();
        let once = kernel_state();
        setup(&host.network).unwrap();
        assert_eq!(kernel_state(), once, "set up twice is set up once");
        assert!(
            once[1].contains("10.96.0.0/16 dev c7e57ed-gw")
                && once[1].contains("unreachable 10.96.0.0/16")
        );
        let _pods = [host.pod("a"), host.pod("b")];
        remove_all(CLUSTER).unwrap();
        assert_eq!(kernel_state(), before);
        remove_all(CLUSTER).unwrap();
    });
}

#[test]
fn another_cluster_is_left_alone() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let other = NodeNetwork::new(
            "00beef",
            "10.245.0.0/24".parse().unwrap(),
            "10.97.0.0/16".parse().unwrap(),
            [10, 97, 0, 10].into(),
        );
        setup(&other).unwrap();
        let pod = host.pod("a");
        pod.serve(80);
        remove_all("00beef").unwrap();
        let after = kernel_state().concat();
        assert!(
            !after.contains("00beef") && !after.contains("10.97.0.0"),
            "{after}"
        );
        assert!(after.contains("unreachable 10.96.0.0/16"));
        assert!(ask_tcp(pod.address, 80).is_ok());
        assert!(matches!(remove_all("*"), Err(Error::ClusterId(_))));
    });
}

#[test]
fn a_foreign_chain_that_drops_gets_one_marked_accept() {
    in_fresh_namespace(|| {
        run(&[
            "nft",
            "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }",
        ]);
        run(&[
            "nft",
            "add table inet wall; add chain inet wall pass { type filter hook forward priority 5; policy drop; }",
        ]);
        run(&[
            "nft",
            "add rule ip filter FORWARD counter comment \"theirs\"",
        ]);
        let before = ruleset();
        let host = Host::new();
        let (a, b) = (host.pod("a"), host.pod("b"));
        a.serve(80);
        assert!(b.namespace.run(|| ask_tcp(a.address, 80)).is_ok());
        setup(&host.network).unwrap();
        assert_eq!(
            ruleset().matches("coracle-7e57ed\"").count(),
            4,
            "{}",
            ruleset()
        );
        assert!(
            ruleset().contains("ip saddr 10.244.0.0/24 accept comment \"coracle-7e57ed\""),
            "{}",
            ruleset()
        );
        remove_all(CLUSTER).unwrap();
        let without_counts = |text: String| {
            text.lines()
                .filter(|line| !line.contains("counter"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(without_counts(ruleset()), without_counts(before));
        assert!(ruleset().contains("theirs"));
    });
}

#[test]
fn pods_leave_with_the_nodes_address() {
    in_fresh_namespace(|| {
        let host = Host::new();
        let (inside, outside) = (host.pod("inside"), host.pod("outside"));
        outside.serve(80);
        // The same pods seen as another network: what is outside the cluster's range is masqueraded.
        let narrow = NodeNetwork {
            cluster_cidr: "10.244.0.2/32".parse().unwrap(),
            ..host.network.clone()
        };
        table::batch(&narrow)
            .commit(&mut Connection::netfilter().unwrap())
            .unwrap();
        let answer = inside
            .namespace
            .run(|| ask_tcp(outside.address, 80).unwrap());
        assert!(!answer.contains(&inside.address.to_string()), "{answer}");
        setup(&host.network).unwrap();
        let answer = inside
            .namespace
            .run(|| ask_tcp(outside.address, 80).unwrap());
        assert_eq!(answer, format!("outside {}", inside.address));
    });
}
