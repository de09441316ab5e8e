//! What the kubelet counts of its own work, for `/metrics`: a fixed set of names, each with at most
//! one label whose values are few.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The place of a family in [`FAMILIES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family(usize);

pub const STARTED_PODS: Family = Family(0);
pub const STARTED_PODS_ERRORS: Family = Family(1);
pub const STARTED_CONTAINERS: Family = Family(2);
pub const STARTED_CONTAINERS_ERRORS: Family = Family(3);
pub const EVICTIONS: Family = Family(4);
pub const PREEMPTIONS: Family = Family(5);
pub const REJECTIONS: Family = Family(6);

/// Name, label, help.
const FAMILIES: [(&str, &str, &str); 7] = [
    (
        "kubelet_started_pods_total",
        "",
        "[ALPHA] Cumulative number of pods started",
    ),
    (
        "kubelet_started_pods_errors_total",
        "",
        "[ALPHA] Cumulative number of errors when starting pods",
    ),
    (
        "kubelet_started_containers_total",
        "container_type",
        "[ALPHA] Cumulative number of containers started",
    ),
    (
        "kubelet_started_containers_errors_total",
        "container_type",
        "[ALPHA] Cumulative number of errors when starting containers",
    ),
    (
        "kubelet_evictions",
        "eviction_signal",
        "[ALPHA] Cumulative number of pod evictions by eviction signal",
    ),
    (
        "kubelet_preemptions",
        "preemption_signal",
        "[ALPHA] Cumulative number of pod preemptions by preemption resource",
    ),
    (
        "kubelet_admission_rejections_total",
        "reason",
        "[ALPHA] Cumulative number pod admission rejections by the Kubelet.",
    ),
];

#[derive(Default)]
pub struct Counters(Mutex<BTreeMap<(Family, String), u64>>);

/// One family with its counts, by the label's value.
pub struct Counted {
    pub name: &'static str,
    pub label: &'static str,
    pub help: &'static str,
    pub counts: Vec<(String, u64)>,
}

impl Counters {
    pub fn add(&self, family: Family, label: &str) {
        let mut counts = self.0.lock();
        *counts.entry((family, label.to_owned())).or_insert(0) += 1;
    }

    pub fn read(&self) -> Vec<Counted> {
        let counts = self.0.lock();
        FAMILIES
            .into_iter()
            .enumerate()
            .map(|(index, (name, label, help))| {
                let own = counts.iter().filter(|((family, _), _)| family.0 == index);
                let mut own: Vec<_> = own
                    .map(|((_, label), count)| (label.clone(), *count))
                    .collect();
                // A count without a label is there from the beginning.
                if label.is_empty() && own.is_empty() {
                    own.push((String::new(), 0));
                }
                Counted {
                    name,
                    label,
                    help,
                    counts: own,
                }
            })
            .collect()
    }
}
