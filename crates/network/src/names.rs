//! The names this crate gives to things in the kernel. Every one carries the cluster id.

use sha2::{Digest, Sha256};

/// The link that holds the gateway address.
pub fn gateway_link(cluster_id: &str) -> String {
    format!("c{cluster_id}-gw")
}

/// What every link of the cluster begins with.
pub fn link_prefix(cluster_id: &str) -> String {
    format!("c{cluster_id}-")
}

/// The node's end of a pod's veth pair: 15 characters, the kernel's limit.
pub fn pod_link(cluster_id: &str, container_id: &str, interface: &str) -> String {
    let hash = container_hash(container_id, interface);
    let hex = hex::encode(&hash[..4]);
    format!("c{cluster_id}-{}", &hex[..7])
}

/// A locally administered, unicast hardware address. `side` is one of the two ends.
pub fn hardware_address(container_id: &str, interface: &str, side: u8) -> [u8; 6] {
    let hash = container_hash(container_id, interface);
    [
        0x0a,
        hash[4],
        hash[5],
        hash[6],
        hash[7],
        hash[8] & 0xfe | side & 1,
    ]
}

/// The table of service rules; the proxy owns it and replaces it whole when it starts.
pub fn proxy_table(cluster_id: &str) -> String {
    format!("coracle-{cluster_id}")
}

/// The table that outlives the server: egress masquerading and host ports.
pub fn node_table(cluster_id: &str) -> String {
    format!("coracle-{cluster_id}-node")
}

/// The comment on our rules inside tables of others.
pub fn foreign_rule_comment(cluster_id: &str) -> String {
    format!("coracle-{cluster_id}")
}

/// Cluster ids are six lower-case hex characters; anything else could match the names of others.
pub fn is_cluster_id(text: &str) -> bool {
    text.len() == 6
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn container_hash(container_id: &str, interface: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(container_id.as_bytes());
    digest.update([0]);
    digest.update(interface.as_bytes());
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_names_fit_the_kernels_limit() {
        assert_eq!(pod_link("a1b2c3", "some-container", "eth0").len(), 15);
        assert!(pod_link("a1b2c3", "x", "eth0").starts_with(&link_prefix("a1b2c3")));
        assert_ne!(
            pod_link("a1b2c3", "x", "eth0"),
            pod_link("a1b2c3", "x", "eth1")
        );
        assert_ne!(
            hardware_address("x", "eth0", 0),
            hardware_address("x", "eth0", 1)
        );
        assert!(is_cluster_id("00ff9a") && !is_cluster_id("00FF9A") && !is_cluster_id("00ff9"));
    }
}
