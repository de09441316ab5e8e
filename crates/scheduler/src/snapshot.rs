//! All nodes with their pods, kept up to date change by change; assumed pods count like bound ones.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use client::ObjectKey;
use parking_lot::Mutex;

use crate::{
    affinity_terms::Namespaces,
    counts::{Count, Counts, HeldTerm, Question},
    node_info::NodeInfo,
    node_table::NodeTable,
    pod_info::PodInfo,
    volumes::Volumes,
};

#[derive(Default)]
pub struct Snapshot {
    nodes: NodeTable,
    /// How many of `nodes` are real nodes, not only names that pods carry.
    known: usize,
    /// Uid to where the pod is accounted for.
    placed: BTreeMap<String, Placed>,
    /// The node for which each waiting pod is nominated, by the pod's uid.
    nominated: BTreeMap<String, String>,
    /// The same by node.
    nominated_on: BTreeMap<String, BTreeMap<String, Arc<PodInfo>>>,
    /// On how many nodes each image name is.
    image_spread: BTreeMap<String, usize>,
    pub volumes: Volumes,
    namespaces: Namespaces,
    /// How many pods on nodes use each claim.
    claim_users: BTreeMap<ObjectKey, usize>,
    /// Locked because answers are found while the snapshot is only read.
    counts: Mutex<Counts>,
}

struct Placed {
    node: String,
    /// Decided here, not yet seen as bound.
    assumed: bool,
}

impl Snapshot {
    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        self.forget_images(&name);
        let info = self.nodes.get_or_insert(&name);
        self.known += usize::from(info.node.is_none());
        let old = info.node.as_ref();
        let has_moved = old.is_none_or(|old| old.metadata.labels != node.metadata.labels);
        let counts = self.counts.get_mut();
        if has_moved {
            counts.node_goes(info, &self.namespaces);
        }
        info.set_node(node);
        if has_moved {
            counts.node_comes(info, &self.namespaces);
        }
        for image in info.images.keys() {
            *self.image_spread.entry(image.clone()).or_default() += 1;
        }
    }

    pub fn remove_node(&mut self, name: &str) {
        self.forget_images(name);
        if let Some(info) = self.nodes.get_mut(name) {
            self.known -= usize::from(info.node.is_some());
            self.counts.get_mut().node_goes(info, &self.namespaces);
            info.unset_node();
            self.drop_if_empty(name);
        }
    }

    pub fn set_namespace(&mut self, metadata: &ObjectMeta) {
        let name = metadata.name.clone().unwrap_or_default();
        let labels = metadata.labels.clone().unwrap_or_default();
        if self.namespaces.get(&name) != Some(&labels) {
            self.namespaces.insert(name, labels);
            self.counts.get_mut().namespaces_changed();
        }
    }

    pub fn remove_namespace(&mut self, metadata: &ObjectMeta) {
        self.namespaces
            .remove(metadata.name.as_deref().unwrap_or_default());
    }

    /// The labels of each namespace.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Every term about other pods that pods on nodes have, with how many of them are where.
    pub fn each_held_term(&self, visit: impl FnMut(&HeldTerm)) {
        self.counts.lock().held().for_each(visit);
    }

    /// How many pods are where. Cheap for what was asked lately.
    pub fn tally(&self, question: &Question) -> Arc<Count> {
        let nodes = self.nodes.values();
        self.counts.lock().tally(question, nodes, &self.namespaces)
    }

    pub fn claim_users(&self, namespace: &str, name: &str) -> usize {
        let key = ObjectKey::new(namespace, name);
        self.claim_users.get(&key).copied().unwrap_or(0)
    }

    /// Accounts for a pod decided here before its binding is written.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.place(pod, node, true);
    }

    /// Accounts for a pod that the API shows as bound, confirming an assumed one.
    pub fn confirm(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.place(pod, node, false);
    }

    /// Takes the pod off its node's account.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let placed = self.placed.remove(uid)?;
        let node = self.nodes.get_mut(&placed.node)?;
        let pod = node.remove_pod(uid)?;
        self.counts.get_mut().pod_went(&pod, node, &self.namespaces);
        self.count_claims(&pod, -1);
        self.drop_if_empty(&placed.node);
        Some(pod)
    }

    /// The pod as it is accounted for, and whether its node has been confirmed.
    pub fn placed(&self, uid: &str) -> Option<(&Arc<PodInfo>, bool)> {
        let placed = self.placed.get(uid)?;
        let pod = self.nodes.get(&placed.node)?.pods.get(uid)?;
        Some((pod, !placed.assumed))
    }

    /// Nominates a waiting pod for `node`; `None` removes its nomination.
    pub fn nominate(&mut self, pod: &Arc<PodInfo>, node: Option<&str>) {
        self.remove_nomination(&pod.uid);
        if let Some(node) = node {
            self.nominated.insert(pod.uid.clone(), node.to_owned());
            let there = self.nominated_on.entry(node.to_owned()).or_default();
            there.insert(pod.uid.clone(), pod.clone());
        }
    }

    pub fn remove_nomination(&mut self, uid: &str) {
        let Some(node) = self.nominated.remove(uid) else {
            return;
        };
        if let Some(there) = self.nominated_on.get_mut(&node) {
            there.remove(uid);
            if there.is_empty() {
                self.nominated_on.remove(&node);
            }
        }
    }

    /// Whether any pod is nominated.
    pub fn has_nominations(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// The pods that are nominated for the node.
    pub fn nominated_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        let there = self.nominated_on.get(node).into_iter();
        there.flat_map(BTreeMap::values).cloned().collect()
    }

    /// The node for which the pod is nominated.
    pub fn nominated_node(&self, uid: &str) -> Option<&str> {
        self.nominated.get(uid).map(String::as_str)
    }

    /// The pods of no lower priority than `pod` that are nominated for the node.
    pub fn nominated_before<'a>(
        &'a self,
        node: &'a str,
        pod: &'a PodInfo,
    ) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let there = self.nominated_on.get(node).into_iter();
        let there = there.flat_map(BTreeMap::values);
        there.filter(move |other| other.uid != pod.uid && other.priority >= pod.priority)
    }

    /// The pods of lower priority that are nominated for the node.
    pub fn nominated_with_lower_priority(&self, node: &str, priority: i32) -> Vec<Arc<PodInfo>> {
        let there = self.nominated_on.get(node).into_iter();
        let lesser = there.flat_map(BTreeMap::values);
        let lesser = lesser.filter(|other| other.priority < priority);
        lesser.cloned().collect()
    }

    /// The node on whose account the pod is.
    pub fn placed_on(&self, uid: &str) -> Option<&str> {
        self.placed.get(uid).map(|placed| placed.node.as_str())
    }

    pub fn is_assumed(&self, uid: &str) -> bool {
        self.placed.get(uid).is_some_and(|placed| placed.assumed)
    }

    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.get(name).filter(|info| info.node.is_some())
    }

    /// The nodes in order of their names.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values().filter(|info| info.node.is_some())
    }

    pub fn node_count(&self) -> usize {
        self.known
    }

    /// The nodes in their slots, and which of them changed.
    pub(crate) fn table(&self) -> &NodeTable {
        &self.nodes
    }

    pub fn nodes_with_image(&self, name: &str) -> usize {
        self.image_spread.get(name).copied().unwrap_or(0)
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: &str, assumed: bool) {
        let placed = Placed {
            node: node.to_owned(),
            assumed,
        };
        let known = self.placed.get(&pod.uid);
        let there = known
            .filter(|known| known.node == node)
            .and_then(|_| self.nodes.get(node)?.pods.get(&pod.uid));
        if let Some(old) = there.filter(|old| counts_alike(old, &pod)) {
            // Most often a decision that is now seen as bound: the node's account stays as it is.
            let info = match takes_alike(old, &pod) {
                true => self.nodes.get_quietly(node),
                false => self.nodes.get_mut(node),
            };
            if let Some(info) = info {
                self.placed.insert(pod.uid.clone(), placed);
                info.add_pod(pod);
                return;
            }
        }
        self.remove_pod(&pod.uid);
        self.placed.insert(pod.uid.clone(), placed);
        self.count_claims(&pod, 1);
        let info = self.nodes.get_or_insert(node);
        self.counts.get_mut().pod_came(&pod, info, &self.namespaces);
        info.add_pod(pod);
    }

    fn count_claims(&mut self, pod: &PodInfo, by: isize) {
        for claim in &pod.claims {
            let key = ObjectKey::new(&pod.key.namespace, &claim.name);
            let users = self.claim_users.entry(key.clone()).or_default();
            *users = users.saturating_add_signed(by);
            if *users == 0 {
                self.claim_users.remove(&key);
            }
        }
    }

    fn forget_images(&mut self, node: &str) {
        let Some(info) = self.nodes.get(node) else {
            return;
        };
        for image in info.images.keys() {
            if let Some(count) = self.image_spread.get_mut(image) {
                *count -= 1;
                if *count == 0 {
                    self.image_spread.remove(image);
                }
            }
        }
    }

    fn drop_if_empty(&mut self, node: &str) {
        let empty = |info: &NodeInfo| info.node.is_none() && info.pods.is_empty();
        if self.nodes.get(node).is_some_and(empty) {
            self.nodes.remove(node);
        }
    }
}

/// Whether two states of a pod are the same to whoever counts pods. What a pod says about others
/// does not change once it has a node.
fn counts_alike(old: &PodInfo, new: &PodInfo) -> bool {
    let (old, new) = (&old.pod.metadata, &new.pod.metadata);
    old.labels == new.labels && old.deletion_timestamp.is_some() == new.deletion_timestamp.is_some()
}

/// Whether two states of a pod take the same of their node.
fn takes_alike(old: &PodInfo, new: &PodInfo) -> bool {
    old.requests == new.requests
        && old.requests_for_score == new.requests_for_score
        && old.host_ports == new.host_ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, pod};

    fn milli_cpu(snapshot: &Snapshot, name: &str) -> i64 {
        let info = snapshot.node(name);
        info.map_or(-1, |info| info.requested.milli_cpu)
    }

    #[test]
    fn pods_are_accounted_once_wherever_they_are() {
        let mut snapshot = Snapshot::default();
        let web = pod(
            "web",
            r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"300m"}}}]}"#,
        );
        // The pod may be known before its node.
        snapshot.confirm(web.clone(), "n1");
        assert_eq!(snapshot.node_count(), 0);
        snapshot.set_node(node(
            "n1",
            "{}",
            r#"{"allocatable":{"cpu":"2","pods":"10"}}"#,
        ));
        snapshot.set_node(node("n2", "{}", "{}"));
        assert_eq!(milli_cpu(&snapshot, "n1"), 300);
        snapshot.confirm(web.clone(), "n1");
        assert_eq!(milli_cpu(&snapshot, "n1"), 300);
        snapshot.assume(web.clone(), "n2");
        assert!(snapshot.is_assumed("uid-web"));
        assert_eq!(
            (milli_cpu(&snapshot, "n1"), milli_cpu(&snapshot, "n2")),
            (0, 300)
        );
        snapshot.confirm(web, "n2");
        assert!(!snapshot.is_assumed("uid-web"));
        // A node that leaves keeps its pods' account for when it comes back.
        snapshot.remove_node("n2");
        assert_eq!(snapshot.node_count(), 1);
        snapshot.set_node(node("n2", "{}", "{}"));
        assert_eq!(milli_cpu(&snapshot, "n2"), 300);
        assert!(snapshot.remove_pod("uid-web").is_some());
        assert!(snapshot.remove_pod("uid-web").is_none());
        assert_eq!(milli_cpu(&snapshot, "n2"), 0);
        snapshot.remove_node("n1");
        snapshot.remove_node("n2");
        assert!(snapshot.nodes.is_empty() && snapshot.placed.is_empty());
    }

    #[test]
    fn image_spread_follows_the_nodes() {
        let mut snapshot = Snapshot::default();
        let with = |names: &str| format!(r#"{{"images":[{{"names":[{names}],"sizeBytes":5}}]}}"#);
        snapshot.set_node(node("n1", "{}", &with(r#""a:1","b:1""#)));
        snapshot.set_node(node("n2", "{}", &with(r#""a:1""#)));
        assert_eq!(snapshot.nodes_with_image("a:1"), 2);
        snapshot.set_node(node("n1", "{}", &with(r#""b:1""#)));
        assert_eq!(snapshot.nodes_with_image("a:1"), 1);
        snapshot.remove_node("n2");
        assert_eq!(snapshot.nodes_with_image("a:1"), 0);
        assert_eq!(snapshot.nodes_with_image("b:1"), 1);
    }
}
