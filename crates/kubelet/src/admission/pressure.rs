//! A node that runs short takes no more: under memory pressure no pods that ask for nothing, under
//! any other none at all. Pure.

use k8s_openapi::api::core::v1::{Pod, Taint};

use super::{Rejection, placement};
use crate::{
    pod_spec::is_critical,
    resources::{QosClass, qos_class},
};

const MEMORY: &str = "MemoryPressure";

pub(super) fn check(pod: &Pod, pressures: &[&str]) -> Vec<Rejection> {
    if pressures.is_empty() || is_critical(pod) {
        return Vec::new();
    }
    if pressures == [MEMORY] {
        let taint = Taint {
            key: "node.kubernetes.io/memory-pressure".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        if qos_class(pod) != QosClass::BestEffort || placement::tolerated(pod, &taint) {
            return Vec::new();
        }
    }
    vec![Rejection::new(
        "Evicted",
        format!("The node had condition: [{}]. ", pressures.join(" ")),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pressure_rejects_the_pods_it_concerns() {
        let pod = |spec: serde_json::Value| -> Pod {
            serde_json::from_value(serde_json::json!({"spec": spec})).expect("a pod")
        };
        let plain = pod(serde_json::json!({"containers": [{"name": "c"}]}));
        let asking = pod(serde_json::json!({"containers": [
            {"name": "c", "resources": {"requests": {"memory": "1Mi"}}}]}));
        let tolerant = pod(
            serde_json::json!({"containers": [{"name": "c"}], "tolerations": [
            {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]}),
        );
        let critical =
            pod(serde_json::json!({"containers": [{"name": "c"}], "priority": 2_000_000_000}));
        let refused = |pod: &Pod, pressures: &[&str]| {
            let found = check(pod, pressures).into_iter().next();
            found.map(|rejection| rejection.message)
        };
        assert_eq!(refused(&plain, &[]), None);
        assert_eq!(
            refused(&plain, &[MEMORY]).as_deref(),
            Some("The node had condition: [MemoryPressure]. ")
        );
        assert_eq!(refused(&asking, &[MEMORY]), None);
        assert_eq!(refused(&tolerant, &[MEMORY]), None);
        assert!(refused(&asking, &["DiskPressure"]).is_some());
        assert_eq!(refused(&critical, &["DiskPressure"]), None);
    }
}
