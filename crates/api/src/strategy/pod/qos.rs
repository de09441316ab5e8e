//! The quality-of-service class of a Pod.

use crate::document::Value;
use crate::quantity::Quantity;

const COUNTED: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`, from the requests and limits of CPU and memory.
pub fn class(pod: &Value) -> &'static str {
    let pod_level = pod.at(&["spec", "resources"]);
    let pod_level = pod_level.filter(|resources| !resources.is_null());
    let all: Vec<&Value> = match pod_level {
        Some(resources) => vec![resources],
        None => ["containers", "initContainers"]
            .iter()
            .flat_map(|list| pod.list_at(&["spec", list]))
            .filter_map(|container| container.get("resources"))
            .collect(),
    };
    let containers: usize = ["containers", "initContainers"]
        .iter()
        .map(|list| pod.list_at(&["spec", list]).len())
        .sum();
    let mut requests = [None; COUNTED.len()];
    let mut limits = [None; COUNTED.len()];
    // A container without resources at all is not in `all`, yet makes the Pod less than guaranteed.
    let mut guaranteed = pod_level.is_some() || all.len() == containers;
    for resources in all {
        for (index, name) in COUNTED.iter().enumerate() {
            let positive = |list: &str| {
                let quantity = resources.str_at(&[list, name]).parse::<Quantity>().ok()?;
                (!quantity.is_zero() && !quantity.is_negative()).then_some(quantity)
            };
            let add = |sum: &mut Option<Quantity>, quantity: Quantity| {
                *sum = Some(sum.map_or(quantity, |sum| sum + quantity));
            };
            if let Some(quantity) = positive("requests") {
                add(&mut requests[index], quantity);
            }
            match positive("limits") {
                Some(quantity) => add(&mut limits[index], quantity),
                None => guaranteed = false,
            }
        }
    }
    if requests.iter().chain(&limits).all(Option::is_none) {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    #[test]
    fn qos_classes_follow_requests_and_limits() {
        let check = |containers: Value, expected: &str| {
            let pod = document!({"spec": {"containers": containers}});
            assert_eq!(class(&pod), expected, "{pod}");
        };
        let both = document!({
            "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"},
        });
        check(document!([{"name": "a"}]), "BestEffort");
        check(
            document!([{"resources": {"requests": {"cpu": "0"}}}]),
            "BestEffort",
        );
        check(
            document!([{"resources": {"requests": {"ephemeral-storage": "1"}}}]),
            "BestEffort",
        );
        check(
            document!([{"resources": {"requests": {"cpu": "1"}}}]),
            "Burstable",
        );
        check(document!([{"resources": both}]), "Guaranteed");
        check(document!([{"resources": both}, {"name": "b"}]), "Burstable");
        check(
            document!([{"resources": {
                "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"},
            }}]),
            "Burstable",
        );
        check(
            document!([{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]),
            "Burstable",
        );
    }
}
