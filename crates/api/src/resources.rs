//! What a pod asks for in all: its containers' requests and limits summed as the scheduler, the
//! quota and limit ranges count them.

use std::collections::BTreeMap;

use crate::document::Value;
use crate::quantity::Quantity;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Which of a container's two lists is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Requests,
    Limits,
}

impl List {
    fn field(self) -> &'static str {
        match self {
            List::Requests => "requests",
            List::Limits => "limits",
        }
    }
}

/// Which resources count while a pod's resources are changed in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those of the specification.
    Spec,
    /// The most of what containers request, were allocated and have according to the status, as
    /// quotas count.
    ContainerStatus,
}

/// The amounts at `path`; what is no quantity is left out.
pub fn amounts(object: &Value, path: &[&str]) -> Amounts {
    object
        .fields_at(path)
        .filter_map(|(name, value)| Some((name.to_string(), quantity(value)?)))
        .collect()
}

/// A quantity, which JSON may also write as a number.
pub fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Integer(_) | Value::Float(_) => Quantity::parse(&value.to_string()).ok(),
        _ => None,
    }
}

/// Amounts as an object, each quantity in its own notation.
pub fn to_document(amounts: &Amounts) -> Value {
    let mut document = Value::object();
    for (name, amount) in amounts {
        document.set(&[name], amount.to_string());
    }
    document
}

pub fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = match total.get(name) {
            Some(before) => *before + *amount,
            None => *amount,
        };
        total.insert(name.clone(), sum);
    }
}

fn at_least(total: &mut Amounts, floor: &Amounts) {
    for (name, amount) in floor {
        if total.get(name).is_none_or(|before| amount > before) {
            total.insert(name.clone(), *amount);
        }
    }
}

/// Containers and sidecars together, or the largest stage of the init containers if that is more;
/// amounts given for the pod as a whole replace the sums. `semantics::pod_resources` is the same
/// rule for typed pods.
pub fn of_containers(pod: &Value, list: List) -> Amounts {
    sum(pod, list, Counted::Spec)
}

fn sum(pod: &Value, list: List, counted: Counted) -> Amounts {
    let field = list.field();
    let resized = |container: &Value| match counted {
        Counted::Spec => amounts(container, &["resources", field]),
        Counted::ContainerStatus => of_resized(pod, container, list),
    };
    let mut total = Amounts::new();
    for container in pod.list_at(&["spec", "containers"]) {
        add(&mut total, &resized(container));
    }
    let (mut sidecars, mut stages) = (Amounts::new(), Amounts::new());
    for container in pod.list_at(&["spec", "initContainers"]) {
        if container.str_at(&["restartPolicy"]) == "Always" {
            let own = resized(container);
            add(&mut total, &own);
            add(&mut sidecars, &own);
            at_least(&mut stages, &sidecars);
        } else {
            // It runs once and is not resized.
            let mut stage = amounts(container, &["resources", field]);
            add(&mut stage, &sidecars);
            at_least(&mut stages, &stage);
        }
    }
    at_least(&mut total, &stages);
    for (name, amount) in amounts(pod, &["spec", "resources", field]) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            total.insert(name, amount);
        }
    }
    total
}

/// As [`of_containers`], with the overhead of the pod's sandbox.
pub fn of_pod(pod: &Value, list: List, counted: Counted) -> Amounts {
    let mut total = sum(pod, list, counted);
    for (name, overhead) in amounts(pod, &["spec", "overhead"]) {
        match (list, total.get(&name).copied()) {
            (List::Requests, before) => {
                let sum = before.map_or(overhead, |before| before + overhead);
                total.insert(name, sum);
            }
            // What is unlimited stays so.
            (List::Limits, Some(before)) if !before.is_zero() => {
                total.insert(name, before + overhead);
            }
            (List::Limits, _) => {}
        }
    }
    total
}

/// The amounts of a container that may be being resized: the most of what it asks for, was
/// allocated and has; without what it asks for if the node can never grant that.
fn of_resized(pod: &Value, container: &Value, list: List) -> Amounts {
    let field = list.field();
    let wanted = amounts(container, &["resources", field]);
    let name = container.str_at(&["name"]);
    let statuses = ["containerStatuses", "initContainerStatuses"];
    let mut statuses = statuses
        .iter()
        .flat_map(|list| pod.list_at(&["status", list]));
    let status = statuses.find(|status| status.str_at(&["name"]) == name);
    let Some(status) = status.filter(|status| status.has(&["resources"])) else {
        return wanted;
    };
    let mut conditions = pod.list_at(&["status", "conditions"]).iter();
    let pending = conditions.find(|one| one.str_at(&["type"]) == "PodResizePending");
    let is_infeasible = pending.is_some_and(|one| one.str_at(&["reason"]) == "Infeasible");
    let mut most = match is_infeasible {
        true => Amounts::new(),
        false => wanted,
    };
    at_least(&mut most, &amounts(status, &["resources", field]));
    if list == List::Requests {
        at_least(&mut most, &amounts(status, &["allocatedResources"]));
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, list: List, expected: &str) {
        let mut pod = Value::object();
        pod.set(&["spec"], spec);
        let found = of_pod(&pod, list, Counted::ContainerStatus);
        assert_eq!(to_document(&found).to_string(), expected);
    }

    #[test]
    fn a_container_that_is_resized_counts_with_the_most_it_wants_was_given_and_has() {
        let pod = crate::document!({
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"containerStatuses": [{"name": "c",
                "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "3"}}}]},
        });
        let cpu = |counted: Counted| of_pod(&pod, List::Requests, counted)["cpu"].value();
        assert_eq!(cpu(Counted::Spec), 1);
        assert_eq!(cpu(Counted::ContainerStatus), 3);
    }

    #[test]
    fn init_containers_count_by_their_largest_stage() {
        let container = |cpu: &str| crate::document!({"resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = container("200m");
        sidecar.set(&["restartPolicy"], "Always");
        let spec = crate::document!({
            "containers": [container("100m"), container("150m")],
            "initContainers": [container("300m"), sidecar, container("400m")],
            "overhead": {"cpu": "10m"},
        });
        // Together 450m; the last stage 400m together with the sidecar's 200m is more.
        check(spec, List::Requests, r#"{"cpu":"610m"}"#);
    }

    #[test]
    fn overhead_limits_only_what_is_limited() {
        let spec = crate::document!({
            "containers": [{"resources": {"limits": {"memory": "1Gi"}}}],
            "overhead": {"cpu": "10m", "memory": "1Gi"},
        });
        check(spec, List::Limits, r#"{"memory":"2Gi"}"#);
    }
}
