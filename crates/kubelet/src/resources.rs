//! What a pod asks of the machine: quantities as numbers, the QoS class, and the kernel's units
//! (shares, quota, OOM score). Pure; the cgroup files are written in `cgroups`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

/// CFS period upstream uses, in microseconds.
pub const CPU_PERIOD: i64 = 100_000;

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
}

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

pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Guaranteed when every container's cpu and memory limits equal its requests, BestEffort when
/// nothing is asked for, Burstable otherwise. Resources of the pod as a whole go before its
/// containers'.
pub fn qos_class(pod: &Pod) -> QosClass {
    let Some(spec) = &pod.spec else {
        return QosClass::BestEffort;
    };
    let whole_pod = pod_level(pod);
    let all: Vec<Option<&ResourceRequirements>> = match whole_pod {
        Some(requirements) => vec![Some(requirements)],
        None => spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .map(|container| container.resources.as_ref())
            .collect(),
    };
    let read = |one: Option<&ResourceRequirements>, limit: bool, resource: &str| {
        amount(one, limit, resource).and_then(milli).unwrap_or(0)
    };
    let asks = |one: &Option<&ResourceRequirements>| {
        ["cpu", "memory"]
            .iter()
            .any(|resource| read(*one, false, resource) > 0 || read(*one, true, resource) > 0)
    };
    if !all.iter().any(asks) {
        return QosClass::BestEffort;
    }
    let guaranteed = all.iter().all(|one| {
        ["cpu", "memory"].iter().all(|resource| {
            let (request, limit) = (read(*one, false, resource), read(*one, true, resource));
            limit > 0 && (request == limit || request == 0)
        })
    });
    if guaranteed {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
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
    let own = |limit: bool, resource: &str| amount(pod_level(pod), limit, resource);
    let requests = own(false, "cpu").and_then(milli).unwrap_or_else(|| {
        total(spec, &|container| Some(effective_cpu_request(container))).unwrap_or(0)
            + overhead(pod, "cpu").and_then(milli).unwrap_or(0)
    });
    let plus = |limit: Option<i64>, more: Option<i64>| limit.map(|limit| limit + more.unwrap_or(0));
    let cpu_limit = own(true, "cpu").and_then(milli).or_else(|| {
        let sum = total(spec, &|container| {
            limit_milli(container, "cpu").filter(|limit| *limit > 0)
        });
        plus(sum, overhead(pod, "cpu").and_then(milli))
    });
    let memory = own(true, "memory").and_then(whole).or_else(|| {
        let sum = total(spec, &|container| {
            limit_whole(container, "memory").filter(|limit| *limit > 0)
        });
        plus(sum, overhead(pod, "memory").and_then(whole))
    });
    PodLimits {
        cpu_shares: cpu_shares(requests),
        cpu_quota: cpu_limit.map(cpu_quota),
        memory,
    }
}

/// The most that the pod's containers may hold of one resource, in whole units: `None` when none of
/// them has a limit.
pub fn pod_limit_of_any(pod: &Pod, resource: &str) -> Option<i64> {
    let spec = pod.spec.as_ref()?;
    let mut all = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    all.find(|container| limit_whole(container, resource).is_some())?;
    let of = |container: &Container| Some(limit_whole(container, resource).unwrap_or(0));
    match total(spec, &of)? {
        0 => Some(0),
        sum => Some(sum + overhead(pod, resource).and_then(whole).unwrap_or(0)),
    }
}

/// What the whole pod asks for of one resource: thousandths for cpu, whole units otherwise.
pub fn pod_request(pod: &Pod, resource: &str) -> i64 {
    let Some(spec) = &pod.spec else { return 0 };
    let read = |quantity: &Quantity| match resource {
        "cpu" => milli(quantity),
        _ => whole(quantity),
    };
    let own = amount(pod_level(pod), false, resource).and_then(read);
    let containers = own.unwrap_or_else(|| {
        let of = |container: &Container| {
            Some(
                amount(container.resources.as_ref(), false, resource)
                    .and_then(read)
                    .unwrap_or(0),
            )
        };
        total(spec, &of).unwrap_or(0)
    });
    containers + overhead(pod, resource).and_then(read).unwrap_or(0)
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
    let requirements = pod.spec.as_ref()?.resources.as_ref()?;
    let any = |amounts: &Option<BTreeMap<String, Quantity>>| {
        amounts.as_ref().is_some_and(|amounts| !amounts.is_empty())
    };
    (any(&requirements.requests) || any(&requirements.limits)).then_some(requirements)
}

fn overhead<'a>(pod: &'a Pod, resource: &str) -> Option<&'a Quantity> {
    pod.spec.as_ref()?.overhead.as_ref()?.get(resource)
}

/// The most that is held at one time. `None` when a container that counts has none.
fn total(spec: &PodSpec, amount: &dyn Fn(&Container) -> Option<i64>) -> Option<i64> {
    // App containers and sidecars run together; a plain init container runs beside the sidecars
    // before it only.
    let mut apps: Option<i64> = Some(0);
    for container in &spec.containers {
        apps = apps.zip(amount(container)).map(|(sum, one)| sum + one);
    }
    let mut sidecars: Option<i64> = Some(0);
    let mut peak: Option<i64> = Some(0);
    for container in spec.init_containers.iter().flatten() {
        let one = amount(container);
        if is_sidecar(container) {
            sidecars = sidecars.zip(one).map(|(sum, one)| sum + one);
            peak = peak.zip(sidecars).map(|(peak, sum)| peak.max(sum));
        } else {
            peak = peak
                .zip(sidecars)
                .zip(one)
                .map(|((peak, sum), one)| peak.max(sum + one));
        }
    }
    apps.zip(sidecars)
        .zip(peak)
        .map(|((apps, sidecars), peak)| (apps + sidecars).max(peak))
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
    let requested = |container: &Container| Some(request_whole(container, "memory"));
    let containers = total(spec, &requested).unwrap_or(0);
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
    fn qos_follows_requests_and_limits() {
        use serde_json::json;
        assert_eq!(qos_class(&pod(&[json!({})])), QosClass::BestEffort);
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(
            qos_class(&pod(std::slice::from_ref(&full))),
            QosClass::Guaranteed
        );
        assert_eq!(qos_class(&pod(&[full, json!({})])), QosClass::Burstable);
        assert_eq!(
            qos_class(&pod(&[json!({"requests": {"cpu": "10m"}})])),
            QosClass::Burstable
        );
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
        let limited = json!({"limits": {"cpu": "500m", "memory": "64Mi"}});
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
        spec.overhead = Some(BTreeMap::from([("cpu".to_owned(), quantity("100m"))]));
        assert_eq!(qos_class(&pod), QosClass::Guaranteed);
        assert_eq!(pod_limits(&pod).memory, Some(1 << 30));
        assert_eq!(pod_request(&pod, "cpu"), 1100);
        let spec = pod.spec.as_ref().expect("spec");
        let limit = effective_limit(&pod, &spec.containers[0], "memory").and_then(whole);
        assert_eq!(limit, Some(1 << 30));
    }
}
