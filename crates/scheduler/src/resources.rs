//! Amounts of resources as whole numbers, which the scheduler adds up and compares per node, and a
//! pod's requests in them.

use std::collections::BTreeMap;

use api::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::{PodSpec, PodStatus};
use semantics::{
    amounts::{Amounts, ResourceList},
    pod_resources::{self, Counted, may_be_pod_level},
};

/// The requests that scores assume of a container without any, so that such pods still spread.
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
    pub fn of(list: Option<&ResourceList>) -> Resources {
        Resources::from(&Amounts::of(list))
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

    /// Whether any amount is less than the other's.
    pub fn is_less_somewhere_than(&self, other: &Resources) -> bool {
        let less = |name: &String| self.get(name) < other.get(name);
        self.milli_cpu < other.milli_cpu
            || self.memory < other.memory
            || self.ephemeral_storage < other.ephemeral_storage
            || other.scalars.keys().any(less)
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
}

impl From<&Amounts<'_>> for Resources {
    fn from(amounts: &Amounts<'_>) -> Resources {
        let whole = |amount: Option<Quantity>| amount.map_or(0, Quantity::value);
        // The number of pods is counted on its own: every pod takes one.
        let others = amounts.others.iter().filter(|(name, _)| **name != "pods");
        Resources {
            milli_cpu: amounts.cpu.map_or(0, Quantity::milli),
            memory: whole(amounts.memory),
            ephemeral_storage: whole(amounts.ephemeral_storage),
            scalars: others
                .map(|(name, amount)| ((*name).to_owned(), amount.value()))
                .collect(),
        }
    }
}

/// The requests of a pod.
pub struct PodRequests {
    /// Its requests.
    pub stated: Resources,
    /// Its requests with a little assumed for each container that states none, so that such pods
    /// still spread.
    pub for_score: Resources,
}

impl PodRequests {
    /// A container that is being resized counts with the most it requests, was allocated and has.
    pub fn of(spec: &PodSpec, status: Option<&PodStatus>) -> PodRequests {
        let counted = status.map_or(Counted::Spec, Counted::Status);
        let requests = pod_resources::requests(spec, counted);
        let missing = missing_requests(spec, &requests);
        let stated = Resources::from(&requests);
        let for_score = match is_stated_everywhere(spec, &missing) {
            true => stated.clone(),
            false => Resources::from(&pod_resources::requests_with(spec, counted, &missing)),
        };
        PodRequests { stated, for_score }
    }
}

/// The requests that scores assume of containers without any. A pod with requests of its own
/// has it assumed only where neither it nor any of its containers requests the resource.
fn missing_requests<'a>(spec: &PodSpec, requests: &Amounts<'_>) -> Amounts<'a> {
    let own = spec.resources.as_ref();
    let own = own.and_then(|resources| resources.requests.as_ref());
    let has_own = own.is_some_and(|own| own.keys().any(|name| may_be_pod_level(name)));
    Amounts {
        cpu: (!has_own || requests.cpu.is_none()).then(|| Quantity::from_milli(ASSUMED_MILLI_CPU)),
        memory: (!has_own || requests.memory.is_none())
            .then(|| Quantity::from_units(ASSUMED_MEMORY, Format::BinarySi)),
        ..Amounts::default()
    }
}

/// Whether every container states what would be assumed, so that the sums are the same.
fn is_stated_everywhere(spec: &PodSpec, missing: &Amounts<'_>) -> bool {
    let mut containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    containers.all(|container| {
        let list = container.resources.as_ref();
        let list = list.and_then(|resources| resources.requests.as_ref());
        let states = |name| list.is_some_and(|list| list.contains_key(name));
        (missing.cpu.is_none() || states("cpu")) && (missing.memory.is_none() || states("memory"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod_spec;

    fn requests(spec: &str) -> PodRequests {
        PodRequests::of(&pod_spec(spec), None)
    }

    #[test]
    fn requests_are_assumed_for_scores_only() {
        let requests = requests(
            r#"{"containers":[{"name":"a"},{"name":"b","resources":{"requests":{"cpu":"0"}}}]}"#,
        );
        assert!(requests.stated.is_zero());
        assert_eq!(requests.for_score.milli_cpu, ASSUMED_MILLI_CPU);
        assert_eq!(requests.for_score.memory, 2 * ASSUMED_MEMORY);
    }

    #[test]
    fn a_pod_with_requests_of_its_own_has_assumed_what_nothing_of_it_requests() {
        let requests = requests(
            r#"{"resources":{"requests":{"memory":"1Gi"}},"containers":[{"name":"a"},{"name":"b"}]}"#,
        );
        assert_eq!(requests.for_score.milli_cpu, 2 * ASSUMED_MILLI_CPU);
        assert_eq!(requests.for_score.memory, 1 << 30);
        let requests = self::requests(
            r#"{"resources":{"requests":{"memory":"1Gi"}},"containers":[{"name":"a"},
                {"name":"b","resources":{"requests":{"cpu":"1"}}}]}"#,
        );
        assert_eq!(requests.for_score.milli_cpu, 1000);
    }

    #[test]
    fn a_resize_counts() {
        let spec =
            pod_spec(r#"{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}"#);
        let status: PodStatus = serde_json::from_str(
            r#"{"containerStatuses":[{"name":"c","image":"","imageID":"","ready":true,"restartCount":0,
                "resources":{"requests":{"cpu":"3"}}}]}"#,
        )
        .expect("a status");
        assert_eq!(PodRequests::of(&spec, Some(&status)).stated.milli_cpu, 3000);
        assert_eq!(PodRequests::of(&spec, None).stated.milli_cpu, 1000);
    }

    #[test]
    fn extended_resources_keep_their_names() {
        let requests = requests(
            r#"{"containers":[{"name":"a","resources":{"requests":{"example.com/gpu":"2","ephemeral-storage":"1Gi"}}}]}"#,
        );
        let requests = requests.stated;
        assert_eq!(requests.scalars["example.com/gpu"], 2);
        assert_eq!(requests.ephemeral_storage, 1 << 30);
        let mut total = requests.clone();
        total.add(&requests);
        total.subtract(&requests);
        total.subtract(&requests);
        assert!(total.is_zero() && total.scalars.is_empty());
    }
}
