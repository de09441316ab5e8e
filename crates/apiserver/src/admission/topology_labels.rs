//! PodTopologyLabels: a pod carries the zone and region of its node.

use api::Status;

use super::{Admitted, Operation};

const COPIED: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

pub(super) async fn admit(admitted: &mut Admitted<'_>) -> Result<(), Status> {
    if !admitted.is("", "Pod") || admitted.operation == Operation::Delete {
        return Ok(());
    }
    let node = match admitted.subresource {
        "" if admitted.operation == Operation::Create => {
            admitted.object.str_at(&["spec", "nodeName"])
        }
        "binding" => match admitted.object.str_at(&["target", "kind"]) {
            "" | "Node" => admitted.object.str_at(&["target", "name"]),
            _ => "",
        },
        _ => "",
    };
    if node.is_empty() {
        return Ok(());
    }
    // A node is large and this happens at every binding: its labels are taken from the cache as they
    // are, without decoding it.
    let Some(node) = admitted.entry("", "nodes", "", node).await? else {
        return Ok(());
    };
    for label in COPIED {
        if let Some(value) = node.label(label) {
            let path = ["metadata", "labels", label];
            admitted.object.set(&path, value);
        }
    }
    Ok(())
}
