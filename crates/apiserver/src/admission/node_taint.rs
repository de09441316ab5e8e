//! TaintNodesByCondition: a new node is not ready until its controller says otherwise, so that no
//! pod is placed on it in between.

use super::Admitted;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn admit(admitted: &mut Admitted<'_>) {
    if !admitted.is_new("", "Node") {
        return;
    }
    let mut taints = admitted.object.list_at(&["spec", "taints"]).to_vec();
    let is_tainted = taints.iter().any(|taint| {
        taint.str_at(&["key"]) == NOT_READY && taint.str_at(&["effect"]) == "NoSchedule"
    });
    if !is_tainted {
        taints.push(api::document!({"key": NOT_READY, "effect": "NoSchedule"}));
        admitted.object.set(&["spec", "taints"], taints);
    }
}
