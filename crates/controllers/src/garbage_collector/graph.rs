//! The graph of owners and dependents by UID, and what follows from it for each object. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use environment::work;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::node::{Node, ORPHAN};
use super::plan::Standing;

/// What to do with an object, as far as the graph knows.
#[derive(Debug, PartialEq)]
pub enum NextStep {
    Keep,
    /// Some owner is unknown or being deleted: ask the API (see [`decide`](super::plan::decide)).
    Examine,
    /// Nothing blocks its deletion any more: remove the finalizer.
    Release,
    /// Its dependents are to be orphaned: remove their references to it first.
    Orphan {
        dependents: Vec<Node>,
    },
}

/// How many deleted owners are remembered.
const MOST_DELETED: usize = 500;

#[derive(Default)]
pub struct Graph {
    nodes: BTreeMap<String, Node>,
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Owners whose deletion was seen while they had dependents. Their kind may go with them, and the
    /// API cannot be asked about a kind that it does not serve.
    deleted: BTreeMap<String, Node>,
    /// The UIDs of these, the oldest first.
    deleted_order: VecDeque<String>,
}

impl Graph {
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Adds or changes an object; returns the UIDs whose verdict may have changed.
    pub fn put(&mut self, node: Node) -> Vec<String> {
        let uid = node.uid.clone();
        let before = self.nodes.get(&uid).cloned();
        if before.as_ref() == Some(&node) {
            return Vec::new();
        }
        for owner in before.iter().flat_map(|node| &node.owners) {
            self.unlink(&owner.uid, &uid);
        }
        for owner in &node.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        let mut touched: Vec<String> = Vec::new();
        // An object without owners and dependents needs no look: most objects are that.
        if !node.owners.is_empty() || node.deleting {
            touched.push(uid.clone());
        }
        if node.deleting {
            touched.extend(self.dependents_of(&uid));
        }
        for owner in before
            .iter()
            .flat_map(|node| &node.owners)
            .chain(&node.owners)
        {
            if self
                .nodes
                .get(&owner.uid)
                .is_some_and(|owner| owner.deleting)
            {
                touched.push(owner.uid.clone());
            }
        }
        self.nodes.insert(uid, node);
        touched
    }

    /// An object was deleted; its dependents and waiting owners are affected.
    pub fn delete(&mut self, uid: &str) -> Vec<String> {
        if let Some(node) = self.nodes.get(uid)
            && self.dependents.contains_key(uid)
            && self.deleted.insert(uid.to_string(), node.clone()).is_none()
        {
            self.deleted_order.push_back(uid.to_string());
            if self.deleted_order.len() > MOST_DELETED
                && let Some(oldest) = self.deleted_order.pop_front()
            {
                self.deleted.remove(&oldest);
            }
        }
        self.remove(uid)
    }

    /// Forgets an object that may still be there; its dependents and waiting owners are affected.
    pub fn remove(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.nodes.remove(uid) else {
            return Vec::new();
        };
        let mut touched: Vec<String> = self.dependents_of(uid).collect();
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            if self
                .nodes
                .get(&owner.uid)
                .is_some_and(|owner| owner.deleting)
            {
                touched.push(owner.uid.clone());
            }
        }
        touched
    }

    pub fn next_step(&self, uid: &str) -> NextStep {
        let Some(node) = self.nodes.get(uid) else {
            return NextStep::Keep;
        };
        if node.deleting && node.has(ORPHAN) {
            return NextStep::Orphan {
                dependents: self.dependents(uid),
            };
        }
        if node.waits_for_dependents() {
            // Ends with the first that blocks: each of many dependents that goes asks this.
            let dependents = self.dependents.get(uid).into_iter().flatten();
            let mut dependents = dependents.filter_map(|dependent| {
                work::visit(1);
                self.nodes.get(dependent)
            });
            let blocked = dependents.any(|dependent| {
                dependent
                    .owners
                    .iter()
                    .any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
            });
            return match blocked {
                true => NextStep::Keep,
                false => NextStep::Release,
            };
        }
        if node.deleting || node.owners.is_empty() {
            return NextStep::Keep;
        }
        let settled = node
            .owners
            .iter()
            .all(|owner| self.standing(owner, &node.namespace) == Some(Standing::Solid));
        match settled {
            true => NextStep::Keep,
            false => NextStep::Examine,
        }
    }

    /// The standing of an owner; `None` if only the API knows.
    pub fn standing(&self, owner: &OwnerReference, namespace: &str) -> Option<Standing> {
        let Some(known) = self.nodes.get(&owner.uid) else {
            let deleted = self.deleted.get(&owner.uid)?;
            let is_meant = deleted.is_meant_by(owner, namespace);
            return is_meant.then_some(Standing::Gone);
        };
        if !known.is_meant_by(owner, namespace) {
            return None;
        }
        Some(match known.waits_for_dependents() {
            true => Standing::Waiting,
            false => Standing::Solid,
        })
    }

    /// Owners that exist in another namespace, where they own nothing of this one.
    pub fn misplaced_owners(&self, uid: &str) -> Vec<OwnerReference> {
        let Some(node) = self.nodes.get(uid) else {
            return Vec::new();
        };
        node.owners
            .iter()
            .filter(|owner| {
                self.nodes.get(&owner.uid).is_some_and(|known| {
                    !known.namespace.is_empty() && known.namespace != node.namespace
                })
            })
            .cloned()
            .collect()
    }

    pub fn dependents(&self, uid: &str) -> Vec<Node> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        let found: Vec<Node> = dependents
            .filter_map(|uid| self.nodes.get(uid).cloned())
            .collect();
        work::visit(found.len());
        found
    }

    fn dependents_of(&self, uid: &str) -> impl Iterator<Item = String> + use<> {
        self.dependents
            .get(uid)
            .cloned()
            .unwrap_or_default()
            .into_iter()
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::FOREGROUND;
    use super::super::node::fixtures::node;
    use super::super::plan::{Action, Propagation, decide};
    use super::*;

    #[test]
    fn an_owner_that_was_deleted_is_known_to_be_gone() {
        let mut graph = Graph::default();
        graph.put(node("owner", &[], &[], false));
        graph.put(node("dependent", &["owner"], &[], false));
        graph.put(node("other", &[], &[], false));
        let reference = |uid: &str| node("x", &[uid], &[], false).owners[0].clone();
        assert_eq!(graph.delete("owner"), ["dependent"]);
        assert_eq!(graph.next_step("dependent"), NextStep::Examine);
        let standing = graph.standing(&reference("owner"), "default");
        assert_eq!(standing, Some(Standing::Gone));
        // Another namespace cannot mean it.
        assert_eq!(graph.standing(&reference("owner"), "elsewhere"), None);
        // Nobody will ask about what had no dependents, and of kinds that go the objects may stay.
        graph.delete("other");
        assert_eq!(graph.standing(&reference("other"), "default"), None);
        graph.remove("dependent");
        assert_eq!(graph.standing(&reference("dependent"), "default"), None);
    }

    #[test]
    fn only_so_many_deleted_owners_are_remembered() {
        let mut graph = Graph::default();
        for number in 0..2 * MOST_DELETED {
            let owner = format!("owner-{number}");
            graph.put(node(&owner, &[], &[], false));
            graph.put(node(&format!("dependent-{number}"), &[&owner], &[], false));
            graph.delete(&owner);
        }
        assert_eq!(graph.deleted.len(), MOST_DELETED);
        assert_eq!(graph.deleted_order.len(), MOST_DELETED);
    }

    #[test]
    fn a_dependent_is_examined_when_an_owner_is_gone() {
        let mut graph = Graph::default();
        graph.put(node("a", &[], &[], false));
        graph.put(node("b", &[], &[], false));
        assert_eq!(graph.put(node("pod", &["a", "b"], &[], false)), ["pod"]);
        assert_eq!(graph.next_step("pod"), NextStep::Keep);
        assert_eq!(graph.remove("a"), ["pod"]);
        assert_eq!(graph.next_step("pod"), NextStep::Examine);
    }

    #[test]
    fn foreground_deletion_deletes_dependents_first() {
        let mut graph = Graph::default();
        graph.put(node("set", &[], &[], false));
        graph.put(node("pod", &["set"], &[], false));
        let touched = graph.put(node("set", &[], &[FOREGROUND], true));
        assert_eq!(touched, ["set", "pod"]);
        assert_eq!(graph.next_step("set"), NextStep::Keep);
        assert_eq!(graph.next_step("pod"), NextStep::Examine);
        assert_eq!(graph.remove("pod"), ["set"]);
        assert_eq!(graph.next_step("set"), NextStep::Release);
    }

    #[test]
    fn orphaning_names_the_dependents() {
        let mut graph = Graph::default();
        graph.put(node("pod", &["set"], &[], false));
        graph.put(node("set", &[], &[ORPHAN], true));
        let NextStep::Orphan { dependents } = graph.next_step("set") else {
            panic!("not orphaned");
        };
        assert_eq!(dependents[0].uid, "pod");
    }

    /// Each waits for the next and the last for the first: one must not wait.
    #[test]
    fn a_circle_of_waiting_owners_is_unblocked() {
        let mut graph = Graph::default();
        graph.put(node("1", &["3"], &[FOREGROUND], true));
        graph.put(node("2", &["1"], &[FOREGROUND], true));
        graph.put(node("3", &["2"], &[], false));
        assert_eq!(graph.next_step("3"), NextStep::Examine);
        let third = graph.get("3").unwrap().clone();
        let standing = graph.standing(&third.owners[0], "default").unwrap();
        let action = decide(
            &third.finalizers,
            &[("2".into(), standing)],
            &graph.dependents("3"),
        );
        assert_eq!(
            action,
            Action::Delete {
                propagation: Propagation::Foreground,
                unblock_owners: true
            }
        );
    }

    #[test]
    fn an_owner_of_another_namespace_owns_nothing_here() {
        let mut graph = Graph::default();
        let mut owner = node("owner", &[], &[], false);
        owner.namespace = "elsewhere".into();
        graph.put(owner);
        let child = node("child", &["owner"], &[], false);
        graph.put(child.clone());
        assert_eq!(graph.standing(&child.owners[0], "default"), None);
        assert_eq!(graph.next_step("child"), NextStep::Examine);
        assert_eq!(graph.misplaced_owners("child"), child.owners);
    }
}
