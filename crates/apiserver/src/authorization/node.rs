//! The Node authorizer: a node reads only what the pods bound to it name, and its own objects. The
//! relations are looked up in the watch cache; what each pod names is remembered per revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Value;
use parking_lot::Mutex;

use super::{Attributes, Decision, Rule};
use crate::cache::{Cache, CachedObject, key_of};
use crate::identity::Identity;
use crate::pod_references::PodReferences;

const PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";
const NODE_LEASES: &str = "kube-node-lease";
/// Pods whose references are remembered; beyond, everything is forgotten and found anew.
const REMEMBERED: usize = 16_384;
const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) struct NodeAuthorizer {
    cache: Arc<Cache>,
    /// What every node may do besides.
    rules: Vec<Rule>,
    references: Mutex<BTreeMap<Arc<str>, (u64, Arc<PodReferences>)>>,
}

/// The node an identity speaks for: `None` for those that are no node, "" for a node without name.
pub(crate) fn node_name(identity: &Identity) -> Option<&str> {
    let name = identity.user.strip_prefix(PREFIX)?;
    let is_node = identity.groups.iter().any(|group| group == NODES);
    is_node.then_some(name)
}

impl NodeAuthorizer {
    pub fn new(cache: Arc<Cache>, rules: Vec<Rule>) -> NodeAuthorizer {
        NodeAuthorizer {
            cache,
            rules,
            references: Mutex::default(),
        }
    }

    pub fn decide(&self, identity: &Identity, asked: &Attributes) -> Decision {
        let Some(node) = node_name(identity) else {
            return Decision::no_opinion("");
        };
        if node.is_empty() {
            let user = &identity.user;
            return Decision::no_opinion(format!("unknown node for user {user:?}"));
        }
        if asked.is_resource {
            match (asked.group.as_str(), asked.resource.as_str()) {
                ("", "secrets" | "configmaps") => return self.read(node, asked),
                ("", "persistentvolumeclaims") if asked.subresource == "status" => {
                    return match asked.verb.as_str() {
                        "update" | "patch" => self.related(node, asked),
                        _ => Decision::no_opinion("can only get/update/patch this type"),
                    };
                }
                ("", "persistentvolumeclaims" | "persistentvolumes")
                | ("resource.k8s.io", "resourceclaims")
                | ("storage.k8s.io", "volumeattachments") => return self.get(node, asked),
                ("", "serviceaccounts") => return self.service_account(node, asked),
                ("coordination.k8s.io", "leases") => return lease(node, asked),
                ("storage.k8s.io", "csinodes") => return csi_node(node, asked),
                ("resource.k8s.io", "resourceslices") => return self.slice(node, asked),
                ("", "nodes") => return own_node(node, asked),
                ("", "pods") => return self.pod(node, asked),
                _ => {}
            }
        }
        match self.rules.iter().any(|rule| rule.allows(asked)) {
            true => Decision::allowed(""),
            false => Decision::no_opinion(""),
        }
    }

    fn read(&self, node: &str, asked: &Attributes) -> Decision {
        if !matches!(asked.verb.as_str(), "get" | "list" | "watch") {
            return Decision::no_opinion("can only read resources of this type");
        }
        if !asked.subresource.is_empty() {
            return Decision::no_opinion("cannot read subresource");
        }
        if asked.namespace.is_empty() {
            return Decision::no_opinion("can only read namespaced object of this type");
        }
        self.related(node, asked)
    }

    fn get(&self, node: &str, asked: &Attributes) -> Decision {
        if asked.verb != "get" {
            return Decision::no_opinion("can only get individual resources of this type");
        }
        if !asked.subresource.is_empty() {
            return Decision::no_opinion("cannot get subresource");
        }
        self.related(node, asked)
    }

    fn service_account(&self, node: &str, asked: &Attributes) -> Decision {
        if asked.verb == "get" && asked.subresource.is_empty() {
            return self.read(node, asked);
        }
        if asked.verb != "create" || asked.name.is_empty() {
            return Decision::no_opinion("can only create tokens for individual service accounts");
        }
        if asked.subresource != "token" {
            return Decision::no_opinion("can only create token subresource of serviceaccount");
        }
        self.related(node, asked)
    }

    fn slice(&self, node: &str, asked: &Attributes) -> Decision {
        if !asked.subresource.is_empty() {
            return Decision::no_opinion("cannot authorize ResourceSlice subresources");
        }
        match asked.verb.as_str() {
            "create" => Decision::allowed(""),
            "get" | "update" | "patch" | "delete" => self.related(node, asked),
            "watch" | "list" | "deletecollection" => match asked.demands("spec.nodeName", node) {
                true => Decision::allowed(""),
                false => Decision::no_opinion(
                    "can only list/watch/deletecollection resourceslices with nodeName field selector",
                ),
            },
            _ => Decision::no_opinion(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod(&self, node: &str, asked: &Attributes) -> Decision {
        match (asked.subresource.as_str(), asked.verb.as_str()) {
            ("", "get") => self.get(node, asked),
            ("", "list" | "watch") if asked.demands("spec.nodeName", node) => Decision::allowed(""),
            ("", "list" | "watch") if !asked.name.is_empty() => self.related(node, asked),
            ("", "list" | "watch") => {
                Decision::no_opinion("can only list/watch pods with spec.nodeName field selector")
            }
            // Of which pods is NodeRestriction's to check.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Decision::allowed("")
            }
            _ => Decision::no_opinion(""),
        }
    }

    fn related(&self, node: &str, asked: &Attributes) -> Decision {
        if asked.name.is_empty() {
            return Decision::no_opinion("No Object name found");
        }
        match self.is_related(node, asked) {
            true => Decision::allowed(""),
            false => Decision::no_opinion(format!(
                "no relationship found between node '{node}' and this object"
            )),
        }
    }

    fn is_related(&self, node: &str, asked: &Attributes) -> bool {
        let (namespace, name) = (asked.namespace.as_str(), asked.name.as_str());
        let named_by_a_pod = |field: fn(&PodReferences, &str) -> bool| {
            let pods = self.pods_of(node, namespace);
            pods.iter().any(|pod| field(&self.references_of(pod), name))
        };
        match asked.resource.as_str() {
            "pods" => {
                let pod = self.entry("", "pods", namespace, name);
                pod.is_some_and(|pod| pod.field("spec.nodeName") == Some(node))
            }
            "configmaps" => named_by_a_pod(|names, name| names.config_maps.contains(name)),
            "persistentvolumeclaims" => named_by_a_pod(|names, name| names.claims.contains(name)),
            "resourceclaims" => named_by_a_pod(|names, name| names.resource_claims.contains(name)),
            "serviceaccounts" => named_by_a_pod(|names, name| names.service_account == name),
            "secrets" => {
                named_by_a_pod(|names, name| names.secrets.contains(name))
                    || self.is_secret_of_volume(node, namespace, name)
            }
            "persistentvolumes" => {
                let volume = self.object("", "persistentvolumes", "", name);
                volume.is_some_and(|volume| self.uses_volume(node, &volume))
            }
            "volumeattachments" => {
                let attachment = self.object("storage.k8s.io", "volumeattachments", "", name);
                attachment.is_some_and(|object| object.str_at(&["spec", "nodeName"]) == node)
            }
            "resourceslices" => {
                let slice = self.object("resource.k8s.io", "resourceslices", "", name);
                slice.is_some_and(|object| object.str_at(&["spec", "nodeName"]) == node)
            }
            _ => false,
        }
    }

    /// Whether a pod of the node uses the claim this volume is bound to.
    fn uses_volume(&self, node: &str, volume: &Value) -> bool {
        let (namespace, claim) = (
            volume.str_at(&["spec", "claimRef", "namespace"]),
            volume.str_at(&["spec", "claimRef", "name"]),
        );
        let pods = self.pods_of(node, namespace);
        !claim.is_empty()
            && pods
                .iter()
                .any(|pod| self.references_of(pod).claims.contains(claim))
    }

    /// Whether a volume that the node uses needs this secret to be mounted.
    fn is_secret_of_volume(&self, node: &str, namespace: &str, name: &str) -> bool {
        const HOLDERS: [&[&str]; 12] = [
            &["csi", "nodePublishSecretRef"],
            &["csi", "nodeStageSecretRef"],
            &["csi", "controllerPublishSecretRef"],
            &["csi", "controllerExpandSecretRef"],
            &["csi", "nodeExpandSecretRef"],
            &["cephfs", "secretRef"],
            &["cinder", "secretRef"],
            &["flexVolume", "secretRef"],
            &["rbd", "secretRef"],
            &["scaleIO", "secretRef"],
            &["iscsi", "secretRef"],
            &["storageos", "secretRef"],
        ];
        let Some(kind) = self.cache.find("", "persistentvolumes") else {
            return false;
        };
        let snapshot = self.cache.snapshot(&kind);
        snapshot.iter().any(|(_, entry)| {
            let Ok(volume) = entry.object() else {
                return false;
            };
            let own = volume.str_at(&["spec", "claimRef", "namespace"]);
            let names_it = volume.get("spec").is_some_and(|spec| {
                let holders = HOLDERS.iter().filter_map(|path| spec.at(path));
                let mut named = holders.map(|reference| {
                    let place = match reference.str_at(&["namespace"]) {
                        "" => own,
                        place => place,
                    };
                    (place, reference.str_at(&["name"]))
                });
                named.any(|reference| reference == (namespace, name))
            });
            names_it && self.uses_volume(node, &volume)
        })
    }

    /// The pods bound to the node in a namespace.
    fn pods_of(&self, node: &str, namespace: &str) -> Vec<Arc<CachedObject>> {
        let Some(kind) = self
            .cache
            .find("", "pods")
            .filter(|_| !namespace.is_empty())
        else {
            return Vec::new();
        };
        let prefix = format!("{namespace}/");
        let mut pods = kind.on_node(node);
        pods.retain(|pod| pod.key.starts_with(&prefix));
        pods
    }

    fn references_of(&self, pod: &CachedObject) -> Arc<PodReferences> {
        let mut remembered = self.references.lock();
        if let Some((revision, references)) = remembered.get(&pod.key)
            && *revision == pod.revision
        {
            return references.clone();
        }
        let object = pod.object().unwrap_or_default();
        // A mirror pod is the node's own word: it opens no doors.
        let references = match object.has(&["metadata", "annotations", MIRROR]) {
            true => PodReferences::default(),
            false => PodReferences::of(&object),
        };
        let references = Arc::new(references);
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(pod.key.clone(), (pod.revision, references.clone()));
        references
    }

    fn entry(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<CachedObject>> {
        let kind = self.cache.find(group, plural)?;
        kind.get(&key_of(namespace, name))
    }

    fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.entry(group, plural, namespace, name)?.object().ok()
    }
}

fn lease(node: &str, asked: &Attributes) -> Decision {
    if !matches!(
        asked.verb.as_str(),
        "get" | "create" | "update" | "patch" | "delete"
    ) {
        return Decision::no_opinion("can only get, create, update, patch, or delete a node lease");
    }
    if asked.namespace != NODE_LEASES {
        return Decision::no_opinion(format!(
            "can only access leases in the {NODE_LEASES:?} system namespace"
        ));
    }
    match asked.verb == "create" || asked.name == node {
        true => Decision::allowed(""),
        false => Decision::no_opinion(
            "can only access node lease with the same name as the requesting node",
        ),
    }
}

fn csi_node(node: &str, asked: &Attributes) -> Decision {
    if !matches!(
        asked.verb.as_str(),
        "get" | "create" | "update" | "patch" | "delete"
    ) {
        return Decision::no_opinion("can only get, create, update, patch, or delete a CSINode");
    }
    if !asked.subresource.is_empty() {
        return Decision::no_opinion("cannot authorize CSINode subresources");
    }
    match asked.verb == "create" || asked.name == node {
        true => Decision::allowed(""),
        false => Decision::no_opinion(
            "can only access CSINode with the same name as the requesting node",
        ),
    }
}

fn own_node(node: &str, asked: &Attributes) -> Decision {
    match (asked.subresource.as_str(), asked.verb.as_str()) {
        // Which node is NodeRestriction's to check.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => {
            Decision::allowed("")
        }
        ("", "get" | "list" | "watch") => match asked.name.as_str() {
            name if name == node => Decision::allowed(""),
            "" => Decision::no_opinion(format!(
                "node '{node}' cannot read all nodes, only its own Node object"
            )),
            other => Decision::no_opinion(format!(
                "node '{node}' cannot read '{other}', only its own Node object"
            )),
        },
        _ => Decision::no_opinion(""),
    }
}
