//! Who owns whom, by UID, and what follows from it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What the collector knows of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub uid: String,
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub owners: Vec<OwnerReference>,
    pub finalizers: Vec<String>,
    pub deleting: bool,
}

/// What to do with an object.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    Keep,
    /// No owner is known: make sure, then delete.
    CheckOwners,
    /// An owner is being deleted in the foreground and waits for this one.
    DeleteWithOwner,
    /// Nothing depends on it any more: its deletion may go on.
    Release {
        finalizer: &'static str,
    },
    /// Its dependents are to stay: cut them loose first.
    Orphan {
        dependents: Vec<Node>,
    },
}

#[derive(Default)]
pub struct Graph {
    nodes: BTreeMap<String, Node>,
    dependents: BTreeMap<String, BTreeSet<String>>,
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
        // A leaf that nobody owns and nothing waits for needs no look: most objects are that.
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

    /// Forgets an object; its dependents and waiting owners are affected.
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

    pub fn judge(&self, uid: &str) -> Verdict {
        let Some(node) = self.nodes.get(uid) else {
            return Verdict::Keep;
        };
        let has = |name: &str| node.finalizers.iter().any(|finalizer| finalizer == name);
        if node.deleting && has(ORPHAN) {
            let dependents = self
                .dependents_of(uid)
                .filter_map(|uid| self.nodes.get(&uid).cloned())
                .collect();
            return Verdict::Orphan { dependents };
        }
        if node.deleting && has(FOREGROUND) {
            let blocked = self.dependents_of(uid).any(|dependent| {
                self.nodes.get(&dependent).is_some_and(|dependent| {
                    dependent
                        .owners
                        .iter()
                        .any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
                })
            });
            return match blocked {
                true => Verdict::Keep,
                false => Verdict::Release {
                    finalizer: FOREGROUND,
                },
            };
        }
        if node.deleting || node.owners.is_empty() {
            return Verdict::Keep;
        }
        let mut waited_for = false;
        for owner in &node.owners {
            match self.nodes.get(&owner.uid) {
                None => {}
                Some(known)
                    if known.deleting && known.finalizers.iter().any(|name| name == FOREGROUND) =>
                {
                    waited_for = true;
                }
                Some(_) => return Verdict::Keep,
            }
        }
        match waited_for {
            true => Verdict::DeleteWithOwner,
            false => Verdict::CheckOwners,
        }
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
    use super::*;

    fn node(uid: &str, owners: &[&str], finalizers: &[&str], deleting: bool) -> Node {
        Node {
            uid: uid.into(),
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "default".into(),
            name: uid.into(),
            owners: owners
                .iter()
                .map(|owner| OwnerReference {
                    uid: owner.to_string(),
                    name: owner.to_string(),
                    block_owner_deletion: Some(true),
                    ..OwnerReference::default()
                })
                .collect(),
            finalizers: finalizers.iter().map(|name| name.to_string()).collect(),
            deleting,
        }
    }

    #[test]
    fn a_dependent_goes_when_its_last_owner_is_gone() {
        let mut graph = Graph::default();
        graph.put(node("a", &[], &[], false));
        graph.put(node("b", &[], &[], false));
        assert_eq!(graph.put(node("pod", &["a", "b"], &[], false)), ["pod"]);
        assert_eq!(graph.judge("pod"), Verdict::Keep);
        assert_eq!(graph.remove("a"), ["pod"]);
        assert_eq!(graph.judge("pod"), Verdict::Keep);
        assert_eq!(graph.remove("b"), ["pod"]);
        assert_eq!(graph.judge("pod"), Verdict::CheckOwners);
    }

    #[test]
    fn foreground_deletion_takes_dependents_first() {
        let mut graph = Graph::default();
        graph.put(node("set", &[], &[], false));
        graph.put(node("pod", &["set"], &[], false));
        let touched = graph.put(node("set", &[], &[FOREGROUND], true));
        assert_eq!(touched, ["set", "pod"]);
        assert_eq!(graph.judge("set"), Verdict::Keep);
        assert_eq!(graph.judge("pod"), Verdict::DeleteWithOwner);
        assert_eq!(graph.remove("pod"), ["set"]);
        assert_eq!(
            graph.judge("set"),
            Verdict::Release {
                finalizer: FOREGROUND
            }
        );
    }

    #[test]
    fn orphaning_cuts_dependents_loose() {
        let mut graph = Graph::default();
        graph.put(node("pod", &["set"], &[], false));
        graph.put(node("set", &[], &[ORPHAN], true));
        let Verdict::Orphan { dependents } = graph.judge("set") else {
            panic!("not orphaned");
        };
        assert_eq!(dependents[0].uid, "pod");
    }
}
