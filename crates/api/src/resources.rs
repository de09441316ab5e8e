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
/// amounts given for the pod as a whole replace the sums.
pub fn of_containers(pod: &Value, list: List) -> Amounts {
    let field = list.field();
    let mut total = Amounts::new();
    for container in pod.list_at(&["spec", "containers"]) {
        add(&mut total, &amounts(container, &["resources", field]));
    }
    let (mut sidecars, mut stages) = (Amounts::new(), Amounts::new());
    for container in pod.list_at(&["spec", "initContainers"]) {
        let own = amounts(container, &["resources", field]);
        if container.str_at(&["restartPolicy"]) == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            at_least(&mut stages, &sidecars);
        } else {
            let mut stage = own;
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
pub fn of_pod(pod: &Value, list: List) -> Amounts {
    let mut total = of_containers(pod, list);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, list: List, expected: &str) {
        let mut pod = Value::object();
        pod.set(&["spec"], spec);
        assert_eq!(to_document(&of_pod(&pod, list)).to_string(), expected);
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
        // Together 450m; the last stage 400m beside the sidecar's 200m is more.
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
