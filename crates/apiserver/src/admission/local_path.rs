//! The part of a node that looks after its local-path volumes: it lets go of deleted volumes of its
//! own node, and changes nothing else. Its role lets it write volumes, which only the object itself
//! tells apart.

use api::{Status, Value};

use super::{Admitted, Operation};

const NODES: &str = "system:coracle:local-path-nodes";
const PREFIX: &str = "system:coracle:local-path:";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONER: &str = "coracle.dev/local-path";
const HOST_NAME: &str = "kubernetes.io/hostname";

pub(super) fn admit(admitted: &Admitted<'_>) -> Result<(), Status> {
    let identity = &admitted.context.identity;
    if !identity.groups.iter().any(|group| group == NODES) {
        return Ok(());
    }
    let node = identity.user.strip_prefix(PREFIX).unwrap_or_default();
    let (Some(old), Operation::Update) = (admitted.old, admitted.operation) else {
        return Err(admitted.forbidden(format_args!(
            "{} may only update local-path volumes",
            identity.user
        )));
    };
    if !admitted.is_whole("", "PersistentVolume") || !is_on(old, node) {
        return Err(admitted.forbidden(format_args!(
            "node {node:?} may only let go of local-path volumes of its own"
        )));
    }
    match without_finalizers(admitted.object) == without_finalizers(old) {
        true => Ok(()),
        false => Err(admitted.forbidden(format_args!(
            "node {node:?} may only change the finalizers of a volume"
        ))),
    }
}

/// Whether this is a local-path volume that can only be used on the node. Our nodes have their name
/// for a host name.
fn is_on(volume: &Value, node: &str) -> bool {
    let made_by = volume.str_at(&["metadata", "annotations", PROVISIONED_BY]);
    let terms = volume.list_at(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    let [term] = terms else {
        return false;
    };
    let [requirement] = term.list_at(&["matchExpressions"]) else {
        return false;
    };
    let [value] = requirement.list_at(&["values"]) else {
        return false;
    };
    !node.is_empty()
        && made_by == PROVISIONER
        && requirement.str_at(&["key"]) == HOST_NAME
        && requirement.str_at(&["operator"]) == "In"
        && value.as_str() == Some(node)
}

fn without_finalizers(volume: &Value) -> Value {
    let mut rest = volume.clone();
    for field in ["finalizers", "managedFields", "resourceVersion"] {
        rest.remove(&["metadata", field]);
    }
    rest
}
