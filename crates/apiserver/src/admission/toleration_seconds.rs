//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or unreachable.

use api::Value;

use super::{Admitted, Operation};

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

pub(super) fn admit(admitted: &mut Admitted<'_>) {
    if !admitted.is("", "Pod")
        || !admitted.subresource.is_empty()
        || admitted.operation != Operation::Create
    {
        return;
    }
    let mut tolerations: Vec<Value> = admitted
        .object
        .at(&["spec", "tolerations"])
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let missing: Vec<&str> = TAINTS
        .into_iter()
        .filter(|taint| {
            !tolerations
                .iter()
                .any(|toleration| concerns(toleration, taint))
        })
        .collect();
    for taint in missing {
        tolerations.push(api::document!({
            "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
        }));
    }
    admitted.object.set(&["spec", "tolerations"], tolerations);
}

fn concerns(toleration: &Value, taint: &str) -> bool {
    let key = toleration.str_at(&["key"]);
    let effect = toleration.str_at(&["effect"]);
    (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
}
