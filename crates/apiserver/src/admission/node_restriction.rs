//! NodeRestriction: a node changes only its own Node, its own Lease, and the pods bound to it.
//! The other half of the Node authorizer, for what only the object itself tells.

use std::collections::BTreeSet;

use api::{Status, Value};

use super::{Admitted, Operation};
use crate::authorization::{Attributes, node_name};
use crate::pod_references::PodReferences;

const MIRROR: &str = "kubernetes.io/config.mirror";
const NODE_LEASES: &str = "kube-node-lease";
/// Labels of Kubernetes' own domains that a node may give itself.
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

pub(super) async fn admit(admitted: &Admitted<'_>) -> Result<(), Status> {
    let identity = &admitted.context.identity;
    let Some(node) = node_name(identity) else {
        return Ok(());
    };
    if node.is_empty() {
        let user = &identity.user;
        return Err(admitted.forbidden(format_args!("could not determine node from user {user:?}")));
    }
    let resource = admitted.resource;
    match (&*resource.group, &*resource.plural, admitted.subresource) {
        ("", "pods", "") => pod(admitted, node).await,
        ("", "pods", "status") => pod_status(admitted, node),
        ("", "pods", "eviction") => eviction(admitted, node).await,
        ("", "pods", other) => Err(admitted.forbidden(format_args!(
            "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
        ))),
        ("", "nodes", _) => own_node(admitted, node).await,
        ("", "persistentvolumeclaims", "status") => claim_status(admitted, node),
        ("", "persistentvolumeclaims", _) => Err(admitted.forbidden("may only update PVC status")),
        ("", "serviceaccounts", "token") => token(admitted, node).await,
        ("coordination.k8s.io", "leases", _) => lease(admitted, node),
        ("storage.k8s.io", "csinodes", _) if admitted.name() != node => {
            Err(admitted
                .forbidden("can only access CSINode with the same name as the requesting node"))
        }
        ("resource.k8s.io", "resourceslices", _) => slice(admitted, node),
        _ => Ok(()),
    }
}

async fn pod(admitted: &Admitted<'_>, node: &str) -> Result<(), Status> {
    let pod = &*admitted.object;
    match admitted.operation {
        Operation::Delete if pod.str_at(&["spec", "nodeName"]) == node => Ok(()),
        Operation::Delete => Err(admitted.forbidden(format_args!(
            "node {node:?} can only delete pods with spec.nodeName set to itself"
        ))),
        Operation::Create => {
            let own = admitted.one("", "nodes", "", node).await?;
            let uid = own.map(|object| object.str_at(&["metadata", "uid"]).to_string());
            match mirror_problem(pod, node, uid.as_deref()) {
                None => Ok(()),
                Some(why) => Err(admitted.forbidden(why)),
            }
        }
        Operation::Update | Operation::Connect => Err(admitted.forbidden(format_args!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            admitted.operation.to_string()
        ))),
    }
}

/// Why a node may not create this pod. `uid` is that of its own Node.
fn mirror_problem(pod: &Value, node: &str, uid: Option<&str>) -> Option<String> {
    if !pod.has(&["metadata", "annotations", MIRROR]) {
        return Some(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if pod.str_at(&["spec", "nodeName"]) != node {
        return Some(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    let owners = pod.list_at(&["metadata", "ownerReferences"]);
    let owner = match owners {
        [owner] => owner,
        [] => {
            return Some(format!(
                "node {node:?} can only create pods with an owner reference set to itself"
            ));
        }
        _ => {
            return Some(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
    };
    let text = |field: &str| owner.str_at(&[field]);
    if (text("apiVersion"), text("kind"), text("name")) != ("v1", "Node", node) {
        return Some(format!(
            "node {node:?} can only create pods with an owner reference set to itself"
        ));
    }
    if !owner.bool_at(&["controller"]) {
        return Some(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner.bool_at(&["blockOwnerDeletion"]) {
        return Some(format!(
            "node {node:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    let uid = uid.unwrap_or_default();
    if text("uid") != uid {
        return Some(format!(
            "node {node} UID mismatch: expected {} got {uid}",
            text("uid")
        ));
    }
    let named = PodReferences::of(pod);
    let what = if !named.service_account.is_empty() {
        "serviceaccounts"
    } else if !named.secrets.is_empty() {
        "secrets"
    } else if !named.config_maps.is_empty() {
        "configmaps"
    } else if !named.resource_claims.is_empty() {
        "resourceclaims"
    } else if !named.claims.is_empty() {
        "persistentvolumeclaims"
    } else {
        return None;
    };
    Some(format!(
        "node {node:?} can not create pods that reference {what}"
    ))
}

fn pod_status(admitted: &Admitted<'_>, node: &str) -> Result<(), Status> {
    let Some(old) = admitted.old else {
        let operation = admitted.operation.to_string();
        return Err(admitted.forbidden(format_args!("unexpected operation {operation:?}")));
    };
    let same = |path: &[&str]| {
        let blank = |value: Option<&Value>| value.cloned().unwrap_or_else(Value::object);
        blank(old.at(path)) == blank(admitted.object.at(path))
    };
    let why = if old.str_at(&["spec", "nodeName"]) != node {
        "can only update pod status for pods with spec.nodeName set to itself"
    } else if !same(&["metadata", "labels"]) {
        "cannot update labels through pod status"
    } else if !same(&["status", "resourceClaimStatuses"]) {
        "cannot update resource claim statues"
    } else if !same(&["status", "extendedResourceClaimStatus"]) {
        "cannot update extended resource claim status"
    } else {
        return Ok(());
    };
    Err(admitted.forbidden(format_args!("node {node:?} {why}")))
}

async fn eviction(admitted: &Admitted<'_>, node: &str) -> Result<(), Status> {
    let (namespace, name) = (admitted.namespace(), admitted.name());
    let Some(pod) = admitted.one("", "pods", &namespace, name).await? else {
        return Err(Status::not_found("", "pods", name));
    };
    match pod.str_at(&["spec", "nodeName"]) == node {
        true => Ok(()),
        false => Err(admitted.forbidden(format_args!(
            "node {node} can only evict pods with spec.nodeName set to itself"
        ))),
    }
}

async fn own_node(admitted: &Admitted<'_>, node: &str) -> Result<(), Status> {
    let name = admitted.name();
    if name != node {
        return Err(admitted.forbidden(format_args!(
            "node {node:?} is not allowed to modify node {name:?}"
        )));
    }
    let blank = Value::object();
    let (new, old) = (&*admitted.object, admitted.old.unwrap_or(&blank));
    if admitted.operation != Operation::Delete {
        own_pod_ranges(admitted, node, pod_ranges(new), pod_ranges(old)).await?;
    }
    let forbidden = forbidden_labels(new, old).join(", ");
    match admitted.operation {
        Operation::Create if !forbidden.is_empty() => Err(admitted.forbidden(format_args!(
            "node {node:?} is not allowed to set the following labels: {forbidden}"
        ))),
        Operation::Update => {
            let same = |path: &[&str]| new.list_at(path) == old.list_at(path);
            if !same(&["spec", "taints"]) {
                return Err(admitted.forbidden(format_args!(
                    "node {node:?} is not allowed to modify taints"
                )));
            }
            if !same(&["metadata", "ownerReferences"]) {
                return Err(admitted.forbidden(format_args!(
                    "node {node:?} is not allowed to modify ownerReferences"
                )));
            }
            match forbidden.is_empty() {
                true => Ok(()),
                false => Err(admitted
                    .forbidden(format_args!("is not allowed to modify labels: {forbidden}"))),
            }
        }
        _ => Ok(()),
    }
}

/// The other nodes send packets for a node's pod ranges to that node, so it must not choose them.
/// Upstream lets a kubelet register with any range; ours refuses all but the one that the cluster
/// gave to a node of this name, by an invitation or in its Node.
async fn own_pod_ranges(
    admitted: &Admitted<'_>,
    node: &str,
    new: Vec<&str>,
    old: Vec<&str>,
) -> Result<(), Status> {
    if new.is_empty() || new == old {
        return Ok(());
    }
    let given = match &admitted.context.server.admission.pod_ranges {
        None => None,
        Some(given) => given(node).map_err(|problem| {
            Status::internal(format!(
                "which pod range the cluster gave to node {node:?} is not known: {problem}"
            ))
        })?,
    };
    if given.as_deref().is_some_and(|given| new == [given]) {
        return Ok(());
    }
    // Who registers again with what its Node has gets the usual conflict.
    if admitted.operation == Operation::Create
        && let Some(present) = admitted.one("", "nodes", "", node).await?
        && new == pod_ranges(&present)
    {
        return Ok(());
    }
    let given = given.unwrap_or_else(|| "none".to_string());
    Err(admitted.forbidden(format_args!(
        "node {node:?} is not allowed to set pod CIDRs that the cluster did not give to it: {} (given: {given})",
        new.join(", ")
    )))
}

/// All ranges that a Node names, in either field.
fn pod_ranges(node: &Value) -> Vec<&str> {
    let single = node.str_at(&["spec", "podCIDR"]);
    let mut ranges: Vec<&str> = node
        .list_at(&["spec", "podCIDRs"])
        .iter()
        .map(|range| range.as_str().unwrap_or_default())
        .collect();
    if !single.is_empty() && !ranges.contains(&single) {
        ranges.push(single);
    }
    ranges
}

/// Labels that differ and are not a node's to change.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let path = ["metadata", "labels"];
    let names = new.fields_at(&path).chain(old.fields_at(&path));
    let changed: BTreeSet<&str> = names
        .map(|(name, _)| name)
        .filter(|name| {
            let at = ["metadata", "labels", name];
            new.at(&at) != old.at(&at)
        })
        .collect();
    changed
        .into_iter()
        .filter(|name| !is_own_label(name))
        .map(str::to_string)
        .collect()
}

fn is_own_label(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    let within = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    !kubernetes
        || OWN_LABELS.contains(&name)
        || within("kubelet.kubernetes.io")
        || within("node.kubernetes.io")
}

fn claim_status(admitted: &Admitted<'_>, node: &str) -> Result<(), Status> {
    let Some(old) = admitted.old else {
        let operation = admitted.operation.to_string();
        return Err(admitted.forbidden(format_args!("unexpected operation {operation:?}")));
    };
    let rest = |claim: &Value| {
        let mut rest = claim.clone();
        for field in ["resourceVersion", "managedFields"] {
            rest.remove(&["metadata", field]);
        }
        for field in [
            "capacity",
            "conditions",
            "allocatedResourceStatuses",
            "allocatedResources",
        ] {
            rest.remove(&["status", field]);
        }
        rest
    };
    match rest(admitted.object) == rest(old) {
        true => Ok(()),
        false => Err(admitted.forbidden(format_args!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
        ))),
    }
}

/// A node gets tokens only for pods bound to it, and for audiences those pods ask for.
async fn token(admitted: &Admitted<'_>, node: &str) -> Result<(), Status> {
    if admitted.operation != Operation::Create {
        return Ok(());
    }
    let reference = admitted.object.at(&["spec", "boundObjectRef"]);
    let text = |field: &str| reference.map_or("", |reference| reference.str_at(&[field]));
    let (name, uid) = (text("name"), text("uid"));
    if (text("apiVersion"), text("kind")) != ("v1", "Pod") || name.is_empty() {
        return Err(admitted.forbidden("node requested token not bound to a pod"));
    }
    if uid.is_empty() {
        return Err(admitted.forbidden("node requested token with a pod binding without a uid"));
    }
    let namespace = admitted.context.info.namespace.clone();
    let Some(pod) = admitted.one("", "pods", &namespace, name).await? else {
        return Err(Status::not_found("", "pods", name));
    };
    if pod.str_at(&["metadata", "uid"]) != uid {
        return Err(admitted.forbidden(format_args!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        )));
    }
    if pod.str_at(&["spec", "nodeName"]) != node {
        return Err(
            admitted.forbidden("node requested token bound to a pod scheduled on a different node")
        );
    }
    let audience = match admitted.object.list_at(&["spec", "audiences"]) {
        [] => "",
        [only] => only.as_str().unwrap_or_default(),
        _ => return Err(admitted.forbidden("node may only request 0 or 1 audiences")),
    };
    if asks_for(&pod, audience) || driver_asks_for(admitted, &pod, audience).await? {
        return Ok(());
    }
    let context = admitted.context;
    let question = Attributes {
        verb: "request-serviceaccounts-token-audience".to_string(),
        is_resource: true,
        resource: audience.to_string(),
        namespace,
        name: context.info.name.clone(),
        ..Attributes::default()
    };
    let authorizer = &context.server.authorizer;
    match authorizer.allows(&context.identity, &question).is_allowed() {
        true => Ok(()),
        false => Err(admitted.forbidden(format_args!(
            "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            context.identity.user
        ))),
    }
}

/// Whether a projected volume of the pod holds a token for the audience.
fn asks_for(pod: &Value, audience: &str) -> bool {
    let volumes = pod.list_at(&["spec", "volumes"]).iter();
    let mut sources = volumes.flat_map(|volume| volume.list_at(&["projected", "sources"]));
    sources.any(|source| {
        let token = source.get("serviceAccountToken");
        token.is_some_and(|token| token.str_at(&["audience"]) == audience)
    })
}

/// Whether the CSI driver of one of the pod's volumes wants tokens for the audience.
async fn driver_asks_for(
    admitted: &Admitted<'_>,
    pod: &Value,
    audience: &str,
) -> Result<bool, Status> {
    let namespace = pod.str_at(&["metadata", "namespace"]);
    for volume in pod.list_at(&["spec", "volumes"]) {
        let claim = match volume.has(&["ephemeral"]) {
            true => format!(
                "{}-{}",
                pod.str_at(&["metadata", "name"]),
                volume.str_at(&["name"])
            ),
            false => volume
                .str_at(&["persistentVolumeClaim", "claimName"])
                .to_string(),
        };
        let mut driver = volume.str_at(&["csi", "driver"]).to_string();
        if !claim.is_empty()
            && let Some(claim) = admitted
                .one("", "persistentvolumeclaims", namespace, &claim)
                .await?
            && let Some(bound) = admitted
                .one(
                    "",
                    "persistentvolumes",
                    "",
                    claim.str_at(&["spec", "volumeName"]),
                )
                .await?
        {
            driver = bound.str_at(&["spec", "csi", "driver"]).to_string();
        }
        if driver.is_empty() {
            continue;
        }
        let found = admitted
            .one("storage.k8s.io", "csidrivers", "", &driver)
            .await?;
        let wants = found.is_some_and(|driver| {
            let mut requests = driver.list_at(&["spec", "tokenRequests"]).iter();
            requests.any(|request| request.str_at(&["audience"]) == audience)
        });
        if wants {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lease(admitted: &Admitted<'_>, node: &str) -> Result<(), Status> {
    if admitted.namespace() != NODE_LEASES {
        return Err(admitted.forbidden(format_args!(
            "can only access leases in the {NODE_LEASES:?} system namespace"
        )));
    }
    match admitted.name() == node {
        true => Ok(()),
        false => Err(admitted
            .forbidden("can only access node lease with the same name as the requesting node")),
    }
}

fn slice(admitted: &Admitted<'_>, node: &str) -> Result<(), Status> {
    let own = admitted.object.str_at(&["spec", "nodeName"]) == node;
    let verb = match admitted.operation {
        Operation::Create => "create",
        Operation::Delete => "delete",
        Operation::Update | Operation::Connect => return Ok(()),
    };
    match own {
        true => Ok(()),
        false => Err(admitted.forbidden(format_args!(
            "can only {verb} ResourceSlice with the same NodeName as the requesting node"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_labels_itself_within_bounds() {
        for (name, own) in [
            ("example.com/colour", true),
            ("plain", true),
            ("kubernetes.io/hostname", true),
            ("node.kubernetes.io/anything", true),
            ("x.kubelet.kubernetes.io/y", true),
            ("node-role.kubernetes.io/control-plane", false),
            ("node-restriction.kubernetes.io/secure", false),
            ("x.node-restriction.kubernetes.io/secure", false),
            ("k8s.io/other", false),
        ] {
            assert_eq!(is_own_label(name), own, "{name}");
        }
    }

    #[test]
    fn only_mirror_pods_of_its_own_without_references() {
        let mut pod = api::document!({
            "metadata": {
                "annotations": {"kubernetes.io/config.mirror": "x"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}],
            },
            "spec": {"nodeName": "n", "containers": [{}]},
        });
        assert_eq!(mirror_problem(&pod, "n", Some("u")), None);
        assert_eq!(
            mirror_problem(&pod, "n", Some("v")).unwrap(),
            "node n UID mismatch: expected u got v"
        );
        pod.set(
            &["spec", "volumes"],
            api::document!([{"name": "s", "secret": {"secretName": "s"}}]),
        );
        assert_eq!(
            mirror_problem(&pod, "n", Some("u")).unwrap(),
            "node \"n\" can not create pods that reference secrets"
        );
        pod.remove(&["metadata", "annotations"]);
        assert_eq!(
            mirror_problem(&pod, "n", Some("u")).unwrap(),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n\" can only create mirror pods"
        );
    }
}
