//! Random clusters and pods, decided by the scheduler and by a slow, obvious reading of the rules
//! that shares no code with it: the same nodes must pass, with the same scores.

use std::{collections::BTreeSet, sync::Arc};

use api::selector::LabelSelector;
use environment::Environment;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::{
    Framework, NodeFit, NodeResult, PodInfo, Registry, SchedulingResult, Snapshot,
    WorkloadSelectors,
    configuration::{Configuration, Profile},
    cycle::Cycle,
    decide::{decide, decide_afresh},
    fixtures::no_binder,
    framework::{Preemption, UnschedulablePod},
    shapes::Shapes,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

#[derive(Clone, Debug)]
struct Machine {
    name: String,
    zone: Option<u64>,
    disk: u64,
    cpu: i64,
    memory: i64,
    most_pods: usize,
    forbids: bool,
    discourages: bool,
}

#[derive(Clone, Debug)]
struct Wish {
    near: bool,
    /// None if required.
    weight: Option<i64>,
    app: u64,
    zone: bool,
    any_namespace: bool,
}

#[derive(Clone, Debug)]
struct Evenly {
    zone: bool,
    hard: bool,
    skew: i64,
    least_domains: Option<usize>,
    ignores_affinity: bool,
    honors_taints: bool,
}

#[derive(Clone, Debug)]
struct Work {
    name: String,
    namespace: u64,
    app: u64,
    priority: i64,
    cpu: i64,
    memory: i64,
    port: Option<u64>,
    disk: Option<u64>,
    prefers_disk: Option<u64>,
    tolerates: bool,
    leaving: bool,
    in_service: bool,
    wishes: Vec<Wish>,
    evenly: Vec<Evenly>,
}

struct Dice(Environment);

impl Dice {
    fn below(&self, limit: u64) -> u64 {
        self.0.random_u64() % limit
    }

    fn one_in(&self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn machine(&self, number: usize) -> Machine {
        Machine {
            name: format!("n{number}"),
            zone: (!self.one_in(6)).then(|| self.below(3)),
            disk: self.below(2),
            cpu: 1000 * (1 + self.below(4) as i64),
            memory: 1 + self.below(8) as i64,
            most_pods: 3 + self.below(6) as usize,
            forbids: self.one_in(6),
            discourages: self.one_in(4),
        }
    }

    fn work(&self, number: usize) -> Work {
        let wishes = (0..self.below(3)).map(|_| Wish {
            near: self.one_in(2),
            weight: (!self.one_in(2)).then(|| 1 + self.below(100) as i64),
            app: self.below(3),
            zone: self.one_in(2),
            any_namespace: self.one_in(3),
        });
        let mut evenly = Vec::new();
        for zone in [true, false] {
            for hard in [true, false] {
                if self.one_in(5) {
                    evenly.push(Evenly {
                        zone,
                        hard,
                        skew: 1 + self.below(2) as i64,
                        least_domains: (hard && self.one_in(3)).then(|| 1 + self.below(4) as usize),
                        ignores_affinity: self.one_in(3),
                        honors_taints: self.one_in(3),
                    });
                }
            }
        }
        Work {
            name: format!("p{number}"),
            namespace: self.below(2),
            app: self.below(3),
            priority: self.below(3) as i64,
            cpu: 100 * self.below(12) as i64,
            memory: self.below(3) as i64,
            port: self.one_in(6).then(|| 80 + self.below(2)),
            disk: self.one_in(6).then(|| self.below(2)),
            prefers_disk: self.one_in(4).then(|| self.below(2)),
            tolerates: self.one_in(3),
            leaving: false,
            in_service: self.one_in(2),
            wishes: wishes.collect(),
            evenly,
        }
    }
}

impl Machine {
    fn object(&self) -> Arc<Node> {
        let mut labels = json!({HOST: self.name, "disk": self.disk.to_string()});
        if let Some(zone) = self.zone {
            labels[ZONE] = json!(zone.to_string());
        }
        let mut taints = Vec::new();
        if self.forbids {
            taints.push(json!({"key": "k", "effect": "NoSchedule"}));
        }
        if self.discourages {
            taints.push(json!({"key": "k", "effect": "PreferNoSchedule"}));
        }
        let room = json!({
            "cpu": format!("{}m", self.cpu),
            "memory": format!("{}Gi", self.memory),
            "pods": self.most_pods.to_string(),
        });
        Arc::new(read(json!({
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": taints},
            "status": {"allocatable": room},
        })))
    }

    fn domain(&self, zone: bool) -> Option<String> {
        match zone {
            true => self.zone.map(|zone| zone.to_string()),
            false => Some(self.name.clone()),
        }
    }
}

impl Work {
    fn info(&self) -> Arc<PodInfo> {
        let key = |zone: bool| if zone { ZONE } else { HOST };
        let (mut near, mut far) = (json!({}), json!({}));
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
        for wish in &self.wishes {
            let mut term = json!({
                "topologyKey": key(wish.zone),
                "labelSelector": {"matchLabels": {"app": wish.app.to_string()}},
            });
            if wish.any_namespace {
                term["namespaceSelector"] = json!({});
            }
            let side = if wish.near { &mut near } else { &mut far };
            let (list, entry) = match wish.weight {
                None => (REQUIRED, term),
                Some(weight) => (
                    PREFERRED,
                    json!({"weight": weight, "podAffinityTerm": term}),
                ),
            };
            match side[list].as_array_mut() {
                Some(list) => list.push(entry),
                None => side[list] = json!([entry]),
            }
        }
        let mut affinity = json!({"podAffinity": near, "podAntiAffinity": far});
        if let Some(disk) = self.prefers_disk {
            let values = json!([disk.to_string()]);
            let preference =
                json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": values}]});
            affinity["nodeAffinity"] =
                json!({PREFERRED: [{"weight": 7, "preference": preference}]});
        }
        let constraints = self.evenly.iter().map(|evenly| {
            let mut constraint = json!({
                "topologyKey": key(evenly.zone),
                "whenUnsatisfiable": if evenly.hard { "DoNotSchedule" } else { "ScheduleAnyway" },
                "maxSkew": evenly.skew,
                "labelSelector": {"matchLabels": {"app": self.app.to_string()}},
            });
            if let Some(least) = evenly.least_domains {
                constraint["minDomains"] = json!(least);
            }
            if evenly.ignores_affinity {
                constraint["nodeAffinityPolicy"] = json!("Ignore");
            }
            if evenly.honors_taints {
                constraint["nodeTaintsPolicy"] = json!("Honor");
            }
            constraint
        });
        let constraints: Vec<Value> = constraints.collect();
        let requests =
            json!({"cpu": format!("{}m", self.cpu), "memory": format!("{}Gi", self.memory)});
        let mut container = json!({"name": "c", "resources": {"requests": requests}});
        if let Some(port) = self.port {
            container["ports"] = json!([{"containerPort": 80, "hostPort": port}]);
        }
        let mut spec = json!({
            "priority": self.priority,
            "containers": [container],
            "affinity": affinity,
            "topologySpreadConstraints": constraints,
        });
        if let Some(disk) = self.disk {
            spec["nodeSelector"] = json!({"disk": disk.to_string()});
        }
        if self.tolerates {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
        }
        let service = if self.in_service { "yes" } else { "no" };
        let mut metadata = json!({
            "namespace": self.namespace.to_string(),
            "name": self.name,
            "uid": self.name,
            "labels": {"app": self.app.to_string(), "service": service},
        });
        if self.leaving {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let pod: Pod = read(json!({"metadata": metadata, "spec": spec}));
        Arc::new(PodInfo::new(Arc::new(pod)))
    }

    fn means(&self, wish: &Wish, other: &Work) -> bool {
        other.app == wish.app && (wish.any_namespace || other.namespace == self.namespace)
    }

    fn required(&self, near: bool) -> Vec<&Wish> {
        let wishes = self.wishes.iter();
        wishes
            .filter(|wish| wish.weight.is_none() && wish.near == near)
            .collect()
    }

    fn may_use(&self, machine: &Machine) -> bool {
        self.disk.is_none_or(|disk| disk == machine.disk)
    }
}

fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// What the profile says.
#[derive(Clone, Debug)]
struct Rules {
    strategy: Strategy,
    fit_weight: i64,
    hard_weight: i64,
    /// Whether pods of a service that say nothing have to be spread by zone within this skew.
    default_skew: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Strategy {
    Emptiest,
    Fullest,
    /// Best at half, in straight lines from and to nothing.
    HalfFull,
}

impl Rules {
    fn profile(&self) -> Profile {
        let strategy = match self.strategy {
            Strategy::Emptiest => "{type: LeastAllocated}",
            Strategy::Fullest => "{type: MostAllocated}",
            Strategy::HalfFull => {
                "{type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 50, score: 10}, {utilization: 100, score: 0}]}}"
            }
        };
        let spread = match self.default_skew {
            None => "{}".to_owned(),
            Some(skew) => format!(
                "{{defaultingType: List, defaultConstraints: [{{maxSkew: {skew}, topologyKey: {ZONE}, whenUnsatisfiable: DoNotSchedule}}]}}"
            ),
        };
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {{score: {{enabled: [{{name: NodeResourcesFit, weight: {}}}]}}}}
  pluginConfig:
  - {{name: NodeResourcesFit, args: {{scoringStrategy: {strategy}}}}}
  - {{name: InterPodAffinity, args: {{hardPodAffinityWeight: {}}}}}
  - {{name: PodTopologySpread, args: {spread}}}
",
            self.fit_weight, self.hard_weight
        );
        let mut read = Configuration::parse(text.as_bytes()).expect("a configuration");
        read.profiles.remove(0)
    }
}

struct Cluster {
    rules: Rules,
    machines: Vec<Machine>,
    placed: Vec<(Work, usize)>,
}

impl Cluster {
    fn on(&self, index: usize) -> impl Iterator<Item = &Work> {
        let here = self.placed.iter().filter(move |(_, on)| *on == index);
        here.map(|(work, _)| work)
    }

    fn taken(&self, index: usize) -> (i64, i64) {
        self.on(index).fold((0, 0), |(cpu, memory), work| {
            (cpu + work.cpu, memory + work.memory)
        })
    }

    fn fits(&self, pod: &Work, index: usize) -> bool {
        let machine = &self.machines[index];
        let (cpu, memory) = self.taken(index);
        let same_domain = |zone: bool, other: usize| {
            let here = machine.domain(zone);
            here.is_some() && here == self.machines[other].domain(zone)
        };
        let has_room = self.on(index).count() < machine.most_pods
            && (pod.cpu == 0 || cpu + pod.cpu <= machine.cpu)
            && (pod.memory == 0 || memory + pod.memory <= machine.memory);
        let port_is_free = pod.port.is_none() || self.on(index).all(|other| other.port != pod.port);
        let near = pod.required(true);
        let all_meant = |other: &Work| near.iter().all(|wish| pod.means(wish, other));
        let in_some_domain = |on: usize| {
            near.iter()
                .any(|wish| self.machines[on].domain(wish.zone).is_some())
        };
        let is_near = near.iter().all(|wish| {
            let mut placed = self.placed.iter();
            placed.any(|(other, on)| all_meant(other) && same_domain(wish.zone, *on))
        });
        let nobody_yet = !self
            .placed
            .iter()
            .any(|(other, on)| all_meant(other) && in_some_domain(*on));
        let in_all_domains = near.iter().all(|wish| machine.domain(wish.zone).is_some());
        let near_enough = is_near || (in_all_domains && nobody_yet && all_meant(pod));
        let far_enough = pod.required(false).iter().all(|wish| {
            let mut placed = self.placed.iter();
            !placed.any(|(other, on)| pod.means(wish, other) && same_domain(wish.zone, *on))
        });
        let welcome = self.placed.iter().all(|(other, on)| {
            let far = other.required(false);
            !far.iter()
                .any(|wish| other.means(wish, pod) && same_domain(wish.zone, *on))
        });
        has_room
            && (!machine.forbids || pod.tolerates)
            && pod.may_use(machine)
            && port_is_free
            && near_enough
            && far_enough
            && welcome
            && self.keeps_even(pod, index)
    }

    fn counts(&self, pod: &Work, evenly: &Evenly, index: usize) -> bool {
        let machine = &self.machines[index];
        (evenly.ignores_affinity || pod.may_use(machine))
            && (!evenly.honors_taints || !machine.forbids || pod.tolerates)
    }

    fn alike(&self, pod: &Work, index: usize) -> i64 {
        let alike = self.on(index).filter(|other| {
            other.app == pod.app && other.namespace == pod.namespace && !other.leaving
        });
        alike.count() as i64
    }

    fn keeps_even(&self, pod: &Work, index: usize) -> bool {
        let by_default = self.rules.default_skew.map(|skew| Evenly {
            zone: true,
            hard: true,
            skew,
            least_domains: None,
            ignores_affinity: false,
            honors_taints: false,
        });
        let silent = pod.in_service && pod.evenly.is_empty();
        let by_default = by_default.iter().filter(|_| silent);
        let hard = pod.evenly.iter().chain(by_default);
        let hard: Vec<&Evenly> = hard.filter(|evenly| evenly.hard).collect();
        let complete = |machine: &Machine| {
            hard.iter()
                .all(|evenly| machine.domain(evenly.zone).is_some())
        };
        hard.iter().all(|evenly| {
            let Some(mine) = self.machines[index].domain(evenly.zone) else {
                return false;
            };
            let members = |domain: &str| -> i64 {
                let all = 0..self.machines.len();
                all.filter(|on| {
                    complete(&self.machines[*on])
                        && self.counts(pod, evenly, *on)
                        && self.machines[*on].domain(evenly.zone).as_deref() == Some(domain)
                })
                .map(|on| self.alike(pod, on))
                .sum()
            };
            let domains: BTreeSet<String> = (0..self.machines.len())
                .filter(|on| complete(&self.machines[*on]) && self.counts(pod, evenly, *on))
                .filter_map(|on| self.machines[on].domain(evenly.zone))
                .collect();
            let least = match domains.len() < evenly.least_domains.unwrap_or(1) {
                true => 0,
                false => domains.iter().map(|d| members(d)).min().unwrap_or(0),
            };
            members(&mine) + 1 - least <= evenly.skew
        })
    }

    /// The total score of each of the nodes.
    fn scores(&self, pod: &Work, nodes: &[usize]) -> Vec<i64> {
        let mut totals = vec![0; nodes.len()];
        let mut add = |weight: i64, scores: Vec<i64>| {
            for (total, score) in totals.iter_mut().zip(scores) {
                *total += weight * score;
            }
        };
        let each = |score: &dyn Fn(usize) -> i64| -> Vec<i64> {
            nodes.iter().map(|index| score(*index)).collect()
        };
        let unwelcome =
            each(&|index| i64::from(self.machines[index].discourages && !pod.tolerates));
        add(
            3,
            unwelcome.iter().map(|taints| 100 - 100 * taints).collect(),
        );
        if let Some(disk) = pod.prefers_disk {
            let matched = each(&|index| i64::from(self.machines[index].disk == disk));
            add(2, matched.iter().map(|matched| 100 * matched).collect());
        }
        add(
            self.rules.fit_weight,
            each(&|index| self.fitness(pod, index)),
        );
        if let Some(scores) = self.evenness(pod, nodes) {
            add(2, scores);
        }
        add(2, self.liking(pod, nodes));
        if pod.cpu != 0 || pod.memory != 0 {
            add(1, each(&|index| self.balance(pod, index)));
        }
        totals
    }

    fn fitness(&self, pod: &Work, index: usize) -> i64 {
        let machine = &self.machines[index];
        let works = || self.on(index).chain([pod]);
        // Every container states both amounts, zero included.
        let cpu: i64 = works().map(|work| work.cpu).sum();
        let memory: i64 = works().map(|work| work.memory).sum();
        let free = |taken: i64, all: i64| (all - taken).max(0) * 100 / all;
        let full = |taken: i64, all: i64| taken.min(all) * 100 / all;
        match self.rules.strategy {
            Strategy::Emptiest => (free(cpu, machine.cpu) + free(memory, machine.memory)) / 2,
            Strategy::Fullest => (full(cpu, machine.cpu) + full(memory, machine.memory)) / 2,
            Strategy::HalfFull => {
                let tent = |used: i64| match used <= 50 {
                    true => used * 2,
                    false => 200 - used * 2,
                };
                let each = [
                    tent(full(cpu, machine.cpu)),
                    tent(full(memory, machine.memory)),
                ];
                let counted: Vec<i64> = each.into_iter().filter(|score| *score > 0).collect();
                match counted.len() {
                    0 => 0,
                    count => (counted.iter().sum::<i64>() as f64 / count as f64).round() as i64,
                }
            }
        }
    }

    fn balance(&self, pod: &Work, index: usize) -> i64 {
        let machine = &self.machines[index];
        let of = |cpu: i64, memory: i64| {
            let cpu = (cpu as f64 / machine.cpu as f64).min(1.0);
            let memory = (memory as f64 / machine.memory as f64).min(1.0);
            ((1.0 - ((cpu - memory) / 2.0).abs()) * 100.0) as i64
        };
        let (cpu, memory) = self.taken(index);
        50 + (50 + of(cpu + pod.cpu, memory + pod.memory) - of(cpu, memory)) / 2
    }

    fn liking(&self, pod: &Work, nodes: &[usize]) -> Vec<i64> {
        let raw: Vec<i64> = nodes
            .iter()
            .map(|index| {
                let same_domain = |zone: bool, other: usize| {
                    let here = self.machines[*index].domain(zone);
                    here.is_some() && here == self.machines[other].domain(zone)
                };
                let signed = |wish: &Wish| match (wish.weight, wish.near) {
                    (Some(weight), true) => weight,
                    (Some(weight), false) => -weight,
                    // Who must be near somebody likes him, too; who must be far is a filter.
                    (None, near) => i64::from(near) * self.rules.hard_weight,
                };
                let mut score = 0;
                for (other, on) in &self.placed {
                    for wish in pod.wishes.iter().filter(|wish| wish.weight.is_some()) {
                        if pod.means(wish, other) && same_domain(wish.zone, *on) {
                            score += signed(wish);
                        }
                    }
                    for wish in &other.wishes {
                        if other.means(wish, pod) && same_domain(wish.zone, *on) {
                            score += signed(wish);
                        }
                    }
                }
                score
            })
            .collect();
        let lowest = raw.iter().copied().min().unwrap_or(0);
        let span = raw.iter().copied().max().unwrap_or(0) - lowest;
        let scale = |score: i64| match span {
            0 => 0,
            _ => (100.0 * ((score - lowest) as f64 / span as f64)) as i64,
        };
        raw.into_iter().map(scale).collect()
    }

    fn evenness(&self, pod: &Work, nodes: &[usize]) -> Option<Vec<i64>> {
        let by_default = |zone, skew| Evenly {
            zone,
            hard: false,
            skew,
            least_domains: None,
            ignores_affinity: false,
            honors_taints: false,
        };
        let says_itself = !pod.evenly.is_empty();
        let soft: Vec<Evenly> = match says_itself {
            true => pod.evenly.iter().filter(|e| !e.hard).cloned().collect(),
            false if pod.in_service && self.rules.default_skew.is_none() => {
                vec![by_default(false, 3), by_default(true, 5)]
            }
            false => Vec::new(),
        };
        if soft.is_empty() {
            return None;
        }
        let complete = |index: usize| {
            let machine = &self.machines[index];
            !says_itself || soft.iter().all(|e| machine.domain(e.zone).is_some())
        };
        let considered: Vec<usize> = nodes.iter().copied().filter(|n| complete(*n)).collect();
        let crowding = |index: usize| {
            let mut sum = 0.0;
            for evenly in &soft {
                let domain = self.machines[index].domain(evenly.zone);
                if domain.is_none() {
                    continue;
                }
                let (members, size) = match evenly.zone {
                    false => (self.alike(pod, index), considered.len()),
                    true => {
                        let all = (0..self.machines.len()).filter(|on| {
                            complete(*on)
                                && self.counts(pod, evenly, *on)
                                && self.machines[*on].domain(true) == domain
                        });
                        let zones = considered.iter().map(|on| self.machines[*on].zone);
                        let zones: BTreeSet<Option<u64>> = zones.collect();
                        (all.map(|on| self.alike(pod, on)).sum(), zones.len())
                    }
                };
                sum += members as f64 * ((size + 2) as f64).ln() + (evenly.skew - 1) as f64;
            }
            sum.round() as i64
        };
        let raw: Vec<i64> = nodes.iter().map(|index| crowding(*index)).collect();
        let valid = || considered.iter().map(|index| crowding(*index));
        let (lowest, highest) = (valid().min().unwrap_or(0), valid().max().unwrap_or(0));
        let scaled = nodes.iter().zip(raw).map(|(index, score)| {
            if !complete(*index) {
                0
            } else if highest == 0 {
                100
            } else {
                100 * (highest + lowest - score) / highest
            }
        });
        Some(scaled.collect())
    }
}

/// Pods labelled so belong to a service that selects their app.
struct Services;

impl WorkloadSelectors for Services {
    fn selector_for(&self, pod: &Pod) -> Option<LabelSelector> {
        let labels = pod.metadata.labels.as_ref()?;
        let in_service = labels
            .get("service")
            .is_some_and(|service| service == "yes");
        let selector = format!("app={}", labels.get("app")?);
        in_service.then(|| LabelSelector::parse(&selector).ok())?
    }
}

fn preemption(
    framework: &Framework,
    pod: &PodInfo,
    snapshot: &Snapshot,
    results: &[NodeResult],
) -> Result<Preemption, String> {
    let cycle = Cycle::begin(framework, pod, snapshot).map_err(|(_, reason)| reason)?;
    let unschedulable = UnschedulablePod {
        trials: &cycle,
        budgets: &[],
        results,
        random: 0,
    };
    let found = framework.post_filters[0].post_filter(&unschedulable);
    found.map_err(|reason| reason.to_string())
}

fn history(seed: u64) -> (usize, usize, usize) {
    let dice = Dice(Environment::simulated(seed, 0));
    let rules = Rules {
        strategy: [Strategy::Emptiest, Strategy::Fullest, Strategy::HalfFull]
            [dice.below(3) as usize],
        fit_weight: 1 + dice.below(3) as i64,
        hard_weight: [1, 0, 50][dice.below(3) as usize],
        default_skew: dice.one_in(4).then(|| 1 + dice.below(2) as i64),
    };
    let registry = Registry::in_tree(no_binder(), Some(Arc::new(Services)), None);
    let framework = Framework::new(&rules.profile(), &registry).expect("a profile");
    let mut cluster = Cluster {
        rules,
        machines: (0..3 + dice.below(7) as usize)
            .map(|n| dice.machine(n))
            .collect(),
        placed: Vec::new(),
    };
    let mut snapshot = Snapshot::default();
    for machine in &cluster.machines {
        snapshot.set_node(machine.object());
    }
    let mut shapes = Shapes::default();
    let mut last: Option<Work> = None;
    let (mut placed, mut turned_away, mut preempted) = (0, 0, 0);
    for number in 0..40 {
        // Nodes move, pods end or are on their way out.
        if dice.one_in(5) {
            let index = dice.below(cluster.machines.len() as u64) as usize;
            let machine = dice.machine(index);
            snapshot.set_node(machine.object());
            cluster.machines[index] = machine;
        }
        if dice.one_in(3) && !cluster.placed.is_empty() {
            let index = dice.below(cluster.placed.len() as u64) as usize;
            if dice.one_in(2) {
                let (work, _) = cluster.placed.remove(index);
                snapshot.remove_pod(&work.name);
            } else {
                let (work, on) = &mut cluster.placed[index];
                work.leaving = true;
                snapshot.confirm(work.info(), &cluster.machines[*on].name);
            }
        }
        // Pods often come in numbers, all alike.
        let work = match last.take() {
            Some(last) if !dice.one_in(3) => Work {
                name: format!("p{number}"),
                ..last
            },
            _ => dice.work(number),
        };
        last = Some(work.clone());
        let pod = work.info();
        let decision = decide_afresh(&framework, &pod, &snapshot, || dice.below(1 << 40));
        let quick = decide(&framework, &mut shapes, &pod, &snapshot, || {
            dice.below(1 << 40)
        });
        let all = 0..cluster.machines.len();
        let feasible: Vec<usize> = all.filter(|index| cluster.fits(&work, *index)).collect();
        let totals = match feasible.len() {
            1 => vec![0],
            _ => cluster.scores(&work, &feasible),
        };
        let mut expected: Vec<(&str, i64)> = feasible
            .iter()
            .map(|index| cluster.machines[*index].name.as_str())
            .zip(totals)
            .collect();
        let mut seen: Vec<(&str, i64)> = decision
            .nodes
            .iter()
            .filter_map(|result| match result.fit {
                NodeFit::Feasible { total, .. } => Some((result.node.as_str(), total)),
                NodeFit::Rejected { .. } => None,
            })
            .collect();
        expected.sort();
        seen.sort();
        assert_eq!(
            seen, expected,
            "seed {seed}, pod {work:?} in {:#?}",
            cluster.machines
        );
        // Who remembers shapes decides as well, and says the same of each node.
        for result in &quick.nodes {
            if let NodeFit::Feasible { total, .. } = result.fit
                && expected.len() > 1
            {
                let named = expected.iter().find(|(name, _)| *name == result.node);
                assert_eq!(named.map(|(_, total)| *total), Some(total), "seed {seed}");
            }
        }
        match &quick.outcome {
            SchedulingResult::Placed { node } => {
                placed += 1;
                let highest = expected.iter().map(|(_, total)| total).max();
                let chosen = expected.iter().find(|(name, _)| name == node);
                assert_eq!(chosen.map(|(_, total)| total), highest, "seed {seed}");
                snapshot.assume(pod, node);
                let on = cluster.machines.iter().position(|m| m.name == *node);
                cluster.placed.push((work, on.expect("a machine")));
            }
            SchedulingResult::Unschedulable { .. } => {
                turned_away += 1;
                let found = preemption(&framework, &pod, &snapshot, &decision.nodes);
                let without = |index: usize, gone: &dyn Fn(&Work) -> bool| {
                    let stay = |(other, on): &&(Work, usize)| *on != index || !gone(other);
                    let rest = Cluster {
                        rules: cluster.rules.clone(),
                        machines: cluster.machines.clone(),
                        placed: cluster.placed.iter().filter(stay).cloned().collect(),
                    };
                    rest.fits(&work, index)
                };
                if let Ok(room) = found {
                    preempted += 1;
                    let position = cluster.machines.iter().position(|m| m.name == room.node);
                    let victims = &room.victims;
                    assert!(victims.iter().all(|v| v.priority < pod.priority));
                    let gone = |other: &Work| victims.iter().any(|v| v.uid == other.name);
                    assert!(
                        without(position.expect("a machine"), &gone),
                        "seed {seed}: {work:?} does not fit after preemption"
                    );
                } else if work.required(true).is_empty() {
                    let lesser = |other: &Work| other.priority < work.priority;
                    let all = 0..cluster.machines.len();
                    let helped = all.filter(|index| without(*index, &lesser)).count();
                    assert_eq!(helped, 0, "seed {seed}: room for {work:?} was not seen");
                }
            }
        }
    }
    (placed, turned_away, preempted)
}

#[test]
fn the_scheduler_agrees_with_a_slow_reading_of_the_rules() {
    let mut sums = (0, 0, 0);
    for seed in 0..200 {
        let (placed, turned_away, preempted) = history(seed);
        sums = (sums.0 + placed, sums.1 + turned_away, sums.2 + preempted);
    }
    // The histories exercise every way a decision can go.
    assert!(sums.0 > 1000 && sums.1 > 500 && sums.2 > 50, "{sums:?}");
}
