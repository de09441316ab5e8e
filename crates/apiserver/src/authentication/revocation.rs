//! Nodes whose certificates are refused although they have not ended: the ConfigMap
//! `kube-system/coracle-revoked-nodes` says for each since when. Certificates that were issued later,
//! to a node that was invited again, are good.

use std::sync::Arc;

use super::Peer;
use crate::cache::{Cache, key_of};
use crate::identity::Identity;

const NAMESPACE: &str = "kube-system";
const RECORD: &str = "coracle-revoked-nodes";
/// Certificates are valid from so long before they were issued, for clocks that are behind.
const BACKDATE_SECONDS: i64 = 300;

pub(super) struct Revocations {
    cache: Arc<Cache>,
}

impl Revocations {
    pub fn new(cache: Arc<Cache>) -> Revocations {
        Revocations { cache }
    }

    /// Asked for every request, since connections outlive the moment of revocation.
    pub fn apply(&self, peer: &Peer) -> bool {
        let (Peer::Known(identity) | Peer::FrontProxy(Some(identity))) = peer else {
            return false;
        };
        let Some(node) = node_of(identity) else {
            return false;
        };
        let record = self.cache.named("", "configmaps");
        let Some(entry) = record.get(&key_of(NAMESPACE, RECORD)) else {
            return false;
        };
        let Ok(object) = entry.object() else {
            return false;
        };
        is_revoked(object.str_at(&["data", node]), identity.issued)
    }
}

/// `since`: from the record, empty where the node is not in it. A time that cannot be read, or a
/// certificate of which nobody knows when it was issued, is refused.
fn is_revoked(since: &str, valid_from: Option<i64>) -> bool {
    if since.is_empty() {
        return false;
    }
    match (since.parse::<jiff::Timestamp>(), valid_from) {
        (Ok(since), Some(valid_from)) => valid_from + BACKDATE_SECONDS <= since.as_second(),
        _ => true,
    }
}

/// The node that a certificate was issued to, whether for its kubelet or another part of it.
fn node_of(identity: &Identity) -> Option<&str> {
    let by_user = ["system:node:", "system:coracle:local-path:"]
        .into_iter()
        .find_map(|prefix| identity.user.strip_prefix(prefix));
    by_user.or_else(|| {
        let groups = identity.groups.iter();
        groups
            .filter_map(|group| group.strip_prefix("system:coracle:node:"))
            .next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_issued_before_the_revocation_are_refused_and_later_ones_are_not() {
        let since = "2026-01-01T00:00:00Z";
        let second = since.parse::<jiff::Timestamp>().unwrap().as_second();
        let issued = |at: i64| Some(at - BACKDATE_SECONDS);
        assert!(is_revoked(since, issued(second - 86_400)));
        assert!(is_revoked(since, issued(second)));
        assert!(!is_revoked(since, issued(second + 1)));
        assert!(!is_revoked("", issued(second - 86_400)));
        assert!(is_revoked("nonsense", issued(second + 1)));
        assert!(is_revoked(since, None));
    }

    #[test]
    fn all_certificates_of_a_node_are_known_as_its_own() {
        let node = |user: &str, groups: &[&str]| {
            let identity = Identity::component(user, groups);
            node_of(&identity).map(str::to_string)
        };
        assert_eq!(
            node("system:node:a", &["system:nodes"]).as_deref(),
            Some("a")
        );
        assert_eq!(
            node("system:coracle:local-path:a", &[]).as_deref(),
            Some("a")
        );
        let proxy = node("system:kube-proxy", &["system:coracle:node:a"]);
        assert_eq!(proxy.as_deref(), Some("a"));
        assert_eq!(node("system:kube-proxy", &[]), None);
        assert_eq!(node("somebody", &["system:nodes"]), None);
    }
}
