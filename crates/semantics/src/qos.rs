//! The quality-of-service class of a pod.
//!
//! Upstream decides in `GetPodQOS` and `ComputePodQOS` (`pkg/apis/core/v1/helper/qos`): only cpu
//! and memory count, and of them only amounts above zero. Without any, the pod is `BestEffort`. It
//! is `Guaranteed` when every container has limits of both and the sums of requests and limits are
//! the same, and `Burstable` otherwise. Resources of the pod as a whole, where it has the field,
//! count instead of its containers'.

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};

use crate::amounts::ResourceList;

const COUNTED: [&str; 2] = ["cpu", "memory"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }

    fn of_text(text: &str) -> Option<QosClass> {
        let all = [
            QosClass::Guaranteed,
            QosClass::Burstable,
            QosClass::BestEffort,
        ];
        all.into_iter().find(|class| class.as_str() == text)
    }
}

/// The class that the pod's status says, or else the one that follows from its specification.
pub fn class(pod: &Pod) -> QosClass {
    let status = pod.status.as_ref();
    let stated = status.and_then(|status| status.qos_class.as_deref());
    stated
        .and_then(QosClass::of_text)
        .unwrap_or_else(|| match &pod.spec {
            Some(spec) => class_of_spec(spec),
            None => QosClass::BestEffort,
        })
}

/// The class that follows from the specification.
pub fn class_of_spec(spec: &PodSpec) -> QosClass {
    let mut sums = Sums::default();
    match &spec.resources {
        Some(resources) => sums.add(Some(resources)),
        None => {
            let init = spec.init_containers.iter().flatten();
            for container in spec.containers.iter().chain(init) {
                sums.add(container.resources.as_ref());
            }
        }
    }
    let nothing = |sums: &[Option<Quantity>]| sums.iter().all(Option::is_none);
    if nothing(&sums.requests) && nothing(&sums.limits) {
        QosClass::BestEffort
    } else if sums.all_are_limited && sums.requests == sums.limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

struct Sums {
    requests: [Option<Quantity>; COUNTED.len()],
    limits: [Option<Quantity>; COUNTED.len()],
    /// Whether each of them so far has limits of all counted resources.
    all_are_limited: bool,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            requests: Default::default(),
            limits: Default::default(),
            all_are_limited: true,
        }
    }
}

impl Sums {
    fn add(&mut self, resources: Option<&ResourceRequirements>) {
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        for (index, name) in COUNTED.into_iter().enumerate() {
            let add = |sum: &mut Option<Quantity>, quantity: Quantity| {
                *sum = Some(sum.map_or(quantity, |sum| sum + quantity));
            };
            if let Some(request) = positive(requests, name) {
                add(&mut self.requests[index], request);
            }
            match positive(limits, name) {
                Some(limit) => add(&mut self.limits[index], limit),
                None => self.all_are_limited = false,
            }
        }
    }
}

fn positive(list: Option<&ResourceList>, name: &str) -> Option<Quantity> {
    let quantity = Quantity::parse(&list?.get(name)?.0).ok()?;
    (!quantity.is_zero() && !quantity.is_negative()).then_some(quantity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(spec: Value, expected: QosClass) {
        let typed: PodSpec = serde_json::from_value(spec.clone()).expect("a spec");
        assert_eq!(class_of_spec(&typed), expected, "{spec}");
    }

    fn containers(resources: &[Value]) -> Value {
        let containers = resources.iter();
        let containers = containers.map(|one| json!({"name": "c", "resources": one}));
        json!({"containers": containers.collect::<Vec<_>>()})
    }

    fn both(cpu: &str, memory: &str) -> Value {
        let amounts = json!({"cpu": cpu, "memory": memory});
        json!({"requests": amounts, "limits": amounts})
    }

    #[test]
    fn requests_and_limits_of_containers_decide() {
        use QosClass::*;
        check(containers(&[json!({})]), BestEffort);
        check(containers(&[json!({"requests": {"cpu": "0"}})]), BestEffort);
        check(
            containers(&[json!({"requests": {"ephemeral-storage": "1Gi"}})]),
            BestEffort,
        );
        check(containers(&[both("1", "1Gi")]), Guaranteed);
        check(
            containers(&[both("1", "1Gi"), both("2", "2Gi")]),
            Guaranteed,
        );
        check(containers(&[both("1", "1Gi"), json!({})]), Burstable);
        check(
            containers(&[json!({"requests": {"cpu": "10m"}})]),
            Burstable,
        );
        check(
            containers(&[json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})]),
            Burstable,
        );
        // The same amount in another notation.
        check(
            containers(&[json!({"requests": {"cpu": "1000m", "memory": "1Gi"},
                "limits": {"cpu": "1", "memory": "1024Mi"}})]),
            Guaranteed,
        );
    }

    #[test]
    fn a_request_of_zero_is_less_than_its_limit() {
        check(
            containers(&[json!({"requests": {"cpu": "0", "memory": "1Gi"},
                "limits": {"cpu": "1", "memory": "1Gi"}})]),
            QosClass::Burstable,
        );
    }

    #[test]
    fn init_containers_count() {
        let mut spec = containers(&[both("1", "1Gi")]);
        spec["initContainers"] = json!([{"name": "i"}]);
        check(spec.clone(), QosClass::Burstable);
        spec["initContainers"] = json!([{"name": "i", "resources": both("1", "1Gi")}]);
        check(spec, QosClass::Guaranteed);
    }

    #[test]
    fn resources_of_the_whole_pod_count_instead_of_the_containers() {
        use QosClass::*;
        for (resources, expected) in [
            (both("1", "1Gi"), Guaranteed),
            (json!({"requests": {"cpu": "1"}}), Burstable),
            (
                json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
                Burstable,
            ),
            (json!({}), BestEffort),
        ] {
            let mut spec = containers(&[json!({"requests": {"cpu": "1"}})]);
            spec["resources"] = resources;
            check(spec, expected);
        }
    }

    #[test]
    fn the_class_in_the_status_goes_before_the_specification() {
        let mut pod: Pod = serde_json::from_value(json!({"spec": containers(&[both("1", "1Gi")])}))
            .expect("a pod");
        assert_eq!(class(&pod), QosClass::Guaranteed);
        pod.status = serde_json::from_value(json!({"qosClass": "Burstable"})).expect("a status");
        assert_eq!(class(&pod), QosClass::Burstable);
        pod.status = serde_json::from_value(json!({"qosClass": ""})).expect("a status");
        assert_eq!(class(&pod), QosClass::Guaranteed);
        assert_eq!(class(&Pod::default()), QosClass::BestEffort);
    }
}
