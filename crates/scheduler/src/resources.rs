//! Amounts of resources as whole numbers, and what a pod asks for in sum.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::{
    api::core::v1::{Container, PodSpec},
    apimachinery::pkg::api::resource::Quantity as QuantityText,
};

type ResourceList = BTreeMap<String, QuantityText>;

/// What scoring assumes of a container that asks for nothing, so that such pods still spread.
const ASSUMED_MILLI_CPU: i64 = 100;
const ASSUMED_MEMORY: i64 = 200 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Everything else by its name: extended resources, huge pages.
    pub scalars: BTreeMap<String, i64>,
}

impl Resources {
    /// Amounts that do not parse count as zero; the API server has refused them before.
    pub fn of(list: Option<&ResourceList>) -> Resources {
        let mut resources = Resources::default();
        for (name, quantity) in list.into_iter().flatten() {
            let quantity = Quantity::parse(&quantity.0).unwrap_or_default();
            *resources.amount(name) = match name.as_str() {
                "cpu" => quantity.milli(),
                _ => quantity.value(),
            };
        }
        // Counted on its own: every pod takes one.
        resources.scalars.remove("pods");
        resources
    }

    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0
            && self.memory == 0
            && self.ephemeral_storage == 0
            && self.scalars.values().all(|amount| *amount == 0)
    }

    pub fn add(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_add);
    }

    pub fn subtract(&mut self, other: &Resources) {
        self.combine(other, i64::saturating_sub);
        self.scalars.retain(|_, amount| *amount != 0);
    }

    /// Raises each amount to at least the other's.
    pub fn raise_to(&mut self, other: &Resources) {
        self.combine(other, i64::max);
    }

    /// For the shape of a pod.
    pub fn write_shape(&self, key: &mut String) {
        use std::fmt::Write;
        let (cpu, memory, storage) = (self.milli_cpu, self.memory, self.ephemeral_storage);
        let _ = write!(key, "{cpu} {memory} {storage}");
        for (name, amount) in &self.scalars {
            let _ = write!(key, " {name} {amount}");
        }
        key.push('\n');
    }

    fn combine(&mut self, other: &Resources, operation: fn(i64, i64) -> i64) {
        self.milli_cpu = operation(self.milli_cpu, other.milli_cpu);
        self.memory = operation(self.memory, other.memory);
        self.ephemeral_storage = operation(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.scalars {
            let mine = self.scalars.entry(name.clone()).or_default();
            *mine = operation(*mine, *amount);
        }
    }

    /// The amount of the resource of that name.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            _ => self.scalars.get(name).copied().unwrap_or(0),
        }
    }

    fn amount(&mut self, name: &str) -> &mut i64 {
        match name {
            "cpu" => &mut self.milli_cpu,
            "memory" => &mut self.memory,
            "ephemeral-storage" => &mut self.ephemeral_storage,
            _ => self.scalars.entry(name.to_owned()).or_default(),
        }
    }
}

/// What the containers leave unsaid about cpu and memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unstated {
    /// Counts as nothing: what fits is decided by what was asked for.
    Zero,
    /// Counts as a little: for scores.
    Assumed,
}

/// What a pod takes of its node: the containers and sidecars together, or more if some moment of
/// initialisation needs more; amounts stated for the pod as a whole instead; overhead on top.
pub fn pod_requests(spec: &PodSpec, unstated: Unstated) -> Resources {
    let mut total = Resources::default();
    for container in &spec.containers {
        total.add(&container_requests(container, unstated));
    }
    let mut sidecars = Resources::default();
    let mut initialising = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let requests = container_requests(container, unstated);
        if is_sidecar(container) {
            total.add(&requests);
            sidecars.add(&requests);
            initialising.raise_to(&sidecars);
        } else {
            let mut moment = sidecars.clone();
            moment.add(&requests);
            initialising.raise_to(&moment);
        }
    }
    total.raise_to(&initialising);
    if let Some(list) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        let mut stated = Resources::of(Some(list));
        for name in list.keys() {
            if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
                *total.amount(name) = *stated.amount(name);
            }
        }
    }
    total.add(&Resources::of(spec.overhead.as_ref()));
    total
}

/// Whether an init container keeps running beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn container_requests(container: &Container, unstated: Unstated) -> Resources {
    let list = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let mut requests = Resources::of(list);
    if unstated == Unstated::Assumed {
        let stated = |name| list.is_some_and(|list| list.contains_key(name));
        if !stated("cpu") {
            requests.milli_cpu = ASSUMED_MILLI_CPU;
        }
        if !stated("memory") {
            requests.memory = ASSUMED_MEMORY;
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod_spec;

    fn check(spec: &str, milli_cpu: i64, memory_mi: i64) {
        let requests = pod_requests(&pod_spec(spec), Unstated::Zero);
        let seen = (requests.milli_cpu, requests.memory >> 20);
        assert_eq!(seen, (milli_cpu, memory_mi), "{spec}");
    }

    #[test]
    fn containers_add_up_and_initialisation_sets_the_least() {
        let c = |cpu: &str, memory: &str| {
            format!(
                r#"{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}","memory":"{memory}"}}}}}}"#
            )
        };
        let sidecar = |cpu: &str, memory: &str| {
            let container = c(cpu, memory);
            container.replacen('{', r#"{"restartPolicy":"Always","#, 1)
        };
        let spec = |containers: &[String], init: &[String], rest: &str| {
            format!(
                r#"{{"containers":[{}],"initContainers":[{}]{rest}}}"#,
                containers.join(","),
                init.join(",")
            )
        };
        let (a, b) = (c("100m", "10Mi"), c("0.2", "20Mi"));
        check(&spec(&[], &[], ""), 0, 0);
        check(&spec(&[a.clone(), b.clone()], &[], ""), 300, 30);
        // An init container that needs more of one thing.
        check(
            &spec(&[a.clone(), b.clone()], &[c("1", "5Mi")], ""),
            1000,
            30,
        );
        // Several: the largest, not the sum.
        check(
            &spec(
                std::slice::from_ref(&a),
                &[c("1", "5Mi"), c("2", "5Mi")],
                "",
            ),
            2000,
            10,
        );
        // A sidecar adds to the containers, and to the init containers after it only.
        check(
            &spec(std::slice::from_ref(&a), &[sidecar("50m", "5Mi")], ""),
            150,
            15,
        );
        check(
            &spec(
                std::slice::from_ref(&a),
                &[c("1", "5Mi"), sidecar("50m", "5Mi")],
                "",
            ),
            1000,
            15,
        );
        check(
            &spec(
                std::slice::from_ref(&a),
                &[sidecar("50m", "5Mi"), c("1", "5Mi")],
                "",
            ),
            1050,
            15,
        );
        // Overhead on top; amounts for the whole pod instead.
        check(
            &spec(
                std::slice::from_ref(&a),
                &[],
                r#","overhead":{"cpu":"10m"}"#,
            ),
            110,
            10,
        );
        check(
            &spec(&[a], &[], r#","resources":{"requests":{"cpu":"2"}}"#),
            2000,
            10,
        );
    }

    #[test]
    fn unstated_amounts_are_assumed_for_scores_only() {
        let spec = pod_spec(
            r#"{"containers":[{"name":"a"},{"name":"b","resources":{"requests":{"cpu":"0"}}}]}"#,
        );
        assert!(pod_requests(&spec, Unstated::Zero).is_zero());
        let assumed = pod_requests(&spec, Unstated::Assumed);
        assert_eq!(assumed.milli_cpu, ASSUMED_MILLI_CPU);
        assert_eq!(assumed.memory, 2 * ASSUMED_MEMORY);
    }

    #[test]
    fn extended_resources_keep_their_names() {
        let spec = pod_spec(
            r#"{"containers":[{"name":"a","resources":{"requests":{"example.com/gpu":"2","ephemeral-storage":"1Gi"}}}]}"#,
        );
        let requests = pod_requests(&spec, Unstated::Zero);
        assert_eq!(requests.scalars["example.com/gpu"], 2);
        assert_eq!(requests.ephemeral_storage, 1 << 30);
        let mut total = requests.clone();
        total.add(&requests);
        total.subtract(&requests);
        total.subtract(&requests);
        assert!(total.is_zero() && total.scalars.is_empty());
    }
}
