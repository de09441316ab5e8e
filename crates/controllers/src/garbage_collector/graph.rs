//! Who owns whom, by UID, and what follows from it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use environment::work;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

/// What the collector knows of one object.
#[derive(Clone, Debug, Default, PartialEq)]
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

impl Node {
    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Its deletion waits for its dependents.
    pub fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has(FOREGROUND)
    }

    /// Whether `reference`, found in an object of `namespace`, means this object: the UID alone is
    /// not enough, an owner must be cluster-wide or in the same namespace.
    fn is_meant_by(&self, reference: &OwnerReference, namespace: &str) -> bool {
        self.uid == reference.uid
            && self.name == reference.name
            && self.kind == reference.kind
            && group_of(&self.api_version) == group_of(&reference.api_version)
            && (self.namespace.is_empty() || self.namespace == namespace)
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// What to do with an object, as far as the graph can tell.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    Keep,
    /// Some owner is unknown or on its way out: look closer (see [`decide`]).
    Examine,
    /// Nothing blocks its deletion any more.
    Release,
    /// Its dependents are to stay: cut them loose first.
    Orphan {
        dependents: Vec<Node>,
    },
}

/// What is known about an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It exists and stays.
    Solid,
    /// It is being deleted and waits for its dependents.
    Waiting,
    /// It does not exist.
    Gone,
}

/// What to do with an object whose owners have been looked at.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Keep,
    /// Others still own it: only these references are stale.
    DropReferences(Vec<String>),
    Delete {
        propagation: Propagation,
        /// It is part of a circle: let its owners go on without waiting for it.
        unblock_owners: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The rule for an object with owners of these standings. `dependents` are its own.
pub fn decide(finalizers: &[String], owners: &[(String, Standing)], dependents: &[Node]) -> Action {
    let with = |standing| {
        owners
            .iter()
            .filter(move |(_, found)| *found == standing)
            .map(|(uid, _)| uid.clone())
    };
    if owners.is_empty() {
        return Action::Keep;
    }
    if with(Standing::Solid).next().is_some() {
        let stale: Vec<String> = with(Standing::Gone)
            .chain(with(Standing::Waiting))
            .collect();
        return match stale.is_empty() {
            true => Action::Keep,
            false => Action::DropReferences(stale),
        };
    }
    if with(Standing::Waiting).next().is_some() && !dependents.is_empty() {
        return Action::Delete {
            propagation: Propagation::Foreground,
            unblock_owners: dependents.iter().any(Node::waits_for_dependents),
        };
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    Action::Delete {
        propagation: match () {
            () if has(ORPHAN) => Propagation::Orphan,
            () if has(FOREGROUND) => Propagation::Foreground,
            () => Propagation::Background,
        },
        unblock_owners: false,
    }
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
        if node.deleting && node.has(ORPHAN) {
            return Verdict::Orphan {
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
                true => Verdict::Keep,
                false => Verdict::Release,
            };
        }
        if node.deleting || node.owners.is_empty() {
            return Verdict::Keep;
        }
        let settled = node
            .owners
            .iter()
            .all(|owner| self.standing(owner, &node.namespace) == Some(Standing::Solid));
        match settled {
            true => Verdict::Keep,
            false => Verdict::Examine,
        }
    }

    /// What the graph knows about an owner; none if only the API can tell.
    pub fn standing(&self, owner: &OwnerReference, namespace: &str) -> Option<Standing> {
        let known = self.nodes.get(&owner.uid)?;
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
                    api_version: "v1".into(),
                    kind: "Pod".into(),
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

    fn owners(standings: &[Standing]) -> Vec<(String, Standing)> {
        let numbered = standings.iter().enumerate();
        numbered
            .map(|(index, standing)| (index.to_string(), *standing))
            .collect()
    }

    #[test]
    fn a_dependent_is_examined_when_an_owner_is_gone() {
        let mut graph = Graph::default();
        graph.put(node("a", &[], &[], false));
        graph.put(node("b", &[], &[], false));
        assert_eq!(graph.put(node("pod", &["a", "b"], &[], false)), ["pod"]);
        assert_eq!(graph.judge("pod"), Verdict::Keep);
        assert_eq!(graph.remove("a"), ["pod"]);
        assert_eq!(graph.judge("pod"), Verdict::Examine);
    }

    #[test]
    fn foreground_deletion_takes_dependents_first() {
        let mut graph = Graph::default();
        graph.put(node("set", &[], &[], false));
        graph.put(node("pod", &["set"], &[], false));
        let touched = graph.put(node("set", &[], &[FOREGROUND], true));
        assert_eq!(touched, ["set", "pod"]);
        assert_eq!(graph.judge("set"), Verdict::Keep);
        assert_eq!(graph.judge("pod"), Verdict::Examine);
        assert_eq!(graph.remove("pod"), ["set"]);
        assert_eq!(graph.judge("set"), Verdict::Release);
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

    #[test]
    fn owners_decide() {
        use Standing::{Gone, Solid, Waiting};
        let delete = |propagation| Action::Delete {
            propagation,
            unblock_owners: false,
        };
        let leaf = |standings: &[Standing]| decide(&[], &owners(standings), &[]);
        assert_eq!(leaf(&[]), Action::Keep);
        assert_eq!(leaf(&[Solid]), Action::Keep);
        assert_eq!(
            leaf(&[Solid, Gone, Waiting]),
            Action::DropReferences(vec!["1".into(), "2".into()])
        );
        assert_eq!(leaf(&[Gone]), delete(Propagation::Background));
        assert_eq!(leaf(&[Waiting]), delete(Propagation::Background));
        let finalizers = [ORPHAN.to_string()];
        assert_eq!(
            decide(&finalizers, &owners(&[Gone]), &[]),
            delete(Propagation::Orphan)
        );
        let child = [node("child", &["x"], &[], false)];
        assert_eq!(
            decide(&[], &owners(&[Waiting]), &child),
            delete(Propagation::Foreground)
        );
        assert_eq!(
            decide(&[], &owners(&[Gone]), &child),
            delete(Propagation::Background)
        );
    }

    /// Each waits for the next, the last for the first: one must let go.
    #[test]
    fn a_circle_is_cut_where_the_waiting_meet() {
        let mut graph = Graph::default();
        graph.put(node("1", &["3"], &[FOREGROUND], true));
        graph.put(node("2", &["1"], &[FOREGROUND], true));
        graph.put(node("3", &["2"], &[], false));
        assert_eq!(graph.judge("3"), Verdict::Examine);
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
        assert_eq!(graph.judge("child"), Verdict::Examine);
        assert_eq!(graph.misplaced_owners("child"), child.owners);
    }
}
