//! When a namespace that is being deleted is looked at again, and its finalizer. Pure.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};

/// The finalizer in the namespace's specification that this controller removes.
const FINALIZER: &str = "kubernetes";
/// Content with finalizers or a grace period is looked at again after this; the end of the last
/// pod is seen at once.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same, once the deletion is not fresh any more.
const LOOK_SELDOM: Duration = Duration::from_secs(8);
const FRESH_SECONDS: i64 = 60;

/// Whether the namespace waits for this controller.
pub fn has_our_finalizer(namespace: &Namespace) -> bool {
    let spec = namespace.spec.as_ref();
    let finalizers = spec.and_then(|spec| spec.finalizers.as_ref());
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|name| name == FINALIZER))
}

pub fn remove_our_finalizer(namespace: &mut Namespace) {
    let spec = namespace.spec.as_mut();
    if let Some(finalizers) = spec.and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
}

/// How soon a namespace is looked at again whose deletion began `age` seconds ago.
pub fn until_next_look(age: i64) -> Duration {
    match age < FRESH_SECONDS {
        true => LOOK_AGAIN,
        false => LOOK_SELDOM,
    }
}

/// Whether some pod of a namespace whose deletion began `age` seconds ago may still use its grace
/// period.
pub fn has_grace_left(pods: &[Arc<Pod>], age: i64) -> bool {
    pods.iter().any(|pod| {
        let spec = pod.spec.as_ref();
        let grace = spec.and_then(|spec| spec.termination_grace_period_seconds);
        !semantics::pod::is_terminal(pod) && grace.unwrap_or(0) > age
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finalizer_is_removed_and_others_are_kept() {
        let mut namespace: Namespace = serde_json::from_value(serde_json::json!({
            "spec": {"finalizers": ["example.com/mine", "kubernetes"]}}))
        .unwrap();
        assert!(has_our_finalizer(&namespace));
        remove_our_finalizer(&mut namespace);
        assert!(!has_our_finalizer(&namespace));
        let left = namespace.spec.unwrap().finalizers.unwrap();
        assert_eq!(left, ["example.com/mine"]);
    }

    #[test]
    fn pods_have_their_grace_period_unless_they_have_ended() {
        let pod = |phase: &str| -> Arc<Pod> {
            Arc::new(
                serde_json::from_value(serde_json::json!({
                    "spec": {"containers": [], "terminationGracePeriodSeconds": 30},
                    "status": {"phase": phase},
                }))
                .unwrap(),
            )
        };
        assert!(has_grace_left(&[pod("Running")], 29));
        assert!(!has_grace_left(&[pod("Running")], 30));
        assert!(!has_grace_left(&[pod("Succeeded")], 0));
        assert!(until_next_look(0) < until_next_look(3600));
    }
}
