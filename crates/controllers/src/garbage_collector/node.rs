//! One object of the graph of owners.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

/// An object as the collector knows it.
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
    pub fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Whether its deletion waits for its dependents.
    pub fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has(FOREGROUND)
    }

    /// Whether `reference`, found in an object of `namespace`, means this object: the UID alone is
    /// not enough, an owner must be cluster-wide or in the same namespace.
    pub fn is_meant_by(&self, reference: &OwnerReference, namespace: &str) -> bool {
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

#[cfg(test)]
pub mod fixtures {
    use super::*;

    /// A pod of the default namespace.
    pub fn node(uid: &str, owners: &[&str], finalizers: &[&str], deleting: bool) -> Node {
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
}
