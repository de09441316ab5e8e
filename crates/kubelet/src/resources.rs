//! The resources that a pod requests: quantities as numbers, the QoS class, and the kernel's units
//! (shares, quota, OOM score). Pure; the cgroup files are written in `cgroups`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use semantics::{
    pod::is_sidecar,
    pod_resources::{self, Counted},
};

pub use semantics::qos::{QosClass, class as qos_class};

/// CFS period upstream uses, in microseconds.
pub const CPU_PERIOD: i64 = 100_000;

/// A quantity in thousandths, rounded up, or `None` when it cannot be read.
pub fn milli(quantity: &Quantity) -> Option<i64> {
    api::quantity::Quantity::parse(&quantity.0)
        .ok()
        .map(api::quantity::Quantity::milli)
}

/// A quantity in whole units, rounded up.
pub fn whole(quantity: &Quantity) -> Option<i64> {
    api::quantity::Quantity::parse(&quantity.0)
        .ok()
        .map(api::quantity::Quantity::value)
}

/// One named request of a container in thousandths, 0 when absent.
pub fn request_milli(container: &Container, resource: &str) -> i64 {
    amount(container.resources.as_ref(), false, resource)
        .and_then(milli)
        .unwrap_or(0)
}

/// One named limit of a container in thousandths, `None` when absent.
pub fn limit_milli(container: &Container, resource: &str) -> Option<i64> {
    amount(container.resources.as_ref(), true, resource).and_then(milli)
}

pub fn request_whole(container: &Container, resource: &str) -> i64 {
    amount(container.resources.as_ref(), false, resource)
        .and_then(whole)
        .unwrap_or(0)
}

pub fn limit_whole(container: &Container, resource: &str) -> Option<i64> {
    amount(container.resources.as_ref(), true, resource).and_then(whole)
}

/// The pod-level limits: what its cgroup gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodLimits {
    pub cpu_shares: u64,
    pub cpu_quota: Option<i64>,
    pub memory: Option<i64>,
}

pub fn pod_limits(pod: &Pod) -> PodLimits {
    let Some(spec) = &pod.spec else {
        return PodLimits::default();
    };
    let requests = pod_resources::requests(spec, Counted::Spec);
    let limits = pod_resources::limits(spec, Counted::Spec);
    let limit = |resource: &str| {
        let limit = limits.get(resource)?;
        pod_resources::has_limit(spec, resource).then_some(limit)
    };
    PodLimits {
        cpu_shares: cpu_shares(requests.cpu.map_or(0, |request| request.milli())),
        cpu_quota: limit("cpu").map(|limit| cpu_quota(limit.milli())),
        memory: limit("memory").map(|limit| limit.value()),
    }
}

/// The most that the pod's containers may use of one resource, in whole units: `None` when none of
/// them has a limit.
pub fn pod_limit_of_any(pod: &Pod, resource: &str) -> Option<i64> {
    let limits = pod_resources::limits(pod.spec.as_ref()?, Counted::Spec);
    limits.get(resource).map(|limit| limit.value())
}

/// The pod's request of one resource: thousandths for cpu, whole units otherwise.
pub fn pod_request(pod: &Pod, resource: &str) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let request = pod_resources::requests(spec, Counted::Spec).get(resource);
    request.map_or(0, |request| match resource {
        "cpu" => request.milli(),
        _ => request.value(),
    })
}

/// The names of all resources that the pod requests.
pub fn requested_names(pod: &Pod) -> BTreeSet<String> {
    let Some(spec) = &pod.spec else {
        return BTreeSet::new();
    };
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .filter_map(|container| container.resources.as_ref());
    containers
        .chain(spec.resources.as_ref())
        .flat_map(|requirements| requirements.requests.iter().flatten())
        .map(|(name, _)| name.clone())
        .collect()
}

/// A container's limit, the pod's own where it has none.
pub fn effective_limit<'a>(
    pod: &'a Pod,
    container: &'a Container,
    resource: &str,
) -> Option<&'a Quantity> {
    amount(container.resources.as_ref(), true, resource)
        .or_else(|| amount(pod_level(pod), true, resource))
}

/// Requests and limits of the pod as a whole, if it has any.
pub fn pod_level(pod: &Pod) -> Option<&ResourceRequirements> {
    pod_resources::of_whole_pod(pod.spec.as_ref()?)
}

/// A container that names only a limit requests as much.
pub fn effective_cpu_request(container: &Container) -> i64 {
    match request_milli(container, "cpu") {
        0 => limit_milli(container, "cpu").unwrap_or(0),
        request => request,
    }
}

pub fn cpu_shares(milli_cpu: i64) -> u64 {
    ((milli_cpu * 1024 / 1000).clamp(2, 262_144)) as u64
}

pub fn cpu_quota(milli_cpu: i64) -> i64 {
    (milli_cpu * CPU_PERIOD / 1000).max(1000)
}

/// A quota of [`CPU_PERIOD`] in another period.
pub fn quota_in(quota: i64, period: i64) -> i64 {
    (quota.saturating_mul(period) / CPU_PERIOD).max(1000)
}

/// How readily the kernel kills the container's processes when memory runs out.
pub fn oom_score_adjust(pod: &Pod, container: &Container, memory_capacity: i64) -> i64 {
    let critical = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.priority)
        .is_some_and(|priority| priority >= 2_000_001_000);
    if critical {
        return -997;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let mut request = request_whole(container, "memory");
            let spec = pod.spec.as_ref();
            // A sidecar is spared at least as long as the containers that need it.
            if let Some(spec) = spec
                && is_sidecar(container)
                && (spec.init_containers.iter().flatten()).any(|one| one.name == container.name)
            {
                let apps = spec.containers.iter();
                let least = apps.map(|app| request_whole(app, "memory")).min();
                request = request.max(least.unwrap_or(0));
            }
            request += spec.map_or(0, |spec| share_of_the_rest(pod, spec));
            let score = 1000 - 1000 * request / memory_capacity.max(1);
            score.clamp(3, 999)
        }
    }
}

/// What the pod as a whole requests of memory beyond its containers, divided among them.
fn share_of_the_rest(pod: &Pod, spec: &PodSpec) -> i64 {
    let own = amount(pod_level(pod), false, "memory").and_then(whole);
    let Some(own) = own.filter(|own| *own > 0) else {
        return 0;
    };
    let containers = pod_resources::container_sum(spec).memory;
    let containers = containers.map_or(0, |request| request.value());
    let count = spec.containers.len() + spec.init_containers.iter().flatten().count();
    (own - containers) / (count as i64).max(1)
}

fn amount<'a>(
    requirements: Option<&'a ResourceRequirements>,
    limit: bool,
    resource: &str,
) -> Option<&'a Quantity> {
    let requirements = requirements?;
    let amounts: &BTreeMap<String, Quantity> = if limit {
        requirements.limits.as_ref()?
    } else {
        requirements.requests.as_ref()?
    };
    amounts.get(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity(text.to_owned())
    }

    #[test]
    fn quantities_are_read_in_every_form() {
        assert_eq!(milli(&quantity("100m")), Some(100));
        assert_eq!(milli(&quantity("0.5")), Some(500));
        assert_eq!(milli(&quantity("2")), Some(2000));
        assert_eq!(milli(&quantity("1n")), Some(1));
        assert_eq!(whole(&quantity("64Mi")), Some(64 << 20));
        assert_eq!(whole(&quantity("1.5Gi")), Some(1536 << 20));
        assert_eq!(whole(&quantity("1e3")), Some(1000));
        assert_eq!(whole(&quantity("100m")), Some(1));
        assert_eq!(whole(&quantity("lots")), None);
    }

    fn pod(resources: &[serde_json::Value]) -> Pod {
        let containers: Vec<_> = resources
            .iter()
            .enumerate()
            .map(|(index, resources)| {
                serde_json::json!({"name": format!("c{index}"), "resources": resources})
            })
            .collect();
        serde_json::from_value(serde_json::json!({"spec": {"containers": containers}}))
            .expect("a pod")
    }

    #[test]
    fn memory_of_the_whole_pod_and_of_the_apps_protects_too() {
        use serde_json::json;
        let score = |pod: serde_json::Value| {
            let pod: Pod = serde_json::from_value(json!({"spec": pod})).expect("a pod");
            let spec = pod.spec.as_ref().expect("spec");
            let of = |container: &Container| oom_score_adjust(&pod, container, 1000 << 20);
            let init = spec.init_containers.iter().flatten();
            let scores: Vec<i64> = init.chain(&spec.containers).map(of).collect();
            scores
        };
        let asks = |memory: &str| json!({"requests": {"memory": memory}});
        assert_eq!(
            score(json!({"containers": [{"name": "a", "resources": asks("100Mi")}]})),
            [900]
        );
        // 400Mi are left, for two.
        assert_eq!(
            score(json!({"resources": asks("500Mi"), "containers": [
                {"name": "a", "resources": asks("100Mi")}, {"name": "b"}]})),
            [700, 800]
        );
        let sidecar = |memory: &str| {
            score(json!({
                "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": asks(memory)}],
                "containers": [{"name": "a", "resources": asks("300Mi")},
                    {"name": "b", "resources": asks("200Mi")}]}))
        };
        assert_eq!(sidecar("10Mi"), [800, 700, 800]);
        assert_eq!(sidecar("250Mi"), [750, 700, 800]);
    }

    #[test]
    fn pod_limits_need_every_container_to_have_one() {
        use serde_json::json;
        let amounts = json!({"cpu": "500m", "memory": "64Mi"});
        let limited = json!({"limits": amounts, "requests": amounts});
        let limits = pod_limits(&pod(&[limited.clone(), limited.clone()]));
        assert_eq!(limits.memory, Some(128 << 20));
        assert_eq!(limits.cpu_quota, Some(100_000));
        assert_eq!(limits.cpu_shares, 1024);
        assert_eq!(pod_limits(&pod(&[limited, json!({})])).memory, None);
        assert_eq!(pod_limits(&pod(&[json!({})])).cpu_shares, 2);
    }

    #[test]
    fn resources_of_the_whole_pod_go_first() {
        let mut pod = pod(&[serde_json::json!({"requests": {"cpu": "10m"}})]);
        let spec = pod.spec.as_mut().expect("spec");
        spec.resources = serde_json::from_value(serde_json::json!({
            "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}))
        .expect("resources");
        spec.overhead = Some(BTreeMap::from([
            ("cpu".to_owned(), quantity("100m")),
            ("memory".to_owned(), quantity("1Mi")),
        ]));
        assert_eq!(qos_class(&pod), QosClass::Guaranteed);
        // The cgroup of the pod also holds what its sandbox needs.
        let limits = pod_limits(&pod);
        assert_eq!(limits.memory, Some((1 << 30) + (1 << 20)));
        assert_eq!(limits.cpu_quota, Some(110_000));
        assert_eq!(limits.cpu_shares, 1126);
        assert_eq!(pod_request(&pod, "cpu"), 1100);
        let spec = pod.spec.as_ref().expect("spec");
        let limit = effective_limit(&pod, &spec.containers[0], "memory").and_then(whole);
        assert_eq!(limit, Some(1 << 30));
    }
}
