//! Whether a change of a pod changes what it uses of a quota. Pure.

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use semantics::amounts::{Amounts, ResourceList};
use semantics::pod::is_terminal;
use semantics::pod_resources::{self, Counted};

use crate::meta::is_terminating;

/// Whether a pod may use more or less than before. That it was bound to a node or runs now, which
/// happens to every pod, is none of that.
pub fn uses_another_amount(old: &Pod, new: &Pod) -> bool {
    let deadline = |pod: &Pod| pod.spec.as_ref()?.active_deadline_seconds;
    is_terminal(old) != is_terminal(new)
        || is_terminating(old) != is_terminating(new)
        || deadline(old) != deadline(new)
        || stated(old) != stated(new) && amounts(old) != amounts(new)
}

type Stated<'a> = (Option<&'a ResourceRequirements>, Option<&'a ResourceList>);

/// Everything from which the amounts are summed: comparing it is cheaper than summing.
fn stated(pod: &Pod) -> Vec<Stated<'_>> {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let whole = spec.map(|spec| (spec.resources.as_ref(), spec.overhead.as_ref()));
    let containers = spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
    });
    let statuses = status.into_iter().flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    });
    whole
        .into_iter()
        .chain(containers.map(|container| (container.resources.as_ref(), None)))
        .chain(statuses.map(|status| {
            let allocated = status.allocated_resources.as_ref();
            (status.resources.as_ref(), allocated)
        }))
        .collect()
}

/// The pod's requests and limits as quotas count them.
fn amounts(pod: &Pod) -> Option<(Amounts<'_>, Amounts<'_>)> {
    let spec = pod.spec.as_ref()?;
    let status = pod.status.as_ref();
    let counted = status.map_or(Counted::Spec, Counted::ContainerStatus);
    Some((
        pod_resources::requests(spec, counted),
        pod_resources::limits(spec, counted),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(cpu: &str, status: Value) -> Pod {
        serde_json::from_value(json!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": status,
        }))
        .unwrap()
    }

    fn running(resources: Value) -> Value {
        json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "resources": resources}]})
    }

    #[test]
    fn only_changes_of_the_amounts_count() {
        let new = pod("1", json!({"phase": "Pending"}));
        for (changed, expected) in [
            (
                pod("1", json!({"phase": "Pending", "hostIP": "10.0.0.1"})),
                false,
            ),
            // The node reports what was asked for.
            (pod("1", running(json!({"requests": {"cpu": "1"}}))), false),
            (pod("1", running(json!({"requests": {"cpu": "2"}}))), true),
            (pod("2", json!({"phase": "Pending"})), true),
            (pod("1", json!({"phase": "Succeeded"})), true),
        ] {
            assert_eq!(uses_another_amount(&new, &changed), expected, "{changed:?}");
        }
    }
}
